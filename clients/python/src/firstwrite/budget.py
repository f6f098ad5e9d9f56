"""The retry budget of an origin: a token bucket, so that a fleet of callers does not bury a server that struggles."""

from __future__ import annotations

import threading
from typing import Any, Dict

TOKENS_MAX = 20.0
SECONDS_PER_TOKEN = 2.0
_ORIGINS_MAX = 1000


class RetryBudget:
    """Tokens of one origin. `now` is a monotonic time in seconds."""

    def __init__(self, now: float) -> None:
        self._tokens = TOKENS_MAX
        self._counted_at = now
        self._lock = threading.Lock()

    def take(self, now: float) -> float:
        """Takes a token and returns 0, or takes none and returns the seconds until there is one."""
        with self._lock:
            gained = max(0.0, now - self._counted_at) / SECONDS_PER_TOKEN
            self._tokens = min(TOKENS_MAX, self._tokens + gained)
            self._counted_at = max(self._counted_at, now)
            # A little less than a token is a token: sums of fractions fall short of it.
            if self._tokens >= 1.0 - 1e-6:
                self._tokens -= 1.0
                return 0.0
            return (1.0 - self._tokens) * SECONDS_PER_TOKEN

    def give_back(self) -> None:
        """Gives a token back, after a success."""
        with self._lock:
            self._tokens = min(TOKENS_MAX, self._tokens + 1.0)


class Origins:
    """What a client knows of the servers it talked to. It is not stored: a restart finds it out again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._budgets: Dict[str, RetryBudget] = {}
        self._has_status: Dict[str, bool] = {}

    def budget(self, origin: str, now: float) -> RetryBudget:
        """Returns the retry budget of an origin."""
        with self._lock:
            if origin not in self._budgets:
                _make_room(self._budgets)
                self._budgets[origin] = RetryBudget(now)
            return self._budgets[origin]

    def learn_status(self, origin: str) -> None:
        """Notes that an origin has a status resource, unless it said before that it has none."""
        with self._lock:
            _make_room(self._has_status)
            self._has_status.setdefault(origin, True)

    def forget_status(self, origin: str) -> None:
        """Notes that an origin has no status resource."""
        with self._lock:
            _make_room(self._has_status)
            self._has_status[origin] = False

    def has_status(self, origin: str, default: bool) -> bool:
        """Returns true if an origin is to be asked."""
        with self._lock:
            return self._has_status.get(origin, default)


def _make_room(table: Dict[str, Any]) -> None:
    if len(table) >= _ORIGINS_MAX:
        del table[next(iter(table))]
