"""The life of an intent: opening, ends, acknowledging, superseding, resuming."""

from __future__ import annotations

import os
import shutil
import tempfile
import unittest
from dataclasses import replace

from firstwrite import (
    Answer,
    Client,
    IntentConflict,
    IntentGone,
    MemoryStorage,
    SealError,
    SqliteStorage,
    WrongState,
)
from firstwrite.entry import decode, encode
from tests.fakes import KEPT, URL, ManualClock, Rig, ScriptedTransport, answer, lost, not_sent, problem


class Opening(unittest.TestCase):
    def test_opening_writes_and_sends_nothing(self) -> None:
        rig = Rig()
        pay = rig.pay()
        self.assertEqual(pay.state, "open")
        self.assertEqual([info.name for info in rig.client.intents()], ["checkout/cart_42"])
        self.assertEqual(rig.transport.requests, [])

    def test_a_key_has_128_bits_in_22_characters(self) -> None:
        key = Rig().pay().key
        self.assertRegex(key, r"\A[A-Za-z0-9_-]{22}\Z")

    def test_two_intents_have_two_keys(self) -> None:
        rig = Rig()
        self.assertNotEqual(rig.pay("a").key, rig.pay("b").key)

    def test_the_same_intent_has_the_same_key_in_another_client(self) -> None:
        storage = MemoryStorage()
        self.assertEqual(Rig(storage=storage).pay().key, Rig(storage=storage).pay().key)

    def test_members_in_another_order_are_the_same_request(self) -> None:
        rig = Rig()
        first = rig.client.intent("i", "POST", URL, json={"a": 1, "b": [2, {"d": 3, "c": 4}]})
        again = rig.client.intent("i", "POST", URL, json={"b": [2, {"c": 4, "d": 3}], "a": 1})
        self.assertEqual(first.key, again.key)

    def test_another_request_is_a_conflict_that_names_what_differs(self) -> None:
        rig = Rig()
        rig.pay(amount=1)
        for what, call in (
            ("body", lambda: rig.pay(amount=2)),
            ("URL", lambda: rig.client.intent("checkout/cart_42", "POST", URL + "/x", json={"amount": 1})),
            ("method", lambda: rig.client.intent("checkout/cart_42", "PUT", URL, json={"amount": 1})),
            (
                "content headers",
                lambda: rig.client.intent(
                    "checkout/cart_42", "POST", URL, json={"amount": 1}, headers={"Content-Language": "de"}
                ),
            ),
        ):
            with self.subTest(what), self.assertRaisesRegex(IntentConflict, what):
                call()
        self.assertEqual(rig.transport.requests, [])

    def test_other_headers_may_differ_and_those_that_were_stored_are_sent(self) -> None:
        rig = Rig(answer(201, KEPT))
        for trace in ("one", "two"):
            rig.client.intent("i", "POST", URL, json={}, headers={"Traceparent": trace, "User-Agent": trace})
        rig.client.intent("i", "POST", URL, json={}).send()
        sent = dict(rig.transport.requests[0].headers)
        self.assertEqual((sent["traceparent"], sent["user-agent"]), ("one", "one"))

    def test_the_dialect_of_the_first_attempt_stays(self) -> None:
        storage = MemoryStorage()
        opened = Rig(storage=storage, dialect="generic")
        opened.pay()
        # Nothing was sent in the first dialect, so the present one counts.
        Rig(lost(), storage=storage, dialect="draft-07").send_once()
        rig = Rig(answer(400, None, {"error": {"type": "idempotency_error"}}), storage=storage, dialect="stripe")
        pay = rig.pay()
        end = pay.send()
        self.assertEqual((rig.transport.keys(), end.kind), ([f'"{pay.key}"'], "unknown"))

    def test_an_intent_with_an_end_is_not_sent_again(self) -> None:
        rig = Rig(answer(201, KEPT, {"id": "pay_1"}))
        rig.pay().send()
        again = rig.pay().send()
        self.assertEqual((again.kind, again.status, again.json()), ("done", 201, {"id": "pay_1"}))
        self.assertEqual(len(rig.transport.requests), 1)

    def test_find_returns_what_was_opened(self) -> None:
        rig = Rig()
        key = rig.pay().key
        found = rig.client.find("checkout/cart_42")
        assert found is not None
        self.assertEqual(found.key, key)
        self.assertIsNone(rig.client.find("checkout/other"))

    def test_neither_key_nor_body_is_in_a_repr(self) -> None:
        rig = Rig(answer(201, KEPT, {"id": "pay_secret"}))
        pay = rig.client.intent("i", "POST", URL, json={"card": "4242"})
        end = pay.send()
        shown = repr((pay, pay._entry, end, rig.transport.requests, rig.events))
        for secret in (pay.key, "4242", "pay_secret"):
            self.assertNotIn(secret, shown)


