"""The client's clock is set back, the life of a key ends, a queue is offline: nothing is sent that may be too late."""

from __future__ import annotations

import unittest
from typing import Any

from firstwrite import Answer, Lane, Outgoing
from tests.fakes import KEPT, URL, Rig, answer, lost, not_sent
from tests.test_send import stored

HOUR = 3_600_000


class SetBack(unittest.TestCase):
    def test_in_doubt_nothing_is_sent_and_the_end_is_unknown(self) -> None:
        rig = Rig(lost())
        rig.send_once()
        rig.clock.day -= HOUR
        end = rig.pay().send()
        self.assertEqual((end.kind, end.safe_new_key, len(rig.transport.requests)), ("unknown", False, 1))

    def test_a_minute_counts_as_no_time(self) -> None:
        rig = Rig(lost(), answer(201, KEPT))
        rig.send_once()
        rig.clock.day -= 60_000
        self.assertEqual(rig.pay().send(wait_for=600).kind, "done")

    def test_the_latest_write_counts_and_not_the_first_attempt(self) -> None:
        rig = Rig(lost(), lost(), give_up_after=1e9)
        rig.send_once()
        rig.clock.advance(5 * 3600)
        rig.send_once()
        # Still behind the first attempt, and the key may be 24 h old all the same.
        rig.clock.day -= 4 * HOUR
        self.assertEqual(rig.pay().send().kind, "unknown")
        self.assertEqual(len(rig.transport.requests), 2)

    def test_once_the_clock_is_right_the_intent_can_be_resumed(self) -> None:
        rig = Rig(lost(), answer(201, KEPT))
        rig.send_once()
        rig.clock.day -= HOUR
        pay = rig.pay()
        self.assertEqual(pay.send().kind, "unknown")
        self.assertEqual(pay.resume().kind, "unknown", "the clock is still wrong")
        rig.clock.day += HOUR
        self.assertEqual(pay.resume().kind, "done")

    def test_while_the_answer_is_waited_for(self) -> None:
        def set_back(request: Outgoing) -> Answer:
            rig.clock.day -= HOUR
            raise lost()

        rig = Rig(set_back)
        self.assertEqual(rig.pay().send().kind, "unknown")
        self.assertGreaterEqual(stored(rig).latest_at, 1_800_000_000_000)

    def test_without_doubt_it_goes_on(self) -> None:
        rig = Rig(answer(429), answer(403))
        rig.send_once()
        rig.clock.day -= HOUR
        self.assertEqual(rig.pay().send(wait_for=600).kind, "refused")


class KeyLife(unittest.TestCase):
    def test_a_mark_that_takes_the_rest_of_the_life_sends_nothing(self) -> None:
        rig = Rig(lost(), retention=3600, give_up_after=1e9)
        rig.send_once()
        rig.clock.advance(3539)
        replace = rig.storage.replace

        def slow(*arguments: Any) -> bool:
            rig.clock.advance(2)
            return bool(replace(*arguments))

        rig.storage.replace = slow  # type: ignore[method-assign]
        end = rig.pay().send()
        self.assertEqual((end.kind, len(rig.transport.requests)), ("expired", 1))


class Offline(unittest.TestCase):
    """A queue whose server cannot be reached."""

    def queued(self, rig: Rig) -> Any:
        queue = rig.client.queue()
        if rig.client.find("a/1") is None:
            queue.enqueue("a", "a/1", "POST", URL, json={"amount": 1})
        return queue

    def run_once(self, rig: Rig) -> None:
        (lane,) = self.queued(rig).run(wait_for=0)
        self.assertEqual(lane.state, "waiting")

    def test_it_waits_as_long_as_it_takes(self) -> None:
        rig = Rig(*[not_sent()] * 3, answer(201, KEPT), luck=0.9)
        for _ in range(3):
            self.run_once(rig)
            rig.clock.advance(30 * 24 * 3600)
        self.assertEqual(self.queued(rig).run(), [Lane("a", "empty")])
        entry = stored(rig, "a/1")
        self.assertEqual((entry.end.kind, entry.first_attempt_at), ("done", rig.clock.day))

    def test_the_time_counts_from_the_next_attempt(self) -> None:
        rig = Rig(answer(429), not_sent(), answer(429), answer(201, KEPT), luck=0.9)
        self.run_once(rig)
        rig.clock.advance(3000)
        self.run_once(rig)
        rig.clock.advance(3000)
        self.run_once(rig)
        rig.clock.advance(3000)
        self.assertEqual(self.queued(rig).run(), [Lane("a", "empty")])
        self.assertEqual(stored(rig, "a/1").end.kind, "done")

    def test_in_doubt_the_time_goes_on(self) -> None:
        rig = Rig(lost(), not_sent(), luck=0.9)
        self.run_once(rig)
        rig.clock.advance(60)
        self.run_once(rig)
        rig.clock.advance(3600)
        self.assertEqual(self.queued(rig).run(), [Lane("a", "stopped", "a/1")])
        self.assertEqual(stored(rig, "a/1").end.kind, "unknown")

    def test_outside_of_the_queue_the_time_goes_on(self) -> None:
        rig = Rig(not_sent())
        rig.send_once()
        rig.clock.advance(3600)
        self.assertEqual(rig.pay().send().kind, "refused")
