"""Requests as an intent holds them: checked once, complete, and the same bytes at every attempt."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Optional, Tuple, Union
from urllib.parse import urlsplit

from .errors import CredentialsError, InvalidIntent

NAME_BYTES_MAX = 255
"""Longest name of an intent or a lane, in bytes of UTF-8."""

BODY_BYTES_MAX = 8 * 1024 * 1024
"""Longest body of a request. It is written down before it is sent, and read again after a restart."""

URL_BYTES_MAX = 8192
"""Longest URL; servers refuse longer ones."""

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_URL = re.compile(r"[!-~]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_OF_THE_CLIENT = frozenset(
    (
        "idempotency-key",
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "expect",
        "te",
        "trailer",
        "upgrade",
        "accept-encoding",
    )
)
_CREDENTIALS = frozenset(("authorization", "proxy-authorization", "cookie", "x-api-key", "api-key"))


@dataclass(frozen=True)
class Request:
    """A request without its key and credentials. Header names are in lower case and sorted."""

    method: str
    url: str
    headers: Tuple[Tuple[str, str], ...] = ()
    body: Optional[bytes] = field(default=None, repr=False)

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return origin_of(self.url)


@dataclass(frozen=True)
class Outgoing:
    """A request as a transport sends it, with key and credentials."""

    method: str
    url: str
    headers: Tuple[Tuple[str, str], ...] = field(default=(), repr=False)
    body: Optional[bytes] = field(default=None, repr=False)


@dataclass(frozen=True)
class CredentialsRequest:
    """What a hook for credentials is asked for: those of one attempt, or of a question about its key."""

    intent: str
    """The name of the intent."""
    url: str
    """The URL of the intent. A question goes to the same origin."""
    refresh: bool
    """True if the last ones were refused, so that those at hand are of no use."""

    @property
    def origin(self) -> str:
        """Scheme, host and port, as in `https://api.example:443`: where they are sent."""
        return origin_of(self.url)


def origin_of(url: str) -> str:
    """Returns scheme, host and port of a URL that was checked before."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = parts.hostname or ""
    return f"{parts.scheme}://{'[' + host + ']' if ':' in host else host}:{port}"


def check_name(name: object, of: str) -> str:
    """Returns a name of an intent or a lane, or says why it cannot be one."""
    if not isinstance(name, str) or not name:
        raise InvalidIntent(f"the {of} must be a text that is not empty")
    try:
        length = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidIntent(
            f"the {of} holds half of a surrogate pair, which cannot be written as UTF-8"
        ) from None
    if length > NAME_BYTES_MAX:
        raise InvalidIntent(f"the {of} has {length} bytes; the most is {NAME_BYTES_MAX}")
    if _CONTROL.search(name):
        raise InvalidIntent(f"the {of} holds a control character")
    return name


def build_request(
    method: str,
    url: str,
    json_value: object,
    body: Union[bytes, str, None],
    headers: Optional[Mapping[str, str]],
) -> Request:
    """Checks the parts of a request and puts them together. `json_value` is `NO_JSON` if there is none."""
    if not isinstance(method, str) or not _TOKEN.fullmatch(method):
        raise InvalidIntent("the method is not a word that HTTP allows, such as POST")
    if method.upper() in ("CONNECT", "TRACE"):
        raise InvalidIntent(f"the method {method.upper()} cannot be sent with a key")
    content: Optional[bytes] = None
    checked = dict(_check_headers(headers or {}))
    if json_value is not NO_JSON:
        if body is not None:
            raise InvalidIntent("give `json` or `body`, not both")
        content = canonical_json(json_value)
        checked.setdefault("content-type", "application/json")
    elif isinstance(body, str):
        content = _utf8(body)
        checked.setdefault("content-type", "text/plain; charset=utf-8")
    elif isinstance(body, (bytes, bytearray, memoryview)):
        content = bytes(body)
        checked.setdefault("content-type", "application/octet-stream")
    elif body is not None:
        raise InvalidIntent("`body` must be bytes or a text; for a value use `json`")
    if content is not None and len(content) > BODY_BYTES_MAX:
        raise InvalidIntent(f"the body has {len(content)} bytes; the most is {BODY_BYTES_MAX}")
    return Request(method.upper(), _check_url(url), tuple(sorted(checked.items())), content)


