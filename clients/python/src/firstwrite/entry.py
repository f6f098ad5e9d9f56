"""The stored form of an intent.

An entry is one line that names format, version and checksum, then one JSON document. Whatever does not
match is damaged, and the client neither uses nor changes it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, Optional, Tuple

from .errors import StorageDamaged, StorageError
from .life import Times

_FORMAT = b"firstwrite-intent"
_VERSION = b"1"
_KINDS = ("done", "refused", "unknown", "expired")
_DIALECTS = ("draft-07", "stripe", "generic")


@dataclass(frozen=True)
class EntryEnd:
    """How an intent ended, with the body as it is stored (sealed, where the entry is)."""

    kind: str
    safe_new_key: bool
    replayed: bool
    code: Optional[str]
    status: Optional[int]
    headers: Mapping[str, str]
    body: Optional[bytes] = field(repr=False)
    truncated: bool
    sealed: bool


@dataclass(frozen=True)
class Entry:
    """Everything that is known of an intent. Times are in milliseconds."""

    name: str
    lane: Optional[str]
    revision: int
    key: str = field(repr=False)
    derived: bool
    dialect: str
    method: str
    url: str
    headers: Tuple[Tuple[str, str], ...]
    body: Optional[bytes] = field(repr=False)
    sealed: bool
    opened_at: int
    attempts: int = 0
    doubt: bool = False
    first_attempt_at: Optional[int] = None
    resumed_at: Optional[int] = None
    not_before: Optional[int] = None
    wait: int = 0
    """Length of the wait that ends at `not_before`. A clock that is set does not lengthen it."""
    expires_at: Optional[int] = None
    latest_at: Optional[int] = None
    """Latest time at which it was written since the first attempt, by which a clock that is set back is noticed."""
    has_status: bool = False
    """True if the server has shown that it has a status resource."""
    applied: bool = False
    """True once the queue's `apply` returned."""
    told: bool = False
    """True once the queue's `confirm` or `rollback` returned."""
    end: Optional[EntryEnd] = None

    @property
    def times(self) -> Times:
        """What its life is counted from."""
        return Times(self.first_attempt_at, self.resumed_at, self.latest_at, self.expires_at)

    @property
    def state(self) -> str:
        """`open`, `sending`, or how it ended."""
        if self.end is not None:
            return self.end.kind
        return "sending" if self.attempts else "open"


def encode(entry: Entry) -> bytes:
    """Writes an entry."""
    document = {name: getattr(entry, name) for name in _PLAIN}
    document["headers"] = [list(pair) for pair in entry.headers]
    document["body"] = _base64(entry.body)
    if entry.end is not None:
        end: Dict[str, Any] = {name: getattr(entry.end, name) for name in _PLAIN_OF_END}
        end["headers"] = dict(entry.end.headers)
        end["body"] = _base64(entry.end.body)
        document["end"] = end
    # ASCII: a server's code may hold half of a surrogate pair, which UTF-8 cannot.
    data = json.dumps(document, sort_keys=True, separators=(",", ":")).encode("ascii")
    digest = hashlib.sha256(data).hexdigest().encode("ascii")
    return b" ".join((_FORMAT, _VERSION, digest)) + b"\n" + data


def decode(data: bytes, where: str, name: Optional[str] = None) -> Entry:
    """Reads an entry. `where` and `name` are for the error."""
    of = f"the entry of intent {name!r}" if name is not None else "an entry"
    head, line_break, text = data.partition(b"\n")
    words = head.split(b" ")
    if line_break != b"\n" or len(words) != 3 or words[0] != _FORMAT:
        raise StorageDamaged(f"{of} in {where} is damaged: it does not begin as an entry does", name)
    if words[1] != _VERSION:
        raise StorageError(
            f"{of} in {where} has format {words[1].decode('ascii', 'replace')};"
            f" this version of firstwrite reads format {_VERSION.decode('ascii')}"
        )
    if hashlib.sha256(text).hexdigest().encode("ascii") != words[2]:
        raise StorageDamaged(f"{of} in {where} is damaged: its checksum does not match", name)
    try:
        entry = _entry(json.loads(text.decode("utf-8")))
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise StorageDamaged(f"{of} in {where} is damaged: {type(error).__name__}", name) from None
    if name is not None and entry.name != name:
        raise StorageDamaged(f"{of} in {where} is damaged: it holds intent {entry.name!r}", name)
    return entry


_PLAIN = (
    "name",
    "lane",
    "revision",
    "key",
    "derived",
    "dialect",
    "method",
    "url",
    "sealed",
    "opened_at",
    "attempts",
    "doubt",
    "first_attempt_at",
    "resumed_at",
    "not_before",
    "wait",
    "expires_at",
    "latest_at",
    "has_status",
    "applied",
    "told",
)
_PLAIN_OF_END = ("kind", "safe_new_key", "replayed", "code", "status", "truncated", "sealed")


def _entry(document: Dict[str, Any]) -> Entry:
    if document["dialect"] not in _DIALECTS:
        raise ValueError
    end = document.get("end")
    return Entry(
        name=_text(document["name"]),
        lane=None if document["lane"] is None else _text(document["lane"]),
        revision=_number(document["revision"]),
        key=_text(document["key"]),
        derived=_truth(document["derived"]),
        dialect=document["dialect"],
        method=_text(document["method"]),
        url=_text(document["url"]),
        headers=tuple((_text(name), _text(value)) for name, value in document["headers"]),
        body=_bytes(document["body"]),
        sealed=_truth(document["sealed"]),
        opened_at=_number(document["opened_at"]),
        attempts=_number(document["attempts"]),
        doubt=_truth(document["doubt"]),
        first_attempt_at=_number_or_none(document["first_attempt_at"]),
        resumed_at=_number_or_none(document["resumed_at"]),
        not_before=_number_or_none(document["not_before"]),
        expires_at=_number_or_none(document["expires_at"]),
        # Entries of earlier versions do not have these.
        wait=_number(document.get("wait", 0)),
        latest_at=_number_or_none(document.get("latest_at")),
        has_status=_truth(document.get("has_status", False)),
        applied=_truth(document["applied"]),
        told=_truth(document["told"]),
        end=None if end is None else _end(end),
    )


def _end(document: Dict[str, Any]) -> EntryEnd:
    if document["kind"] not in _KINDS:
        raise ValueError
    return EntryEnd(
        kind=document["kind"],
        safe_new_key=_truth(document["safe_new_key"]),
        replayed=_truth(document["replayed"]),
        code=None if document["code"] is None else _text(document["code"]),
        status=_number_or_none(document["status"]),
        headers={_text(name): _text(value) for name, value in document["headers"].items()},
        body=_bytes(document["body"]),
        truncated=_truth(document["truncated"]),
        sealed=_truth(document["sealed"]),
    )


def _base64(data: Optional[bytes]) -> Optional[str]:
    return None if data is None else base64.b64encode(data).decode("ascii")


def _bytes(value: object) -> Optional[bytes]:
    return None if value is None else base64.b64decode(_text(value), validate=True)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _number(value: object) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def _number_or_none(value: object) -> Optional[int]:
    return None if value is None else _number(value)
