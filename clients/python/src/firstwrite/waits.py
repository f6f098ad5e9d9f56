"""How long intents still wait. A wait is a length, so a clock of the day that is set does not change it."""

from __future__ import annotations

import threading
from typing import Dict, Tuple

from .clock import Clock
from .entry import Entry
from .rules import wait_left_ms

_WAITS_MAX = 10_000


class Waits:
    """The waits that this process began or found, by a clock that is never set."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # By key: the time of day that stands in the entry, and the monotonic time that stands for it.
        self._known: Dict[str, Tuple[int, float]] = {}

    def begin(self, entry: Entry) -> None:
        """Notes the wait of an entry that was just written."""
        with self._lock:
            self._known.pop(entry.key, None)
            if entry.not_before is not None:
                self._note(entry.key, entry.not_before, entry.wait)

    def left(self, entry: Entry) -> float:
        """Returns the milliseconds for which nothing of an entry is sent.

        A wait that another process began lasts until its time of day, and at most its whole length.
        """
        if entry.not_before is None:
            return 0.0
        with self._lock:
            not_before, until = self._known.get(entry.key, (None, 0.0))
            if not_before != entry.not_before:
                left = wait_left_ms(entry.not_before, entry.wait, self._clock.now())
                until = self._note(entry.key, entry.not_before, left)
            return max(0.0, until - self._clock.monotonic() * 1000)

    def _note(self, key: str, not_before: int, milliseconds: int) -> float:
        while len(self._known) >= _WAITS_MAX:
            del self._known[next(iter(self._known))]
        until = self._clock.monotonic() * 1000 + milliseconds
        self._known[key] = (not_before, until)
        return until