class _NoJson:
    """Says that there is no JSON value, since `None` is one."""


NO_JSON = _NoJson()


def canonical_json(value: object) -> bytes:
    """Writes JSON with sorted members and without white space, so that the same value is the same body."""
    try:
        _check_names(value)
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
        return text.encode("utf-8")
    except RecursionError:
        raise InvalidIntent("the JSON body is nested too deeply, or holds itself") from None
    except UnicodeEncodeError:
        raise InvalidIntent("the JSON body holds half of a surrogate pair, which UTF-8 cannot hold") from None
    except (TypeError, ValueError) as error:
        raise InvalidIntent(f"the body cannot be written as JSON: {error}") from None


def _check_names(value: object) -> None:
    # `json` turns numbers into names, so that two members could become one.
    if isinstance(value, dict):
        for name, member in value.items():
            if not isinstance(name, str):
                raise TypeError(f"a member's name must be a text, not {type(name).__name__}")
            _check_names(member)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_names(item)


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidIntent("the body holds half of a surrogate pair, which UTF-8 cannot hold") from None


def _check_url(url: str) -> str:
    if not isinstance(url, str) or not _URL.fullmatch(url):
        raise InvalidIntent("the URL must be visible ASCII characters; encode others as %XX")
    if len(url) > URL_BYTES_MAX:
        raise InvalidIntent(f"the URL has {len(url)} bytes; the most is {URL_BYTES_MAX}")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidIntent(f"the URL cannot be read: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise InvalidIntent("the URL must be absolute, with http or https and a host")
    if parts.username is not None or parts.password is not None:
        raise InvalidIntent("the URL holds credentials; give them to the client as `credentials`")
    if "#" in url:
        raise InvalidIntent("the URL holds a fragment, which is never sent")
    return url


def _check_headers(headers: Mapping[str, str]) -> List[Tuple[str, str]]:
    checked: Dict[str, str] = {}
    for name, value in headers.items():
        problem = _header_problem(name, value)
        if problem:
            raise InvalidIntent(problem)
        key = name.lower()
        if key in _CREDENTIALS:
            raise InvalidIntent(
                f"the header {key} is a credential, which is never stored; give it to the client as `credentials`"
            )
        if key in checked:
            raise InvalidIntent(f"the header {key} is given twice")
        checked[key] = value.strip(" \t")
    return list(checked.items())


def _header_problem(name: object, value: object) -> Optional[str]:
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        return "a header's name is not a word that HTTP allows"
    if name.lower() in _OF_THE_CLIENT:
        return f"the header {name.lower()} is the client's own"
    if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
        return f"the value of the header {name.lower()} must be a text without line breaks and other control characters"
    return None


def with_key(
    request: Request,
    body: Optional[bytes],
    key_header: Optional[str],
    credentials: Mapping[str, str],
) -> Outgoing:
    """Returns what a transport sends: the request, its key and this attempt's credentials."""
    headers = dict(request.headers)
    headers.update(check_credentials(credentials))
    if key_header is not None:
        headers["idempotency-key"] = key_header
    return Outgoing(request.method, request.url, tuple(headers.items()), body)


def check_credentials(credentials: Mapping[str, str]) -> Dict[str, str]:
    """Returns credential headers with names in lower case. An error never shows a value."""
    checked: Dict[str, str] = {}
    if not isinstance(credentials, Mapping):
        raise CredentialsError("the `credentials` hook must return a mapping of header names to values")
    for name, value in credentials.items():
        problem = _header_problem(name, value)
        if problem is None and name.lower().startswith("content-"):
            problem = f"the header {name.lower()} belongs to the request, not to credentials"
        if problem:
            raise CredentialsError(f"`credentials`: {problem}")
        checked[name.lower()] = value.strip(" \t")
    return checked
