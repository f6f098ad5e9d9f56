"""What `send` does between the first attempt and the end: doubt, waits, credentials, the status resource, time."""

from __future__ import annotations

import unittest
from typing import Any, Dict, List, Mapping

from firstwrite import (
    Answer,
    CredentialsError,
    CredentialsRequest,
    MemoryStorage,
    Outgoing,
    Pending,
    StorageError,
)
from firstwrite.entry import decode
from tests.fakes import KEPT, URL, ManualClock, Rig, answer, lost, not_sent, problem

AUTH = {"Authorization": "Bearer demo-acme"}


def noting(seen: List[bool]) -> Any:
    """Returns a hook for credentials that notes which of them were to be fresh ones."""

    def fetch(wanted: CredentialsRequest) -> Mapping[str, str]:
        seen.append(wanted.refresh)
        return AUTH

    return fetch


def stored_bytes(rig: Rig, name: str = "checkout/cart_42") -> bytes:
    item = rig.storage.read(name)
    assert item is not None, "the storage holds the intent"
    return bytes(item.data)


def stored(rig: Rig, name: str = "checkout/cart_42") -> Any:
    return decode(stored_bytes(rig, name), "memory", name)


class Order(unittest.TestCase):
    def test_no_byte_is_sent_before_the_mark_is_written(self) -> None:
        seen: List[Any] = []

        def look(request: Outgoing) -> Answer:
            entry = stored(rig)
            seen.append(
                (entry.attempts, entry.doubt, f'"{entry.key}"' == dict(request.headers)["idempotency-key"])
            )
            return answer(503) if len(seen) < 3 else answer(201, KEPT)

        rig = Rig(look, look, look)
        rig.pay().send()
        self.assertEqual(seen, [(1, True, True), (2, True, True), (3, True, True)])

    def test_an_end_is_written_before_the_caller_gets_it(self) -> None:
        rig = Rig(answer(201, KEPT))
        rig.pay().send()
        self.assertEqual(stored(rig).end.kind, "done")

    def test_steps_are_told_in_order(self) -> None:
        rig = Rig(answer(503), answer(201, KEPT))
        pay = rig.pay()
        pay.send()
        pay.acknowledge()
        self.assertEqual(
            rig.steps(),
            [
                "opened",
                "marked",
                "sent",
                "answered",
                "recorded",
                "marked",
                "sent",
                "answered",
                "ended",
                "acknowledged",
            ],
        )
        self.assertEqual([event.attempt for event in rig.events], [0, 1, 1, 1, 1, 2, 2, 2, 2, 2])
        self.assertEqual(
            [(event.status, event.decision) for event in rig.events if event.step == "answered"],
            [(503, "retry"), (201, "done")],
        )

    def test_a_request_that_was_not_sent_has_no_step_sent(self) -> None:
        rig = Rig(not_sent(), answer(201, KEPT))
        rig.pay().send()
        self.assertEqual(
            [(event.step, event.failure) for event in rig.events if event.attempt == 1],
            [("marked", None), ("answered", "not-sent"), ("recorded", "not-sent")],
        )

    def test_an_event_hook_that_fails_stops_nothing(self) -> None:
        def broken(event: object) -> None:
            raise RuntimeError("no disk for the log")

        rig = Rig(answer(201, KEPT), on_event=broken)
        with self.assertLogs("firstwrite", "ERROR"):
            self.assertEqual(rig.pay().send().kind, "done")

    def test_the_key_is_quoted_for_draft_07_and_bare_for_others(self) -> None:
        for dialect, form in (("draft-07", '"{}"'), ("stripe", "{}"), ("generic", "{}")):
            with self.subTest(dialect):
                rig = Rig(answer(201), dialect=dialect)
                pay = rig.pay()
                pay.send()
                self.assertEqual(rig.transport.keys(), [form.format(pay.key)])

    def test_an_error_of_the_transport_that_it_does_not_name_leaves_the_doubt(self) -> None:
        rig = Rig(ZeroDivisionError())
        with self.assertRaises(ZeroDivisionError):
            rig.pay().send()
        self.assertTrue(stored(rig).doubt)


