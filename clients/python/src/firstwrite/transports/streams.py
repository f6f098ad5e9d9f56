"""The transport of `AsyncClient`: asyncio's streams, one connection per attempt."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Optional, Tuple
from urllib.parse import urlsplit

from ..answer import Answer
from ..errors import Lost, NotSent
from ..request import Outgoing
from .http1 import AnswerReader, Malformed, write_connect
from .model import OnSent
from .proxies import Proxy, environment_proxy
from .sockets import check_tunnel, reason, request_bytes

_READ_BYTES = 64 * 1024
_Streams = Tuple[asyncio.StreamReader, asyncio.StreamWriter]


class StreamTransport:
    """Carries attempts over a new connection each, with the settings of `SocketTransport`."""

    def __init__(self, ssl_context: Optional[ssl.SSLContext] = None, trust_environment: bool = True) -> None:
        self._ssl_context = ssl_context
        self._trust_environment = trust_environment

    async def send(self, request: Outgoing, timeout: float, bytes_max: int, on_sent: OnSent) -> Answer:
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        try:
            proxy = environment_proxy(request.url) if self._trust_environment else None
            reader, writer = await asyncio.wait_for(self._connect(request, proxy), timeout)
        except (OSError, ValueError, Malformed, asyncio.TimeoutError, asyncio.IncompleteReadError) as error:
            # No byte of the request was written.
            raise NotSent(reason("cannot connect", error)) from error
        try:
            writer.write(request_bytes(request, proxy))
            exchange = _exchange(reader, writer, request.method, bytes_max, on_sent)
            answer = await asyncio.wait_for(exchange, max(0.0, until - loop.time()))
        except (OSError, Malformed, asyncio.TimeoutError) as error:
            raise Lost(reason("the answer was lost", error)) from error
        finally:
            # Without this, closing would wait for bytes that the server does not take.
            writer.transport.abort()
        if answer is None:
            raise Lost("the answer was lost: the connection ended before it was whole")
        return answer

    async def aclose(self) -> None:
        """Does nothing: no connection is held open between attempts."""

    def _tls(self) -> ssl.SSLContext:
        if self._ssl_context is None:
            self._ssl_context = ssl.create_default_context()
        return self._ssl_context

    async def _connect(self, request: Outgoing, proxy: Optional[Proxy]) -> _Streams:
        parts = urlsplit(request.url)
        host = parts.hostname or ""
        tls = self._tls() if parts.scheme == "https" else None
        port = parts.port or (443 if tls else 80)
        if proxy is None:
            if tls is None:
                return await asyncio.open_connection(host, port)
            return await asyncio.open_connection(host, port, ssl=tls, server_hostname=host)
        if tls is None:
            return await asyncio.open_connection(proxy.host, proxy.port)
        connection = await _tunnel(proxy, host, port)
        try:
            return await asyncio.open_connection(sock=connection, ssl=tls, server_hostname=host)
        except BaseException:
            connection.close()
            raise


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, method: str, bytes_max: int, on_sent: OnSent
) -> Optional[Answer]:
    parsed = AnswerReader(method, bytes_max)
    # Read while writing: a server may answer and close before it has read everything.
    drained = asyncio.ensure_future(_drain(writer, on_sent))
    try:
        while parsed.answer is None:
            received = await reader.read(_READ_BYTES)
            if not received:
                parsed.end()
                break
            parsed.feed(received)
        return parsed.answer
    finally:
        drained.cancel()


async def _drain(writer: asyncio.StreamWriter, on_sent: OnSent) -> None:
    try:
        await writer.drain()
    except OSError:
        # Reading tells the same, unless there is an answer to read.
        return
    on_sent()


async def _tunnel(proxy: Proxy, host: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(proxy.host, proxy.port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = addresses[0]
    connection = socket.socket(family, kind, protocol)
    try:
        connection.setblocking(False)
        await loop.sock_connect(connection, address)
        await loop.sock_sendall(connection, write_connect(host, port, proxy.authorization))
        # A tunnel's answer has no body; HEAD says so to the reader.
        reader = AnswerReader("HEAD", 0)
        while reader.answer is None:
            # Byte by byte: what follows the answer belongs to the tunnel.
            data = await loop.sock_recv(connection, 1)
            if not data:
                raise OSError("the proxy closed the connection")
            reader.feed(data)
        check_tunnel(reader.answer)
        return connection
    except BaseException:
        connection.close()
        raise
