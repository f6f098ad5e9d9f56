"""The package as people install it: built once for all tests, and installed into environments of their own."""

from __future__ import annotations

import atexit
import functools
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import venv
from typing import Dict, List, NamedTuple, Optional

from tests.carriers import needs

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VECTORS = os.path.join(ROOT, "..", "vectors")
WHEELS = os.path.join(sys.prefix, "wheels")
"""The wheels of pinned packages that `check.py` keeps, so that tests fetch nothing."""

_SECONDS_MAX = 300


class Built(NamedTuple):
    """The package in its two built forms."""

    wheel: str
    sdist: str


@functools.lru_cache(maxsize=None)
def folder() -> str:
    """Returns a folder that lasts as long as this process."""
    path = tempfile.mkdtemp(prefix="firstwrite-package-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@functools.lru_cache(maxsize=None)
def built() -> Built:
    """Builds the sdist, and the wheel from the sdist."""
    needs("build")
    # A copy, so that building leaves nothing in the sources.
    source = os.path.join(folder(), "source")
    ignored = (".venv", "build", "dist", "*.egg-info", "__pycache__", ".mypy_cache")
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*ignored))
    run_python(sys.executable, "-m", "build", "--no-isolation", source)
    (wheel,) = glob.glob(os.path.join(source, "dist", "*.whl"))
    (sdist,) = glob.glob(os.path.join(source, "dist", "*.tar.gz"))
    return Built(wheel, sdist)


@functools.lru_cache(maxsize=None)
def python_with_wheel() -> str:
    """Returns the interpreter of an environment that holds the built wheel and nothing else."""
    python = fresh_python("wheel")
    run_python(python, "-m", "pip", "install", "-q", "--no-index", built().wheel)
    return python


def fresh_python(name: str) -> str:
    """Makes an environment, and returns its interpreter."""
    place = os.path.join(folder(), name)
    venv.create(place, with_pip=True)
    return os.path.join(place, "bin", "python")


def needs_wheels() -> str:
    """Returns the folder of pinned wheels. Without it a test is skipped, and in CI fails."""
    if not os.path.isdir(WHEELS):
        message = "the wheels that `check.py` keeps are not there"
        if os.environ.get("CI"):
            raise AssertionError(message)
        raise unittest.SkipTest(message)
    return WHEELS


@functools.lru_cache(maxsize=None)
def tests_alone() -> str:
    """Copies the tests and the vectors to where no sources are beside them, and returns the folder."""
    alone = os.path.join(folder(), "alone", "python")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(os.path.join(ROOT, "tests"), os.path.join(alone, "tests"), ignore=ignored)
    shutil.copytree(VECTORS, os.path.join(folder(), "alone", "vectors"))
    return alone


def run_tests(python: str, modules: List[str], path: Optional[str] = None) -> str:
    """Runs modules of tests with the package that an interpreter has, or that stands in a folder."""
    # Tests that start programs give them this path.
    environment = {"FIRSTWRITE_INSTALLED": path or "1", **({"PYTHONPATH": path} if path else {})}
    program = f"import sys, unittest; sys.path.insert(0, ''); unittest.main(None, argv=['x', *{modules!r}])"
    output = run_python(
        python,
        "-W",
        "error::DeprecationWarning",
        "-c",
        program,
        cwd=tests_alone(),
        **environment,
    )
    assert "\nOK" in output, output
    return output


def run_python(python: str, *arguments: str, cwd: Optional[str] = None, **environment: str) -> str:
    """Runs a program and returns what it prints, or raises an error with it."""
    # Tests that run in another environment skip what is not installed there.
    hidden = ("PYTHONPATH", "CI", "FIRSTWRITE_TEST_BED")
    clean: Dict[str, str] = {name: value for name, value in os.environ.items() if name not in hidden}
    result = subprocess.run(
        [python, *arguments],
        cwd=cwd or folder(),
        env={**clean, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_SECONDS_MAX,
    )
    output = result.stdout.decode()
    assert result.returncode == 0, output
    return output


def find_python(version: str) -> Optional[str]:
    """Returns an interpreter of this version, such as `3.9`, on the path or among those of pyenv."""
    pyenv = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    found = [shutil.which(f"python{version}")]
    found += sorted(glob.glob(os.path.join(glob.escape(pyenv), "versions", f"{version}.*", "bin", "python")))
    for python in found:
        if python is None:
            continue
        # A shim of pyenv is there for versions too that it does not run.
        shown = subprocess.run(
            [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS_MAX,
        )
        if shown.stdout.decode().strip() == version:
            return python
    return None
