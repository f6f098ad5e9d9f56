"""Time. Tests give the client a clock of their own."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> int:
        """Returns the time of day in milliseconds since 1970."""

    def monotonic(self) -> float:
        """Returns seconds that never go back, from an arbitrary start."""


class SystemClock:
    """The clocks of the machine."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