class Doubt(unittest.TestCase):
    def test_an_answer_that_ran_nothing_gives_the_doubt_back(self) -> None:
        rig = Rig(answer(429), answer(403))
        self.assertEqual(rig.pay().send().kind, "refused")

    def test_not_sent_gives_the_doubt_back(self) -> None:
        rig = Rig(not_sent(), not_sent(), answer(403))
        self.assertEqual(rig.pay().send().kind, "refused")

    def test_a_lost_answer_leaves_the_doubt_for_good(self) -> None:
        rig = Rig(lost(), answer(429), not_sent(), answer(403))
        end = rig.pay().send()
        self.assertEqual((end.kind, end.safe_new_key), ("unknown", False))

    def test_a_kept_refusal_settles_the_doubt(self) -> None:
        rig = Rig(lost(), answer(422, {"Idempotent-Replayed": "true"}))
        end = rig.pay().send()
        self.assertEqual((end.kind, end.safe_new_key, end.replayed), ("refused", True, True))

    def test_a_process_that_died_in_an_attempt_leaves_the_doubt(self) -> None:
        storage = MemoryStorage()

        def die(request: Outgoing) -> Answer:
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            Rig(die, storage=storage).pay().send()
        self.assertEqual(Rig(answer(403), storage=storage).pay().send().kind, "unknown")

    def test_two_senders_do_not_take_the_doubt_from_each_other(self) -> None:
        storage = MemoryStorage()
        other = Rig(lost(), storage=storage)

        def meanwhile(request: Outgoing) -> Answer:
            # The other process begins an attempt, which may arrive, and then this one is refused.
            other.clock.advance(1)
            other.send_once()
            return answer(403)

        end = Rig(meanwhile, storage=storage).pay().send()
        self.assertEqual((end.kind, end.safe_new_key), ("unknown", False))

    def test_the_first_end_stands(self) -> None:
        storage = MemoryStorage()
        other = Rig(answer(201, KEPT, {"id": "first"}), storage=storage)

        def meanwhile(request: Outgoing) -> Answer:
            other.clock.advance(1)
            other.pay().send()
            return answer(500, KEPT)

        end = Rig(meanwhile, storage=storage).pay().send()
        self.assertEqual((end.kind, end.json()), ("done", {"id": "first"}))


class Waiting(unittest.TestCase):
    def test_the_server_is_not_asked_before_its_time(self) -> None:
        rig = Rig(answer(503, {"Retry-After": "7"}), answer(201, KEPT), luck=0.5)
        rig.pay().send()
        self.assertEqual(rig.clock.waits, [7.281])

    def test_a_wait_that_is_too_long_is_pending_at_once(self) -> None:
        rig = Rig(answer(503, {"Retry-After": "31"}), answer(201, KEPT))
        pay = rig.pay()
        with self.assertRaises(Pending) as caught:
            pay.send(wait_for=30)
        self.assertEqual(rig.clock.waits, [])
        self.assertEqual(
            (caught.exception.retry_in, caught.exception.attempts, caught.exception.in_doubt), (31, 1, True)
        )
        with self.assertRaises(Pending):
            pay.send(wait_for=30)
        rig.clock.advance(2)
        self.assertEqual(pay.send(wait_for=30).kind, "done")

    def test_a_restart_waits_the_rest(self) -> None:
        storage = MemoryStorage()
        first = Rig(answer(503, {"Retry-After": "10"}), storage=storage)
        with self.assertRaises(Pending):
            first.pay().send(wait_for=1)
        second = Rig(answer(201, KEPT), storage=storage)
        second.clock.advance(4)
        second.pay().send()
        self.assertEqual(second.clock.waits, [6])

    def test_a_huge_retry_after_is_an_hour(self) -> None:
        rig = Rig(answer(429, {"Retry-After": "9" * 5000}), answer(201, KEPT), give_up_after=1e6)
        rig.pay().send(wait_for=1e5)
        self.assertEqual(rig.clock.waits, [3600])

    def test_retries_use_up_the_budget_and_then_wait_for_it(self) -> None:
        rig = Rig(*[not_sent()] * 25, answer(201, KEPT))
        rig.pay().send(wait_for=600)
        # The first attempt takes none of the 20 tokens; each retry after them waits 2 s.
        self.assertEqual(rig.clock.waits, [2.0] * 5)

    def test_a_success_gives_a_token_back(self) -> None:
        rig = Rig(*[not_sent()] * 20, answer(201, KEPT), not_sent(), answer(201, KEPT))
        rig.pay("a").send()
        rig.pay("b").send()
        self.assertEqual(rig.clock.waits, [])

    def test_only_what_is_done_gives_a_token_back(self) -> None:
        interim = answer(202, {"Idempotency-Interim": "true"})
        for reply in (interim, answer(403), answer(500, KEPT)):
            rig = Rig(*[not_sent()] * 20, reply, not_sent(), answer(201, KEPT), answer(201, KEPT), status="never")
            rig.pay("a").send()
            if reply is not interim:
                rig.pay("b").send()
            with self.subTest(repr(reply)):
                self.assertEqual(rig.clock.waits, [2.0, 2.0] if reply is interim else [2.0])

    def test_first_attempts_take_no_token(self) -> None:
        rig = Rig(*[answer(201, KEPT)] * 50)
        for number in range(50):
            rig.pay(f"intent {number}").send()
        self.assertEqual(rig.clock.waits, [])

    def test_an_attempt_has_no_more_time_than_the_caller(self) -> None:
        rig = Rig(answer(201, KEPT), answer(201, KEPT), answer(201, KEPT))
        rig.pay("a").send(wait_for=5)
        rig.pay("b").send(wait_for=0)
        rig.pay("c").send(wait_for=500)
        self.assertEqual(rig.transport.timeouts, [5, 1, 30])


