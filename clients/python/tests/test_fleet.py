"""A thousand clients after an outage, in simulated time: they come back spread out, and none before its time."""

from __future__ import annotations

import heapq
import os
import random
import unittest
from bisect import bisect_left
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from firstwrite import Answer, Client, MemoryStorage, NotSent, Outgoing, Pending
from tests.fakes import KEPT, URL, ManualClock, answer

CLIENTS = 1000
IS_LONG = bool(os.environ.get("FIRSTWRITE_LONG"))
BACK_OFF_FIRST, BACK_OFF_MAX = 0.5, 30.0
SLACK = 0.002
"""Seconds that rounding to milliseconds takes from a wait, or adds to it."""
PEAK_MAX = CLIENTS / 10
"""Most requests in a second: if all came at once, the mean of so short a recovery would be as high as its peak."""


class Outage(NamedTuple):
    """Seconds for which a service is down, and what it answers meanwhile; None if nobody listens."""

    name: str
    seconds: float
    answer: Optional[Answer]
    retry_after: float = 0.0

    @property
    def window(self) -> int:
        """Seconds over which the peak is measured.

        Where a time is named, the fleet comes back over that time and a back-off, so that a second holds some twenty
        clients, and chance alone brings twice as many into one.
        """
        return 5 if self.retry_after else 1


SHORT = (
    Outage("refused", 60, None),
    Outage("503, 5 s", 300, answer(503, {"Retry-After": "5"}), 5),
)
LONG = (
    Outage("refused", 30, None),
    Outage("refused", 300, None),
    Outage("503", 60, answer(503)),
    Outage("503, 30 s", 300, answer(503, {"Retry-After": "30"}), 30),
)


class Service:
    """A service that is down at first and then answers every client. It notes when each request arrives."""

    def __init__(self, clock: ManualClock, outage: Outage) -> None:
        self._clock = clock
        self._began = clock.uptime
        self._outage = outage
        self.arrivals: Dict[str, List[float]] = {}

    def send(self, request: Outgoing, timeout: float, bytes_max: int, on_sent: Callable[[], None]) -> Answer:
        at = self._clock.uptime - self._began
        self.arrivals.setdefault(dict(request.headers)["idempotency-key"], []).append(at)
        if at >= self._outage.seconds:
            return answer(201, KEPT)
        if self._outage.answer is None:
            raise NotSent("connection refused")
        return self._outage.answer

    def close(self) -> None:
        pass


def simulate(outage: Outage, seed: int) -> List[List[float]]:
    """Lets all clients begin at once and runs them through an outage; returns the times of each one's requests."""
    clock = ManualClock()
    service = Service(clock, outage)
    clients = [
        Client(
            storage=MemoryStorage(),
            transport=service,
            clock=clock,
            random=random.Random(seed * 1_000_003 + number).random,
        )
        for number in range(CLIENTS)
    ]
    due: List[Tuple[float, int]] = [(clock.uptime, number) for number in range(CLIENTS)]
    while due:
        at, number = heapq.heappop(due)
        clock.advance(at - clock.uptime)
        try:
            end = clients[number].intent("cart", "POST", URL).send(wait_for=0)
        except Pending as pending:
            # It says when it may go on, and is called then.
            heapq.heappush(due, (clock.uptime + max(pending.retry_in, 0.001), number))
        else:
            assert end.kind == "done", end
    return list(service.arrivals.values())


def highest_rate(arrivals: List[float], window: int) -> float:
    """Returns the most arrivals per second, in a window that may begin with any of them."""
    return max(bisect_left(arrivals, at + window) - number for number, at in enumerate(arrivals)) / window


class Fleet(unittest.TestCase):
    def test_a_thousand_clients_come_back_spread_out_and_none_too_early(self) -> None:
        for outage in SHORT + LONG if IS_LONG else SHORT:
            for seed in range(1, 4 if IS_LONG else 2):
                with self.subTest(outage=outage.name, seconds=outage.seconds, seed=seed):
                    fleet = simulate(outage, seed)
                    self.check_waits(fleet, outage)
                    self.check_recovery(fleet, outage)

    def check_waits(self, fleet: List[List[float]], outage: Outage) -> None:
        for times in fleet:
            for attempt, (before, after) in enumerate(zip(times, times[1:]), start=1):
                back_off = min(BACK_OFF_MAX, BACK_OFF_FIRST * 2 ** (attempt - 1))
                waited = after - before
                self.assertGreaterEqual(waited, outage.retry_after + back_off / 8 - SLACK)
                self.assertLessEqual(waited, outage.retry_after + back_off + SLACK)

    def check_recovery(self, fleet: List[List[float]], outage: Outage) -> None:
        recovery = sorted(at for times in fleet for at in times if at >= outage.seconds)
        self.assertEqual(len(recovery), CLIENTS, "one request of each, once the service is back")
        self.assertLessEqual(highest_rate(recovery, 1), PEAK_MAX)
        mean = CLIENTS / (recovery[-1] - recovery[0])
        peak = highest_rate(recovery, outage.window)
        if IS_LONG:
            print(f"{outage.name} for {outage.seconds} s: peak {peak:.1f}/s, mean {mean:.1f}/s, {peak / mean:.2f}")
        self.assertLessEqual(peak, 2 * mean)
