"""Nothing is sent, and no end is told, before what was written is on the disk: seen from outside, by strace.

It follows every file of the storage: what was written or made since the last sync must not be there when a
connection is opened, when bytes of a request leave, or when the program prints the end.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from typing import Dict, List, Set

from tests.servers import Connection, RawServer

PAY = """
import asyncio, os, sys
from firstwrite import AsyncClient, Client, FileStorage, SqliteStorage
kind, place, url = sys.argv[1:]
path = place + "/deep/er"
settings = {"random": lambda: 0.0}
async def pay() -> None:
    async with AsyncClient(storage=SqliteStorage(place + "/intents.db"), **settings) as client:
        end = await (await client.intent("checkout/cart_42", "POST", url, json={"amount": 1})).send()
        os.write(1, f"ended {end.kind}\\n".encode())
if kind == "async":
    asyncio.run(pay())
else:
    storage = FileStorage(path) if kind == "files" else SqliteStorage(place + "/intents.db")
    with Client(storage=storage, **settings) as client:
        end = client.intent("checkout/cart_42", "POST", url, json={"amount": 1}).send()
        os.write(1, f"ended {end.kind}\\n".encode())
"""
CALLS = "openat,mkdir,write,pwrite64,writev,fsync,fdatasync,rename,ftruncate,unlink,connect,sendto,sendmsg"
_CALL = re.compile(r"^(?:\[pid +(\d+)\] |(\d+) +)?(\w+)\((.*?)(?:\)\s+= (-?\d+).*| <unfinished \.\.\.>)$", re.DOTALL)
_RESUMED = re.compile(r"^(?:\[pid +(\d+)\] |(\d+) +)?<\.\.\. (\w+) resumed>.*= (-?\d+)")
_DESCRIPTOR = re.compile(r"^\d+<([^>]*)>")
_PATHS = re.compile(r'"([^"]*)"')
_NOT_KEPT = ("lock", "-shm", "-journal")
"""Files that need not be there after a crash."""


class Disk:
    """What is written and not yet synced."""

    def __init__(self, place: str) -> None:
        self._place = place
        self.dirty: Set[str] = set()
        self.syncs = 0

    def call(self, name: str, arguments: str) -> None:
        """Takes a call that succeeded."""
        found = _DESCRIPTOR.match(arguments)
        path = found.group(1) if found else ""
        named = [path for path in _PATHS.findall(arguments) if path.startswith(self._place)]
        if name in ("write", "pwrite64", "writev", "ftruncate") and self._counts(path):
            self.dirty.add(path)
        elif name in ("fsync", "fdatasync") and path.startswith(self._place):
            self.dirty.discard(path)
            self.syncs += 1
        elif name == "openat" and "O_CREAT" in arguments and named and self._counts(named[0]):
            # What is renamed later need not be there under its first name.
            self.dirty.update(os.path.dirname(path) for path in named[:1] if not path.endswith(".tmp"))
        elif name in ("rename", "mkdir") and named:
            self.dirty.add(os.path.dirname(named[-1]))
            if name == "rename" and named[0] in self.dirty:
                # Its content was not synced before it took the entry's name.
                self.dirty.remove(named[0])
                self.dirty.add(named[-1])

    def _counts(self, path: str) -> bool:
        return path.startswith(self._place) and not path.endswith(_NOT_KEPT)


class Strace(unittest.TestCase):
    def setUp(self) -> None:
        if shutil.which("strace") is None:
            if os.environ.get("CI"):
                self.fail("strace is not installed")
            self.skipTest("strace is not installed")
        self.place = os.path.realpath(tempfile.mkdtemp(prefix="firstwrite-strace-"))
        self.addCleanup(shutil.rmtree, self.place)

    def trace(self, kind: str, url: str) -> List[str]:
        """Runs the program under strace; returns the lines of the trace."""
        log = os.path.join(self.place, "trace")
        source = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src")
        result = subprocess.run(
            ["strace", "-f", "-y", "-s", "64", "-o", log, "-e", f"trace={CALLS}"]
            + [sys.executable, "-c", PAY, kind, self.place, url],
            env={**os.environ, "PYTHONPATH": os.environ.get("FIRSTWRITE_INSTALLED", source)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=120,
        )
        self.assertEqual((result.returncode, result.stdout), (0, b"ended done\n"), result.stderr.decode())
        with open(log, encoding="utf-8", errors="replace") as stream:
            return stream.read().splitlines()

    def check(self, lines: List[str], port: int) -> None:
        disk = Disk(self.place)
        begun: Dict[str, str] = {}
        points: List[str] = []
        synced_before = 0
        for line in lines:
            resumed = _RESUMED.match(line)
            call = _CALL.match(line)
            if resumed:
                name, result = resumed.group(3), resumed.group(4)
                arguments = begun.pop(resumed.group(1) or resumed.group(2) or "", "")
            elif call:
                name, arguments, result = call.group(3), call.group(4), call.group(5)
                if result is None:
                    begun[call.group(1) or call.group(2) or ""] = arguments
            else:
                continue
            if not resumed:
                # What leaves the process counts from its beginning, what is written from its end.
                connects = name == "connect" and f"sin_port=htons({port})" in arguments
                sends = name in ("sendto", "sendmsg", "write", "writev") and "POST /payments" in arguments
                tells = name == "write" and "ended done" in arguments
                if connects or sends or tells:
                    points.append("connect" if connects else "send" if sends else "end")
                    self.assertEqual(disk.dirty, set(), f"not synced before: {line}")
                    if not sends:
                        self.assertGreater(disk.syncs, synced_before, f"nothing was synced before: {line}")
                    synced_before = disk.syncs
            if result is not None and not result.startswith("-"):
                disk.call(name, arguments)
        self.assertEqual(points, ["connect", "send", "connect", "send", "end"])

    def test_marks_are_synced_before_a_connection_is_opened_and_the_end_before_it_is_told(self) -> None:
        answers = [b"HTTP/1.1 429 Slow\r\n", b"HTTP/1.1 201 Created\r\n"]

        def script(connection: Connection) -> None:
            connection.request()
            connection.send(answers[len(server.requests) - 1] + b"Content-Length: 0\r\n\r\n")

        for kind in ("files", "sqlite", "async"):
            with self.subTest(kind), RawServer(script) as server:
                shutil.rmtree(self.place)
                os.mkdir(self.place)
                self.check(self.trace(kind, server.url + "/payments"), server.port)

    def test_the_trace_of_a_program_that_does_not_sync_is_refused(self) -> None:
        # The reader of traces is broken if it takes these.
        place = self.place
        connect = '7 connect(9<socket:[1]>, {sa_family=AF_INET, sin_port=htons(80)}, 16) = 0'
        for lines in (
            [f'7 write(3<{place}/a.intent>, "x", 1) = 1'],
            [f'7 openat(AT_FDCWD, "{place}/i.db", O_RDWR|O_CREAT, 0600) = 3<{place}/i.db>'],
            [f'7 mkdir("{place}/a/b", 0700) = 0', f"7 fsync(3<{place}>) = 0"],
            [f'7 rename("{place}/writing.tmp", "{place}/a.intent") = 0'],
            [
                f'7 write(3<{place}/writing.tmp>, "x", 1) = 1',
                f'7 rename("{place}/writing.tmp", "{place}/a.intent") = 0',
                f"7 fsync(3<{place}>) = 0",
            ],
            [f"7 fsync(3<{place}/a.intent> <unfinished ...>", f'8 write(3<{place}/a.intent>, "x", 1) = 1'],
            [f'7 write(3<{place}/a.intent>, "x", 1) = 1', f"7 fsync(3<{place}/a.intent>) = -1 EIO (Input)"],
            [],
        ):
            with self.subTest(lines), self.assertRaisesRegex(AssertionError, "synced before"):
                self.check([*lines, connect], 80)