class Meanwhile(unittest.TestCase):
    """Another process works on the same intent."""

    def ended_in_a_pause(self, rig: Rig, other: Rig) -> None:
        def sleep(seconds: float) -> None:
            rig.clock.sleep(seconds)
            if other.transport.replies:
                self.assertEqual(other.pay().send().kind, "done")

        rig.client._io.sleep_now = sleep
        self.assertEqual(rig.pay().send(wait_for=600).kind, "done")
        self.assertEqual(other.transport.replies, [])

    def test_what_ended_elsewhere_in_a_wait_is_not_sent_again(self) -> None:
        storage = MemoryStorage()
        calls: List[bool] = []

        def fetch(wanted: CredentialsRequest) -> Mapping[str, str]:
            calls.append(wanted.refresh)
            return AUTH

        rig = Rig(answer(429, {"Retry-After": "7"}), storage=storage, credentials=fetch)
        other = Rig(answer(201, KEPT), storage=storage)
        other.clock.advance(60)
        self.ended_in_a_pause(rig, other)
        self.assertEqual(calls, [False], "credentials were fetched for nothing")

    def test_what_ended_elsewhere_while_the_budget_was_used_up_is_not_sent_again(self) -> None:
        storage = MemoryStorage()
        self.ended_in_a_pause(
            Rig(*[not_sent()] * 21, storage=storage), Rig(answer(201, KEPT), storage=storage)
        )


