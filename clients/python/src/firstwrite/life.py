"""How long anything may be sent for an intent: until it is given up, until its key ends, while the clock is right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from .rules import Finish

KEY_LIFE_MARGIN_MS = 60_000
"""Nothing is sent in the last minute of a key's life, so that no request arrives after it."""

CLOCK_SET_BACK_MS = 60_000
"""A clock that is set back by more leaves the age of a key unknown."""


@dataclass(frozen=True)
class Life:
    """The limits of an intent, in milliseconds, and what they are counted from."""

    give_up_after: int
    retention: int


@dataclass(frozen=True)
class Times:
    """What is known of an intent's past, in milliseconds."""

    first_attempt_at: Optional[int] = None
    resumed_at: Optional[int] = None
    latest_at: Optional[int] = None
    """Latest time at which the entry was written since the first attempt."""
    expires_at: Optional[int] = None
    """Time until which the server keeps the key, where an answer said so."""


def key_ends_at(life: Life, times: Times) -> Optional[int]:
    """Returns the time until which the server keeps a key: what it said, else what its callers are told."""
    if times.expires_at is not None or times.first_attempt_at is None:
        return times.expires_at
    return times.first_attempt_at + life.retention


def end_of_life(life: Life, now: int, times: Times, doubt: bool) -> Optional[Finish]:
    """Says how an intent ends if nothing may be sent any more, or None if it may.

    A resume starts the time of `give_up_after` anew; the key's life goes on from the first attempt.
    """
    first = times.first_attempt_at
    ends_at = key_ends_at(life, times)
    if first is None or ends_at is None:
        return None
    # Without doubt, a clock that was set back counts as the first attempt's time.
    latest = max(first, times.latest_at or first) if doubt else first
    if doubt and now < latest - CLOCK_SET_BACK_MS:
        # The age of the key is not known, so the server may have forgotten it.
        return Finish("unknown")
    now = max(now, latest)
    if now >= ends_at - KEY_LIFE_MARGIN_MS:
        return Finish("expired") if doubt else Finish("refused", safe_new_key=True)
    if now - max(first, times.resumed_at or first) >= life.give_up_after:
        return Finish("unknown") if doubt else Finish("refused", safe_new_key=True)
    return None