class DerivedKeys(unittest.TestCase):
    SECRET = b"sixteen bytes or more"

    def test_a_derived_key_is_the_same_without_a_storage(self) -> None:
        keys = {Rig(secret=self.SECRET).pay().key for _ in range(3)}
        self.assertEqual(len(keys), 1)

    def test_a_short_secret_is_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "16 bytes"):
            Rig(secret=b"short")

    def test_an_intent_with_a_derived_key_is_not_superseded(self) -> None:
        rig = Rig(answer(422, KEPT), secret=self.SECRET)
        pay = rig.pay()
        pay.send()
        with self.assertRaisesRegex(WrongState, "derived"):
            pay.supersede("POST", URL, json={"amount": 2})

    def test_where_no_entry_stands_an_earlier_life_may_have_sent_a_derived_key(self) -> None:
        # A process before this one may have sent it, and nothing remembers that; a durable storage may be a new one.
        folder = tempfile.mkdtemp(prefix="firstwrite-intent-")
        self.addCleanup(shutil.rmtree, folder)
        for storage in (MemoryStorage(), SqliteStorage(os.path.join(folder, "intents.db"))):
            with self.subTest(type(storage).__name__):
                rig = Rig(answer(403), secret=self.SECRET, storage=storage)
                end = rig.pay().send()
                self.assertEqual((end.kind, end.safe_new_key), ("unknown", False))

    def test_giving_up_a_derived_key_that_was_never_sent_here_is_unknown(self) -> None:
        rig = Rig(not_sent(), secret=self.SECRET)
        rig.send_once()
        rig.clock.advance(3600)
        self.assertEqual(rig.pay().send(wait_for=0).kind, "unknown")


