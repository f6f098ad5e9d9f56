"""Transports carry one attempt: one request, one answer, no redirect, no retry.

`SocketTransport` and `StreamTransport` need the standard library alone. `httpx` and `requests` have modules of
their own, `firstwrite.transports.httpx` and `firstwrite.transports.requests`.
"""

from __future__ import annotations

from .model import AsyncTransport, Transport
from .sockets import SocketTransport
from .streams import StreamTransport

__all__ = ["AsyncTransport", "SocketTransport", "StreamTransport", "Transport"]
