"""Waits and times of a server: lengths, which no clock that is wrong, is set or starts anew changes."""

from __future__ import annotations

import hashlib
import unittest
from dataclasses import replace
from typing import Any, List

from firstwrite import Answer, MemoryStorage, Outgoing, Pending, StorageError
from firstwrite.answer import http_date, number, retry_after
from firstwrite.entry import encode
from firstwrite.rules import BACK_OFF_MAX_MS
from firstwrite.waits import Waits
from tests.fakes import KEPT, URL, ManualClock, Rig, answer, lost, not_sent
from tests.test_send import stored

NOW = 1_800_000_000_000
"""The time of the tests' clock: 15 January 2027, 08:00."""

HOUR = 3_600_000
AHEAD = "Fri, 15 Jan 2027 10:00:00 GMT"
BEHIND = "Fri, 15 Jan 2027 06:00:00 GMT"


class ServerTime(unittest.TestCase):
    """The server's clock is two hours ahead of the client's, or behind."""

    def test_a_date_to_come_back_at_is_a_distance_from_the_answers_own(self) -> None:
        for date, after in (
            (AHEAD, "Fri, 15 Jan 2027 10:00:20 GMT"),
            (BEHIND, "Fri, 15 Jan 2027 06:00:20 GMT"),
            ("soon", "Fri, 15 Jan 2027 08:00:20 GMT"),
            (f"{AHEAD}, {BEHIND}", "Fri, 15 Jan 2027 08:00:20 GMT"),
        ):
            rig = Rig(answer(503, {"Date": date, "Retry-After": after}), answer(201, KEPT), status="never")
            with self.subTest(date):
                self.assertEqual(rig.pay().send().kind, "done")
                self.assertEqual(rig.clock.waits, [20])

    def test_the_life_of_a_key_is_a_distance_from_the_answers_own(self) -> None:
        for date, expires in (
            (AHEAD, "Fri, 15 Jan 2027 10:05:00 GMT"),
            (BEHIND, "Fri, 15 Jan 2027 06:05:00 GMT"),
            (None, "Fri, 15 Jan 2027 08:05:00 GMT"),
        ):
            headers = {"Idempotency-Expires": expires, "Idempotency-Interim": "true"}
            rig = Rig(answer(202, {**headers, **({"Date": date} if date else {})}), status="never")
            rig.send_once()
            with self.subTest(date):
                self.assertEqual(stored(rig).expires_at, NOW + 300_000)
                # Its last minute is left alone.
                rig.clock.advance(241)
                self.assertEqual(rig.pay().send().kind, "expired")
                self.assertEqual(len(rig.transport.requests), 1)

    def test_the_status_resource_has_a_clock_too(self) -> None:
        later = answer(503, {"Date": AHEAD, "Retry-After": "Fri, 15 Jan 2027 10:00:07 GMT"})
        rig = Rig(
            lost(), later, answer(200, None, {"state": "completed"}), answer(201, KEPT), status="always"
        )
        rig.pay().send()
        self.assertEqual(rig.clock.waits, [7])

    def test_the_time_counts_from_when_the_answer_was_there(self) -> None:
        def slow(request: Outgoing) -> Answer:
            rig.clock.advance(20)
            expires = {"Idempotency-Expires": "Fri, 15 Jan 2027 10:05:00 GMT", "Idempotency-Interim": "true"}
            return answer(202, {"Date": AHEAD, **expires})

        rig = Rig(slow, status="never")
        rig.send_once()
        self.assertEqual(stored(rig).expires_at, NOW + 320_000)


