"""HTTP/1.1 as bytes: writes a request, reads an answer within limits. No I/O.

One request per connection, so that a connection that died unseen is never used.
"""

from __future__ import annotations

import re
from typing import List, Optional, Tuple
from urllib.parse import urlsplit

from ..answer import Answer, joined
from ..request import Outgoing
from ..version import VERSION

HEAD_BYTES_MAX = 64 * 1024
"""Longest head of an answer, all 1xx answers before it included."""

_CHUNK_LINE_BYTES_MAX = 1024
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: [^\r\n]*)?")
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?")


class Malformed(Exception):
    """The bytes are no answer of HTTP/1.1, or break a limit."""


def write_request(request: Outgoing, absolute_target: bool = False) -> bytes:
    """Returns the bytes of a request. A proxy needs the whole URL as its target."""
    parts = urlsplit(request.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if absolute_target:
        target = f"{parts.scheme}://{parts.netloc}{target}"
    lines = [f"{request.method} {target} HTTP/1.1", f"host: {parts.netloc}"]
    names = {name for name, _ in request.headers}
    lines += [f"{name}: {value}" for name, value in request.headers]
    if "user-agent" not in names:
        lines.append(f"user-agent: firstwrite-python/{VERSION}")
    if "accept" not in names:
        lines.append("accept: */*")
    lines.append("accept-encoding: identity")
    if request.body is not None or request.method in ("POST", "PUT", "PATCH"):
        lines.append(f"content-length: {len(request.body or b'')}")
    lines.append("connection: close")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (request.body or b"")


def write_connect(host: str, port: int, authorization: Optional[str]) -> bytes:
    """Returns the bytes that ask a proxy for a tunnel."""
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {authority} HTTP/1.1", f"host: {authority}"]
    if authorization:
        lines.append(f"proxy-authorization: {authorization}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


class AnswerReader:
    """Collects the bytes of one answer. `answer` is set once it is whole, or longer than the limit."""

    def __init__(self, method: str, bytes_max: int) -> None:
        self.answer: Optional[Answer] = None
        self._method = method
        self._bytes_max = bytes_max
        self._buffer = bytearray()
        self._head_bytes = 0
        self._scanned = 0
        self._head: Optional[Tuple[int, List[Tuple[str, str]]]] = None
        self._body = bytearray()
        self._length: Optional[int] = None
        self._chunked = False
        self._chunk_left: Optional[int] = None
        self._in_trailer = False

    def feed(self, data: bytes) -> None:
        """Takes bytes from the connection."""
        if self.answer is not None:
            return
        self._buffer += data
        while self._head is None:
            if not self._read_head():
                return
        if self._chunked:
            self._read_chunks()
        else:
            self._read_plain()

    def end(self) -> None:
        """Takes the end of the connection. It ends an answer that has no length of its own."""
        if self.answer is None and self._head is not None and not self._chunked and self._length is None:
            self._finish(truncated=False)

    def _read_head(self) -> bool:
        end = _end_of_head(self._buffer, self._scanned)
        if end is None:
            self._scanned = max(0, len(self._buffer) - 3)
            if self._head_bytes + len(self._buffer) > HEAD_BYTES_MAX:
                raise Malformed("the head of the answer is too long")
            return False
        self._head_bytes += end
        if self._head_bytes > HEAD_BYTES_MAX:
            raise Malformed("the head of the answer is too long")
        lines = bytes(self._buffer[:end]).replace(b"\r\n", b"\n").rstrip(b"\n").split(b"\n")
        del self._buffer[:end]
        self._scanned = 0
        status, headers = _head(lines)
        if status == 101:
            raise Malformed("the server changed the protocol")
        if 100 <= status < 200:
            return True
        self._head = (status, headers)
        self._frame(status, headers)
        return True

    def _frame(self, status: int, headers: List[Tuple[str, str]]) -> None:
        lengths = {
            part.strip() for name, value in headers if name == "content-length" for part in value.split(",")
        }
        codings = [
            part.strip().lower()
            for name, value in headers
            if name == "transfer-encoding"
            for part in value.split(",")
        ]
        if self._method == "HEAD" or status in (204, 304):
            self._length = 0
        elif codings:
            if codings != ["chunked"]:
                raise Malformed("the answer has a transfer coding other than chunked")
            self._chunked = True
        elif lengths:
            length = lengths.pop()
            if lengths or not length.isascii() or not length.isdigit() or len(length) > 15:
                raise Malformed("the answer has no clear length")
            self._length = int(length)

    def _read_plain(self) -> None:
        room = self._bytes_max - len(self._body)
        wanted = room if self._length is None else min(room, self._length - len(self._body))
        self._body += self._buffer[:wanted]
        if self._length is not None and len(self._body) >= self._length:
            self._finish(truncated=False)
        elif len(self._buffer) > wanted or (self._length is not None and len(self._body) >= self._bytes_max):
            self._finish(truncated=True)
        self._buffer.clear()

    def _read_chunks(self) -> None:
        while self.answer is None:
            if self._chunk_left is None or self._chunk_left == 0:
                line = self._line()
                if line is None:
                    return
                self._chunk_line(line)
                continue
            # The line break after a chunk is read with it.
            data_left = self._chunk_left - 2
            if not self._buffer:
                return
            if data_left > 0:
                taken = bytes(self._buffer[:data_left])
                room = self._bytes_max - len(self._body)
                self._body += taken[:room]
                if len(taken) > room:
                    self._finish(truncated=True)
                    return
            else:
                taken = bytes(self._buffer[: self._chunk_left])
                if taken != b"\r\n"[-self._chunk_left :][: len(taken)]:
                    raise Malformed("a chunk is longer than it says")
            del self._buffer[: len(taken)]
            self._chunk_left -= len(taken)

    def _chunk_line(self, line: bytes) -> None:
        if self._in_trailer:
            if not line:
                self._finish(truncated=False)
            return
        match = _CHUNK_SIZE.fullmatch(line)
        if not match:
            raise Malformed("a chunk has no length")
        size = int(match.group(1), 16)
        self._in_trailer = size == 0
        self._chunk_left = size + 2 if size else None

    def _line(self) -> Optional[bytes]:
        end = self._buffer.find(b"\n")
        if end < 0:
            if len(self._buffer) > _CHUNK_LINE_BYTES_MAX:
                raise Malformed("a line between chunks is too long")
            return None
        line = bytes(self._buffer[:end]).rstrip(b"\r")
        del self._buffer[: end + 1]
        self._head_bytes += end + 1 if self._in_trailer else 0
        if self._head_bytes > HEAD_BYTES_MAX or len(line) > _CHUNK_LINE_BYTES_MAX:
            raise Malformed("the trailer of the answer is too long")
        return line

    def _finish(self, truncated: bool) -> None:
        assert self._head is not None, "a body follows a head"
        status, headers = self._head
        self.answer = Answer(status, joined(headers), bytes(self._body), truncated)


def _end_of_head(buffer: bytearray, start: int) -> Optional[int]:
    ends = []
    for mark in (b"\r\n\r\n", b"\n\n"):
        found = buffer.find(mark, start)
        if found >= 0:
            ends.append(found + len(mark))
    return min(ends) if ends else None


def _head(lines: List[bytes]) -> Tuple[int, List[Tuple[str, str]]]:
    match = _STATUS_LINE.fullmatch(lines[0])
    if not match:
        raise Malformed("the answer does not begin with a status")
    headers = []
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if not colon or not _TOKEN.fullmatch(name):
            raise Malformed("the answer has a header that cannot be read")
        headers.append((name.decode("ascii").lower(), value.strip(b" \t").decode("latin-1")))
    return int(match.group(1)), headers
