"""Servers that others wrote, started from copies of their folders, and a proxy in front of them that loses answers."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.request
from typing import Any, Dict, List, Optional

from firstwrite import Client, SqliteStorage
from tests.servers import closed_port

PEERS = "FIRSTWRITE_PEERS"
"""Folder of the peers, each with a `run.sh PORT`."""
BINARY = "FIRSTWRITE_BINARY"
"""The built program, for a gateway in front of a server that ignores keys."""
REQUIRED = "FIRSTWRITE_TEST_FOREIGN"
"""Set, the tests fail where one of the two above is missing."""


def needs_peers() -> None:
    """Skips a test if there are no peers. They are given by people who have them, in CI too."""
    for variable in (PEERS, BINARY):
        if not os.environ.get(variable):
            message = f"{variable} is not set"
            if os.environ.get(REQUIRED):
                raise AssertionError(message)
            raise unittest.SkipTest(message)


AT_ONCE = 10
SECONDS_TO_START = 180

_folder: Optional[str] = None


def remove_copies() -> None:
    """Removes what the peers installed beside their copies."""
    global _folder
    if _folder is not None:
        shutil.rmtree(_folder, ignore_errors=True)
        _folder = None


def _copy(name: str) -> str:
    """Returns the copy of a peer's folder, in which it installs itself once."""
    global _folder
    peers = os.environ[PEERS]
    if _folder is None:
        _folder = tempfile.mkdtemp(prefix="firstwrite-peers-")
        shutil.copy(os.path.join(peers, "lib.sh"), _folder)
    copy = os.path.join(_folder, name)
    if not os.path.isdir(copy):
        shutil.copytree(os.path.join(peers, name), copy)
    return copy


class CuttingProxy:
    """Passes requests on, one per connection, and loses answers by a seeded plan."""

    def __init__(self, port: int, seed: int, cuts: Dict[str, float]) -> None:
        self._upstream = port
        self._chance = random.Random(seed)
        self._cuts = cuts
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port: int = self._listener.getsockname()[1]
        self.counts: Dict[str, int] = {}
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _fault(self) -> str:
        with self._lock:
            draw = self._chance.random()
            for fault, chance in self._cuts.items():
                draw -= chance
                if draw < 0:
                    break
            else:
                fault = "ok"
            self.counts[fault] = self.counts.get(fault, 0) + 1
            return fault

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            request = _read_message(connection)
            fault = self._fault()
            if not request or fault == "cut-before":
                return
            with socket.create_connection(("127.0.0.1", self._upstream)) as upstream:
                upstream.sendall(request)
                if fault == "cut-early":
                    # The request is carried out, and its answer is not waited for.
                    return
                answer = _read_message(upstream)
            if fault == "cut-after":
                return
            connection.sendall(answer[: len(answer) // 2] if fault == "cut-half" else answer)


def _read_message(connection: socket.socket) -> bytes:
    data = b""
    while True:
        head, found, body = data.partition(b"\r\n\r\n")
        if found:
            lowered = head.lower()
            if b"transfer-encoding: chunked" in lowered:
                if body.endswith(b"0\r\n\r\n"):
                    return data
            else:
                lengths = [line for line in lowered.split(b"\r\n") if line.startswith(b"content-length:")]
                if len(body) >= (int(lengths[0].partition(b":")[2]) if lengths else 0):
                    return data
        received = connection.recv(65536)
        if not received:
            return data
        data += received


class Peer(unittest.TestCase):
    """One peer, started from a copy of its folder."""

    def setUp(self) -> None:
        needs_peers()

    def start(self, name: str, probe: str) -> int:
        port = closed_port()
        self.run_process(["bash", "run.sh", str(port)], _copy(name))
        self.wait_for(f"http://127.0.0.1:{port}{probe}")
        return port

    def run_process(self, command: List[str], folder: str) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(self.stop, process)
        return process

    def stop(self, process: "subprocess.Popen[bytes]") -> None:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)

    def wait_for(self, url: str) -> None:
        pause = threading.Event()
        for _ in range(SECONDS_TO_START * 5):
            try:
                with urllib.request.urlopen(url, timeout=5):
                    return
            except urllib.error.HTTPError:
                return
            except OSError:
                pause.wait(0.2)
        self.fail(f"{url} did not start")

    def client(self, **settings: Any) -> Client:
        folder = tempfile.mkdtemp(prefix="firstwrite-foreign-")
        self.addCleanup(shutil.rmtree, folder)
        settings.setdefault("random", lambda: random.random() * 0.1)
        client = Client(storage=SqliteStorage(os.path.join(folder, "intents.db")), **settings)
        self.addCleanup(client.close)
        return client

    def proxy(self, port: int, cuts: Dict[str, float]) -> CuttingProxy:
        proxy = CuttingProxy(port, seed=int(os.environ.get("FIRSTWRITE_SEED", "1")), cuts=cuts)
        self.addCleanup(proxy.close)
        return proxy

    def at_once(self, names: List[str], work: Any) -> Dict[str, List[Any]]:
        """Calls `work` with each name, ten at once."""
        results: Dict[str, List[Any]] = {}
        lock = threading.Lock()
        left = list(names)

        def loop() -> None:
            while True:
                with lock:
                    if not left:
                        return
                    name = left.pop(0)
                result = work(name)
                with lock:
                    results.setdefault(name, []).append(result)

        threads = [threading.Thread(target=loop) for _ in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sum(len(found) for found in results.values()), len(names), "a thread failed")
        return results

    def tell(self, what: str, **figures: object) -> None:
        print(
            f"\n{what}: " + ", ".join(f"{name} {value}" for name, value in figures.items()), file=sys.stderr
        )