class Time(unittest.TestCase):
    def run_out(self, reply: Any, seconds: float, **settings: Any) -> Any:
        rig = Rig(reply, **settings)
        rig.send_once()
        rig.clock.advance(seconds)
        end = rig.pay().send(wait_for=0)
        self.assertEqual(len(rig.transport.requests), 1)
        return end

    def test_giving_up_in_doubt_is_unknown(self) -> None:
        end = self.run_out(lost(), 3600)
        self.assertEqual((end.kind, end.safe_new_key, end.status), ("unknown", False, None))

    def test_giving_up_without_doubt_is_refused(self) -> None:
        end = self.run_out(not_sent(), 3600)
        self.assertEqual((end.kind, end.safe_new_key), ("refused", True))

    def test_nothing_is_sent_in_the_last_minute_of_a_key(self) -> None:
        end = self.run_out(lost(), 3541, retention=3600, give_up_after=1e9)
        self.assertEqual((end.kind, end.safe_new_key), ("expired", False))

    def test_the_life_of_a_key_that_the_server_says_counts(self) -> None:
        # 15 January 2027, 08:00 is the time of the test's clock.
        expires = {"Idempotency-Expires": "Fri, 15 Jan 2027 08:05:00 GMT", "Idempotency-Interim": "true"}
        end = self.run_out(answer(202, expires), 241, status="never")
        self.assertEqual(end.kind, "expired")

    def test_an_attempt_does_not_reach_past_the_life_of_the_key(self) -> None:
        def slow(request: Outgoing) -> Answer:
            rig.clock.advance(20)
            raise lost()

        rig = Rig(lost(), slow, retention=3600, give_up_after=1e9, attempt_timeout=300, wait_for=1e6)
        rig.send_once()
        rig.clock.advance(3530)
        self.assertEqual(rig.pay().send().kind, "expired")
        # A minute of the key's life is left alone.
        self.assertEqual(rig.transport.timeouts, [1, 10])

    def test_a_clock_that_jumped_back_neither_ends_nor_blocks_an_intent_without_doubt(self) -> None:
        rig = Rig(not_sent(), answer(201, KEPT))
        rig.send_once()
        rig.clock.day -= 365 * 86_400_000
        self.assertEqual(rig.pay().send().kind, "done")
        self.assertLess(sum(rig.clock.waits), 10)

    def test_a_clock_that_jumps_back_while_waiting_does_not_lengthen_the_wait(self) -> None:
        rig = Rig(answer(429, {"Retry-After": "10"}), answer(201, KEPT))

        def jump(seconds: float) -> None:
            rig.clock.sleep(seconds)
            rig.clock.day -= 86_400_000

        rig.client._io.sleep_now = jump
        rig.pay().send()
        self.assertEqual(rig.clock.waits, [10])

    def test_a_clock_that_jumps_ahead_while_waiting_sends_nothing_more(self) -> None:
        rig = Rig(lost(), luck=0.5)

        def jump(seconds: float) -> None:
            rig.clock.sleep(seconds)
            rig.clock.day += 2 * 86_400_000

        rig.client._io.sleep_now = jump
        self.assertEqual(rig.pay().send().kind, "expired")

    def test_slow_credentials_send_nothing_after_the_life_of_the_key(self) -> None:
        def slow(wanted: CredentialsRequest) -> Mapping[str, str]:
            if rig.transport.requests:
                rig.clock.advance(25 * 3600)
            return AUTH

        rig = Rig(lost(), credentials=slow)
        self.assertEqual(rig.pay().send().kind, "expired")
        self.assertEqual(len(rig.transport.requests), 1)


