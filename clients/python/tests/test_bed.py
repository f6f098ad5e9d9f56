"""The client against the real demo, behind a proxy that loses answers."""

from __future__ import annotations

import asyncio
import threading
import unittest
from typing import Any, Dict, List

from firstwrite import AsyncClient, Client, CredentialsRequest, MemoryStorage, Pending
from tests.bed import CREDENTIALS, Bed, needs_bed
from tests.carriers import CARRIERS

bed: Bed
interim_bed: Bed


def setUpModule() -> None:
    global bed, interim_bed
    needs_bed()
    bed = Bed()
    interim_bed = Bed("--wait-for", "0s")


def tearDownModule() -> None:
    bed.close()
    interim_bed.close()


def order(customer: str, amount: int = 4990) -> Dict[str, Any]:
    return {"amount": amount, "currency": "EUR", "customer": customer}


def make_client(on_event: Any = None, **settings: Any) -> Client:
    settings.setdefault("random", lambda: 0.01)
    return Client(storage=MemoryStorage(), credentials=CREDENTIALS, on_event=on_event, **settings)


class AgainstTheDemo(unittest.TestCase):
    def effects(self, customer: str) -> int:
        return len(bed.payments_of().get(customer, []))

    def keys(self, customer: str) -> List[str]:
        entries, _ = bed.log()
        return sorted({entry["key"] for entry in entries if entry["customer"] == customer})

    def test_each_fault_ends_in_one_effect_under_one_key(self) -> None:
        for fault, kind in (
            ("ok", "done"),
            ("refuse", "done"),
            ("cut-before", "done"),
            ("cut-after", "done"),
            ("cut-half", "done"),
            ("502", "done"),
            ("503", "done"),
            ("504", "done"),
            ("cut-after, 502, cut-half", "done"),
            ("502, cut-before, cut-after", "done"),
        ):
            with self.subTest(fault), make_client() as client:
                customer = f"fault {fault}"
                with client.intent(
                    "i", "POST", bed.payments, json=order(customer), headers={"X-Bed-Fault": fault}
                ) as pay:
                    end = pay.send()
                    pay.acknowledge()
                self.assertEqual((end.kind, self.effects(customer), len(self.keys(customer))), (kind, 1, 1))
                self.assertEqual(end.json()["id"], bed.payments_of()[customer][0]["id"])

    def test_each_transport_ends_in_one_effect_under_one_key(self) -> None:
        for carrier in CARRIERS:
            with self.subTest(carrier.name):
                customer = f"transport {carrier.name}"
                arguments = ("i", "POST", bed.payments)
                request = {"json": order(customer), "headers": {"X-Bed-Fault": "cut-after, cut-half, refuse"}}
                settings: Dict[str, Any] = {
                    "storage": MemoryStorage(),
                    "credentials": CREDENTIALS,
                    "random": lambda: 0.01,
                    "transport": carrier._make(False),
                }
                if carrier._is_async:

                    async def pay() -> Any:
                        async with AsyncClient(**settings) as client:
                            return await (await client.intent(*arguments, **request)).send()  # type: ignore[arg-type]

                    end = asyncio.run(pay())
                else:
                    with Client(**settings) as sync_client:
                        end = sync_client.intent(*arguments, **request).send()  # type: ignore[arg-type]
                self.assertEqual((end.kind, self.effects(customer), len(self.keys(customer))), ("done", 1, 1))

    def test_a_refused_payment_can_be_superseded(self) -> None:
        with make_client() as client:
            pay = client.intent("i", "POST", bed.payments, json=order("superseded", 0))
            end = pay.send()
            self.assertEqual((end.kind, end.status, end.safe_new_key), ("refused", 422, True))
            self.assertEqual(
                pay.supersede("POST", bed.payments, json=order("superseded", 100)).send().kind, "done"
            )
            self.assertEqual((self.effects("superseded"), len(self.keys("superseded"))), (1, 2))

    def test_a_server_that_nobody_runs_leaves_no_doubt(self) -> None:
        rig_events: List[Any] = []
        with make_client(on_event=rig_events.append) as client:
            pay = client.intent("i", "POST", bed.refused + "/payments", json=order("refused"))
            with self.assertRaises(Pending) as caught:
                pay.send(wait_for=0)
            self.assertFalse(caught.exception.in_doubt)
            self.assertEqual(
                [event.failure for event in rig_events if event.step == "answered"][0], "not-sent"
            )

    def test_wrong_credentials_are_refreshed_once_and_then_refused(self) -> None:
        calls: List[bool] = []

        def fetch(wanted: CredentialsRequest) -> Dict[str, str]:
            calls.append(wanted.refresh)
            return {"Authorization": "Bearer nobody"}

        with Client(storage=MemoryStorage(), credentials=fetch, random=lambda: 0.01) as client:
            end = client.intent("i", "POST", bed.payments, json=order("nobody")).send()
        self.assertEqual((end.kind, end.status, calls), ("refused", 401, [False, True]))

    def test_ten_threads_that_send_one_intent_make_one_effect(self) -> None:
        with make_client() as client:
            ends: List[Any] = []

            def pay() -> None:
                intent = client.intent(
                    "one",
                    "POST",
                    bed.payments,
                    json=order("one intent"),
                    headers={"X-Bed-Fault": "cut-after, ok, cut-half, 502"},
                )
                ends.append(intent.send())

            threads = [threading.Thread(target=pay) for _ in range(10)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(
            {(end.kind, end.json()["id"]) for end in ends},
            {("done", bed.payments_of()["one intent"][0]["id"])},
        )
        self.assertEqual((len(ends), self.effects("one intent"), len(self.keys("one intent"))), (10, 1, 1))

    def test_a_demo_that_is_killed_in_the_middle_carries_out_once(self) -> None:
        for fault in ("crash-before-commit", "crash-after-commit"):
            with self.subTest(fault):
                seen: List[str] = []

                def restart(event: Any) -> None:
                    # The demo dies at the request's own fault; without it the next attempt finds no server.
                    if event.step == "recorded" and not seen:
                        seen.append(event.step)
                        bed.restart_demo()

                customer = f"demo {fault}"
                with make_client(on_event=restart) as client:
                    pay = client.intent(
                        "i", "POST", bed.payments, json=order(customer), headers={"X-Demo-Fault": fault}
                    )
                    # The fault comes back with every attempt that runs; only one that was committed is a replay.
                    if fault == "crash-after-commit":
                        self.assertEqual(pay.send().kind, "done")
                        self.assertEqual(self.effects(customer), 1)
                    else:
                        with self.assertRaises(Pending):
                            pay.send(wait_for=1)
                        bed.restart_demo()
                        self.assertEqual(self.effects(customer), 0)

    def test_an_interim_answer_ends_with_the_final_one(self) -> None:
        answers: List[Any] = []
        with make_client(on_event=answers.append) as client:
            end = client.intent("i", "POST", interim_bed.payments, json=order("interim")).send()
        self.assertEqual(end.kind, "done")
        self.assertEqual(len(interim_bed.payments_of()["interim"]), 1)
        first = next(event for event in answers if event.step == "answered")
        # A server that marks its interim answers is asked for the final one.
        if first.decision == "ask":
            self.assertEqual((first.status, end.status), (202, 201))
