"""News of lanes: what is enqueued reaches the runs of all queues of a client."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import Callable, Iterator, List

Listener = Callable[[], None]


class Changes:
    """Tells runs of this process that a lane may have more to send."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: List[Listener] = []

    @contextmanager
    def heard_by(self, listener: Listener) -> Iterator[None]:
        """Calls the listener, from any thread, as long as the context lasts."""
        with self._lock:
            self._listeners.append(listener)
        try:
            yield
        finally:
            with self._lock:
                self._listeners.remove(listener)

    def tell(self) -> None:
        """Calls the listeners."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener()
