"""Lanes are independent at all times: what is enqueued while others run or wait starts at once. Both queues."""

from __future__ import annotations

import asyncio
import json
import threading
import unittest
from typing import Any, Callable, Dict, List, Tuple

from firstwrite import Answer, AsyncClient, Client, Lane, MemoryStorage, Outgoing
from firstwrite.lanes import Head
from firstwrite.schedule import Schedule
from tests.fakes import URL, ManualClock, answer, not_sent
from tests.test_queue import DONE, AsyncBench, Bench

HALF_AN_HOUR = "1800"
SECONDS_MAX = 30
"""Limit of a wait for another thread, which takes milliseconds."""


def later(seconds: str) -> Answer:
    return answer(503, {"Retry-After": seconds})


class WhileOthersWait(unittest.TestCase):
    """The queue waits by a clock that the test moves, and another process enqueues meanwhile."""

    bench: Any = Bench

    def start(self, replies: Dict[int, List[Any]], **settings: Any) -> Any:
        """Returns a bench whose first pause runs `self.meanwhile`, and which notes the times of its requests."""
        bench = self.bench(**settings)
        bench.replies = replies
        self.began = bench.clock.monotonic()
        self.times: List[Tuple[int, float]] = []
        self.other = Bench(storage=bench.storage, hooks=False)
        self.meanwhile: List[Callable[[], None]] = []
        inner = bench.reply

        def reply(request: Outgoing, *rest: Any) -> Answer:
            amount = json.loads(request.body or b"")["amount"]
            self.times.append((amount, bench.clock.monotonic() - self.began))
            return inner(request, *rest)  # type: ignore[no-any-return]

        bench.transport.send = reply
        passed = bench.clock.advance

        def advance(seconds: float) -> None:
            passed(seconds)
            if self.meanwhile:
                self.meanwhile.pop(0)()

        bench.clock.advance = advance
        return bench

    def at(self, amount: int) -> List[float]:
        return [at for sent, at in self.times if sent == amount]

    def test_a_new_lane_does_not_wait_for_another(self) -> None:
        bench = self.start({1: [later("60"), DONE]})
        self.meanwhile = [lambda: self.other.enqueue("z", 2)]
        bench.enqueue("a", 1)
        self.assertEqual(bench.run(), [Lane("a", "empty"), Lane("z", "empty")])
        self.assertLessEqual(self.at(2)[0], 5)
        self.assertGreaterEqual(self.at(1)[1], 60)

    def test_a_lane_that_was_empty_goes_on(self) -> None:
        bench = self.start({1: [later("60"), DONE]})
        self.meanwhile = [lambda: self.other.enqueue("b", 3)]
        bench.enqueue("a", 1)
        bench.enqueue("b", 2)
        self.assertEqual(bench.run(), [Lane("a", "empty"), Lane("b", "empty")])
        self.assertLessEqual(self.at(3)[0], 5)
        self.assertEqual([state for _, state in bench.states()], ["done"] * 3)

    def test_new_lanes_do_not_wait_for_an_origin_that_is_offline(self) -> None:
        bench = self.start({1: [not_sent()] * 40})
        self.meanwhile = [lambda: None] * 5 + [lambda: self.other.enqueue("z", 2)]
        bench.enqueue("a", 1)
        self.assertEqual([lane.state for lane in bench.run()], ["empty", "empty"])
        self.assertLess(self.at(2)[0], self.at(1)[-1] - 20)

    def test_a_lane_that_waits_holds_no_place(self) -> None:
        bench = self.start({1: [later("60"), DONE]}, lanes_at_once=1)
        self.meanwhile = [lambda: self.other.enqueue("z", 2)]
        bench.enqueue("a", 1)
        bench.run()
        self.assertLessEqual(self.at(2)[0], 5)

    def test_a_new_entry_of_a_lane_that_waits_keeps_its_order(self) -> None:
        bench = self.start({1: [later("60"), DONE]})
        self.meanwhile = [lambda: self.other.enqueue("a", 2)]
        bench.enqueue("a", 1)
        bench.run()
        self.assertEqual(bench.sent, [1, 1, 2])
        self.assertGreaterEqual(self.at(1)[1], 60)

    def test_a_lane_goes_on_when_its_head_ended_elsewhere(self) -> None:
        bench = self.start({1: [later(HALF_AN_HOUR), DONE]})

        def end_elsewhere() -> None:
            self.other.clock.advance(1800)
            self.other.run()

        self.meanwhile = [end_elsewhere]
        bench.enqueue("a", 1)
        bench.run()
        bench.enqueue("a", 2)
        self.assertEqual(bench.sent, [1])
        self.assertLess(bench.clock.monotonic() - self.began, 60)

    def test_a_lane_that_failed_waits_for_the_next_run(self) -> None:
        bench = self.start({1: [later("60"), DONE]})
        bench.enqueue("a", 1)
        bench.enqueue("b", 2)
        bench.storage._entries["b/2"] = bench.storage._entries["b/2"]._replace(data=b"damaged")
        self.meanwhile = [lambda: self.other.enqueue("b", 3)]
        self.assertEqual([lane.state for lane in bench.run()], ["empty", "failed"])
        self.assertEqual(self.at(3), [])

    def test_a_poll_of_ones_own(self) -> None:
        bench = self.start({1: [later("60"), DONE]}, poll=20)
        self.meanwhile = [lambda: self.other.enqueue("z", 2)]
        bench.enqueue("a", 1)
        bench.run()
        self.assertEqual(self.at(2), [20])
        for poll in (0, -1, "soon"):
            with self.assertRaisesRegex(ValueError, "poll"):
                self.bench(poll=poll)

    def test_the_time_that_is_left_is_told_as_of_the_end(self) -> None:
        bench = self.start({1: [later(HALF_AN_HOUR)], 2: [later("60"), DONE]})
        bench.enqueue("a", 1)
        bench.enqueue("b", 2)
        lanes = bench.run(wait_for=100)
        self.assertEqual([lane.state for lane in lanes], ["waiting", "empty"])
        self.assertEqual(lanes[0].retry_in, 1740)


