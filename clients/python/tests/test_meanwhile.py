"""Other processes write an entry while an attempt of this one is under way: what both know is kept."""

from __future__ import annotations

import unittest
from typing import Any, Callable

from firstwrite import Answer, CredentialsRequest, MemoryStorage, Outgoing
from firstwrite.budget import RetryBudget
from tests.fakes import KEPT, ManualClock, Reply, Rig, answer, lost, not_sent
from tests.test_send import stored


class Meanwhile(unittest.TestCase):
    def pair(self, reply: Reply, *others: Reply, work: Callable[[Rig], Any]) -> Rig:
        """Returns a client whose first attempt gets `reply` after another client did its work."""
        storage, clock = MemoryStorage(), ManualClock()
        self.other = other = Rig(*others, storage=storage, clock=clock)

        def meanwhile(request: Outgoing) -> Answer:
            # The other one waits for what the mark leaves to wait.
            clock.advance(1)
            work(other)
            if isinstance(reply, Exception):
                raise reply
            assert isinstance(reply, Answer)
            return reply

        return Rig(meanwhile, storage=storage, status="never", clock=clock)

    def test_a_refusal_is_not_written_over_the_mark_of_another(self) -> None:
        for reply in (answer(403), answer(422), answer(400, None, {"error": "no"})):
            rig = self.pair(reply, lost(), work=lambda other: other.send_once())
            end = rig.pay().send()
            self.assertEqual((end.kind, end.safe_new_key), ("unknown", False))

    def test_a_failure_before_the_first_byte_does_not_take_the_doubt_of_another(self) -> None:
        rig = self.pair(not_sent(), lost(), work=lambda other: other.send_once())
        rig.send_once()
        self.assertTrue(stored(rig).doubt)

    def test_a_write_that_marks_no_attempt_leaves_the_doubt_as_it_was(self) -> None:
        def note(other: Rig) -> None:
            entry = stored(other)
            written = other.client._engine.write(entry, entry)
            with self.assertRaises(StopIteration):
                written.send(None)

        end = self.pair(answer(403), work=note).pay().send()
        self.assertEqual((end.kind, end.safe_new_key), ("refused", True))

    def test_of_two_times_to_come_back_the_later_stands(self) -> None:
        for first, second in ((50, 20), (20, 50)):
            rig = self.pair(
                answer(429, {"Retry-After": str(first)}),
                answer(503, {"Retry-After": str(second)}),
                work=lambda other: other.send_once(),
            )
            rig.send_once()
            self.assertEqual(stored(rig).not_before // 1000 - rig.clock.day // 1000, 50)

    def test_of_two_times_until_which_the_key_is_kept_the_later_stands(self) -> None:
        early, late = "Fri, 15 Jan 2027 09:00:00 GMT", "Fri, 15 Jan 2027 12:00:00 GMT"
        for first, second in ((early, late), (late, early)):
            rig = self.pair(
                answer(202, {"Idempotency-Interim": "true", "Idempotency-Expires": first}),
                answer(202, {"Idempotency-Interim": "true", "Idempotency-Expires": second}),
                work=lambda other: other.send_once(),
            )
            rig.send_once()
            self.assertEqual(stored(rig).expires_at, 1_800_000_000_000 + 4 * 3_600_000)

    def test_the_latest_word_of_a_server_on_the_life_of_a_key_counts(self) -> None:
        early, late = "Fri, 15 Jan 2027 09:00:00 GMT", "Fri, 15 Jan 2027 12:00:00 GMT"
        rig = Rig(
            answer(202, {"Idempotency-Interim": "true", "Idempotency-Expires": late}),
            answer(202, {"Idempotency-Interim": "true", "Idempotency-Expires": early}),
            status="never",
        )
        rig.send_once()
        rig.clock.advance(1)
        rig.send_once()
        self.assertEqual(stored(rig).expires_at, 1_800_000_000_000 + 3_600_000)

    def test_an_end_that_stands_is_not_written_over(self) -> None:
        rig = self.pair(answer(403), answer(201, KEPT, {"id": 1}), work=lambda other: other.pay().send())
        self.assertEqual(rig.pay().send().json(), {"id": 1})


class Tokens(unittest.TestCase):
    """A retry that took a token of the budget and is not sent gives it back."""

    def tokens(self, rig: Rig) -> float:
        return rig.client._engine.origins.budget("https://api.example:443", rig.clock.uptime)._tokens

    def test_times_of_threads_that_come_late_gain_nothing_twice(self) -> None:
        budget = RetryBudget(0)
        for _ in range(20):
            self.assertEqual(budget.take(0), 0)
        # One token is gained from 0 to 2; the thread with the earlier time only looks.
        self.assertEqual((budget.take(2), budget.take(0)), (0, 2))
        self.assertEqual(budget.take(2), 2)

    def test_credentials_that_fail(self) -> None:
        def fetch(wanted: CredentialsRequest) -> Any:
            if rig.transport.requests:
                raise RuntimeError("the vault is closed")
            return {}

        rig = Rig(not_sent(), credentials=fetch)
        rig.send_once()
        before = self.tokens(rig)
        with self.assertRaisesRegex(Exception, "hook failed"):
            rig.pay().send()
        self.assertEqual(self.tokens(rig), before)

    def test_a_mark_that_another_process_made_first(self) -> None:
        storage = MemoryStorage()
        rig, other = Rig(not_sent(), storage=storage), Rig(answer(201, KEPT), storage=storage)
        rig.send_once()
        rig.clock.advance(60)
        other.clock.advance(60)

        def fetch(wanted: CredentialsRequest) -> Any:
            other.pay().send()
            return {}

        rig.client._io._credentials = fetch
        before = self.tokens(rig)
        self.assertEqual(rig.pay().send().kind, "done")
        self.assertEqual((self.tokens(rig), len(rig.transport.requests)), (before, 1))

    def test_a_mark_that_cannot_be_written(self) -> None:
        class Full(MemoryStorage):
            is_full = False

            def replace(self, *arguments: Any) -> bool:
                if self.is_full:
                    raise OSError("No space left on device")
                return super().replace(*arguments)

        storage = Full()
        rig = Rig(not_sent(), storage=storage)
        rig.send_once()
        rig.clock.advance(60)
        before = self.tokens(rig)
        storage.is_full = True
        with self.assertRaises(OSError):
            rig.pay().send()
        self.assertEqual(self.tokens(rig), before)
