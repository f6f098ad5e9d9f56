"""All rows of `clients/vectors`."""

from __future__ import annotations

import contextlib
import json
import os
import unittest
from typing import Any, Dict, List, Union

from firstwrite import MemoryStorage, Outgoing
from firstwrite.answer import Answer, Failure, http_date, joined, number, retry_after, server_time
from firstwrite.life import Life, Times, end_of_life
from firstwrite.rules import (
    Ask,
    Finish,
    Retry,
    StatusAsk,
    StatusRefresh,
    decide,
    decide_status,
    shows_status,
    wait_left_ms,
    wait_ms,
)
from tests.fakes import URL, ManualClock, Rig, lost

VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "vectors")
FILES = (
    "ask.json",
    "crash.json",
    "decide.json",
    "expires.json",
    "key.json",
    "left.json",
    "life.json",
    "shows.json",
    "wait.json",
)
NOW = 1_795_032_000_000


def cases(file: str) -> List[Dict[str, Any]]:
    with open(os.path.join(VECTORS, file), encoding="utf-8") as stream:
        rows: List[Dict[str, Any]] = json.load(stream)["cases"]
    assert rows, f"{file} has no cases"
    return rows


def result(row: Dict[str, Any]) -> Union[Answer, Failure]:
    given = row["answer"]
    if "failure" in given:
        return Failure(given["failure"])
    body = json.dumps(given["json"]).encode() if "json" in given else b""
    # As a transport of an application might give them: names in any case, lines of one name joined.
    headers = {
        name: lines if isinstance(lines, str) else joined((name, line) for line in lines)[name]
        for name, lines in given["headers"].items()
    }
    return Answer(given["status"], headers, body, hidden=given.get("hidden", False))


