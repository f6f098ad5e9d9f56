"""Kill tests: an application that is killed at every step and at random moments, behind a server that loses answers.

Whatever happens, each intent has one effect under one key, and its end is true. The long form, of
`FIRSTWRITE_LONG=RUNS`, repeats this with other seeds; `FIRSTWRITE_SEED` is the first of them. Histories mostly wait,
so `FIRSTWRITE_AT_ONCE` of them (8) share a bed.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import random
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import traceback
import unittest
from dataclasses import asdict, replace
from typing import Any, Dict, Iterator, List, Optional

from firstwrite.entry import decode
from tests import worker
from tests.bed import Bed, needs_bed
from tests.worker import Books, Plan

STEPS = ("opened", "marked", "sent", "answered", "recorded", "ended", "acknowledged")
STARTS_MAX = 60
SHORT_RUNS = 24
AT_ONCE = 8
RUNS_OF_A_BED = 100
"""The log of a bed has an end, and its books grow."""

bed: Bed
_next = 0


def setUpModule() -> None:
    global bed
    needs_bed()
    bed = Bed()


def tearDownModule() -> None:
    bed.close()


def transports() -> List[str]:
    names = ["sockets", "streams"]
    names += ["httpx", "httpx, async"] if importlib.util.find_spec("httpx") else []
    return names + (["requests"] if importlib.util.find_spec("requests") else [])


class Killing(unittest.TestCase):
    def setUp(self) -> None:
        global _next
        self.folder = tempfile.mkdtemp(prefix="firstwrite-kill-")
        self.addCleanup(shutil.rmtree, self.folder)
        _, _next = bed.log(_next)

    def fork(self, plan: Plan) -> int:
        """Starts the application as a fork, which has everything imported already."""
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                worker.run(plan)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        return child

    def wait(self, child: int, seconds: Optional[float] = None) -> bool:
        """Waits for the end of a process, which must be good or a kill. Kills it when time is up."""
        descriptor = os.pidfd_open(child)
        try:
            if not select.select([descriptor], [], [], 120 if seconds is None else seconds)[0]:
                os.kill(child, signal.SIGKILL)
        finally:
            os.close(descriptor)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            self.assertEqual(os.WTERMSIG(status), signal.SIGKILL)
            return False
        self.assertEqual(os.WEXITSTATUS(status), 0, "the application failed")
        return True

    def check(self, plan: Plan) -> None:
        """Compares the application's books with the demo's, and with the log of the bed."""
        global _next
        with self.demo_in_use():
            books, payments = Books(plan.folder).read(), bed.payments_of()
        entries, _next = bed.log(_next)
        self.assertEqual(set(books), set(plan.intents))
        for name, amount in plan.intents.items():
            effects = payments.get(name, [])
            end = books[name]
            if amount:
                self.assertEqual(len(effects), 1, f"{name} has {len(effects)} effects")
                self.assertEqual((end["kind"], end["payment"]), ("done", effects[0]["id"]))
                self.assertEqual(effects[0]["amount"], amount)
            else:
                self.assertEqual((effects, end["kind"], end["safe_new_key"]), ([], "refused", True))
            keys = {entry["key"] for entry in entries if entry["customer"] == name}
            self.assertEqual(len(keys), 1, f"{name} was sent under {len(keys)} keys")
        if not plan.keep:
            self.assertEqual(worker._settings(plan)["storage"].list(), [], "an intent is left")
        if plan.queue:
            self.check_order(plan, entries)

    @contextlib.contextmanager
    def demo_in_use(self, alone: bool = False) -> Iterator[None]:
        """Keeps other processes of this test from restarting the demo, or from reading its books."""
        with open(os.path.join(self.folder, "demo.lock"), "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            yield

    def check_order(self, plan: Plan, entries: List[Dict[str, Any]]) -> None:
        """In a lane, no intent is sent before the one in front of it was sent for the last time."""
        sent: Dict[str, List[str]] = {}
        for entry in entries:
            customer = entry["customer"]
            if customer in plan.intents and entry["method"] == "POST":
                lane = sent.setdefault(customer.partition("/")[0], [])
                if not lane or lane[-1] != customer:
                    lane.append(customer)
        for name, order in sent.items():
            expected = [intent for intent in plan.intents if intent.startswith(f"{name}/")]
            self.assertEqual(order, expected, f"lane {name} was not sent in order")


class EachStep(Killing):
    """The application is a new process each time, and dies at a named step."""

    def plan(self, storage: str, label: str) -> Plan:
        return Plan(
            folder=self.folder,
            storage=storage,
            transport="sockets",
            url=bed.payments,
            intents={f"{label}/1": 1200, f"{label}/2": 0},
            # The first attempt of each is lost, so that every step happens.
            headers={"X-Bed-Fault": "cut-after"},
        )

    def start(self, plan: Plan) -> bool:
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        path = os.pathsep.join(entry for entry in (os.path.join(root, "src"), root) if entry)
        command = [sys.executable, "-m", "tests.worker", json.dumps(asdict(plan))]
        process = subprocess.Popen(command, cwd=root, env={**os.environ, "PYTHONPATH": path})
        status = process.wait()
        self.assertIn(status, (0, -signal.SIGKILL))
        return status == 0

    def test_a_kill_at_each_step(self) -> None:
        for storage in ("sqlite", "files"):
            for step in STEPS:
                with self.subTest(storage=storage, step=step):
                    shutil.rmtree(self.folder)
                    os.mkdir(self.folder)
                    plan = self.plan(storage, f"{storage}-{step}")
                    self.assertFalse(self.start(replace(plan, kill_at=step)), "the step did not happen")
                    if STEPS.index(step) >= STEPS.index("sent"):
                        # At `sent` the bytes have left the process that was killed.
                        bed.wait_for_request(f"{storage}-{step}/1", _next)
                    else:
                        self.assertEqual(bed.log(_next)[0], [], "a byte was sent before its mark")
                    self.assertTrue(self.start(plan))
                    self.check(plan)


class OnArrival(Killing):
    """The application is killed from outside, once the server has its request and before it has an answer."""

    def test_a_kill_while_the_answer_is_waited_for(self) -> None:
        for storage in ("sqlite", "files"):
            for transport in transports():
                with self.subTest(storage=storage, transport=transport):
                    name = f"arrival-{storage}-{transport.replace(', ', '-')}/1"
                    plan = Plan(
                        folder=tempfile.mkdtemp(dir=self.folder),
                        storage=storage,
                        transport=transport,
                        url=bed.payments,
                        intents={name: 1200},
                        headers={"X-Bed-Fault": "delay=500"},
                    )
                    child = self.fork(plan)
                    try:
                        bed.wait_for_request(name, _next)
                    finally:
                        os.kill(child, signal.SIGKILL)
                        _, status = os.waitpid(child, 0)
                    self.assertTrue(os.WIFSIGNALED(status), "the answer came before the kill")
                    left = decode(worker._settings(plan)["storage"].read(name).data, storage)
                    self.assertEqual((left.attempts, left.doubt, left.state), (1, True, "sending"))
                    self.assertTrue(self.wait(self.fork(plan)))
                    self.check(plan)


class AtRandom(Killing):
    """Seeded histories: faults of the server, kills at random moments and steps, restarts until all is done."""

    starts = 0
    kills = 0

    def run_seed(self, seed: int) -> None:
        global _next
        _, _next = bed.log(_next)
        chance = random.Random(seed)
        plan = Plan(
            folder=tempfile.mkdtemp(dir=self.folder),
            storage=chance.choice(("sqlite", "files")),
            transport=chance.choice(transports()),
            url=bed.payments,
            intents={f"s{seed}-{number % 2}/{number}": chance.choice((0, 100, 2500)) for number in range(4)},
            seed=seed,
        )
        if chance.random() < 0.3:
            plan = replace(plan, queue=True, transport="sockets")
        elif chance.random() < 0.2:
            plan = replace(plan, keep=True)
        self.faults(chance)
        for _ in range(STARTS_MAX):
            if self.step(plan, chance):
                break
        else:
            self.fail("the application did not come to an end")
        self.check(plan)
        shutil.rmtree(plan.folder)

    def faults(self, chance: random.Random) -> None:
        names = ("cut_after", "cut_before", "cut_half", "_502", "_504", "refuse", "delay")
        faults: Dict[str, float] = {name: chance.choice((0.0, 0.1, 0.25)) for name in names}
        # The bed wants probabilities: all together at most one.
        scale = min(1.0, 0.8 / (sum(faults.values()) or 1.0))
        faults = {name: round(value * scale, 3) for name, value in faults.items()}
        bed.set_faults(**{**faults, "seed": chance.randrange(1_000_000), "delay_ms": 15})

    def step(self, plan: Plan, chance: random.Random) -> bool:
        """Starts the application once, or twice at a time, and perhaps kills it. Returns true if it ended well."""
        if chance.random() < 0.25:
            plan = replace(plan, kill_at=chance.choice(STEPS), kill_after=chance.randrange(6))
        seconds = chance.random() * 0.15 if chance.random() < 0.7 else None
        restart, close = chance.random() < 0.1, chance.random() < 0.05
        children = [self.fork(plan) for _ in range(2 if plan.keep else 1)]
        try:
            if restart:
                with self.demo_in_use(alone=True):
                    bed.restart_demo()
            if close:
                bed.close_port(50)
        finally:
            ends = [self.wait(child, seconds) for child in children]
        self.starts += len(ends)
        self.kills += ends.count(False)
        return all(ends)

    def test_random_histories(self) -> None:
        global bed, _next
        self.addCleanup(lambda: bed.set_faults())
        long = os.environ.get("FIRSTWRITE_LONG")
        runs = int(long) if long else SHORT_RUNS
        first = int(os.environ.get("FIRSTWRITE_SEED", "1"))
        for begin in range(first, first + runs, RUNS_OF_A_BED):
            if begin > first:
                bed.close()
                bed, _next = Bed(), 0
            seeds = list(range(begin, min(begin + RUNS_OF_A_BED, first + runs)))
            histories = self.run_seeds(seeds)
            for history in histories:
                with self.subTest(seed=history["seed"]):
                    self.assertEqual(history["failure"], "")
            self.assertEqual(sorted(history["seed"] for history in histories), seeds)
            self.starts += sum(history["starts"] for history in histories)
            self.kills += sum(history["kills"] for history in histories)
            if long:
                print(f"seed {seeds[-1]}", file=sys.stderr, flush=True)
        self.assertGreater(self.kills, 0)
        if long:
            print(f"{runs} histories, {self.starts} starts, {self.kills} kills", file=sys.stderr, flush=True)

    def run_seeds(self, seeds: List[int]) -> List[Dict[str, Any]]:
        """Runs histories in several processes, each of which takes the next seed from a pipe."""
        reader, writer = os.pipe()
        os.write(writer, b"".join(struct.pack("I", seed) for seed in seeds))
        os.close(writer)
        path = os.path.join(self.folder, "histories")
        at_once = int(os.environ.get("FIRSTWRITE_AT_ONCE", AT_ONCE))
        runners = [self.fork_runner(reader, path) for _ in range(at_once)]
        os.close(reader)
        for runner in runners:
            self.assertEqual(os.waitpid(runner, 0)[1], 0, "a runner of histories failed")
        with open(path, encoding="utf-8") as stream:
            histories = [json.loads(line) for line in stream]
        os.remove(path)
        return histories

    def fork_runner(self, reader: int, path: str) -> int:
        sys.stdout.flush()
        child = os.fork()
        if child:
            return child
        status = 1
        try:
            while True:
                taken = os.read(reader, 4)
                if not taken:
                    break
                (seed,) = struct.unpack("I", taken)
                history = self.history(seed)
                with open(path, "ab") as out:
                    # One write, so that lines of several processes do not mix.
                    out.write(json.dumps(history).encode() + b"\n")
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def history(self, seed: int) -> Dict[str, Any]:
        self.starts = self.kills = 0
        failure = ""
        try:
            self.run_seed(seed)
        except Exception:
            failure = traceback.format_exc()
            # A long run says at once what it found.
            print(f"seed {seed}: {failure}", file=sys.stderr, flush=True)
        return {"seed": seed, "starts": self.starts, "kills": self.kills, "failure": failure}