class AsyncWhileOthersWait(WhileOthersWait):
    bench = AsyncBench


class Held:
    """A transport whose requests a test holds back by their amount."""

    def __init__(self) -> None:
        self.replies: Dict[int, List[Answer]] = {}
        self.held: Dict[int, threading.Event] = {}
        self.seen: Dict[int, threading.Event] = {}

    def hold(self, amount: int) -> None:
        self.held[amount] = threading.Event()

    def arrived(self, amount: int) -> threading.Event:
        return self.seen.setdefault(amount, threading.Event())

    def send(self, request: Outgoing, timeout: float, bytes_max: int, on_sent: Callable[[], None]) -> Answer:
        amount = json.loads(request.body or b"")["amount"]
        self.arrived(amount).set()
        if amount in self.held:
            assert self.held[amount].wait(SECONDS_MAX), "the test let the request go"
        replies = self.replies.get(amount)
        return replies.pop(0) if replies else DONE

    def close(self) -> None:
        pass


class WhileOthersRun(unittest.TestCase):
    """Threads enqueue while the queue runs. It looks for itself once in an hour, so that only their word counts."""

    def setUp(self) -> None:
        self.transport = Held()
        self.clock = ManualClock()
        self.client = Client(
            storage=MemoryStorage(), transport=self.transport, clock=self.clock, status="never"
        )
        self.queue = self.client.queue(poll=3600)
        self.lanes: List[Lane] = []
        self.thread = threading.Thread(target=lambda: self.lanes.extend(self.queue.run()))

    def enqueue(self, lane: str, amount: int) -> None:
        # A queue of its own: all queues of a client hear of it.
        self.client.queue().enqueue(lane, f"{lane}/{amount}", "POST", URL, json={"amount": amount})

    def wait_for(self, amount: int) -> None:
        self.assertTrue(self.transport.arrived(amount).wait(SECONDS_MAX), f"{amount} was not sent")

    def finish(self) -> List[str]:
        self.thread.join(SECONDS_MAX)
        self.assertFalse(self.thread.is_alive())
        return [lane.state for lane in self.lanes]

    def test_a_new_lane_starts_at_once(self) -> None:
        self.transport.hold(1)
        self.enqueue("a", 1)
        self.thread.start()
        self.wait_for(1)
        for amount in (2, 3, 4):
            self.enqueue("z", amount)
            self.wait_for(amount)
        self.transport.held[1].set()
        self.assertEqual(self.finish(), ["empty", "empty"])

    def test_a_new_lane_starts_at_once_while_all_wait(self) -> None:
        self.transport.replies[1] = [later(HALF_AN_HOUR), DONE]
        self.enqueue("a", 1)
        self.thread.start()
        self.wait_for(1)
        self.enqueue("z", 2)
        self.wait_for(2)
        self.clock.advance(1801)
        self.enqueue("z", 3)
        self.assertEqual(self.finish(), ["empty", "empty"])

    def test_a_lane_that_is_resumed_goes_on_at_once(self) -> None:
        self.transport.replies[1] = [answer(500, {"Idempotent-Replayed": "true"}), DONE]
        self.transport.hold(9)
        self.enqueue("a", 1)
        self.enqueue("a", 2)
        self.queue.run()
        self.enqueue("b", 9)
        self.thread.start()
        self.wait_for(9)
        self.queue.resume("a/1")
        self.wait_for(2)
        self.transport.held[9].set()
        self.assertEqual(self.finish(), ["empty", "empty"])

    def test_a_lane_whose_head_is_acknowledged_goes_on_at_once(self) -> None:
        self.transport.replies[1] = [answer(500, {"Idempotent-Replayed": "true"})]
        self.transport.hold(9)
        self.enqueue("a", 1)
        self.enqueue("a", 2)
        self.queue.run()
        self.enqueue("b", 9)
        self.thread.start()
        self.wait_for(9)
        self.queue.acknowledge("a/1")
        self.wait_for(2)
        self.transport.held[9].set()
        self.assertEqual(self.finish(), ["empty", "empty"])

    def test_an_apply_that_fails_holds_back_nothing(self) -> None:
        def broken(intent: object) -> None:
            raise RuntimeError("no screen")

        self.transport.hold(1)
        self.enqueue("a", 1)
        self.thread.start()
        self.wait_for(1)
        with self.assertRaisesRegex(RuntimeError, "no screen"):
            self.client.queue(apply=broken).enqueue("z", "z/2", "POST", URL, json={"amount": 2})
        self.wait_for(2)
        self.transport.held[1].set()
        self.assertEqual(self.finish(), ["empty", "empty"])


