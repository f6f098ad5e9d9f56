"""How long a caller waits: for the next attempt, in an attempt, and for the status resource."""

from __future__ import annotations

import math
from typing import Optional, Tuple

from .clock import Clock

STATUS_WAIT_SECONDS = 20
"""Time that the status resource is asked to wait for an outcome."""

_ANSWER_SECONDS = 2.0
"""Time that an answer of the status resource has left of an attempt's, after its wait."""

_ATTEMPT_SECONDS_MIN = 1.0


class Patience:
    """How long a caller waits. `until` is a monotonic time, None waits for the end."""

    def __init__(self, clock: Clock, wait_for: Optional[float], waits: bool = True) -> None:
        self._clock = clock
        self._until = None if wait_for is None else clock.monotonic() + wait_for
        self._waits = waits

    def left(self) -> Optional[float]:
        """Returns the seconds that are left."""
        return None if self._until is None else max(0.0, self._until - self._clock.monotonic())

    def allows(self, seconds: float) -> bool:
        """Returns true if a wait ends in time."""
        left = self.left()
        return self._waits and (left is None or seconds <= left)

    def attempt_seconds(self, most: float) -> float:
        """Returns the time limit of an attempt: what is left, but never so little that it only makes doubt."""
        left = self.left()
        return most if left is None or not self._waits else min(most, max(left, _ATTEMPT_SECONDS_MIN))

    def status_seconds(self, attempt_timeout: float) -> Tuple[int, float]:
        """Returns the seconds that the status resource is asked to wait, and the time limit of asking."""
        limit = self.attempt_seconds(attempt_timeout)
        if not self._waits:
            return 0, limit
        return max(0, math.floor(min(STATUS_WAIT_SECONDS, limit - _ANSWER_SECONDS))), limit
