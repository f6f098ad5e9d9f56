"""A time limit for a whole attempt, for libraries whose time limits hold for each read alone."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Optional, Type


class Watchdog:
    """Shuts the attempt's connection down when time is up, so that a blocked read ends."""

    def __init__(self, seconds: float) -> None:
        self._lock = threading.Lock()
        self._connection: Optional[socket.socket] = None
        self._is_over = False
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def watch(self, connection: Optional[socket.socket]) -> None:
        """Names the connection of the attempt. One that comes after the end is shut down at once."""
        with self._lock:
            self._connection = connection
            if self._is_over:
                self._shut_down()

    @property
    def is_over(self) -> bool:
        """True once time is up."""
        return self._is_over

    def __enter__(self) -> "Watchdog":
        self._timer.start()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._connection = None

    def _end(self) -> None:
        with self._lock:
            self._is_over = True
            self._shut_down()

    def _shut_down(self) -> None:
        if self._connection is None:
            return
        try:
            # Not the method of a TLS socket, which would take its state away under the reader.
            socket.socket.shutdown(self._connection, socket.SHUT_RDWR)
        except OSError:
            pass
