"""The transport of `Client`: sockets of the standard library, one connection per attempt."""

from __future__ import annotations

import socket
import ssl
import time
from dataclasses import replace
from typing import Optional
from urllib.parse import urlsplit

from ..answer import Answer
from ..errors import Lost, NotSent
from ..request import Outgoing
from .http1 import AnswerReader, Malformed, write_connect, write_request
from .model import OnSent
from .proxies import Proxy, environment_proxy

_CHUNK_BYTES = 64 * 1024


class SocketTransport:
    """Carries attempts over a new connection each.

    `ssl_context` is for servers with certificates of their own; `trust_environment` says whether proxies of the
    environment are used, which loopback addresses never do. The time limit holds for the whole attempt.
    """

    def __init__(self, ssl_context: Optional[ssl.SSLContext] = None, trust_environment: bool = True) -> None:
        self._ssl_context = ssl_context
        self._trust_environment = trust_environment

    def send(self, request: Outgoing, timeout: float, bytes_max: int, on_sent: OnSent) -> Answer:
        until = time.monotonic() + timeout
        try:
            proxy = environment_proxy(request.url) if self._trust_environment else None
            connection = self._connect(request, proxy, until)
        except (OSError, ValueError, Malformed) as error:
            # `ssl.SSLError` and `socket.gaierror` are OSErrors. No byte of the request was written.
            raise NotSent(reason("cannot connect", error)) from error
        with connection:
            return _exchange(
                connection, request_bytes(request, proxy), request.method, until, bytes_max, on_sent
            )

    def close(self) -> None:
        """Does nothing: no connection is held open between attempts."""

    def _connect(self, request: Outgoing, proxy: Optional[Proxy], until: float) -> socket.socket:
        parts = urlsplit(request.url)
        host = parts.hostname or ""
        tls = parts.scheme == "https"
        port = parts.port or (443 if tls else 80)
        connection = _dial(*((proxy.host, proxy.port) if proxy else (host, port)), until)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not tls:
                return connection
            if proxy:
                _open_tunnel(connection, host, port, proxy, until)
            connection.settimeout(_left(until))
            if self._ssl_context is None:
                self._ssl_context = ssl.create_default_context()
            return self._ssl_context.wrap_socket(connection, server_hostname=host)
        except BaseException:
            connection.close()
            raise


def _dial(host: str, port: int, until: float) -> socket.socket:
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure: OSError = OSError("the name has no address")
    for number, (family, kind, protocol, _, address) in enumerate(addresses):
        connection = socket.socket(family, kind, protocol)
        try:
            # An address that does not answer leaves time for the others.
            connection.settimeout(_left(until) / (len(addresses) - number))
            connection.connect(address)
            return connection
        except OSError as error:
            failure = error
            connection.close()
        except BaseException:
            connection.close()
            raise
    raise failure


def request_bytes(request: Outgoing, proxy: Optional[Proxy]) -> bytes:
    """Returns the bytes of a request, as the server or the proxy reads them."""
    if proxy is None or request.url.startswith("https:"):
        return write_request(request)
    if proxy.authorization:
        headers = (*request.headers, ("proxy-authorization", proxy.authorization))
        request = replace(request, headers=headers)
    return write_request(request, absolute_target=True)


def _open_tunnel(connection: socket.socket, host: str, port: int, proxy: Proxy, until: float) -> None:
    connection.settimeout(_left(until))
    connection.sendall(write_connect(host, port, proxy.authorization))
    # A tunnel's answer has no body; HEAD says so to the reader.
    reader = AnswerReader("HEAD", 0)
    while reader.answer is None:
        connection.settimeout(_left(until))
        # Byte by byte: what follows the answer belongs to the tunnel.
        data = connection.recv(1)
        if not data:
            raise OSError("the proxy closed the connection")
        reader.feed(data)
    check_tunnel(reader.answer)


def check_tunnel(answer: Answer) -> None:
    """Raises an error if a proxy did not open a tunnel."""
    if not 200 <= answer.status < 300:
        raise OSError(f"the proxy answered {answer.status}")


def _exchange(
    connection: socket.socket, data: bytes, method: str, until: float, bytes_max: int, on_sent: OnSent
) -> Answer:
    reader = AnswerReader(method, bytes_max)
    try:
        try:
            view = memoryview(data)
            while view:
                connection.settimeout(_left(until))
                view = view[connection.send(view[:_CHUNK_BYTES]) :]
            on_sent()
        except (BrokenPipeError, ConnectionResetError):
            # A server may answer and close before it has read everything; the answer counts if it is whole.
            pass
        while reader.answer is None:
            connection.settimeout(_left(until))
            received = connection.recv(_CHUNK_BYTES)
            if not received:
                reader.end()
                break
            reader.feed(received)
    except (OSError, Malformed) as error:
        raise Lost(reason("the answer was lost", error)) from error
    if reader.answer is None:
        raise Lost("the answer was lost: the connection ended before it was whole")
    return reader.answer


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise socket.timeout("time ran out")
    return left


def reason(what: str, error: Exception) -> str:
    """Returns a message for people. Some errors have no text of their own."""
    return f"{what}: {error or type(error).__name__}"
