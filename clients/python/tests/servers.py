"""A server of raw sockets, which answers, breaks off, resets or hangs as a test says."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import threading
from types import TracebackType
from typing import Callable, List, Optional, Type

CERTIFICATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "certificates", "server.pem")
_KEY = os.path.join(os.path.dirname(CERTIFICATE), "server.key")

Script = Callable[["Connection"], None]


class Connection:
    """One accepted connection."""

    def __init__(self, raw: socket.socket, server: "RawServer") -> None:
        self.raw = raw
        self.server = server

    def request(self) -> bytes:
        """Reads one request, head and body."""
        data = b""
        while b"\r\n\r\n" not in data:
            received = self.raw.recv(65536)
            if not received:
                return data
            data += received
        head, _, body = data.partition(b"\r\n\r\n")
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        while len(body) < length:
            received = self.raw.recv(65536)
            if not received:
                break
            body += received
        whole = head + b"\r\n\r\n" + body
        self.server.requests.append(whole)
        return whole

    def send(self, data: bytes) -> None:
        self.raw.sendall(data)

    def reset(self) -> None:
        """Ends the connection with a reset."""
        self.raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.raw.close()

    def hang(self) -> None:
        """Says nothing until the client ends the connection or the server stops."""
        try:
            while self.raw.recv(65536):
                pass
        except OSError:
            pass


class RawServer:
    """Runs a script for each connection, in a thread each."""

    def __init__(self, script: Script, tls: bool = False) -> None:
        self.requests: List[bytes] = []
        self.accepted = 0
        self._script = script
        self._tls = tls_context() if tls else None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._connections: List[socket.socket] = []
        self._threads: List[threading.Thread] = []
        self._acceptor = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> "RawServer":
        self._acceptor.start()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        # Closing a socket does not wake a thread that accepts on it; shutting it down does.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._listener.close()
        for connection in self._connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                raw, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            self._connections.append(raw)
            thread = threading.Thread(target=self._serve, args=(raw,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, raw: socket.socket) -> None:
        try:
            if self._tls is not None:
                raw = self._tls.wrap_socket(raw, server_side=True)
                self._connections.append(raw)
            with raw:
                self._script(Connection(raw, self))
        except OSError:
            # The client went away, as some tests want.
            raw.close()


def tls_context() -> ssl.SSLContext:
    """Returns the context of a server with the tests' certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, _KEY)
    return context


def trusting_context() -> ssl.SSLContext:
    """Returns the context of a client that trusts the tests' certificate."""
    return ssl.create_default_context(cafile=CERTIFICATE)


def closed_port() -> int:
    """Returns a port on which no server listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
