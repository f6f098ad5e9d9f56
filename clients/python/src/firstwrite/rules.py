"""Rules of an intent: what comes after each answer, and how long to wait.

Pure functions. `clients/README.md` has the same rules as a table, and `clients/vectors` as data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Optional, Union

from .answer import Answer, Failure, Problem, number, retry_after

Dialect = Literal["draft-07", "stripe", "generic"]
EndKind = Literal["done", "refused", "unknown", "expired"]

BACK_OFF_FIRST_MS = 500
BACK_OFF_MAX_MS = 30_000
_DOUBLINGS_TO_CAP = 6
_DOUBLINGS_MAX = 16
_ASK_AGAIN_SECONDS = 1
_RETRIED = frozenset(
    (
        "rate-limited",
        "store-unavailable",
        "overloaded",
        "upstream-unreachable",
        "request-timeout",
        "attempt-failed",
    )
)
_NOTHING_RAN = frozenset(
    (
        "key-missing",
        "key-invalid",
        "request-too-old",
        "body-too-large",
        "request-malformed",
        "target-too-long",
        "head-too-large",
        "method-not-allowed",
        "not-found",
        "key-unknown",
        "upgrade-refused",
        "grpc-unsupported",
        "misconfigured",
        "tenant-unknown",
    )
)
_OTHERS = frozenset(
    ("in-progress", "outcome-unknown", "key-reused", "key-expired", "answer-not-kept", "answer-lost")
)
_KNOWN_CODES = _RETRIED | _NOTHING_RAN | _OTHERS
"""Codes of firstwrite's problems."""

_OURS = frozenset(("idempotency-expires", "idempotency-interim", "idempotency-outcome"))
_OF_EVERY_DIALECT = frozenset(("outcome-unknown", "key-reused", "key-expired", "answer-not-kept"))
_WITH_A_ROW_OF_THEIR_OWN = _RETRIED | _OTHERS


@dataclass(frozen=True)
class Retry:
    """Send the same request under the same key, not before `wait` seconds."""

    wait: int
    doubt: bool
    refresh: bool = False


@dataclass(frozen=True)
class Ask:
    """As `Retry`, but ask the status resource first where there is one. The intent is in doubt."""

    wait: int


@dataclass(frozen=True)
class Finish:
    """The intent ends."""

    kind: EndKind
    safe_new_key: bool = False
    replayed: bool = False
    code: Optional[str] = None
    status: Optional[int] = None
    """Status of the first answer, where this answer only tells of it."""


Decision = Union[Retry, Ask, Finish]


def name_of(decision: Decision) -> str:
    """Returns the word for a decision in events."""
    if isinstance(decision, Finish):
        return decision.kind
    return "ask" if isinstance(decision, Ask) else "retry"


def decide(
    dialect: Dialect, answer: Union[Answer, Failure], doubt: bool, refreshed: bool, now: int
) -> Decision:
    """Says what comes after an answer. `doubt` and `refreshed` stood before the attempt."""
    if isinstance(answer, Failure):
        return Retry(0, doubt) if answer is Failure.NOT_SENT else Ask(0)
    problem = problem_of(dialect, answer)
    wait = _seconds(answer, problem.retry_after if problem else None, now) or 0
    if dialect == "draft-07":
        if answer.interim:
            return Ask(wait)
        # A header that cannot be read may say that the key stays uncertain.
        doubt = doubt or (answer.hidden and 400 <= answer.status < 500 and problem is None)
    if 200 <= answer.status < 300:
        return Ask(wait) if answer.is_uncertain else Finish("done", replayed=answer.replayed)
    if answer.is_uncertain and not (problem and problem.code in _WITH_A_ROW_OF_THEIR_OWN):
        return Ask(wait)
    if problem:
        return _after_problem(answer, problem, doubt, refreshed, wait)
    if answer.status in (401, 407):
        return _after_unauthorized(doubt, refreshed, wait, None)
    if dialect == "stripe" and answer.status in (400, 422) and _is_idempotency_error(answer):
        return Finish("unknown" if doubt else "refused", replayed=answer.replayed)
    if answer.kept:
        kept = _after_kept(dialect, answer)
        if kept:
            return kept
    return _after_status(dialect, answer, doubt, wait)


def problem_of(dialect: str, answer: Answer) -> Optional[Problem]:
    """Returns the problem in an answer, if its dialect has such a one.

    A firstwrite gateway says in every dialect what became of a key.
    """
    problem = Problem.of(answer)
    if problem is None or dialect == "draft-07" or problem.code in _OF_EVERY_DIALECT:
        return problem
    return None


def _after_problem(answer: Answer, problem: Problem, doubt: bool, refreshed: bool, wait: int) -> Decision:
    code = problem.code
    if code in ("in-progress", "outcome-unknown"):
        return Ask(wait)
    if code == "key-reused":
        return Finish("unknown" if doubt else "refused", code=code)
    if code == "key-expired":
        return Finish("expired", code=code)
    if code == "answer-not-kept":
        if problem.first_status is None:
            return Finish("unknown", replayed=answer.replayed, code=code)
        kind: EndKind = "done" if problem.first_status < 400 else "refused"
        return Finish(kind, replayed=answer.replayed, code=code, status=problem.first_status)
    if code == "answer-lost":
        return Ask(wait) if problem.retryable else Finish("unknown", code=code)
    if code in _RETRIED:
        return Retry(wait, doubt)
    if answer.status in (401, 407) or code == "tenant-unknown":
        return _after_unauthorized(doubt, refreshed, wait, code)
    if code in _NOTHING_RAN and not problem.retryable:
        return _nothing_ran(doubt, code)
    if problem.retryable:
        return Retry(wait, doubt if problem.safe_new_key else True)
    if doubt or answer.status >= 500:
        return Finish("unknown", safe_new_key=problem.safe_new_key and not doubt, code=code)
    return Finish("refused", safe_new_key=problem.safe_new_key, code=code)


