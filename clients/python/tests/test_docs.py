"""The commands and examples of the papers work against the demo."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest
from typing import List, Set

from tests.bed import Bed, needs_bed
from tests.installed import python_with_wheel

PYTHON = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CALLING = os.path.join(PYTHON, "..", "..", "docs", "calling.md")
README = os.path.join(PYTHON, "README.md")
ADDRESS = "http://127.0.0.1:8080"

bed: Bed


def setUpModule() -> None:
    global bed
    needs_bed()
    bed = Bed()


def tearDownModule() -> None:
    bed.close()


def blocks(path: str, language: str) -> List[str]:
    """Returns the code blocks of a page."""
    with open(path, encoding="utf-8") as stream:
        found: List[str] = re.findall(rf"^```{language}\n(.*?)^```$", stream.read(), re.DOTALL | re.MULTILINE)
    assert found, f"{path} has no {language} blocks"
    return [block.replace(ADDRESS, bed.demo) for block in found]


class Papers(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="firstwrite-docs-")
        self.addCleanup(shutil.rmtree, self.folder)

    def shell(self, script: str) -> str:
        result = subprocess.run(
            ["bash", "-euc", script],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=120,
        )
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        return result.stdout.decode()

    def test_every_command_of_the_page_for_callers_works(self) -> None:
        scripts = blocks(CALLING, "sh")
        output = self.shell("\necho '== next'\n".join(scripts))
        parts = output.split("== next\n")
        statuses = [re.findall(r"HTTP/1\.1 (\d{3}) ", part) for part in parts]
        # Choose; send; again; list; another request; no answer; status; refused; new key; two refusals; the script.
        self.assertEqual(statuses[1:5], [["201"], ["201"], [], ["422"]])
        self.assertEqual(statuses[6:], [["200"], ["422"], ["201"], ["401", "400"], []])
        self.assertIn("idempotent-replayed: true", parts[2].lower())
        self.assertIn('"code":"key-reused"', parts[4])
        self.assertEqual(json.loads(parts[3])["count"], 1)
        first, second = parts[-1].splitlines()
        self.assertEqual(first, second)
        self.assertTrue(first.startswith("done: {"), first)
        counts = {customer: len(payments) for customer, payments in bed.payments_of().items()}
        self.assertEqual(
            {name: counts.get(name) for name in ("cart_42", "cart_43", "cart_44", "cart_45")},
            {"cart_42": 1, "cart_43": 1, "cart_44": 1, "cart_45": None},
        )

    def test_the_script_for_callers_survives_lost_answers(self) -> None:
        script = blocks(CALLING, "sh")[-1].partition("\npay cart_43")[0].replace(bed.demo, bed.proxy)
        for fault, status in (
            ("cut-after", "done"),
            ("cut-half", "done"),
            ("502, 504", "done"),
            ("cut-before, 503", "done"),
        ):
            name = f"doc {fault.replace(', ', '-')}"
            with self.subTest(fault):
                faulty = script.replace("-H 'Content-Type", f"-H 'X-Bed-Fault: {fault}' -H 'Content-Type")
                body = json.dumps({"amount": 100, "currency": "EUR", "customer": name})
                output = self.shell(
                    f"mkdir -p checkout; printf '%s' '{body}' > 'checkout/{name}.json'\n{faulty}\npay '{name}'"
                )
                self.assertTrue(output.startswith(status), output)
                self.assertEqual(len(bed.payments_of()[name]), 1)

    def test_the_first_lines_of_the_readme_work(self) -> None:
        first = blocks(README, "python")[0]
        self.assertLessEqual(len(first.splitlines()), 10)
        outputs = set()
        for _ in range(2):
            result = subprocess.run(
                [python_with_wheel(), "-c", first],
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=60,
            )
            self.assertEqual(result.returncode, 0, result.stdout.decode())
            outputs.add(result.stdout.decode())
        (output,) = outputs
        self.assertRegex(output, r"\Adone pay_\w+\n\Z")

    @staticmethod
    def paid(customer: str) -> Set[str]:
        return {payment["id"] for payment in bed.payments_of().get(customer, [])}

    def test_the_first_lines_go_on_after_a_kill(self) -> None:
        first = blocks(README, "python")[0]
        for step in ("opened", "marked", "sent", "answered", "ended"):
            killed = first.replace(
                "firstwrite.Client(",
                f"firstwrite.Client(on_event=lambda event: event.step == {step!r} and os.kill(os.getpid(), 9), ",
            )
            folder = os.path.join(self.folder, step)
            os.mkdir(folder)
            before = self.paid("cart_42")
            with self.subTest(step):
                self.assertNotEqual(killed, first)
                dead = subprocess.run([python_with_wheel(), "-c", f"import os\n{killed}"], cwd=folder, timeout=60)
                self.assertEqual(dead.returncode, -signal.SIGKILL)
                outputs = {
                    subprocess.check_output([python_with_wheel(), "-c", first], cwd=folder, timeout=60)
                    for _ in range(2)
                }
                self.assertEqual(len(outputs), 1)
                (payment,) = self.paid("cart_42") - before
                self.assertEqual(outputs.pop().decode(), f"done {payment}\n")

    def test_a_first_line_without_a_server_is_pending(self) -> None:
        first = blocks(README, "python")[0].replace(bed.demo, bed.refused).replace("send()", "send(wait_for=0)")
        result = subprocess.run(
            [python_with_wheel(), "-c", first], cwd=self.folder, stderr=subprocess.PIPE, timeout=60
        )
        self.assertEqual(result.returncode, 1)
        self.assertIn("firstwrite.errors.Pending: intent 'checkout/cart_42' has no end yet", result.stderr.decode())

    def test_the_other_examples_of_the_readme_work(self) -> None:
        for number, example in enumerate(blocks(README, "python")[1:], start=2):
            with self.subTest(example=number):
                result = subprocess.run(
                    [python_with_wheel(), "-c", example],
                    cwd=self.folder,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    timeout=60,
                )
                self.assertEqual(result.returncode, 0, example + result.stdout.decode())
