"""The test bed: `firstwrite demo` behind a proxy that loses answers. `FIRSTWRITE_TEST_BED` is the command of it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import threading
import unittest
import urllib.error
import urllib.request
from typing import Any, Dict, List, Tuple

VARIABLE = "FIRSTWRITE_TEST_BED"
_CLOSED_MAX = 1000
_LOOKS_MAX = 4000
_pause = threading.Event()

CREDENTIALS = {"Authorization": "Bearer demo-acme"}


def needs_bed() -> None:
    """Skips the tests if there is no bed. In CI that is a failure."""
    if not os.environ.get(VARIABLE):
        message = f"{VARIABLE} is not set to the command of the test bed"
        if os.environ.get("CI"):
            raise AssertionError(message)
        raise unittest.SkipTest(message)


class Bed:
    """A running bed."""

    def __init__(self, *arguments: str) -> None:
        command = [*shlex.split(os.environ[VARIABLE]), *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.close()
            raise AssertionError(f"the test bed did not start: {command}")
        addresses: Dict[str, Any] = json.loads(line)
        self.proxy: str = addresses["proxy"]
        self.demo: str = addresses["demo"]
        self.refused: str = addresses["refused"]
        self.payments = self.proxy + "/payments"

    def close(self) -> None:
        """Ends the bed, which ends the demo."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def set_faults(self, **faults: float) -> None:
        """Sets the schedule of faults. Names have `_` for `-`."""
        self._call(
            "POST",
            "/_bed/faults",
            {name.replace("cut_", "cut-").lstrip("_"): value for name, value in faults.items()},
        )

    def restart_demo(self) -> None:
        """Kills the demo and starts it again."""
        self._call("POST", "/_bed/restart")

    def close_port(self, milliseconds: int) -> None:
        """Refuses connections for a while."""
        self._call("POST", "/_bed/close", {"ms": milliseconds})

    def log(self, since: int = 0) -> Tuple[List[Dict[str, Any]], int]:
        """Returns the requests from a number on, and the next number."""
        answer = self._call("GET", f"/_bed/log?since={since}")
        assert not answer["full"], "the bed's log is full; use another bed"
        return answer["entries"], answer["next"]

    def wait_for_request(self, customer: str, since: int) -> None:
        """Waits until the proxy has read a request that asks for something, from a number of the log on."""
        for _ in range(_LOOKS_MAX):
            if any(entry["customer"] == customer for entry in self.log(since)[0]):
                return
            _pause.wait(0.005)
        raise AssertionError(f"no request of {customer} arrived")

    def payments_of(self) -> Dict[str, List[Dict[str, Any]]]:
        """Returns the demo's payments by customer."""
        found: Dict[str, List[Dict[str, Any]]] = {}
        for payment in self._call("GET", "/_bed/effects")["payments"]:
            found.setdefault(payment["customer"], []).append(payment)
        return found

    def _call(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.proxy + path, data, {"Content-Type": "application/json"}, method=method
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        for _ in range(_CLOSED_MAX):
            try:
                with opener.open(request, timeout=60) as answer:
                    content = answer.read()
                return json.loads(content) if content else None
            except (ConnectionError, urllib.error.URLError) as error:
                # The bed's own paths are behind the port that a test closes for a while.
                if not isinstance(getattr(error, "reason", error), ConnectionError):
                    raise
                _pause.wait(0.01)
        raise AssertionError("the port of the test bed stays closed")