def _after_unauthorized(doubt: bool, refreshed: bool, wait: int, code: Optional[str]) -> Decision:
    return _nothing_ran(doubt, code) if refreshed else Retry(wait, doubt, refresh=True)


def _after_kept(dialect: Dialect, answer: Answer) -> Optional[Finish]:
    if 300 <= answer.status < 400 and dialect != "stripe":
        return Finish("done", replayed=answer.replayed)
    if 400 <= answer.status < 500:
        return Finish("refused", safe_new_key=True, replayed=answer.replayed)
    if 500 <= answer.status < 600:
        return Finish("unknown", replayed=answer.replayed)
    return None


def _after_status(dialect: Dialect, answer: Answer, doubt: bool, wait: int) -> Decision:
    status = answer.status
    if dialect == "stripe":
        should_retry = (answer.header("stripe-should-retry") or "").lower()
        if should_retry == "true":
            return Retry(wait, doubt if status < 500 and status != 409 else True)
        if should_retry == "false" and 500 <= status < 600:
            return Finish("unknown", replayed=answer.replayed)
        if status == 402:
            return Finish("refused", safe_new_key=True, replayed=answer.replayed)
    if status in (408, 409, 502, 504):
        return Ask(wait)
    if status in (425, 429):
        return Retry(wait, doubt)
    if status in (301, 302, 303):
        return Finish("unknown", replayed=answer.replayed)
    if 300 <= status < 500:
        return _nothing_ran(doubt, None)
    if 500 <= status < 600:
        return Retry(wait, True)
    return Finish("unknown", replayed=answer.replayed)


def _nothing_ran(doubt: bool, code: Optional[str]) -> Finish:
    return Finish("unknown", code=code) if doubt else Finish("refused", safe_new_key=True, code=code)


def _is_idempotency_error(answer: Answer) -> bool:
    document = answer.json_object()
    error = document.get("error") if document else None
    return isinstance(error, dict) and error.get("type") == "idempotency_error"


@dataclass(frozen=True)
class StatusSend:
    """Send the request; `forget` says that this origin has no status resource."""

    forget: bool = False


@dataclass(frozen=True)
class StatusAsk:
    """Ask the status resource again, not before `wait` seconds."""

    wait: int


@dataclass(frozen=True)
class StatusRefresh:
    """Ask the status resource again with fresh credentials."""


StatusDecision = Union[StatusSend, StatusAsk, StatusRefresh]


def decide_status(answer: Union[Answer, Failure], refreshed: bool, now: int) -> StatusDecision:
    """Says what comes after an answer of the status resource. `StatusSend` is always safe."""
    if isinstance(answer, Failure):
        return StatusSend()
    document = answer.json_object()
    problem = Problem.of(answer)
    member = number(document.get("retry_after")) if document else None
    asked = _seconds(answer, member, now)
    wait = _ASK_AGAIN_SECONDS if asked is None else asked
    if answer.status == 200:
        waits = document is not None and document.get("state") in ("reserved", "interim", "uncertain")
        return StatusAsk(wait) if waits else StatusSend()
    if problem and problem.code == "outcome-unknown":
        return StatusAsk(wait)
    if answer.status in (401, 407):
        return StatusSend() if refreshed else StatusRefresh()
    if answer.status in (429, 503):
        return StatusAsk(wait)
    return StatusSend(forget=answer.status in (404, 405) and problem is None)


def _seconds(answer: Answer, member: Optional[float], now: int) -> Optional[int]:
    return retry_after(answer.headers.get("retry-after"), member, answer.server_time(now))


def wait_ms(asked: int, attempt: int, random: float) -> int:
    """Returns the milliseconds before attempt `attempt` + 1: what the server asked for, and a back-off.

    The back-off is drawn from almost the whole range, which spreads a fleet. After a wait at the cap it is drawn from
    the last eighth, which keeps a fleet spread, unless the server named a time, which gathers it again.
    """
    doublings = min(max(attempt - 1, 0), _DOUBLINGS_MAX)
    most = min(BACK_OFF_MAX_MS, BACK_OFF_FIRST_MS << doublings)
    is_narrow = doublings > _DOUBLINGS_TO_CAP and not asked
    least = most * 7 / 8 if is_narrow else most / 8
    return asked + math.floor(least + (most - least) * random)


def wait_left_ms(not_before: Optional[int], wait: int, now: int) -> int:
    """Returns what is left of a wait of this length, where a process reads it for the first time.

    A clock that is set back does not lengthen it.
    """
    return 0 if not_before is None else max(0, min(not_before - now, wait))


def shows_status(answer: Union[Answer, Failure]) -> bool:
    """Returns true if an answer shows that its server has a status resource."""
    if isinstance(answer, Failure):
        return False
    problem = Problem.read(answer)
    return not _OURS.isdisjoint(answer.headers) or (problem is not None and problem.code in _KNOWN_CODES)
