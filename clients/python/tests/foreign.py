"""The client against servers that nobody here wrote, in the long form only.

`FIRSTWRITE_PEERS` is a folder of peers, each with a `run.sh PORT`; `FIRSTWRITE_BINARY` the built program, for a
gateway in front of a server that ignores keys. Run it with `python -m unittest -v tests.foreign`; it prints what it
saw.
"""

from __future__ import annotations

import json
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

from firstwrite import Client, End, SqliteStorage
from tests.servers import closed_port

INTENTS = 20
AT_ONCE = 10
SECONDS_TO_START = 180


def setUpModule() -> None:
    for variable in ("FIRSTWRITE_LONG", "FIRSTWRITE_PEERS"):
        if not os.environ.get(variable):
            raise unittest.SkipTest(f"{variable} is not set")


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
                    # The request is carried out, and nobody waits for its answer.
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

    process: Optional["subprocess.Popen[bytes]"] = None

    def start(self, name: str, probe: str) -> int:
        folder = tempfile.mkdtemp(prefix=f"firstwrite-{name}-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        peers = os.environ["FIRSTWRITE_PEERS"]
        shutil.copytree(os.path.join(peers, name), os.path.join(folder, name))
        shutil.copy(os.path.join(peers, "lib.sh"), folder)
        port = closed_port()
        self.run_process(["bash", "run.sh", str(port)], os.path.join(folder, name))
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


CUTS = {"cut-before": 0.1, "cut-after": 0.25, "cut-half": 0.15}


class KeyedPeers(Peer):
    """Servers with idempotency layers of others. They know neither our problems nor our status resource."""

    def count(self, port: int) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/count", timeout=10) as answer:
            count: int = json.load(answer)["n"]
            return count

    def check(self, peer: str) -> None:
        port = self.start(peer, "/count")
        # Intents of their own, ten at once, whose answers are cut.
        proxy = self.proxy(port, CUTS)
        client = self.client()
        resumed: List[str] = []

        def pay(name: str, sleep: int = 20) -> End:
            # The body names the action: one of these peers fingerprints bodies, and replays by key alone.
            url = f"http://127.0.0.1:{proxy.port}/charge?sleep={sleep}"
            intent = client.intent(name, "POST", url, json={"customer": name})
            end = intent.send(wait_for=120)
            while end.kind == "unknown" and len(resumed) < 1000:
                resumed.append(name)
                end = intent.resume(wait_for=120)
            return end

        names = [f"{peer}/{number}" for number in range(INTENTS)]
        ends = [found[0] for found in self.at_once(names, pay).values()]
        self.assertEqual({end.kind for end in ends}, {"done"})
        effects = self.count(port)
        self.tell(
            f"{peer}, {INTENTS} intents, {AT_ONCE} at once",
            faults=proxy.counts,
            effects=effects,
            resumed=len(resumed),
        )
        self.assertEqual(effects, INTENTS)
        self.assertEqual(len({end.json()["id"] for end in ends}), INTENTS, "two intents got one answer")
        # One intent, from ten threads at once, slow enough that they meet.
        resumed.clear()
        together = self.at_once([f"{peer}/one"] * AT_ONCE, lambda name: pay(name, 300))[f"{peer}/one"]
        self.tell(
            f"{peer}, one intent, {AT_ONCE} threads", effects=self.count(port) - effects, resumed=len(resumed)
        )
        self.assertEqual(self.count(port) - effects, 1)
        self.assertEqual(
            {(end.kind, end.json()["id"]) for end in together}, {("done", together[0].json()["id"])}
        )
        # Another request under a name is an error here, before that server is asked.
        self.assertEqual(len(client.intents()), INTENTS + 1)

    def test_idemkit(self) -> None:
        self.check("py-idemkit")

    def test_express_idempotency(self) -> None:
        self.check("express-idempotency")


class Localstripe(Peer):
    """A server that ignores keys, alone and behind our gateway."""

    CREDENTIALS = {"Authorization": "Basic c2tfdGVzdF8xMjM0NTo="}

    def customers(self, port: int) -> Dict[str, int]:
        counts: Dict[str, int] = {}
        after = ""
        while True:
            url = f"http://127.0.0.1:{port}/v1/customers?limit=100{after}"
            request = urllib.request.Request(url, headers=self.CREDENTIALS)
            with urllib.request.urlopen(request, timeout=30) as answer:
                page = json.load(answer)
            for customer in page["data"]:
                counts[customer["description"]] = counts.get(customer["description"], 0) + 1
            if not page["has_more"]:
                return counts
            after = f"&starting_after={page['data'][-1]['id']}"

    def create(self, client: Client, port: int, name: str, wait_for: float = 120) -> End:
        return client.intent(
            name,
            "POST",
            f"http://127.0.0.1:{port}/v1/customers",
            body=f"description={name}",
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        ).send(wait_for)

    def gateway(self, upstream: int) -> int:
        binary = os.environ.get("FIRSTWRITE_BINARY")
        if not binary:
            raise unittest.SkipTest("FIRSTWRITE_BINARY is not set")
        folder = tempfile.mkdtemp(prefix="firstwrite-gateway-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        port = closed_port()
        self.run_process(
            [
                binary,
                "gateway",
                "--listen",
                f"127.0.0.1:{port}",
                "--upstream",
                f"http://127.0.0.1:{upstream}",
                "--tenants",
                "authorization",
                "--store",
                f"sqlite:{folder}/keys.db",
                "--create",
            ],
            folder,
        )
        self.wait_for(f"http://127.0.0.1:{port}/v1/customers")
        return port

    def test_alone_it_doubles_what_is_sent_again(self) -> None:
        port = self.start("localstripe", "/v1/customers")
        proxy = self.proxy(port, CUTS)
        client = self.client(credentials=self.CREDENTIALS, dialect="stripe")
        names = [f"alone-{number}" for number in range(INTENTS)]
        ends = self.at_once(names, lambda name: self.create(client, proxy.port, name))
        counts = self.customers(port)
        self.tell("localstripe alone", faults=proxy.counts, effects=sum(counts.values()), intents=INTENTS)
        self.assertEqual({found[0].kind for found in ends.values()}, {"done"})
        # No caller can mend a server that ignores the key.
        self.assertGreater(sum(counts.values()), INTENTS)

    def test_behind_the_gateway_each_intent_has_one_effect(self) -> None:
        port = self.start("localstripe", "/v1/customers")
        gateway = self.gateway(port)
        for dialect in ("draft-07", "stripe"):
            proxy = self.proxy(gateway, CUTS)
            client = self.client(credentials=self.CREDENTIALS, dialect=dialect)
            names = [f"{dialect}-{number}" for number in range(INTENTS)] + [f"{dialect}-one"] * AT_ONCE
            ends = self.at_once(names, lambda name: self.create(client, proxy.port, name))
            counts = {name: count for name, count in self.customers(port).items() if name.startswith(dialect)}
            self.tell(
                f"localstripe behind the gateway, {dialect}",
                faults=proxy.counts,
                effects=sum(counts.values()),
                intents=INTENTS + 1,
            )
            self.assertEqual(set(counts.values()), {1})
            self.assertEqual(len(counts), INTENTS + 1)
            self.assertEqual({end.kind for found in ends.values() for end in found}, {"done"})
            self.assertEqual(len({end.json()["id"] for end in ends[f"{dialect}-one"]}), 1)

    def test_what_is_lost_behind_the_gateway_is_unknown_and_not_sent_twice(self) -> None:
        port = self.start("localstripe", "/v1/customers")
        inner = self.proxy(port, {"cut-after": 0.5})
        gateway = self.gateway(inner.port)
        client = self.client(credentials=self.CREDENTIALS, give_up_after=5)
        names = [f"lost-{number}" for number in range(INTENTS)]
        ends = self.at_once(names, lambda name: self.create(client, gateway, name))
        counts = self.customers(port)
        kinds = {kind: sum(found[0].kind == kind for found in ends.values()) for kind in ("done", "unknown")}
        self.tell(
            "localstripe, answers lost behind the gateway",
            faults=inner.counts,
            effects=counts and sum(counts.values()),
            **kinds,
        )
        self.assertEqual(sum(kinds.values()), INTENTS)
        self.assertGreater(kinds["unknown"], 0)
        for name, found in ends.items():
            self.assertEqual(counts.get(name), 1, f"{name} ended {found[0].kind}")


if __name__ == "__main__":
    unittest.main()