class Asked(unittest.TestCase):
    """Times that a server names, in a header or in the member of a problem."""

    def test_a_header_of_zero_is_a_time_whatever_the_member_says(self) -> None:
        self.assertEqual(retry_after("0", 5.0, NOW), 0)
        self.assertEqual(retry_after("soon", 5.0, NOW), 5)
        self.assertIsNone(retry_after("soon", None, NOW))
        self.assertIsNone(retry_after(None, None, NOW))

    def test_a_member_is_rounded_up_to_whole_seconds(self) -> None:
        for member, seconds in ((0, 0), (0.001, 1), (1.5, 2), (4.0, 4), (3600.5, 3600), (1e300, 3600)):
            with self.subTest(member):
                self.assertEqual(retry_after(None, number(member), NOW), seconds)

    def test_a_member_that_is_no_time_is_none(self) -> None:
        for member in (-0.5, -4, float("inf"), float("nan"), True, "4", [4], None):
            with self.subTest(repr(member)):
                self.assertIsNone(number(member))

    def test_a_leap_second_is_the_second_before_it(self) -> None:
        for date in (
            "Thu, 31 Dec 2026 23:59:60 GMT",
            "Thursday, 31-Dec-26 23:59:60 GMT",
            "Thu Dec 31 23:59:60 2026",
        ):
            with self.subTest(date):
                self.assertEqual(http_date(date), http_date("Thu, 31 Dec 2026 23:59:59 GMT"))
        self.assertIsNone(http_date("Thu, 31 Dec 2026 23:59:61 GMT"))

    def test_years_of_two_digits_are_from_1970_to_2069(self) -> None:
        for date, same in (
            ("Monday, 18-Nov-69 20:00:00 GMT", "Mon, 18 Nov 2069 20:00:00 GMT"),
            ("Wednesday, 18-Nov-70 20:00:00 GMT", "Wed, 18 Nov 1970 20:00:00 GMT"),
            ("Thursday, 18-Nov-99 20:00:00 GMT", "Thu, 18 Nov 1999 20:00:00 GMT"),
            ("Saturday, 18-Nov-00 20:00:00 GMT", "Sat, 18 Nov 2000 20:00:00 GMT"),
        ):
            with self.subTest(date):
                self.assertIsNotNone(http_date(date))
                self.assertEqual(http_date(date), http_date(same))


