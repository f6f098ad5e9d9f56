"""The package as people install it: built, installed into a fresh environment, and tested there."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import venv
import zipfile
from typing import Dict

from tests.carriers import needs

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

CONSUMER = """
import firstwrite


def pay(client: firstwrite.Client) -> str:
    with client.intent("checkout/cart_42", "POST", "https://api.example/payments", json={"amount": 1}) as pay:
        end = pay.send()
        return end.kind


reveal_type(pay)
wrong: int = firstwrite.End("done", False).kind
"""


class Package(unittest.TestCase):
    def setUp(self) -> None:
        needs("build")
        self.folder = tempfile.mkdtemp(prefix="firstwrite-package-")
        self.addCleanup(shutil.rmtree, self.folder)

    def run_python(self, python: str, *arguments: str, **environment: str) -> str:
        clean: Dict[str, str] = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        result = subprocess.run(
            [python, *arguments],
            cwd=self.folder,
            env={**clean, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
        )
        output = result.stdout.decode()
        self.assertEqual(result.returncode, 0, output)
        return output

    def test_the_built_package_works_in_a_fresh_environment(self) -> None:
        # A copy, so that building leaves nothing in the sources.
        source = os.path.join(self.folder, "source")
        shutil.copytree(
            ROOT,
            source,
            ignore=shutil.ignore_patterns(
                ".venv", "build", "dist", "*.egg-info", "__pycache__", ".mypy_cache"
            ),
        )
        # Builds the sdist, and the wheel from the sdist.
        self.run_python(sys.executable, "-m", "build", "--no-isolation", source)
        (wheel,) = glob.glob(os.path.join(source, "dist", "*.whl"))
        (sdist,) = glob.glob(os.path.join(source, "dist", "*.tar.gz"))
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
        modules = [name for name in names if name.startswith("firstwrite/")]
        expected = [
            os.path.relpath(path, os.path.join(ROOT, "src"))
            for path in glob.glob(os.path.join(ROOT, "src", "firstwrite", "**"), recursive=True)
            if path.endswith((".py", "py.typed"))
        ]
        self.assertEqual(sorted(modules), sorted(expected))
        with tarfile.open(sdist) as packed:
            files = [name.partition("/")[2] for name in packed.getnames()]
        for name in ("README.md", "pyproject.toml", "src/firstwrite/py.typed", "src/firstwrite/engine.py"):
            self.assertIn(name, files)
        for form in (wheel, sdist):
            with self.subTest(form):
                self.check_installed(form)

    def check_installed(self, form: str) -> None:
        place = os.path.join(self.folder, "fresh")
        shutil.rmtree(place, ignore_errors=True)
        venv.create(place, with_pip=True)
        python = os.path.join(place, "bin", "python")
        if form.endswith(".tar.gz"):
            # The tools that build it come from this environment, so that nothing is fetched.
            target = self.run_python(python, "-c", "import site; print(site.getsitepackages()[0])").strip()
            self.run_python(
                sys.executable,
                "-m",
                "pip",
                "install",
                "-q",
                "--no-index",
                "--no-build-isolation",
                "--no-deps",
                "--target",
                target,
                form,
            )
        else:
            self.run_python(python, "-m", "pip", "install", "-q", "--no-index", form)
        where = self.run_python(
            python, "-c", "import firstwrite; print(firstwrite.__file__, firstwrite.__version__)"
        )
        self.assertTrue(where.startswith(place), where)
        # The tests alone, without the sources beside them.
        tests = os.path.join(self.folder, "alone", "python")
        shutil.rmtree(tests, ignore_errors=True)
        shutil.copytree(os.path.join(ROOT, "tests"), os.path.join(tests, "tests"))
        vectors = os.path.join(ROOT, "..", "vectors")
        shutil.copytree(vectors, os.path.join(self.folder, "alone", "vectors"), dirs_exist_ok=True)
        names = ("vectors", "intent", "send", "meanwhile", "clock", "queue")
        modules = [f"tests.test_{name}" for name in names]
        output = self.run_python(
            python,
            "-W",
            "error::DeprecationWarning",
            "-c",
            f"import os, sys, unittest; os.chdir({tests!r}); sys.path.insert(0, ''); unittest.main(None, argv=['x', *{modules!r}])",
            FIRSTWRITE_INSTALLED="1",
        )
        self.assertIn("OK", output)

    def test_types_reach_a_program_that_uses_the_package(self) -> None:
        needs("mypy")
        place = os.path.join(self.folder, "site")
        shutil.copytree(os.path.join(ROOT, "src"), place)
        program = os.path.join(self.folder, "program.py")
        with open(program, "w", encoding="utf-8") as stream:
            stream.write(CONSUMER)
        result = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", program],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": place, "MYPYPATH": place},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
        )
        output = result.stdout.decode()
        self.assertIn("def (client: firstwrite.client.Client) -> str", output)
        self.assertIn("Incompatible types in assignment", output)
        self.assertEqual(output.count("error:"), 1, output)
