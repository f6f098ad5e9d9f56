"""The order in which a run of the queue starts its lanes. Both queues follow it; it neither sends nor waits."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Deque, Dict, List, Mapping, Optional, Set

from .clock import Clock
from .lanes import Head, Lane
from .settings import check_seconds

POLL_SECONDS = 5.0
"""Time after which a run looks for what other processes enqueued."""

_WAIT_SECONDS_MIN = 0.001
"""Shortest wait of a lane: sums of fractions leave rests that are too short for a clock to show that they passed."""


def check_runs(lanes_at_once: int, poll: float) -> None:
    """Raises an error if a setting of a queue cannot be used."""
    if lanes_at_once < 1:
        raise ValueError("`lanes_at_once` must be 1 or more")
    check_seconds("poll", poll, _WAIT_SECONDS_MIN)


class Schedule:
    """The lanes of a run: which run, which wait, which are to start. Times are monotonic seconds.

    A lane that waits holds no place. A lane that failed is left to the next run.
    """

    def __init__(self, clock: Clock, lanes_at_once: int, poll: float, wait_for: Optional[float]) -> None:
        self._clock = clock
        self._lanes_at_once = lanes_at_once
        self._poll = poll
        now = clock.monotonic()
        self._until = None if wait_for is None else now + wait_for
        self._look_at = now
        self._ready: Deque[str] = deque()
        self._running: Set[str] = set()
        self._waits: Dict[str, float] = {}
        self._results: Dict[str, Lane] = {}
        # Lanes that a look found at work: what it saw may have come after their own last look.
        self._seen_running: Set[str] = set()
        # The heads for which lanes were started, so that one that a lane does not see starts it no third time.
        self._started_for: Dict[str, Head] = {}

    def is_look_due(self) -> bool:
        """Returns true if the storage is to be read for what was enqueued."""
        return self.is_idle() or self._clock.monotonic() >= self._look_at

    def is_idle(self) -> bool:
        """Returns true if no lane runs, is to start, or waits for a time within that of the run."""
        return not (self._ready or self._running or any(map(self._is_awaited, self._waits)))

    def is_running(self) -> bool:
        """Returns true if a lane runs."""
        return bool(self._running)

    def looked(self, heads: Mapping[str, Optional[Head]]) -> None:
        """Takes what the storage holds: of each lane the first intent with something left to do."""
        self._look_at = self._clock.monotonic() + self._poll
        for name, head in heads.items():
            if name in self._running:
                self._seen_running.add(name)
            elif name not in self._ready and self._has_more(name, head):
                self._waits.pop(name, None)
                self._ready.append(name)

    def start(self) -> List[str]:
        """Returns the lanes that start now."""
        now = self._clock.monotonic()
        over = [name for name, at in self._waits.items() if at <= now]
        for name in sorted(over, key=self._waits.__getitem__):
            del self._waits[name]
            self._ready.append(name)
        started: List[str] = []
        while self._ready and len(self._running) < self._lanes_at_once:
            name = self._ready.popleft()
            self._running.add(name)
            started.append(name)
        return started

    def finished(self, lane: Lane) -> None:
        """Takes the state in which a lane ended its turn."""
        name = lane.name
        self._running.discard(name)
        self._results[name] = lane
        if lane.state == "waiting":
            wait = max(lane.retry_in or 0.0, _WAIT_SECONDS_MIN)
            self._waits[name] = self._clock.monotonic() + wait
        elif lane.state != "failed" and name in self._seen_running:
            self._ready.append(name)
        self._seen_running.discard(name)

    def seconds(self) -> float:
        """Returns the time after which there is something to do, if nothing happens before."""
        times = [self._look_at, *(at for name, at in self._waits.items() if self._is_awaited(name))]
        return max(0.0, min(times) - self._clock.monotonic())

    def lanes(self) -> List[Lane]:
        """Returns the lanes as they are now, by name."""
        now = self._clock.monotonic()
        return [
            replace(lane, retry_in=max(0.0, self._waits[name] - now)) if name in self._waits else lane
            for name, lane in sorted(self._results.items())
        ]

    def _is_awaited(self, name: str) -> bool:
        return self._until is None or self._waits[name] <= self._until

    def _has_more(self, name: str, head: Optional[Head]) -> bool:
        last = self._results.get(name)
        if last is None:
            return True
        if last.state == "waiting":
            # Another process ended the intent for which it waits.
            return head is None or head.has_ended or head.name != last.head
        if head is None or last.state == "failed" or self._started_for.get(name) == head:
            return False
        self._started_for[name] = head
        return True