class CredentialsOfAttempts(unittest.TestCase):
    def test_they_are_fetched_for_each_attempt_and_not_stored(self) -> None:
        calls: List[bool] = []

        def fetch(wanted: CredentialsRequest) -> Mapping[str, str]:
            calls.append(wanted.refresh)
            return {"Authorization": f"Bearer secret-{len(calls)}"}

        rig = Rig(answer(503), answer(201, KEPT), credentials=fetch)
        rig.pay().send()
        self.assertEqual(calls, [False, False])
        sent = [dict(request.headers)["authorization"] for request in rig.transport.requests]
        self.assertEqual(sent, ["Bearer secret-1", "Bearer secret-2"])
        self.assertNotIn(b"secret", stored_bytes(rig))

    def test_a_401_asks_for_fresh_ones_once(self) -> None:
        calls: List[bool] = []

        def fetch(wanted: CredentialsRequest) -> Mapping[str, str]:
            calls.append(wanted.refresh)
            return AUTH

        rig = Rig(answer(401), answer(401), credentials=fetch)
        end = rig.pay().send()
        self.assertEqual(calls, [False, True])
        self.assertEqual((end.kind, end.status, end.safe_new_key), ("refused", 401, True))

    def test_after_credentials_were_taken_they_may_lapse_again(self) -> None:
        rig = Rig(answer(401), answer(503), answer(401), answer(201, KEPT), credentials=lambda wanted: AUTH)
        self.assertEqual(rig.pay().send().kind, "done")

    def test_the_hook_is_told_for_which_intent_and_address_they_are(self) -> None:
        seen: List[CredentialsRequest] = []

        def fetch(wanted: CredentialsRequest) -> Mapping[str, str]:
            seen.append(wanted)
            return {"Authorization": f"Bearer of {wanted.origin}"}

        rig = Rig(
            lost(),
            answer(401),
            answer(200, None, {"state": "completed"}),
            answer(201, KEPT),
            answer(201, KEPT),
            credentials=fetch,
            status="always",
        )
        rig.pay("a").send()
        other = "http://[::1]:8080/refunds?now"
        rig.client.intent("b", "POST", other).send()
        self.assertEqual(
            seen,
            [
                CredentialsRequest("a", URL, False),
                CredentialsRequest("a", URL, False),
                CredentialsRequest("a", URL, True),
                CredentialsRequest("a", URL, False),
                CredentialsRequest("b", other, False),
            ],
        )
        # Also those of a question, which goes to the origin of the intent.
        origins = ["https://api.example:443"] * 4 + ["http://[::1]:8080"]
        sent = [dict(request.headers)["authorization"] for request in rig.transport.requests]
        self.assertEqual(sent, [f"Bearer of {origin}" for origin in origins])

    def test_each_attempt_may_ask_for_fresh_ones_once(self) -> None:
        for replies, calls in (
            # The answer after a refresh was lost: nothing says that fresh credentials are refused.
            ([answer(401), lost(), answer(401), answer(201, KEPT)], [False, True, False, True]),
            ([answer(401), not_sent(), answer(401), answer(201, KEPT)], [False, True, False, True]),
            ([answer(401), answer(503), answer(401), answer(201, KEPT)], [False, True, False, True]),
            ([lost(), answer(401), answer(201, KEPT)], [False, False, True]),
        ):
            seen: List[bool] = []
            rig = Rig(*replies, credentials=noting(seen), status="never")
            with self.subTest(replies):
                self.assertEqual(rig.pay().send().kind, "done")
                self.assertEqual(seen, calls)

    def test_a_question_that_asked_for_fresh_ones_leaves_the_attempt_its_own(self) -> None:
        seen: List[bool] = []
        rig = Rig(
            lost(),
            answer(401),
            answer(200, None, {"state": "completed"}),
            answer(401),
            answer(201, KEPT),
            credentials=noting(seen),
            status="always",
        )
        self.assertEqual(rig.pay().send().kind, "done")
        self.assertEqual(seen, [False, False, True, False, True])

    def test_an_attempt_that_asked_for_fresh_ones_leaves_the_question_its_own(self) -> None:
        seen: List[bool] = []
        rig = Rig(
            answer(401),
            lost(),
            answer(401),
            answer(200, None, {"state": "completed"}),
            answer(201, KEPT),
            credentials=noting(seen),
            status="always",
        )
        self.assertEqual(rig.pay().send().kind, "done")
        self.assertEqual(seen, [False, True, False, True, False])

    def test_fresh_ones_that_no_attempt_used_are_fetched_again(self) -> None:
        storage, clock = MemoryStorage(), ManualClock()
        other = Rig(lost(), storage=storage, clock=clock)
        seen: List[bool] = []

        def fetch(wanted: CredentialsRequest) -> Mapping[str, str]:
            seen.append(wanted.refresh)
            if len(seen) == 2:
                # Another process begins an attempt first.
                clock.advance(1)
                other.send_once()
            return AUTH

        rig = Rig(answer(401), answer(201, KEPT), storage=storage, clock=clock, credentials=fetch, status="never")
        self.assertEqual(rig.pay().send().kind, "done")
        self.assertEqual(seen, [False, True, True])

    def test_a_hook_that_fails_sends_nothing_and_makes_no_doubt(self) -> None:
        def broken(wanted: CredentialsRequest) -> Mapping[str, str]:
            raise RuntimeError("vault is sealed, token s.12345")

        rig = Rig(credentials=broken)
        with self.assertRaises(CredentialsError) as caught:
            rig.pay().send()
        self.assertNotIn("12345", str(caught.exception))
        self.assertEqual((stored(rig).attempts, stored(rig).doubt), (0, False))

    def test_credentials_that_cannot_be_sent_are_an_error_without_their_value(self) -> None:
        for headers in (
            {"Authorization": "Bearer secret\r\nX-Evil: 1"},
            {"Auth orization": "secret"},
            {"Idempotency-Key": "secret"},
            {"Content-Type": "secret"},
            {"Host": "secret"},
            {"Authorization": 7},
        ):
            with self.subTest(list(headers)), self.assertRaises(CredentialsError) as caught:
                Rig(credentials=headers).pay().send()
            self.assertNotIn("secret", str(caught.exception))