class AsyncWhileOthersRun(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.seen: Dict[int, asyncio.Event] = {}
        self.let_go = asyncio.Event()
        self.replies: Dict[int, List[Answer]] = {}
        self.clock = ManualClock()
        self.client = AsyncClient(storage=MemoryStorage(), transport=self, clock=self.clock, status="never")
        self.queue = self.client.queue(poll=3600)

    async def asyncTearDown(self) -> None:
        await self.client.aclose()

    def arrived(self, amount: int) -> asyncio.Event:
        return self.seen.setdefault(amount, asyncio.Event())

    async def send(
        self, request: Outgoing, timeout: float, bytes_max: int, on_sent: Callable[[], None]
    ) -> Answer:
        amount = json.loads(request.body or b"")["amount"]
        self.arrived(amount).set()
        if amount == 1 and 1 not in self.replies:
            await self.let_go.wait()
        replies = self.replies.get(amount)
        return replies.pop(0) if replies else DONE

    async def aclose(self) -> None:
        pass

    async def enqueue(self, lane: str, amount: int) -> None:
        await self.client.queue().enqueue(lane, f"{lane}/{amount}", "POST", URL, json={"amount": amount})

    async def wait_for(self, amount: int) -> None:
        await asyncio.wait_for(self.arrived(amount).wait(), SECONDS_MAX)

    async def test_a_new_lane_starts_at_once(self) -> None:
        await self.enqueue("a", 1)
        run = asyncio.ensure_future(self.queue.run())
        await self.wait_for(1)
        for amount in (2, 3, 4):
            await self.enqueue("z", amount)
            await self.wait_for(amount)
        self.let_go.set()
        lanes = await asyncio.wait_for(run, SECONDS_MAX)
        self.assertEqual([lane.state for lane in lanes], ["empty", "empty"])

    async def test_a_new_lane_starts_at_once_while_all_wait(self) -> None:
        self.replies[1] = [later(HALF_AN_HOUR), DONE]
        await self.enqueue("a", 1)
        run = asyncio.ensure_future(self.queue.run())
        await self.wait_for(1)
        await self.enqueue("z", 2)
        await self.wait_for(2)
        self.clock.advance(1801)
        await self.enqueue("z", 3)
        lanes = await asyncio.wait_for(run, SECONDS_MAX)
        self.assertEqual([lane.state for lane in lanes], ["empty", "empty"])

    async def test_a_sleep_that_fails_ends_the_run(self) -> None:
        async def broken(seconds: float) -> None:
            raise RuntimeError("the loop's timer is broken")

        self.replies[1] = [later(HALF_AN_HOUR)]
        await self.enqueue("a", 1)
        self.client._io._sleep = broken
        with self.assertRaisesRegex(RuntimeError, "timer is broken"):
            await asyncio.wait_for(self.queue.run(), SECONDS_MAX)

    async def test_a_run_that_is_cancelled_leaves_nothing_behind(self) -> None:
        await self.enqueue("a", 1)
        run = asyncio.ensure_future(self.queue.run())
        await self.wait_for(1)
        run.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await run
        self.assertEqual(asyncio.all_tasks(), {asyncio.current_task()})
        found = await self.client.find("a/1")
        assert found is not None
        self.assertTrue(found.in_doubt)
        # Nobody is told any more.
        self.assertEqual(self.client._engine.changes._listeners, [])


class Schedules(unittest.TestCase):
    def setUp(self) -> None:
        self.clock = ManualClock()

    def schedule(self, lanes_at_once: int = 2, wait_for: Any = None) -> Schedule:
        return Schedule(self.clock, lanes_at_once, 5.0, wait_for)

    def test_a_look_comes_first_and_then_by_time(self) -> None:
        schedule = self.schedule()
        self.assertTrue(schedule.is_look_due())
        schedule.looked({"a": Head("a/1", 1)})
        self.assertEqual((schedule.start(), schedule.is_look_due(), schedule.seconds()), (["a"], False, 5))
        self.clock.advance(5)
        self.assertTrue(schedule.is_look_due())

    def test_no_more_lanes_run_than_there_are_places(self) -> None:
        schedule = self.schedule()
        schedule.looked({name: Head(name, 1) for name in "abc"})
        self.assertEqual((schedule.start(), schedule.start()), (["a", "b"], []))
        schedule.finished(Lane("b", "empty"))
        self.assertEqual(schedule.start(), ["c"])

    def test_what_comes_into_a_lane_at_its_end_is_sent(self) -> None:
        schedule = self.schedule()
        schedule.looked({"a": Head("a/1", 1)})
        schedule.start()
        # The lane has looked for the last time before this, and ends after it.
        schedule.looked({"a": Head("a/2", 1)})
        schedule.finished(Lane("a", "empty"))
        self.assertEqual(schedule.start(), ["a"])

    def test_a_lane_that_does_not_see_its_entry_is_not_run_for_ever(self) -> None:
        schedule = self.schedule()
        for _ in range(2):
            schedule.looked({"a": Head("a/1", 1)})
            self.assertEqual(schedule.start(), ["a"])
            schedule.finished(Lane("a", "empty"))
        schedule.looked({"a": Head("a/1", 1)})
        self.assertTrue(schedule.is_idle())
        # It was written anew.
        schedule.looked({"a": Head("a/1", 2)})
        self.assertEqual(schedule.start(), ["a"])

    def test_a_wait_is_never_so_short_that_no_clock_shows_it(self) -> None:
        schedule = self.schedule()
        schedule.looked({"a": Head("a/1", 1)})
        schedule.start()
        schedule.finished(Lane("a", "waiting", "a/1", 1e-13))
        self.assertEqual(schedule.start(), [])
        self.assertGreater(schedule.seconds(), 0.0005)

    def test_a_wait_past_the_time_of_the_run_is_left(self) -> None:
        schedule = self.schedule(wait_for=10)
        schedule.looked({"a": Head("a/1", 1), "b": Head("b/1", 1)})
        schedule.start()
        schedule.finished(Lane("a", "waiting", "a/1", 11))
        self.assertFalse(schedule.is_idle())
        schedule.finished(Lane("b", "empty"))
        self.assertTrue(schedule.is_idle())
        schedule.looked({"a": Head("a/1", 1)})
        self.assertTrue(schedule.is_idle())
        self.assertEqual(schedule.lanes(), [Lane("a", "waiting", "a/1", 11), Lane("b", "empty")])