class Ends(unittest.TestCase):
    def test_done(self) -> None:
        rig = Rig(answer(201, {**KEPT, "Set-Cookie": "s=1", "Location": "/payments/1"}, {"id": "pay_1"}))
        end = rig.pay().send()
        self.assertEqual((end.kind, end.safe_new_key, end.replayed), ("done", False, False))
        self.assertEqual(end.headers["location"], "/payments/1")
        self.assertNotIn("set-cookie", end.headers)

    def test_refused(self) -> None:
        end = Rig(answer(402, KEPT, {"error": "declined"})).pay().send()
        self.assertEqual((end.kind, end.safe_new_key, end.json()), ("refused", True, {"error": "declined"}))

    def test_an_answer_that_was_not_kept_is_done_without_its_body(self) -> None:
        end = Rig(problem("answer-not-kept", 409, first_status=201)).pay().send()
        self.assertEqual((end.kind, end.status, end.body, end.code), ("done", 201, None, "answer-not-kept"))
        with self.assertRaises(ValueError):
            end.json()

    def test_an_answer_that_was_not_kept_and_does_not_say_its_status_is_unknown(self) -> None:
        for first_status in (None, "201", True, 0, 99, 600, 201.0, -201):
            with self.subTest(first_status):
                end = Rig(problem("answer-not-kept", 409, first_status=first_status)).pay().send()
                self.assertEqual((end.kind, end.safe_new_key), ("unknown", False))

    def test_a_refusal_of_a_gateway_is_read_in_every_dialect(self) -> None:
        for dialect in ("stripe", "generic"):
            with self.subTest(dialect):
                end = Rig(problem("answer-not-kept", 409, first_status=201), dialect=dialect).pay().send()
                self.assertEqual((end.kind, end.status), ("done", 201))
                replies = problem("outcome-unknown", 422, retryable=True), answer(201)
                rig = Rig(*replies, dialect=dialect, status="never")
                self.assertEqual(rig.pay().send().kind, "done")

    def test_the_body_of_a_long_answer_is_not_kept(self) -> None:
        end = Rig(Answer(201, {"location": "/payments/1"}, b'{"id": "pay', truncated=True)).pay().send()
        self.assertEqual((end.kind, end.body, end.truncated), ("done", None, True))
        self.assertEqual(end.headers["location"], "/payments/1")

    def test_an_unsent_intent_cannot_be_acknowledged(self) -> None:
        with self.assertRaisesRegex(WrongState, "no end yet"):
            Rig().pay().acknowledge()

    def test_acknowledging_forgets_and_the_name_is_free(self) -> None:
        rig = Rig(answer(201, KEPT))
        pay = rig.pay()
        pay.send()
        pay.acknowledge()
        self.assertEqual(rig.client.intents(), [])
        self.assertNotEqual(rig.pay(amount=7).key, pay.key)

    def test_acknowledging_twice_does_not_touch_the_next_life(self) -> None:
        rig = Rig(answer(201, KEPT))
        pay = rig.pay()
        pay.send()
        pay.acknowledge()
        rig.pay(amount=7)
        pay.acknowledge()
        self.assertEqual(len(rig.client.intents()), 1)

    def test_acknowledging_twice_does_not_forget_the_end_of_the_next_life(self) -> None:
        rig = Rig(answer(201, KEPT), answer(201, KEPT))
        first = rig.pay()
        first.send()
        first.acknowledge()
        rig.pay().send()
        first.acknowledge()
        self.assertEqual([info.state for info in rig.client.intents()], ["done"])

    def test_leaving_the_context_acknowledges_nothing(self) -> None:
        rig = Rig(answer(201, KEPT))
        with rig.pay() as pay:
            pay.send()
        self.assertEqual([info.state for info in rig.client.intents()], ["done"])

    def test_an_intent_that_was_acknowledged_elsewhere_is_gone(self) -> None:
        rig = Rig(answer(201, KEPT))
        here, there = rig.pay(), rig.pay()
        there.send()
        there.acknowledge()
        with self.assertRaises(IntentGone):
            here.send()