class Status(unittest.TestCase):
    INTERIM = answer(202, {"Idempotency-Interim": "true", "Retry-After": "1"})

    def asked(self, rig: Rig) -> List[str]:
        return [request.url for request in rig.transport.requests if request.method == "GET"]

    def test_a_server_that_showed_a_problem_of_ours_is_asked(self) -> None:
        rig = Rig(
            problem("in-progress", 409, retryable=True, retry_after=1),
            answer(200, None, {"state": "completed"}),
            answer(201, KEPT),
            credentials=AUTH,
        )
        pay = rig.pay()
        self.assertEqual(pay.send().kind, "done")
        self.assertEqual(
            self.asked(rig), [f"https://api.example:443/.firstwrite/operations/{pay.key}?wait=20s"]
        )
        asked = dict(rig.transport.requests[1].headers)
        self.assertEqual(asked["authorization"], "Bearer demo-acme")
        self.assertNotIn("idempotency-key", asked)

    def test_a_server_that_passed_an_uncertain_answer_on_is_asked(self) -> None:
        for dialect in ("draft-07", "stripe", "generic"):
            rig = Rig(
                answer(501, {"Idempotency-Outcome": "unknown"}),
                answer(200, None, {"state": "completed"}),
                answer(201, KEPT),
                dialect=dialect,
            )
            with self.subTest(dialect):
                self.assertEqual(rig.pay().send().kind, "done")
                self.assertEqual(len(self.asked(rig)), 1)

    def test_an_interim_answer_is_waited_for(self) -> None:
        rig = Rig(
            self.INTERIM,
            answer(200, {"Retry-After": "1"}, {"state": "interim"}),
            answer(200, None, {"state": "completed"}),
            answer(201, KEPT, {"status": "settled"}),
        )
        self.assertEqual(rig.pay().send().json(), {"status": "settled"})
        self.assertEqual(rig.clock.waits, [1, 1])

    def test_a_server_that_showed_nothing_is_not_asked(self) -> None:
        rig = Rig(lost(), answer(201))
        rig.pay().send()
        self.assertEqual(self.asked(rig), [])

    def test_a_server_that_showed_it_is_asked_after_a_restart_too(self) -> None:
        uncertain = answer(503, {"Idempotency-Outcome": "unknown"})
        progress = problem("in-progress", 409, retryable=True)
        for dialect, shown in (
            ("draft-07", self.INTERIM),
            ("draft-07", uncertain),
            ("draft-07", progress),
            ("stripe", uncertain),
            ("stripe", progress),
            ("generic", problem("overloaded", 503, retryable=True)),
        ):
            storage, clock = MemoryStorage(), ManualClock()
            Rig(shown, storage=storage, clock=clock, dialect=dialect).send_once()
            clock.advance(60)
            later = Rig(
                answer(200, None, {"state": "completed"}), answer(201, KEPT), storage=storage, clock=clock
            )
            with self.subTest(shown=shown, dialect=dialect):
                self.assertEqual(later.pay().send().kind, "done")
                self.assertEqual([request.method for request in later.transport.requests], ["GET", "POST"])

    def test_an_attempt_says_in_its_mark_what_is_known_of_the_server(self) -> None:
        storage, clock = MemoryStorage(), ManualClock()

        def die(request: Outgoing) -> Answer:
            raise KeyboardInterrupt

        rig = Rig(answer(201, KEPT), die, storage=storage, clock=clock)
        rig.pay("a").send()
        with self.assertRaises(KeyboardInterrupt):
            rig.pay("b").send()
        clock.advance(60)
        later = Rig(answer(200, None, {"state": "completed"}), answer(201, KEPT), storage=storage, clock=clock)
        self.assertEqual(later.pay("b").send().kind, "done")
        self.assertEqual([request.method for request in later.transport.requests], ["GET", "POST"])

    def test_a_server_that_denied_it_is_not_asked_after_a_restart(self) -> None:
        storage, clock = MemoryStorage(), ManualClock()
        rig = Rig(self.INTERIM, answer(404), self.INTERIM, storage=storage, clock=clock)
        rig.send_once()
        clock.advance(60)
        rig.send_once()
        self.assertEqual(self.asked(rig)[1:], [])
        self.assertFalse(stored(rig).has_status)
        clock.advance(60)
        later = Rig(answer(201, KEPT), storage=storage, clock=clock)
        self.assertEqual(later.pay().send().kind, "done")
        self.assertEqual(self.asked(later), [])

    def test_always_asks_after_a_restart_too(self) -> None:
        storage = MemoryStorage()
        Rig(lost(), storage=storage).send_once()
        rig = Rig(problem("key-unknown", 404), answer(201), storage=storage, status="always")
        rig.pay().send()
        self.assertEqual([request.method for request in rig.transport.requests], ["GET", "POST"])

    def test_never_asks_nobody(self) -> None:
        rig = Rig(self.INTERIM, answer(201, KEPT), status="never")
        rig.pay().send()
        self.assertEqual(self.asked(rig), [])

    def test_a_server_without_the_resource_is_asked_once(self) -> None:
        rig = Rig(lost(), answer(404), lost(), answer(201, KEPT), lost(), answer(201, KEPT), status="always")
        rig.pay("a").send()
        rig.pay("b").send()
        self.assertEqual(len(self.asked(rig)), 1)

    def test_a_401_of_the_status_refreshes_once(self) -> None:
        calls: List[bool] = []

        def fetch(wanted: CredentialsRequest) -> Dict[str, str]:
            calls.append(wanted.refresh)
            return AUTH

        rig = Rig(self.INTERIM, answer(401), answer(401), answer(201, KEPT), credentials=fetch)
        self.assertEqual(rig.pay().send().kind, "done")
        self.assertEqual(calls, [False, False, True, False])

    def test_asking_stops_when_the_caller_has_no_time_left(self) -> None:
        rig = Rig(self.INTERIM, *[answer(200, {"Retry-After": "4"}, {"state": "interim"})] * 3)
        with self.assertRaises(Pending):
            rig.pay().send(wait_for=10)
        waits = [url.rpartition("=")[2] for url in self.asked(rig)]
        self.assertEqual(waits, ["7s", "3s", f"https://api.example:443/.firstwrite/operations/{rig.pay().key}"])
        self.assertEqual(rig.transport.timeouts[1:], [9, 5, 1])

    def test_asking_waits_two_seconds_less_than_an_attempt_lasts(self) -> None:
        for attempt_timeout, wait in ((30, "?wait=20s"), (7.5, "?wait=5s"), (2.9, ""), (0.5, "")):
            rig = Rig(
                self.INTERIM,
                answer(200, None, {"state": "completed"}),
                answer(201, KEPT),
                attempt_timeout=attempt_timeout,
            )
            pay = rig.pay()
            pay.send(wait_for=60)
            with self.subTest(attempt_timeout):
                self.assertEqual(
                    self.asked(rig), [f"https://api.example:443/.firstwrite/operations/{pay.key}{wait}"]
                )
                self.assertLessEqual(rig.transport.timeouts[1], attempt_timeout)

    def test_asking_ends_with_the_time_of_giving_up(self) -> None:
        rig = Rig(
            self.INTERIM,
            *[answer(200, {"Retry-After": "3600"}, {"state": "reserved"})] * 2,
            give_up_after=7200,
        )
        self.assertEqual(rig.pay().send(wait_for=1e6).kind, "unknown")

    def test_a_status_that_fails_is_followed_by_the_request(self) -> None:
        rig = Rig(self.INTERIM, lost(), answer(201, KEPT))
        self.assertEqual(rig.pay().send().kind, "done")


