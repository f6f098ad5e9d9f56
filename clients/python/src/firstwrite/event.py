"""Events: every step of an intent, without its key, bodies and credentials."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Callable, Literal, Optional

Step = Literal["opened", "marked", "sent", "answered", "recorded", "ended", "acknowledged"]

_logger = logging.getLogger("firstwrite")


@dataclass(frozen=True)
class Event:
    """One step. `decision` is `retry`, `ask`, or how the intent ends."""

    step: Step
    intent: str
    attempt: int
    status: Optional[int] = None
    failure: Optional[str] = None
    decision: Optional[str] = None


EventHook = Callable[[Event], None]


def emit(hook: Optional[EventHook], event: Event) -> None:
    """Calls the hook. An exception in it is logged, since a report must not stop what it reports on."""
    if hook is None:
        return
    try:
        hook(event)
    except Exception:
        _logger.exception("the event hook failed at step %s", event.step)
