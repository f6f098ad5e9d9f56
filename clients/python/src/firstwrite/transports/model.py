"""The interface of a transport."""

from __future__ import annotations

from typing import Callable, Protocol

from ..answer import Answer
from ..request import Outgoing

OnSent = Callable[[], None]


class Transport(Protocol):
    """Carries one attempt.

    `send` takes about `timeout` seconds at most, reads at most `bytes_max` of a body, follows no redirect and
    tries once. It raises `NotSent` only if not a byte of the request was sent, `Lost` if a byte may have been sent
    and there is no whole answer. It calls `on_sent` when the whole request has been written, if it can tell.
    """

    def send(self, request: Outgoing, timeout: float, bytes_max: int, on_sent: OnSent) -> Answer:
        """Sends a request and returns the answer."""

    def close(self) -> None:
        """Frees what the transport holds open."""


class AsyncTransport(Protocol):
    """As `Transport`, for asyncio."""

    async def send(self, request: Outgoing, timeout: float, bytes_max: int, on_sent: OnSent) -> Answer:
        """Sends a request and returns the answer."""

    async def aclose(self) -> None:
        """Frees what the transport holds open."""