class Hostile(unittest.TestCase):
    """Answers that mean harm, or nothing."""

    def test_bodies_that_are_no_problem_of_ours_mean_nothing(self) -> None:
        members = b'"retryable": false, "safe_new_key": true'
        for body in (
            b"\xff\xfe not utf-8",
            b"[" * 100_000,
            b'{"code": ' + b"9" * 200_000 + b"}",
            b'{"code": ["in-progress"], %s}' % members,
            b'{"code": "key-expired", "retryable": "false", "safe_new_key": true}',
            b'"key-expired"',
            b'{"code": "key-expired", %s, "retry_after": NaN}' % members,
            b'{"code": "key-expired", %s, "retry_after": -Infinity}' % members,
        ):
            with self.subTest(body[:30]):
                end = Rig(answer(400, body=body)).pay().send()
                self.assertEqual((end.kind, end.code, end.body), ("refused", None, body))

    def test_a_problem_as_long_as_a_body_that_is_kept_is_read(self) -> None:
        members = b'"retryable": false, "safe_new_key": true'
        for length, kind in ((1024 * 1024, "expired"), (300_000, "expired"), (100, "expired")):
            body = (b'{"code": "key-expired", %s}' % members).ljust(length)
            with self.subTest(length):
                self.assertEqual(Rig(answer(410, body=body)).pay().send().kind, kind)
        # Of a longer one only the beginning is there.
        cut = Answer(410, {}, b'{"code": "key-expired", %s}' % members, truncated=True)
        self.assertEqual(Rig(cut).pay().send().kind, "refused")

    def test_a_code_that_is_no_text_can_be_written_down(self) -> None:
        rig = Rig(answer(400, body=b'{"code": "\\ud800", "retryable": false, "safe_new_key": true}'))
        rig.pay().send()
        self.assertEqual(rig.pay().send().code, "\ud800")

    def test_numbers_that_cannot_be_waited_for(self) -> None:
        for member in (b"1e999", b"-5", b"true", b'"7"', b"NaN", b"[7]", b"9" * 5000):
            body = b'{"code": "later", "retryable": true, "safe_new_key": true, "retry_after": %s}' % member
            rig = Rig(answer(503, body=body), answer(201, KEPT), wait_for=1e6, give_up_after=1e6)
            rig.pay().send()
            with self.subTest(member[:30]):
                self.assertIn(rig.clock.waits, ([], [3600.0]))

    def test_a_life_of_the_key_that_is_over_or_never_ends(self) -> None:
        for date, kind in (
            ("Thu, 01 Jan 1970 00:00:00 GMT", "expired"),
            ("Fri, 31 Dec 9999 23:59:59 GMT", "done"),
            ("Fri, 99 Foo 9999 99:99:99 GMT", "done"),
            ("soon", "done"),
        ):
            interim = answer(202, {"Idempotency-Interim": "true", "Idempotency-Expires": date})
            with self.subTest(date):
                self.assertEqual(Rig(interim, answer(201, KEPT), status="never").pay().send().kind, kind)


