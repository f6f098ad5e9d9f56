"""Entries as they are written down after an answer, and at the end of an intent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Union

from .answer import Answer, Failure
from .entry import Entry, EntryEnd
from .rules import Ask, Decision, Finish

if TYPE_CHECKING:
    from .engine import Engine

_NOT_STORED = frozenset(
    ("set-cookie", "set-cookie2", "www-authenticate", "proxy-authenticate", "authentication-info")
)


@dataclass(frozen=True)
class Received:
    """What an attempt got, and the time of day at which it got it."""

    result: Union[Answer, Failure]
    at: int


def after_answer(
    engine: Engine, marked: Entry, base: Entry, decision: Decision, received: Received
) -> Entry:
    """Returns the entry after an answer. `base` is what stands, which others may have written after the mark."""
    result = received.result
    is_shared = base.revision != marked.revision
    expires_at = result.expires_at(received.at) if isinstance(result, Answer) else None
    if expires_at is None:
        expires_at = base.expires_at
    elif base.expires_at is not None and is_shared:
        # Of two answers whose order is not known, the later time stands.
        expires_at = max(base.expires_at, expires_at)
    entry = replace(base, expires_at=expires_at)
    if isinstance(decision, Finish):
        return with_end(engine, entry, decision, result)
    wait = engine.wait_ms(decision.wait * 1000, base.attempts)
    if not is_shared or engine.waits.left(base) < wait:
        entry = engine.waiting(entry, wait)
    doubt = True if isinstance(decision, Ask) else decision.doubt
    if result is Failure.NOT_SENT and base.lane is not None and not doubt:
        # Nothing is under way: an offline queue waits as long as it takes.
        entry = replace(entry, first_attempt_at=None, resumed_at=None)
    return replace(entry, doubt=doubt)


def with_end(
    engine: Engine, entry: Entry, finish: Finish, result: Union[Answer, Failure, None] = None
) -> Entry:
    """Returns the entry with its end."""
    answer = result if isinstance(result, Answer) else Answer(0)
    # The body of an answer that tells of another one is not the first answer's, and half of a body is none.
    has_body = isinstance(result, Answer) and finish.status is None and not answer.truncated
    end = EntryEnd(
        kind=finish.kind,
        safe_new_key=finish.safe_new_key,
        replayed=finish.replayed,
        code=finish.code,
        status=finish.status or answer.status or None,
        headers={name: value for name, value in answer.headers.items() if name not in _NOT_STORED},
        body=engine.seal(entry.name, answer.body if has_body else None),
        truncated=answer.truncated,
        sealed=engine.settings.seal is not None,
    )
    return replace(entry, end=end, not_before=None, wait=0)