@unittest.skipUnless(os.path.isdir(VECTORS), "the vectors are not beside this folder")
class Vectors(unittest.TestCase):
    def test_every_file_is_run(self) -> None:
        self.assertEqual(sorted(os.listdir(VECTORS)), sorted(FILES))

    def test_decide(self) -> None:
        for row in cases("decide.json"):
            with self.subTest(row["name"]):
                decision = decide(row["dialect"], result(row), row["doubt"], row["refreshed"], NOW)
                self.assertEqual(self.decision(decision), row["expect"])

    @staticmethod
    def decision(decision: Union[Retry, Ask, Finish]) -> Dict[str, Any]:
        if isinstance(decision, Retry):
            return {
                "then": "retry",
                "wait": decision.wait,
                "doubt": decision.doubt,
                "refresh": decision.refresh,
            }
        if isinstance(decision, Ask):
            return {"then": "ask", "wait": decision.wait, "doubt": True}
        return {
            "then": "end",
            "end": decision.kind,
            "safe_new_key": decision.safe_new_key,
            "replayed": decision.replayed,
            "code": decision.code,
        }

    def test_decide_where_the_status_is_not_the_usual_one(self) -> None:
        members = {"retryable": False, "safe_new_key": False}
        reused = {"error": {"type": "idempotency_error"}}
        for dialect, status, headers, body, expected in (
            ("draft-07", 403, {}, {"code": "tenant-unknown", **members}, Retry(0, False, refresh=True)),
            ("stripe", 422, {}, reused, Finish("refused")),
            ("stripe", 303, {"idempotent-replayed": "true"}, {}, Finish("unknown", replayed=True)),
        ):
            with self.subTest(dialect=dialect, status=status):
                given = Answer(status, headers, json.dumps(body).encode())
                decision = decide(dialect, given, False, False, NOW)  # type: ignore[arg-type]
                self.assertEqual(decision, expected)

    def test_ask(self) -> None:
        for row in cases("ask.json"):
            with self.subTest(row["name"]):
                decision = decide_status(result(row), row["refreshed"], NOW)
                if isinstance(decision, StatusAsk):
                    seen: Dict[str, Any] = {"then": "ask", "wait": decision.wait}
                elif isinstance(decision, StatusRefresh):
                    seen = {"then": "refresh"}
                else:
                    seen = {"then": "send", "forget": decision.forget}
                self.assertEqual(seen, row["expect"])
                if "asked" in row:
                    self.assertEqual(self.question_waits(row)[-1], row["expect_ms"])

    @staticmethod
    def question_waits(row: Dict[str, Any]) -> List[int]:
        """Gets the answer of a row to each of its questions; returns the waits after them, in milliseconds."""
        questions = [result(row)] * row["asked"]
        rig = Rig(
            lost(),
            *questions,  # type: ignore[arg-type]
            Answer(404),
            Answer(201),
            clock=ManualClock(NOW),
            luck=row["random"],
            status="always",
        )
        rig.pay().send(wait_for=3600)
        # The first wait comes after the attempt.
        return [round(seconds * 1000) for seconds in rig.clock.waits[1:]]

    def test_wait(self) -> None:
        for row in cases("wait.json"):
            with self.subTest(row["name"]):
                now = http_date(row["now"])
                assert now is not None
                asked = retry_after(
                    row["retry_after_header"],
                    number(row["retry_after_member"]),
                    server_time(row.get("date_header"), now),
                )
                wait = wait_ms((asked or 0) * 1000, row["attempt"], row["random"])
                self.assertEqual(wait, row["expect_ms"])

    def test_left(self) -> None:
        for row in cases("left.json"):
            with self.subTest(row["name"]):
                seen = wait_left_ms(row["not_before"], row["waits_for_ms"], row["now"])
                self.assertEqual(seen, row["expect_ms"])

    def test_crash(self) -> None:
        for row in cases("crash.json"):
            with self.subTest(row["name"]):
                self.assertEqual(self.marks(row["random"], len(row["expect_ms"])), row["expect_ms"])

    @staticmethod
    def marks(luck: float, number: int) -> List[int]:
        """Kills a client in its attempts and starts it again at once; returns the times of its marks."""

        def die(request: Outgoing) -> Answer:
            raise KeyboardInterrupt

        storage, day, marks = MemoryStorage(), NOW, []
        for _ in range(number):
            rig = Rig(die, storage=storage, clock=ManualClock(day), luck=luck, give_up_after=1e6)
            with contextlib.suppress(KeyboardInterrupt):
                rig.pay().send(wait_for=60)
            day = rig.clock.day
            marks.append(day - NOW)
        return marks

    def test_expires(self) -> None:
        for row in cases("expires.json"):
            with self.subTest(row["name"]):
                now = http_date(row["now"])
                assert now is not None
                headers = {"idempotency-expires": row["expires_header"], "date": row["date_header"]}
                given = Answer(201, {name: value for name, value in headers.items() if value is not None})
                expected = None if row["expect"] is None else http_date(row["expect"])
                self.assertEqual(given.expires_at(now), expected)

    def test_shows(self) -> None:
        for row in cases("shows.json"):
            with self.subTest(row["name"]):
                self.assertEqual(shows_status(result(row)), row["expect"])

    def test_life(self) -> None:
        life = Life(give_up_after=3_600_000, retention=86_400_000)
        for row in cases("life.json"):
            with self.subTest(row["name"]):
                finish = end_of_life(
                    life,
                    row["now"],
                    Times(
                        row["first_attempt_at"], row["resumed_at"], row["latest_at"], row["expires_at"]
                    ),
                    row["doubt"],
                )
                seen: Dict[str, Any] = {"may_send": finish is None}
                if finish is not None:
                    seen.update({"end": finish.kind, "safe_new_key": finish.safe_new_key})
                self.assertEqual(seen, row["expect"])

    def test_key(self) -> None:
        for row in cases("key.json"):
            with self.subTest(row["name"]):
                secret = bytes.fromhex(row["secret_hex"])
                rig = Rig(secret=secret)
                self.assertEqual(rig.client.intent(row["intent"], "POST", URL).key, row["expect"])
