"""The client against servers that others wrote: two with idempotency layers of their own, one that ignores keys.

`FIRSTWRITE_PEERS` names their folder and `FIRSTWRITE_BINARY` the program for a gateway; without them the tests are
skipped by name. It prints what it saw.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import urllib.request
from typing import Any, Dict, List

from firstwrite import Client, End
from tests.peers import AT_ONCE, BINARY, Peer, remove_copies
from tests.servers import closed_port

INTENTS = 20


def tearDownModule() -> None:
    remove_copies()


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
        folder = tempfile.mkdtemp(prefix="firstwrite-gateway-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        port = closed_port()
        self.run_process(
            [
                os.environ[BINARY],
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