class Questions(unittest.TestCase):
    """Waits between questions to the status resource."""

    RESERVED = answer(200, {"Retry-After": "2"}, {"state": "reserved"})
    COMPLETED = answer(200, None, {"state": "completed"})

    def test_the_back_off_grows_with_their_number(self) -> None:
        rig = Rig(lost(), *[self.RESERVED] * 4, self.COMPLETED, answer(201, KEPT), luck=0.5, status="always")
        rig.pay().send(wait_for=600)
        # After the attempt, and after each question but the last.
        self.assertEqual(rig.clock.waits, [0.281, 2.281, 2.562, 3.125, 4.25])

    def test_it_begins_anew_with_each_attempt(self) -> None:
        rig = Rig(
            lost(),
            self.RESERVED,
            self.RESERVED,
            self.COMPLETED,
            lost(),
            self.RESERVED,
            self.COMPLETED,
            answer(201, KEPT),
            luck=0.5,
            status="always",
        )
        rig.pay().send(wait_for=600)
        self.assertEqual(rig.clock.waits, [0.281, 2.281, 2.562, 0.562, 2.281])

    def test_a_time_of_zero_is_the_back_off_alone(self) -> None:
        for reply in (
            answer(200, {"Retry-After": "0"}, {"state": "reserved", "retry_after": 9}),
            answer(200, None, {"state": "interim", "retry_after": 0}),
            answer(503, {"Retry-After": "0"}),
        ):
            rig = Rig(lost(), reply, self.COMPLETED, answer(201, KEPT), luck=0.5, status="always")
            rig.pay().send(wait_for=600)
            with self.subTest(repr(reply)):
                self.assertEqual(rig.clock.waits, [0.281, 0.281])

    def test_what_an_answer_says_holds_over_a_restart(self) -> None:
        for reply in (answer(429, {"Retry-After": "600"}), answer(200, {"Retry-After": "600"}, {"state": "interim"})):
            storage, clock = MemoryStorage(), ManualClock()
            first = Rig(lost(), reply, storage=storage, clock=clock, status="always")
            with self.assertRaises(Pending):
                first.pay().send(wait_for=60)
            clock.advance(100)
            second = Rig(storage=storage, clock=clock, status="always")
            with self.subTest(repr(reply)), self.assertRaises(Pending) as caught:
                second.pay().send(wait_for=60)
            self.assertEqual(caught.exception.retry_in, 500)

    def test_of_what_two_processes_were_told_the_later_time_stands(self) -> None:
        for mine, others, later in ((600, 50, 600), (50, 600, 600)):
            storage, clock = MemoryStorage(), ManualClock()
            other = Rig(answer(429, {"Retry-After": str(others)}), storage=storage, clock=clock, status="never")

            def meanwhile(request: Outgoing) -> Answer:
                clock.advance(1)
                other.send_once()
                return answer(429, {"Retry-After": str(mine)})

            rig = Rig(lost(), meanwhile, storage=storage, clock=clock, status="always")
            with self.subTest(mine=mine), self.assertRaises(Pending) as caught:
                rig.pay().send(wait_for=40)
            self.assertEqual(caught.exception.retry_in // 1, later)


class Lengths(unittest.TestCase):
    LATER = answer(429, {"Retry-After": "1800"})

    def left(self, rig: Rig) -> float:
        with self.assertRaises(Pending) as caught:
            rig.pay().send(wait_for=0)
        return caught.exception.retry_in

    def begun(self, **settings: Any) -> Rig:
        rig = Rig(self.LATER, answer(201, KEPT), give_up_after=1e6, retention=1e6, **settings)
        rig.pay()
        self.assertEqual(self.left(rig), 1800)
        return rig

    def test_a_clock_that_is_set_in_a_wait_does_not_change_it(self) -> None:
        for step in (-HOUR, -50_000, 50_000, HOUR):
            rig = self.begun()
            rig.clock.advance(600)
            rig.clock.day += step
            with self.subTest(step):
                self.assertEqual(self.left(rig), 1200)
                self.assertEqual(len(rig.transport.requests), 1)
                rig.clock.advance(1200)
                self.assertEqual(rig.pay().send(wait_for=0).kind, "done")

    def test_in_a_queue_neither(self) -> None:
        for step in (-HOUR, HOUR):
            rig = Rig(self.LATER, answer(201, KEPT), give_up_after=1e6, retention=1e6)
            queue = rig.client.queue()
            queue.enqueue("a", "a/1", "POST", URL, json={"amount": 1})
            queue.run(wait_for=0)
            rig.clock.day += step
            with self.subTest(step):
                self.assertEqual([lane.retry_in for lane in queue.run(wait_for=0)], [1800])
                self.assertEqual([lane.state for lane in queue.run()], ["empty"])
                self.assertEqual(sum(rig.clock.waits), 1800)

    def test_after_a_restart_no_more_than_the_length_is_waited(self) -> None:
        # The time of day that passed, by the clock as it is then; the wait had 1,800 s.
        for passed, left in ((600_000, 1200), (0, 1800), (-50_000, 1800), (-HOUR, 1800), (HOUR, 0)):
            first = self.begun()
            clock = ManualClock(NOW + passed)
            clock.uptime = 5.0
            rig = Rig(answer(201, KEPT), storage=first.storage, clock=clock, give_up_after=1e6, retention=1e6)
            with self.subTest(passed):
                self.assertEqual(rig.pay().send(wait_for=1e6).kind, "done")
                self.assertEqual(sum(clock.waits), left)

    def test_after_a_restart_the_rest_is_a_length_again(self) -> None:
        first = self.begun()
        rig = Rig(
            answer(201, KEPT),
            storage=first.storage,
            clock=ManualClock(NOW + 600_000),
            give_up_after=1e6,
            retention=1e6,
        )
        self.assertEqual(self.left(rig), 1200)
        for step in (-HOUR, 3 * HOUR):
            rig.clock.day += step
            self.assertEqual(self.left(rig), 1200)
        rig.clock.advance(1200)
        self.assertEqual(rig.pay().send(wait_for=0).kind, "done")

    def test_a_wait_that_another_process_made_longer_is_waited(self) -> None:
        rig = self.begun()
        rig.clock.advance(1800)
        other = Rig(
            self.LATER, storage=rig.storage, clock=ManualClock(rig.clock.day), give_up_after=1e6, retention=1e6
        )
        self.assertEqual(self.left(other), 1800)
        self.assertEqual(self.left(rig), 1800)

    def test_an_entry_of_an_earlier_version_has_a_wait_without_length(self) -> None:
        rig = self.begun()
        entry = stored(rig)
        document = encode(entry).partition(b"\n")[2].replace(b',"wait":1800000', b"")
        head = b"firstwrite-intent 1 " + hashlib.sha256(document).hexdigest().encode()
        assert rig.storage.replace(entry.name, entry.revision, entry.revision, head + b"\n" + document)
        self.assertEqual(stored(rig), replace(entry, wait=0))
        again = Rig(answer(201, KEPT), storage=rig.storage, give_up_after=1e6, retention=1e6)
        self.assertEqual(again.pay().send(wait_for=0).kind, "done")

    def test_what_is_known_of_waits_has_a_limit(self) -> None:
        rig = self.begun()
        entry, waits = stored(rig), Waits(rig.clock)
        for number in range(10_050):
            waits.begin(replace(entry, key=f"key {number}"))
        self.assertEqual(len(waits._known), 10_000)
        self.assertEqual(waits.left(replace(entry, key="key 10049")), 1_800_000)


class CrashLoop(unittest.TestCase):
    """A process that dies in each attempt and is started again at once."""

    class Death(BaseException):
        pass

    def die(self, request: Outgoing) -> Answer:
        raise self.Death

    def restarts(self, seconds: float, every: float) -> List[float]:
        """Starts a process again and again for a while, and returns the times of its requests."""
        storage, clock, sent = MemoryStorage(), ManualClock(), []
        until = clock.day + seconds * 1000
        while clock.day < until:
            rig = Rig(self.die, storage=storage, clock=ManualClock(clock.day), luck=0.5)
            try:
                rig.pay().send(wait_for=0)
            except Pending:
                pass
            except self.Death:
                sent.append((clock.day - NOW) / 1000)
            clock.advance(every)
        return sent

    def test_it_backs_off_all_the_same(self) -> None:
        sent = self.restarts(300, every=0.1)
        # Doubling from half a second to half a minute: about five in the first ten seconds.
        self.assertLessEqual(len([at for at in sent if at < 10]), 8)
        self.assertLessEqual(len(sent), 30)
        self.assertGreater(len(sent), 10)
        gaps = [later - earlier for earlier, later in zip(sent, sent[1:])]
        self.assertGreaterEqual(gaps[-1], BACK_OFF_MAX_MS / 1000 * 7 / 8)

    def test_a_clock_that_is_set_back_does_not_stop_it_for_longer(self) -> None:
        storage = MemoryStorage()
        with self.assertRaises(self.Death):
            Rig(self.die, storage=storage, luck=0.5).pay().send()
        clock = ManualClock(NOW - 50_000)
        rig = Rig(answer(201, KEPT), storage=storage, clock=clock)
        rig.pay().send()
        self.assertLessEqual(sum(clock.waits), 0.5)

    def test_what_is_recorded_replaces_the_wait_of_the_mark(self) -> None:
        for reply in (answer(429, {"Retry-After": "0"}), not_sent()):
            rig = Rig(reply, answer(201, KEPT), luck=0.9)
            self.fall(rig)
            with self.subTest(repr(reply)):
                self.assertEqual(rig.pay().send(wait_for=0).kind, "done")

    @staticmethod
    def fall(rig: Rig) -> None:
        """Leaves the luck of the rig to the mark, and none to what comes after it."""
        inner = rig.transport.send

        def send(*arguments: Any) -> Answer:
            rig.luck = None
            return inner(*arguments)

        rig.transport.send = send  # type: ignore[method-assign,assignment]

    def test_an_end_that_could_not_be_written_is_asked_for_after_the_wait(self) -> None:
        class Full(MemoryStorage):
            writes = 1

            def replace(self, *arguments: Any) -> bool:
                self.writes -= 1
                if self.writes < 0:
                    raise StorageError("No space left on device")
                return super().replace(*arguments)

        storage = Full()
        rig = Rig(answer(201, KEPT), answer(201, KEPT), storage=storage, luck=0.5, status="never")
        with self.assertRaises(StorageError):
            rig.pay().send()
        storage.writes = 10
        self.assertEqual(rig.pay().send().kind, "done")
        self.assertEqual(len(rig.clock.waits), 1)
