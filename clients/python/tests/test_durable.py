"""Before a byte of a request is sent, another process can read its entry, with the attempt marked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from typing import Callable, List

from firstwrite import Answer, Client, FileStorage, Outgoing, SocketTransport, SqliteStorage
from tests.servers import Connection, RawServer

READ = """
import json, sys
from firstwrite import FileStorage, SqliteStorage
from firstwrite.entry import decode
storage = {"files": FileStorage, "sqlite": SqliteStorage}[sys.argv[1]](sys.argv[2])
item = storage.read("checkout/cart_42")
entry = decode(item.data, item.where)
print(json.dumps([entry.key, entry.attempts, entry.doubt, entry.state]))
"""


class Looking:
    """A transport that lets another process read the entry before it sends."""

    def __init__(self, kind: str, path: str) -> None:
        self._kind = kind
        self._path = path
        self._inner = SocketTransport()
        self.seen: List[List[object]] = []

    def send(self, request: Outgoing, timeout: float, bytes_max: int, on_sent: Callable[[], None]) -> Answer:
        self.look()
        assert (
            dict(request.headers)["idempotency-key"] == f'"{self.seen[-1][0]}"'
        ), "the key is not the stored one"
        return self._inner.send(request, timeout, bytes_max, on_sent)

    def look(self) -> None:
        source = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src")
        output = subprocess.check_output(
            [sys.executable, "-c", READ, self._kind, self._path],
            env={**os.environ, "PYTHONPATH": os.environ.get("FIRSTWRITE_INSTALLED", source)},
        )
        self.seen.append(json.loads(output))

    def close(self) -> None:
        pass


class Durable(unittest.TestCase):
    def test_another_process_reads_the_mark_before_the_request_and_the_end_after_it(self) -> None:
        folder = tempfile.mkdtemp(prefix="firstwrite-durable-")
        self.addCleanup(shutil.rmtree, folder)
        answers = [b"HTTP/1.1 429 Slow\r\n", b"HTTP/1.1 201 Created\r\nIdempotent-Replayed: true\r\n"]

        def script(connection: Connection) -> None:
            connection.request()
            connection.send(answers[(len(server.requests) - 1) % 2] + b"Content-Length: 0\r\n\r\n")

        for kind, storage in (
            ("files", FileStorage(os.path.join(folder, "files"))),
            ("sqlite", SqliteStorage(os.path.join(folder, "sqlite"))),
        ):
            with self.subTest(kind), RawServer(script) as server:
                transport = Looking(kind, os.path.join(folder, kind))
                with Client(storage=storage, transport=transport, random=lambda: 0.0) as client:
                    with client.intent("checkout/cart_42", "POST", server.url + "/payments", json={}) as pay:
                        pay.send()
                        transport.look()
                self.assertEqual(
                    [seen[1:] for seen in transport.seen],
                    [[1, True, "sending"], [2, True, "sending"], [2, True, "done"]],
                )