class Failing(MemoryStorage):
    """A storage whose disk is full after a number of writes."""

    def __init__(self, writes: int) -> None:
        super().__init__()
        self.writes = writes

    def _spend(self) -> None:
        self.writes -= 1
        if self.writes < 0:
            raise StorageError("/data/payments.db: No space left on device")

    def create(self, *arguments: Any) -> bool:
        self._spend()
        return super().create(*arguments)

    def replace(self, *arguments: Any) -> bool:
        self._spend()
        return super().replace(*arguments)


class FullDisk(unittest.TestCase):
    def test_nothing_is_sent_if_the_intent_cannot_be_written(self) -> None:
        rig = Rig(storage=Failing(0))
        with self.assertRaisesRegex(StorageError, "No space"):
            rig.pay()
        self.assertEqual(rig.transport.requests, [])

    def test_nothing_is_sent_if_the_mark_cannot_be_written(self) -> None:
        rig = Rig(storage=Failing(1))
        pay = rig.pay()
        with self.assertRaisesRegex(StorageError, "No space"):
            pay.send()
        self.assertEqual(rig.transport.requests, [])

    def test_an_end_that_cannot_be_written_is_not_lost(self) -> None:
        storage = Failing(2)
        rig = Rig(
            answer(201, KEPT, {"id": "pay_1"}),
            answer(201, {"Idempotent-Replayed": "true"}),
            storage=storage,
            status="never",
        )
        pay = rig.pay()
        with self.assertRaisesRegex(StorageError, "No space"):
            pay.send()
        self.assertTrue(stored(rig).doubt)
        storage.writes = 10
        end = pay.send()
        self.assertEqual((end.kind, end.replayed), ("done", True))
        self.assertEqual(len(set(rig.transport.keys())), 1)
