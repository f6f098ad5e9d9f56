"""Checks the arguments of both clients, so that a mistake shows when the client is made."""

from __future__ import annotations

import math
import random as random_module
import secrets
from typing import Any, Callable, Optional, get_args

from .clock import Clock, SystemClock
from .engine import Seal, Settings
from .event import EventHook
from .life import Life
from .rules import Dialect

WAIT_FOR_SECONDS = 30.0
GIVE_UP_AFTER_SECONDS = 3600.0
RETENTION_SECONDS = 24 * 3600.0
ATTEMPT_TIMEOUT_SECONDS = 30.0
ANSWER_BYTES_MAX = 1024 * 1024
ANSWER_BYTES_MOST = 16 * 1024 * 1024
"""Highest setting of `answer_bytes_max`: request and answer together fit into one entry."""

_STATUS = ("auto", "always", "never")
_SECRET_BYTES_MIN = 16


def build_settings(
    *,
    dialect: Dialect,
    give_up_after: float,
    retention: float,
    attempt_timeout: float,
    status: str,
    answer_bytes_max: int,
    secret: Optional[bytes],
    seal: Optional[Seal],
    open: Optional[Seal],
    on_event: Optional[EventHook],
    clock: Optional[Clock],
    random: Optional[Callable[[], float]],
) -> Settings:
    """Returns checked settings."""
    _check(dialect in get_args(Dialect), f"`dialect` must be one of {', '.join(get_args(Dialect))}")
    _check(status in _STATUS, f"`status` must be one of {', '.join(_STATUS)}")
    for name, seconds in (
        ("give_up_after", give_up_after),
        ("retention", retention),
        ("attempt_timeout", attempt_timeout),
    ):
        check_seconds(name, seconds, 0.001)
    _check(
        isinstance(answer_bytes_max, int) and 0 < answer_bytes_max <= ANSWER_BYTES_MOST,
        f"`answer_bytes_max` must be a number from 1 to {ANSWER_BYTES_MOST}",
    )
    _check(secret is None or isinstance(secret, bytes), "`secret` must be bytes")
    _check(
        secret is None or len(secret) >= _SECRET_BYTES_MIN,
        f"`secret` must have {_SECRET_BYTES_MIN} bytes or more",
    )
    _check(
        (seal is None) or (open is not None), "`seal` needs `open`, or nothing could be sent after a restart"
    )
    return Settings(
        dialect=dialect,
        life=Life(round(give_up_after * 1000), round(retention * 1000)),
        attempt_timeout=attempt_timeout,
        status=status,
        answer_bytes_max=answer_bytes_max,
        secret=secret,
        seal=seal,
        open=open,
        on_event=on_event,
        clock=clock or SystemClock(),
        random=random or random_module.random,
        token_bytes=secrets.token_bytes,
    )


def check_seconds(name: str, seconds: Any, least: float) -> None:
    """Raises an error if a time is none."""
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    _check(
        is_number and math.isfinite(seconds) and seconds >= least,
        f"`{name}` must be a number of seconds, {least} or more",
    )


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)