class Superseding(unittest.TestCase):
    def test_a_refused_intent_is_opened_anew_with_a_new_key(self) -> None:
        rig = Rig(answer(422, KEPT), answer(201, KEPT))
        pay = rig.pay(amount=-1)
        old_key = pay.key
        pay.send()
        end = pay.supersede("POST", URL, json={"amount": 1}).send()
        self.assertEqual(end.kind, "done")
        self.assertNotEqual(pay.key, old_key)
        self.assertEqual(rig.transport.requests[1].body, b'{"amount":1}')

    def test_nothing_but_a_refusal_with_a_safe_new_key_is_superseded(self) -> None:
        for what, replies in (
            ("done", [answer(201, KEPT)]),
            ("unknown", [answer(500, KEPT)]),
            ("expired", [problem("key-expired", 410)]),
            ("refused", [problem("key-reused", 422)]),
            # The problem says that a new key is safe, but of an end that is not known this counts for nothing.
            ("unknown", [problem("strange", 500, safe_new_key=True)]),
        ):
            rig = Rig(*replies)
            pay = rig.pay()
            self.assertEqual(pay.send().kind, what)
            with self.subTest(what), self.assertRaisesRegex(WrongState, "carried out twice"):
                pay.supersede("POST", URL, json={"amount": 1})

    def test_an_intent_that_was_sent_and_has_no_end_is_not_superseded(self) -> None:
        rig = Rig(lost())
        rig.send_once()
        with self.assertRaisesRegex(WrongState, "no end yet"):
            rig.pay().supersede("POST", URL, json={"amount": 1})

    def test_an_intent_of_which_no_attempt_was_begun_is_superseded(self) -> None:
        rig = Rig(answer(201, KEPT))
        pay = rig.pay(amount=1)
        old_key = pay.key
        pay.supersede("POST", URL, json={"amount": 2})
        self.assertNotEqual(pay.key, old_key)
        self.assertEqual(pay.send().kind, "done")
        self.assertEqual([request.body for request in rig.transport.requests], [b'{"amount":2}'])

    def test_an_attempt_that_begins_meanwhile_keeps_its_request(self) -> None:
        storage = MemoryStorage()
        rig, other = Rig(storage=storage), Rig(lost(), storage=storage)
        pay = rig.pay()
        replace = storage.replace

        def meanwhile(*arguments: object) -> bool:
            storage.replace = replace  # type: ignore[method-assign]
            other.send_once()
            return replace(*arguments)  # type: ignore[arg-type]

        storage.replace = meanwhile  # type: ignore[assignment]
        with self.assertRaisesRegex(IntentGone, "nothing was superseded"):
            pay.supersede("POST", URL, json={"amount": 2})
        self.assertEqual(rig.pay().attempts, 1)

    def test_a_superseded_intent_is_gone_for_its_old_handle(self) -> None:
        rig = Rig(answer(422, KEPT))
        old, new = rig.pay(), rig.pay()
        new.send()
        new.supersede("POST", URL, json={"amount": 1})
        with self.assertRaises(IntentGone):
            old.send()


class Resuming(unittest.TestCase):
    def test_an_unknown_end_is_sent_again_under_the_same_key(self) -> None:
        rig = Rig(answer(500, KEPT), answer(201, KEPT), status="never")
        pay = rig.pay()
        self.assertEqual(pay.send().kind, "unknown")
        self.assertEqual(pay.resume().kind, "done")
        self.assertEqual(len(set(rig.transport.keys())), 1)

    def test_a_resumed_intent_is_in_doubt(self) -> None:
        rig = Rig(answer(500, KEPT), answer(403), status="never")
        pay = rig.pay()
        pay.send()
        self.assertEqual(pay.resume().kind, "unknown")

    def test_only_an_unknown_end_is_resumed(self) -> None:
        for what, reply in (
            ("done", answer(201, KEPT)),
            ("refused", answer(422, KEPT)),
            ("expired", problem("key-expired", 410)),
        ):
            rig = Rig(reply)
            pay = rig.pay()
            pay.send()
            with self.subTest(what), self.assertRaisesRegex(WrongState, "only an unknown"):
                pay.resume()

    def test_resuming_starts_the_time_of_giving_up_anew(self) -> None:
        rig = Rig(lost(), answer(201, KEPT), give_up_after=60)
        rig.send_once()
        rig.clock.advance(61)
        pay = rig.pay()
        self.assertEqual(pay.send().kind, "unknown")
        self.assertEqual(pay.resume().kind, "done")

    def test_after_the_life_of_the_key_resuming_ends_expired(self) -> None:
        rig = Rig(answer(500, {"Idempotent-Replayed": "true"}))
        pay = rig.pay()
        pay.send()
        rig.clock.advance(24 * 3600 - 60)
        end = pay.resume()
        self.assertEqual((end.kind, end.safe_new_key), ("expired", False))
        self.assertEqual(len(rig.transport.requests), 1)


