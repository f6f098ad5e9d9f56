"""All transports behind one call, for tests that ask the same of each."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import ssl
import unittest
from typing import Any, Callable, List, Optional, Union

from firstwrite import Answer, Lost, NotSent, Outgoing, SocketTransport, StreamTransport
from tests.servers import CERTIFICATE, trusting_context

Result = Union[Answer, str]


class Carrier:
    """One transport. `trusts` says whether it knows the tests' certificate."""

    def __init__(self, name: str, make: Callable[[bool], Any], is_async: bool) -> None:
        self.name = name
        self._make = make
        self._is_async = is_async

    def send(
        self,
        url: str,
        body: Optional[bytes] = b"{}",
        timeout: float = 10.0,
        bytes_max: int = 1024 * 1024,
        trusts: bool = True,
        method: str = "POST",
        sent: Optional[List[str]] = None,
    ) -> Result:
        """Returns an answer, or `not-sent` or `lost`."""
        headers = (("content-type", "application/json"), ("idempotency-key", '"k"'))
        request = Outgoing(method, url, headers, body)
        steps: List[str] = [] if sent is None else sent

        def on_sent() -> None:
            steps.append("sent")

        try:
            if self._is_async:
                return asyncio.run(self._send_async(request, timeout, bytes_max, trusts, on_sent))
            transport = self._make(trusts)
            try:
                answer = transport.send(request, timeout, bytes_max, on_sent)
            finally:
                transport.close()
        except NotSent:
            return "not-sent"
        except Lost:
            return "lost"
        assert isinstance(answer, Answer), "a transport returns an answer"
        return answer

    async def _send_async(
        self, request: Outgoing, timeout: float, bytes_max: int, trusts: bool, on_sent: Callable[[], None]
    ) -> Answer:
        transport = self._make(trusts)
        try:
            answer = await transport.send(request, timeout, bytes_max, on_sent)
        finally:
            await transport.aclose()
        assert isinstance(answer, Answer), "a transport returns an answer"
        return answer


def _context(trusts: bool) -> Optional[ssl.SSLContext]:
    return trusting_context() if trusts else None


def _httpx(trusts: bool) -> Any:
    from firstwrite.transports.httpx import HttpxTransport

    return HttpxTransport(ssl_context=_context(trusts))


def _async_httpx(trusts: bool) -> Any:
    from firstwrite.transports.httpx import AsyncHttpxTransport

    return AsyncHttpxTransport(ssl_context=_context(trusts))


def _requests(trusts: bool) -> Any:
    from firstwrite.transports.requests import RequestsTransport

    return RequestsTransport(verify=CERTIFICATE if trusts else True)


_ALL = [
    Carrier("sockets", lambda trusts: SocketTransport(_context(trusts)), is_async=False),
    Carrier("streams", lambda trusts: StreamTransport(_context(trusts)), is_async=True),
    Carrier("httpx", _httpx, is_async=False),
    Carrier("httpx, async", _async_httpx, is_async=True),
    Carrier("requests", _requests, is_async=False),
]


def is_installed(package: str) -> bool:
    """Returns true if an extra can be tested."""
    return importlib.util.find_spec(package) is not None


def needs(package: str) -> None:
    """Skips a test whose package is not installed. In CI that is a failure."""
    if not is_installed(package):
        if os.environ.get("CI"):
            raise AssertionError(f"{package} is not installed")
        raise unittest.SkipTest(f"{package} is not installed")


EXTRAS = ("httpx", "requests")
CARRIERS = [
    carrier
    for carrier in _ALL
    if carrier.name.partition(",")[0] not in EXTRAS or is_installed(carrier.name.partition(",")[0])
]
