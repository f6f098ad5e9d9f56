"""The queue: lanes in order and independent of each other, hooks, stops, restarts. Both queues, by the same tests."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import tempfile
import threading
import unittest
from typing import Any, Callable, Dict, List, Optional

from firstwrite import (
    Answer,
    IntentConflict,
    Lane,
    MemoryStorage,
    Outgoing,
    QueuedIntent,
    SqliteStorage,
    StorageDamaged,
    WrongState,
)
from firstwrite.entry import decode
from tests.fakes import KEPT, URL, AsyncRig, Rig, answer, lost, not_sent, problem

DONE = answer(201, KEPT)


class Bench:
    """A queue, its server, and what the hooks saw. The server answers by the amount that a request asks for."""

    def __init__(self, storage: Any = None, hooks: bool = True, **settings: Any) -> None:
        self.seen: List[str] = []
        self.sent: List[int] = []
        self.replies: Dict[int, List[Any]] = {}
        self.lock = threading.Lock()
        self.settings = settings
        self.hooks: Dict[str, Any] = (
            {name: self._hook(name) for name in ("apply", "rollback", "confirm")} if hooks else {}
        )
        self.storage = storage if storage is not None else MemoryStorage()
        self.make()

    def make(self) -> None:
        self.rig = Rig(storage=self.storage, status="never")
        self.rig.transport.send = self.reply  # type: ignore[method-assign]
        self.queue = self.rig.client.queue(**self.hooks, **self.settings)

    def reply(self, request: Outgoing, timeout: float, bytes_max: int, on_sent: Callable[[], None]) -> Answer:
        amount = json.loads(request.body or b"")["amount"]
        with self.lock:
            self.sent.append(amount)
            replies = self.replies.get(amount)
            reply = replies.pop(0) if replies else DONE
        if isinstance(reply, BaseException):
            raise reply
        return reply(request) if callable(reply) else reply

    def _hook(self, name: str) -> Callable[[QueuedIntent], None]:
        def hook(intent: QueuedIntent) -> None:
            end = "" if intent.end is None else f" {intent.end.kind}"
            with self.lock:
                self.seen.append(f"{name} {intent.name}{end}")

        return hook

    def enqueue(self, lane: str, amount: int, name: Optional[str] = None) -> None:
        self.queue.enqueue(lane, name or f"{lane}/{amount}", "POST", URL, json={"amount": amount})

    def run(self, wait_for: Optional[float] = None) -> List[Lane]:
        return self.queue.run(wait_for)

    def resume(self, name: str) -> None:
        self.queue.resume(name)

    def acknowledge(self, name: str) -> None:
        self.queue.acknowledge(name)

    def supersede(self, name: str, amount: int) -> None:
        self.queue.supersede(name, "POST", URL, json={"amount": amount})

    def states(self) -> List[Any]:
        return [(info.name, info.state) for info in self.queue.entries()]

    def stored(self, name: str) -> Any:
        item = self.storage.read(name)
        assert item is not None
        return decode(item.data, "memory", name)

    @property
    def clock(self) -> Any:
        return self.rig.clock

    @property
    def transport(self) -> Any:
        return self.rig.transport


class AsyncBench(Bench):
    """The same with the asyncio queue."""

    def make(self) -> None:
        self.async_rig = AsyncRig(storage=self.storage, status="never")
        self.async_rig.transport.inner.send = self.reply  # type: ignore[method-assign]
        self.async_queue = self.async_rig.client.queue(**self.hooks, **self.settings)

    def _hook(self, name: str) -> Callable[[QueuedIntent], Any]:
        inner = super()._hook(name)

        async def hook(intent: QueuedIntent) -> None:
            inner(intent)

        return hook

    def enqueue(self, lane: str, amount: int, name: Optional[str] = None) -> None:
        asyncio.run(
            self.async_queue.enqueue(lane, name or f"{lane}/{amount}", "POST", URL, json={"amount": amount})
        )

    def run(self, wait_for: Optional[float] = None) -> List[Lane]:
        return asyncio.run(self.async_queue.run(wait_for))

    def resume(self, name: str) -> None:
        asyncio.run(self.async_queue.resume(name))

    def acknowledge(self, name: str) -> None:
        asyncio.run(self.async_queue.acknowledge(name))

    def supersede(self, name: str, amount: int) -> None:
        asyncio.run(self.async_queue.supersede(name, "POST", URL, json={"amount": amount}))

    def states(self) -> List[Any]:
        return [(info.name, info.state) for info in asyncio.run(self.async_queue.entries())]

    @property
    def clock(self) -> Any:
        return self.async_rig.clock

    @property
    def transport(self) -> Any:
        return self.async_rig.transport.inner


class Lanes(unittest.TestCase):
    bench: Any = Bench

    def test_enqueueing_sends_nothing(self) -> None:
        bench = self.bench()
        bench.enqueue("a", 1)
        self.assertEqual((bench.sent, bench.seen), ([], ["apply a/1"]))
        self.assertEqual(bench.states(), [("a/1", "open")])

    def test_a_lane_is_sent_in_order(self) -> None:
        bench = self.bench()
        for amount in (3, 1, 2):
            bench.enqueue("a", amount)
        self.assertEqual(bench.run(), [Lane("a", "empty")])
        self.assertEqual(bench.sent, [3, 1, 2])
        self.assertEqual(bench.seen[3:], ["confirm a/3 done", "confirm a/1 done", "confirm a/2 done"])
        self.assertEqual(bench.states(), [("a/3", "done"), ("a/1", "done"), ("a/2", "done")])

    def test_a_second_run_repeats_nothing(self) -> None:
        bench = self.bench()
        bench.enqueue("a", 1)
        bench.run()
        before = list(bench.seen)
        bench.run()
        self.assertEqual((bench.sent, bench.seen), ([1], before))

    def test_a_lane_goes_on_after_a_refusal(self) -> None:
        bench = self.bench()
        bench.replies = {1: [answer(422, KEPT)]}
        bench.enqueue("a", 1)
        bench.enqueue("a", 2)
        bench.run()
        self.assertEqual(bench.seen[2:], ["rollback a/1 refused", "confirm a/2 done"])

    def test_a_lane_stops_at_an_unknown_end_until_it_is_resumed(self) -> None:
        bench = self.bench()
        bench.replies = {1: [answer(500, KEPT)]}
        bench.enqueue("a", 1)
        bench.enqueue("a", 2)
        bench.enqueue("b", 5)
        self.assertEqual(bench.run(), [Lane("a", "stopped", "a/1"), Lane("b", "empty")])
        self.assertEqual(bench.run(), [Lane("a", "stopped", "a/1"), Lane("b", "empty")])
        self.assertNotIn(2, bench.sent)
        bench.resume("a/1")
        self.assertEqual(bench.run(), [Lane("a", "empty"), Lane("b", "empty")])
        self.assertEqual(bench.states()[:2], [("a/1", "done"), ("a/2", "done")])
        self.assertEqual(bench.seen[3:], ["confirm b/5 done", "confirm a/1 done", "confirm a/2 done"])

    def test_a_lane_stops_at_an_expired_end_until_it_is_acknowledged(self) -> None:
        bench = self.bench()
        bench.replies = {1: [problem("key-expired", 410)]}
        bench.enqueue("a", 1)
        bench.enqueue("a", 2)
        self.assertEqual(bench.run(), [Lane("a", "stopped", "a/1")])
        with self.assertRaisesRegex(WrongState, "expired"):
            bench.resume("a/1")
        bench.acknowledge("a/1")
        self.assertEqual(bench.run(), [Lane("a", "empty")])
        self.assertEqual(bench.states(), [("a/2", "done")])

    def test_a_lane_that_waits_does_not_hold_up_others(self) -> None:
        bench = self.bench(lanes_at_once=1)
        bench.replies = {1: [answer(503, {"Retry-After": "600"})]}
        for lane, amount in (("a", 1), ("a", 2), ("b", 3), ("c", 4)):
            bench.enqueue(lane, amount)
        lanes = bench.run(wait_for=10)
        self.assertEqual(
            [(lane.name, lane.state) for lane in lanes], [("a", "waiting"), ("b", "empty"), ("c", "empty")]
        )
        self.assertEqual((lanes[0].head, lanes[0].retry_in), ("a/1", 600))
        self.assertEqual(bench.clock.waits, [])
        self.assertEqual(bench.run(), [Lane("a", "empty"), Lane("b", "empty"), Lane("c", "empty")])
        self.assertEqual(bench.sent[-2:], [1, 2])
        self.assertGreaterEqual(sum(bench.clock.waits), 600)

    def test_lanes_that_only_wait_take_no_place_from_a_healthy_one(self) -> None:
        for reply in (answer(429, {"Retry-After": "600"}), answer(503), not_sent(), lost()):
            bench = self.bench(lanes_at_once=2)
            # As many as there are places; without luck they use up the budget of retries, and wait for it.
            for lane, amount in (("a", 1), ("b", 2)):
                bench.replies[amount] = [reply] * 100
                bench.enqueue(lane, amount)
            for amount in range(10, 15):
                bench.enqueue("z", amount)
            lanes = bench.run(wait_for=0)
            with self.subTest(repr(reply)):
                self.assertEqual([lane.state for lane in lanes], ["waiting", "waiting", "empty"])
                self.assertEqual([amount for amount in bench.sent if amount >= 10], [10, 11, 12, 13, 14])
                self.assertEqual(bench.clock.waits, [], "a lane waited in its place")
                bench.replies.clear()
                self.assertEqual([lane.state for lane in bench.run()], ["empty"] * 3)

    def test_lost_answers_are_sent_again_in_order(self) -> None:
        bench = self.bench()
        bench.replies = {1: [lost(), lost(), DONE]}
        bench.enqueue("a", 1)
        bench.enqueue("a", 2)
        bench.run()
        self.assertEqual(bench.sent, [1, 1, 1, 2])

    def test_a_hook_that_fails_stops_its_lane_and_is_called_again(self) -> None:
        bench = self.bench(hooks=False)
        calls: List[str] = []

        def confirm(intent: QueuedIntent) -> None:
            calls.append(intent.name)
            if len(calls) == 1:
                raise RuntimeError("the ledger is closed")

        bench.hooks = {"confirm": confirm}
        bench.make()
        for lane, amount in (("a", 1), ("a", 2)):
            bench.enqueue(lane, amount)
        (lane,) = bench.run()
        self.assertEqual((lane.state, lane.head, str(lane.error)), ("failed", "a/1", "the ledger is closed"))
        self.assertEqual(bench.run(), [Lane("a", "empty")])
        self.assertEqual((calls, bench.sent), (["a/1", "a/1", "a/2"], [1, 2]))

    def test_an_apply_that_a_crash_cut_off_is_repeated(self) -> None:
        bench = self.bench(hooks=False)
        bench.enqueue("a", 1)
        restarted = self.bench(storage=bench.storage)
        restarted.run()
        self.assertEqual(restarted.seen, ["apply a/1", "confirm a/1 done"])

    def test_a_restart_goes_on_where_the_last_process_was(self) -> None:
        bench = self.bench()
        bench.replies = {2: [KeyboardInterrupt()]}
        for amount in (1, 2, 3):
            bench.enqueue("a", amount)
        with self.assertRaises(KeyboardInterrupt):
            bench.run()
        restarted = self.bench(storage=bench.storage)
        restarted.run()
        self.assertEqual(restarted.sent, [2, 3])
        self.assertEqual(restarted.seen, ["confirm a/2 done", "confirm a/3 done"])

    def test_acknowledging_after_the_hooks_leaves_nothing(self) -> None:
        bench = self.bench(acknowledge=True)
        bench.replies = {1: [answer(422, KEPT)], 3: [answer(500, KEPT)]}
        for amount in (1, 2, 3):
            bench.enqueue("a", amount)
        bench.run()
        self.assertEqual(bench.states(), [("a/3", "unknown")])

    def test_without_hooks_ends_wait_for_the_application(self) -> None:
        bench = self.bench(hooks=False, acknowledge=True)
        bench.enqueue("a", 1)
        bench.run()
        self.assertEqual(bench.states(), [("a/1", "done")])
        bench.acknowledge("a/1")
        self.assertEqual(bench.states(), [])

    def test_enqueueing_twice_is_once(self) -> None:
        bench = self.bench()
        bench.enqueue("a", 1)
        bench.enqueue("a", 1)
        with self.assertRaises(IntentConflict):
            bench.enqueue("a", 2, name="a/1")
        with self.assertRaises(IntentConflict):
            bench.enqueue("b", 1, name="a/1")
        Rig(storage=bench.storage).pay("alone", amount=7)
        with self.assertRaisesRegex(IntentConflict, "lane"):
            bench.enqueue("a", 7, name="alone")
        with self.assertRaisesRegex(IntentConflict, "lane"):
            Rig(storage=bench.storage).pay("a/1", amount=1)
        bench.run()
        self.assertEqual((bench.sent, bench.seen), ([1], ["apply a/1", "confirm a/1 done"]))

    def test_what_is_enqueued_meanwhile_is_sent_too(self) -> None:
        bench = self.bench()
        other = Bench(storage=bench.storage, hooks=False)

        def enqueue_more(request: Outgoing) -> Answer:
            other.enqueue("a", 2)
            other.enqueue("z", 3)
            return DONE

        bench.replies = {1: [enqueue_more]}
        bench.enqueue("a", 1)
        self.assertEqual([lane.name for lane in bench.run()], ["a", "z"])
        self.assertEqual(sorted(bench.sent), [1, 2, 3])

    def test_intents_without_a_lane_are_not_the_queues(self) -> None:
        bench = self.bench()
        Rig(storage=bench.storage).pay("alone")
        self.assertEqual((bench.run(), bench.sent, bench.states()), ([], [], []))
        with self.assertRaises(WrongState):
            bench.resume("alone")

    def test_a_damaged_entry_stops_its_lane_and_is_listed(self) -> None:
        bench = self.bench()
        for lane, amount in (("a", 1), ("a", 2), ("b", 3)):
            bench.enqueue(lane, amount)
        stored = bench.storage._entries["a/1"]
        bench.storage._entries["a/1"] = stored._replace(data=stored.data[:50])
        lanes = bench.run()
        self.assertEqual([(lane.name, lane.state) for lane in lanes], [("a", "failed"), ("b", "empty")])
        self.assertIn("a/1", str(lanes[0].error))
        self.assertEqual(bench.states()[0], ("a/1", "damaged"))
        self.assertNotIn(2, bench.sent)


    def test_what_is_superseded_is_sent_last_in_its_lane(self) -> None:
        bench = self.bench()
        for amount in (1, 2, 3):
            bench.enqueue("a", amount)
        key = bench.stored("a/1").key
        bench.supersede("a/1", 9)
        self.assertEqual(bench.seen[3:], ["apply a/1"])
        self.assertEqual([name for name, _ in bench.states()], ["a/2", "a/3", "a/1"])
        self.assertEqual((bench.stored("a/1").lane, bench.stored("a/1").key == key), ("a", False))
        bench.enqueue("a", 4)
        self.assertEqual(bench.run(), [Lane("a", "empty")])
        self.assertEqual(bench.sent, [2, 3, 9, 4])

    def test_a_refused_intent_is_rolled_back_before_another_request_is_applied(self) -> None:
        bench = self.bench()
        bench.replies = {1: [answer(422, KEPT)]}
        for amount in (1, 2):
            bench.enqueue("a", amount)
        # A runner without hooks ended it.
        other = self.bench(storage=bench.storage, hooks=False)
        other.replies = bench.replies
        other.run()
        bench.supersede("a/1", 9)
        self.assertEqual(bench.seen[2:], ["rollback a/1 refused", "apply a/1"])
        bench.run()
        self.assertEqual(bench.sent, [9])
        self.assertEqual(bench.seen[4:], ["confirm a/2 done", "confirm a/1 done"])

    def test_a_rollback_that_failed_runs_before_another_request_is_applied(self) -> None:
        bench = self.bench(hooks=False)
        seen: List[str] = []
        broken = [True]

        def rollback(intent: QueuedIntent) -> None:
            seen.append(f"rollback {json.loads(intent.request.body or b'')['amount']}")
            if broken[0]:
                raise RuntimeError("the ledger is closed")

        def apply(intent: QueuedIntent) -> None:
            seen.append(f"apply {json.loads(intent.request.body or b'')['amount']}")

        bench.hooks = {"apply": apply, "rollback": rollback}
        bench.make()
        bench.replies = {1: [answer(422, KEPT)]}
        bench.enqueue("a", 1)
        self.assertEqual([lane.state for lane in bench.run()], ["failed"])
        before = bench.stored("a/1")
        # While it cannot be taken back, nothing else takes its place.
        with self.assertRaisesRegex(RuntimeError, "ledger"):
            bench.supersede("a/1", 9)
        self.assertEqual(bench.stored("a/1"), before)
        broken.clear()
        broken.append(False)
        bench.supersede("a/1", 9)
        self.assertEqual(seen, ["apply 1", "rollback 1", "rollback 1", "rollback 1", "apply 9"])

    def test_a_rollback_that_ran_is_not_repeated(self) -> None:
        bench = self.bench()
        bench.replies = {1: [answer(422, KEPT)]}
        bench.enqueue("a", 1)
        bench.run()
        bench.supersede("a/1", 9)
        self.assertEqual(bench.seen, ["apply a/1", "rollback a/1 refused", "apply a/1"])

    def test_what_may_have_happened_is_not_superseded(self) -> None:
        for reply in (answer(500, KEPT), problem("strange", 500, safe_new_key=True), lost(), DONE):
            bench = self.bench()
            bench.replies = {1: [reply, problem("key-expired", 410)]}
            bench.enqueue("a", 1)
            bench.run()
            before = bench.stored("a/1")
            with self.subTest(repr(reply)), self.assertRaises(WrongState):
                bench.supersede("a/1", 9)
            self.assertEqual(bench.stored("a/1"), before)

    def test_an_intent_outside_of_the_queue_is_not_superseded_by_it(self) -> None:
        bench = self.bench()
        Rig(storage=bench.storage).pay("alone")
        with self.assertRaisesRegex(WrongState, "no lane"):
            bench.supersede("alone", 9)

    def test_a_damaged_entry_at_the_end_stops_its_lane_there(self) -> None:
        bench = self.bench()
        for amount in (1, 2):
            bench.enqueue("a", amount)
        stored = bench.storage._entries["a/2"]
        bench.storage._entries["a/2"] = stored._replace(data=stored.data[:50])
        self.assertEqual([lane.state for lane in bench.run()], ["failed"])
        self.assertEqual(bench.sent, [1])


    def test_a_lane_with_nothing_but_a_damaged_entry_is_told(self) -> None:
        folder = tempfile.mkdtemp(prefix="firstwrite-queue-")
        self.addCleanup(shutil.rmtree, folder)
        path = os.path.join(folder, "intents.db")
        bench = self.bench(storage=SqliteStorage(path))
        bench.enqueue("a", 1)
        bench.enqueue("b", 2)
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE firstwrite_intents SET entry = X'00' WHERE name = 'a/1'")
        failed, empty = bench.run()
        self.assertEqual((failed.name, failed.state, failed.head), ("a", "failed", "a/1"))
        self.assertIsInstance(failed.error, StorageDamaged)
        self.assertEqual((empty, bench.sent), (Lane("b", "empty"), [2]))


class AsyncLanes(Lanes):
    bench = AsyncBench


class Alone(unittest.TestCase):
    def test_lanes_run_at_the_same_time(self) -> None:
        bench = Bench(hooks=False)
        # Each lane's request is answered once the other one's is there.
        both = threading.Barrier(2, timeout=10)

        def meet(request: Outgoing) -> Answer:
            both.wait()
            return DONE

        bench.replies = {1: [meet], 2: [meet]}
        bench.enqueue("a", 1)
        bench.enqueue("b", 2)
        self.assertEqual([lane.state for lane in bench.run()], ["empty", "empty"])

    def test_a_lane_has_at_least_one_place(self) -> None:
        for make in (Bench, AsyncBench):
            with self.assertRaises(ValueError):
                make(lanes_at_once=0)

    def test_the_intent_of_a_lane_is_sent_by_the_queue_alone(self) -> None:
        bench = Bench()
        bench.enqueue("a", 1)
        pay = bench.rig.client.find("a/1")
        assert pay is not None
        for call in (pay.send, pay.resume, lambda: pay.supersede("POST", URL, json={"amount": 2})):
            with self.assertRaisesRegex(WrongState, "the queue sends, resumes and supersedes it"):
                call()