class Sealing(unittest.TestCase):
    @staticmethod
    def turned(intent: str, data: bytes) -> bytes:
        return bytes(byte ^ 0x5A for byte in data)

    @staticmethod
    def bind(intent: str, data: bytes) -> bytes:
        return f"[{intent}]".encode() + data

    @staticmethod
    def unbind(intent: str, data: bytes) -> bytes:
        head = f"[{intent}]".encode()
        if not data.startswith(head):
            raise ValueError("sealed for another intent")
        return data[len(head) :]

    def test_bodies_at_rest_are_sealed(self) -> None:
        storage = MemoryStorage()
        rig = Rig(
            answer(201, KEPT, {"id": "pay_secret"}), storage=storage, seal=self.turned, open=self.turned
        )
        end = rig.client.intent("i", "POST", URL, json={"card": "4242"}).send()
        self.assertEqual(end.json(), {"id": "pay_secret"})
        self.assertEqual(rig.transport.requests[0].body, b'{"card":"4242"}')
        item = storage.read("i")
        assert item is not None
        entry = decode(item.data, "memory")
        assert entry.body is not None and entry.end is not None and entry.end.body is not None
        self.assertNotIn(b"4242", entry.body)
        self.assertNotIn(b"pay_secret", entry.end.body)

    def test_a_sealed_body_belongs_to_its_intent(self) -> None:
        storage = MemoryStorage()
        rig = Rig(answer(201, KEPT, {"id": 1}), storage=storage, seal=self.bind, open=self.unbind)
        end = rig.pay("a").send()
        self.assertEqual(end.json(), {"id": 1})
        entry = decode(storage._entries["a"].data, "memory")
        assert entry.body is not None and entry.end is not None and entry.end.body is not None
        self.assertEqual((entry.body[:3], entry.end.body[:3]), (b"[a]", b"[a]"))
        rig.pay("b")
        moved = replace(decode(storage._entries["b"].data, "memory"), body=entry.body)
        storage._entries["b"] = storage._entries["b"]._replace(data=encode(moved))
        found = rig.client.find("b")
        assert found is not None
        with self.assertRaisesRegex(SealError, "ValueError"):
            found.send()
        # It was opened before the attempt was marked.
        again = decode(storage._entries["b"].data, "memory")
        self.assertEqual((again.attempts, again.doubt, len(rig.transport.requests)), (0, False, 1))

    def test_the_same_request_is_recognised_through_the_seal(self) -> None:
        rig = Rig(seal=self.turned, open=self.turned)
        self.assertEqual(rig.pay(amount=1).key, rig.pay(amount=1).key)
        with self.assertRaises(IntentConflict):
            rig.pay(amount=2)

    def test_a_sealed_body_without_the_open_hook_is_an_error(self) -> None:
        storage = MemoryStorage()
        Rig(storage=storage, seal=self.turned, open=self.turned).pay()
        with self.assertRaisesRegex(SealError, "open"):
            Rig(storage=storage).pay()

    def test_a_seal_that_fails_sends_nothing(self) -> None:
        def broken(intent: str, data: bytes) -> bytes:
            raise RuntimeError("no key material")

        rig = Rig(seal=broken, open=self.turned)
        with self.assertRaisesRegex(SealError, "seal"):
            rig.pay()
        self.assertEqual(rig.client.intents(), [])

    def test_a_seal_needs_its_open(self) -> None:
        with self.assertRaisesRegex(ValueError, "open"):
            Rig(seal=self.turned)


class Arguments(unittest.TestCase):
    def test_settings_that_make_no_sense_are_refused(self) -> None:
        for settings in (
            {"dialect": "draft-08"},
            {"status": "sometimes"},
            {"wait_for": -1},
            {"wait_for": float("nan")},
            {"give_up_after": 0},
            {"retention": True},
            {"attempt_timeout": float("inf")},
            {"answer_bytes_max": 0},
            {"answer_bytes_max": 16 * 1024 * 1024 + 1},
            {"secret": "a text of more than sixteen letters"},
        ):
            with self.subTest(settings), self.assertRaises(ValueError):
                Client(
                    storage=MemoryStorage(),
                    transport=ScriptedTransport(not_sent()),
                    clock=ManualClock(),
                    **settings,
                )
