"""Transports over `httpx`, sync and async. Install them with `pip install firstwrite[httpx]`."""

from __future__ import annotations

import asyncio
import socket
import ssl
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

import httpx

from ..answer import Answer, joined
from ..errors import Lost, NotSent
from ..request import Outgoing
from .model import OnSent
from .proxies import environment_proxy
from .sockets import reason
from .watchdog import Watchdog

_BEFORE_SENDING = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
    httpx.InvalidURL,
)
_FAILURES = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, httpx.CookieConflict, OSError, ValueError)


class HttpxTransport:
    """Carries attempts by an `httpx.Client`.

    Without a client of yours each attempt has a new connection, and proxies of the environment are used except for
    loopback addresses. A client of yours keeps its settings, save that redirects are not followed.
    The time limit holds for the whole attempt on a new connection, and for each read on a reused one.
    """

    def __init__(
        self, client: Optional[httpx.Client] = None, ssl_context: Optional[ssl.SSLContext] = None
    ) -> None:
        self._client = client
        self._own: Dict[Optional[str], httpx.Client] = {}
        self._ssl_context = ssl_context

    def send(self, request: Outgoing, timeout: float, bytes_max: int, on_sent: OnSent) -> Answer:
        trace = _Trace(on_sent)
        try:
            client = self._client_for(request.url)
            built = _build(client, request, timeout, trace.event)
        except _FAILURES as error:
            raise NotSent(reason("cannot connect", error)) from error
        with Watchdog(timeout) as watchdog:
            trace.watchdog = watchdog
            try:
                response = client.send(built, stream=True, follow_redirects=False)
                try:
                    body = _Body(bytes_max)
                    for data in response.iter_raw():
                        if not body.take(data):
                            break
                finally:
                    response.close()
            except _FAILURES as error:
                raise trace.failure(error) from error
        return body.answer(response)

    def close(self) -> None:
        """Closes the transport's own clients."""
        clients, self._own = self._own, {}
        for client in clients.values():
            client.close()

    def _client_for(self, url: str) -> httpx.Client:
        if self._client is not None:
            return self._client
        proxy = environment_proxy(url)
        address = proxy.url if proxy else None
        if address not in self._own:
            self._own[address] = httpx.Client(**_settings(self._ssl_context, address))
        return self._own[address]


class AsyncHttpxTransport:
    """As `HttpxTransport`, by an `httpx.AsyncClient`. The time limit always holds for the whole attempt."""

    def __init__(
        self, client: Optional[httpx.AsyncClient] = None, ssl_context: Optional[ssl.SSLContext] = None
    ) -> None:
        self._client = client
        self._own: Dict[Optional[str], httpx.AsyncClient] = {}
        self._ssl_context = ssl_context

    async def send(self, request: Outgoing, timeout: float, bytes_max: int, on_sent: OnSent) -> Answer:
        trace = _Trace(on_sent)
        try:
            client = self._client_for(request.url)
            built = _build(client, request, timeout, trace.async_event)
        except _FAILURES as error:
            raise NotSent(reason("cannot connect", error)) from error
        try:
            return await asyncio.wait_for(_exchange(client, built, bytes_max), timeout)
        except (*_FAILURES, asyncio.TimeoutError) as error:
            raise trace.failure(error) from error

    async def aclose(self) -> None:
        """Closes the transport's own clients."""
        clients, self._own = self._own, {}
        for client in clients.values():
            await client.aclose()

    def _client_for(self, url: str) -> httpx.AsyncClient:
        if self._client is not None:
            return self._client
        proxy = environment_proxy(url)
        address = proxy.url if proxy else None
        if address not in self._own:
            self._own[address] = httpx.AsyncClient(**_settings(self._ssl_context, address))
        return self._own[address]


async def _exchange(client: httpx.AsyncClient, request: httpx.Request, bytes_max: int) -> Answer:
    response = await client.send(request, stream=True, follow_redirects=False)
    try:
        body = _Body(bytes_max)
        async for data in response.aiter_raw():
            if not body.take(data):
                break
    finally:
        await response.aclose()
    return body.answer(response)


class _Trace:
    """Learns from httpcore's trace whether an attempt began to send its request."""

    def __init__(self, on_sent: OnSent) -> None:
        self.watchdog: Optional[Watchdog] = None
        self._on_sent = on_sent
        self._has_events = False
        self._has_begun = False

    def event(self, name: str, info: Mapping[str, Any]) -> None:
        self._has_events = True
        if name.endswith(("connect_tcp.complete", "start_tls.complete")) and self.watchdog is not None:
            connection = info["return_value"].get_extra_info("socket")
            self.watchdog.watch(connection if isinstance(connection, socket.socket) else None)
        if name.endswith("send_request_headers.started"):
            if self.watchdog is not None and self.watchdog.is_over:
                # A pool may give its connection after the time of the attempt.
                raise httpx.PoolTimeout("time ran out")
            # A tunnel's CONNECT is not the request.
            self._has_begun = info["request"].method != b"CONNECT"
        elif name.endswith("send_request_body.complete") and self._has_begun:
            self._on_sent()

    async def async_event(self, name: str, info: Mapping[str, Any]) -> None:
        self.event(name, info)

    def failure(self, error: Exception) -> Union[NotSent, Lost]:
        """Returns what a failure means. A transport that does not trace is believed only where httpx is clear."""
        not_sent = self._has_events or isinstance(error, _BEFORE_SENDING)
        if not_sent and not self._has_begun:
            return NotSent(reason("cannot connect", error))
        return Lost(reason("the answer was lost", error))


class _Body:
    """Collects a body up to a limit."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._data = bytearray()
        self._truncated = False

    def take(self, data: bytes) -> bool:
        room = self._bytes_max - len(self._data)
        self._data += data[:room]
        self._truncated = len(data) > room
        return not self._truncated

    def answer(self, response: httpx.Response) -> Answer:
        pairs: List[Tuple[str, str]] = [
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers.raw
        ]
        return Answer(response.status_code, joined(pairs), bytes(self._data), self._truncated)


def _build(
    client: Union[httpx.Client, httpx.AsyncClient], request: Outgoing, timeout: float, trace: object
) -> httpx.Request:
    headers = {**dict(request.headers), "accept-encoding": "identity"}
    encoded = [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]
    return client.build_request(
        request.method,
        request.url,
        headers=encoded,
        content=request.body,
        timeout=timeout,
        extensions={"trace": trace},
    )


def _settings(ssl_context: Optional[ssl.SSLContext], proxy: Optional[str]) -> Dict[str, Any]:
    return {
        "verify": ssl_context or ssl.create_default_context(),
        "proxy": proxy,
        # The environment's proxies are chosen for each URL instead.
        "trust_env": False,
        "limits": httpx.Limits(max_keepalive_connections=0),
        # A cookie is a credential, and comes from the `credentials` hook alone.
        "cookies": CookieJar(DefaultCookiePolicy(allowed_domains=[])),
    }
