"""Runs everything that must hold for the Python client, in an environment with pinned tools.

    python3 clients/python/check.py

The environment is `.venv` beside this file, made anew when `requirements-dev.txt` changes. Arguments are passed to
unittest, such as `-v` or the name of a test module.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv

ROOT = os.path.dirname(os.path.abspath(__file__))
PLACE = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(PLACE, "Scripts" if sys.platform == "win32" else "bin", "python")
REQUIREMENTS = os.path.join(ROOT, "requirements-dev.txt")
WHEELS = os.path.join(PLACE, "wheels")
"""What is installed, for tests that install it again without fetching it."""


def prepare() -> None:
    """Makes the environment, if it is not that of the present requirements and of this file."""
    wanted = sys.version + "\n"
    for path in (REQUIREMENTS, os.path.abspath(__file__)):
        with open(path, "rb") as stream:
            wanted += hashlib.sha256(stream.read()).hexdigest() + "\n"
    stamp = os.path.join(PLACE, "stamp")
    if os.path.exists(stamp):
        with open(stamp, encoding="utf-8") as present:
            if present.read() == wanted:
                return
    shutil.rmtree(PLACE, ignore_errors=True)
    venv.create(PLACE, with_pip=True)
    pip = ("-m", "pip", "--disable-pip-version-check")
    step("wheels", *pip, "wheel", "-q", "--no-deps", "-w", WHEELS, "-r", REQUIREMENTS)
    step("tools", *pip, "install", "-q", "--no-index", "-f", WHEELS, "--no-deps", "-r", REQUIREMENTS)
    with open(stamp, "w", encoding="utf-8") as out:
        out.write(wanted)


def step(name: str, *arguments: str) -> None:
    """Runs one step, and stops at the first that fails."""
    print(f"== {name}", flush=True)
    status = subprocess.call([PYTHON, *arguments], cwd=ROOT)
    if status:
        sys.exit(f"{name} failed")


def main() -> None:
    prepare()
    step("types", "-m", "mypy")
    # Sockets that asyncio leaves to the collector after a failed handshake are not ours to close.
    step("tests", "-W", "ignore::ResourceWarning", "-m", "unittest", *sys.argv[1:])


if __name__ == "__main__":
    main()
