"""The package as people install it: built, installed into a fresh environment, and tested there."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile
from typing import List

from tests.carriers import EXTRAS, needs
from tests.installed import (
    ROOT,
    built,
    find_python,
    folder,
    fresh_python,
    needs_wheels,
    python_with_wheel,
    run_python,
    run_tests,
)

OLDEST = "3.9"
CONSUMER = """
import firstwrite


def pay(client: firstwrite.Client) -> str:
    with client.intent("checkout/cart_42", "POST", "https://api.example/payments", json={"amount": 1}) as pay:
        end = pay.send()
        return end.kind


reveal_type(pay)
wrong: int = firstwrite.End("done", False).kind
"""
CORE = [f"tests.test_{name}" for name in ("vectors", "intent", "send", "meanwhile", "waits", "clock", "queue", "lanes")]
NEEDS_MORE = ("package", "docs", "bed", "foreign", "kill", "strace", "syntax", "mutants", "fleet")
"""Tests that need other programs or the sources, or that take long and ask of rules what no version changes."""


def all_alone() -> List[str]:
    """Returns the modules of tests that need nothing but the package."""
    paths = glob.glob(os.path.join(ROOT, "tests", "test_*.py"))
    names = {os.path.basename(path)[len("test_") : -len(".py")] for path in paths}
    return [f"tests.test_{name}" for name in sorted(names - set(NEEDS_MORE))]


class Package(unittest.TestCase):
    def setUp(self) -> None:
        needs("build")

    def test_the_built_forms_hold_the_package(self) -> None:
        with zipfile.ZipFile(built().wheel) as archive:
            names = archive.namelist()
        modules = [name for name in names if name.startswith("firstwrite/")]
        expected = [
            os.path.relpath(path, os.path.join(ROOT, "src"))
            for path in glob.glob(os.path.join(ROOT, "src", "firstwrite", "**"), recursive=True)
            if path.endswith((".py", "py.typed"))
        ]
        self.assertEqual(sorted(modules), sorted(expected))
        with tarfile.open(built().sdist) as packed:
            files = [name.partition("/")[2] for name in packed.getnames()]
        for name in ("README.md", "pyproject.toml", "src/firstwrite/py.typed", "src/firstwrite/engine.py"):
            self.assertIn(name, files)

    def test_the_wheel_works_in_a_fresh_environment(self) -> None:
        self.check_installed(python_with_wheel())

    def test_the_sdist_works_in_a_fresh_environment(self) -> None:
        python = fresh_python("sdist")
        # The tools that build it come from this environment, so that nothing is fetched.
        target = run_python(python, "-c", "import site; print(site.getsitepackages()[0])").strip()
        install = ["-m", "pip", "install", "-q", "--no-index", "--no-build-isolation", "--no-deps"]
        run_python(sys.executable, *install, "--target", target, built().sdist)
        self.check_installed(python)

    def check_installed(self, python: str) -> None:
        where = run_python(python, "-c", "import firstwrite; print(firstwrite.__file__, firstwrite.__version__)")
        self.assertTrue(where.startswith(os.path.dirname(os.path.dirname(python))), where)
        run_tests(python, CORE)

    def test_the_wheel_works_on_the_oldest_python(self) -> None:
        python = find_python(OLDEST)
        if python is None:
            self.skipTest(f"there is no Python {OLDEST}")
        place = os.path.join(folder(), "oldest")
        install = ["-m", "pip", "install", "-q", "--no-index", "--no-deps"]
        run_python(sys.executable, *install, "--target", place, built().wheel)
        run_tests(python, all_alone(), place)


class Extras(unittest.TestCase):
    """The wheel brings what its extras need, and their transports work with it."""

    def setUp(self) -> None:
        needs("build")

    def check_transports(self, python: str, extras: List[str]) -> None:
        for extra in extras:
            run_python(python, "-c", f"import firstwrite.transports.{extra}")
        run_tests(python, ["tests.test_transports"])

    def test_each_extra_works_by_itself(self) -> None:
        wheels = needs_wheels()
        for extra in EXTRAS:
            with self.subTest(extra):
                python = fresh_python(f"extra-{extra}")
                install = ["-m", "pip", "install", "-q", "--no-index", "--find-links", wheels]
                run_python(python, *install, f"{built().wheel}[{extra}]")
                self.check_transports(python, [extra])

    # It fetches packages, which the short form never does.
    if os.environ.get("FIRSTWRITE_LONG"):

        def test_the_oldest_versions_of_the_extras_work(self) -> None:
            with open(os.path.join(ROOT, "pyproject.toml"), encoding="utf-8") as stream:
                floors = dict(re.findall(r'^(\w+) = \["\1>=([\d.]+),', stream.read(), re.MULTILINE))
            self.assertEqual(sorted(floors), sorted(EXTRAS))
            python = fresh_python("floors")
            oldest = [f"{extra}=={version}" for extra, version in floors.items()]
            run_python(python, "-m", "pip", "install", "-q", f"{built().wheel}[{','.join(EXTRAS)}]", *oldest)
            self.check_transports(python, list(EXTRAS))


class Types(unittest.TestCase):
    def test_types_reach_a_program_that_uses_the_package(self) -> None:
        needs("mypy")
        place = tempfile.mkdtemp(prefix="firstwrite-types-")
        self.addCleanup(shutil.rmtree, place)
        site = os.path.join(place, "site")
        shutil.copytree(os.path.join(ROOT, "src"), site)
        program = os.path.join(place, "program.py")
        with open(program, "w", encoding="utf-8") as stream:
            stream.write(CONSUMER)
        result = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", program],
            cwd=place,
            env={**os.environ, "PYTHONPATH": site, "MYPYPATH": site},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
        )
        output = result.stdout.decode()
        self.assertIn("def (client: firstwrite.client.Client) -> str", output)
        self.assertIn("Incompatible types in assignment", output)
        self.assertEqual(output.count("error:"), 1, output)
