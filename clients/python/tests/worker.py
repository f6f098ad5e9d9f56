"""An application that dies and starts again: the program of the kill tests.

It pays each of its intents once. An end is in its books, a file, before it is acknowledged; a name that is in the
books is never opened again.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional

from firstwrite import AsyncClient, Client, End, Event, FileStorage, QueuedIntent, SqliteStorage
from tests.bed import CREDENTIALS

ASYNC = ("streams", "httpx, async")
SPEED = 50
"""The application's time passes so many times as fast, so that a history is short."""


@dataclass
class Plan:
    """What one application does."""

    folder: str
    storage: str
    """`sqlite` or `files`."""
    transport: str
    """`sockets`, `streams`, `httpx`, `httpx, async` or `requests`."""
    url: str
    intents: Dict[str, int]
    """Amounts by name. The demo refuses an amount of 0."""
    seed: int = 0
    queue: bool = False
    """Send through lanes instead; the lane is what stands before the slash of a name."""
    keep: bool = False
    """Acknowledge nothing: other processes work on the same intents."""
    kill_at: Optional[str] = None
    """Die at this step."""
    kill_after: int = 0
    """Let the step pass so often before."""
    headers: Dict[str, str] = field(default_factory=dict)
    give_up_after: float = 20_000.0
    began: float = field(default_factory=time.time)
    """From here on the application's time is fast; the same for each process of a plan."""


class FastClock:
    """The clocks of the machine, fast."""

    def __init__(self, began: float) -> None:
        self._began = began

    def now(self) -> int:
        return round((self._began + (time.time() - self._began) * SPEED) * 1000)

    def monotonic(self) -> float:
        return time.monotonic() * SPEED


class Books:
    """The application's own record of ends."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, "books")

    def read(self) -> Dict[str, Dict[str, Any]]:
        """Returns the ends by name. A last line that a crash cut off does not count."""
        if not os.path.exists(self._path):
            return {}
        with open(self._path, encoding="utf-8") as stream:
            lines = [json.loads(line) for line in stream if line.endswith("\n")]
        ends: Dict[str, Dict[str, Any]] = {}
        for line in lines:
            assert ends.setdefault(line["name"], line) == line, "an intent has two ends"
        return ends

    def write(self, name: str, end: End) -> None:
        """Writes an end, durably."""
        line = {"name": name, "kind": end.kind, "status": end.status, "safe_new_key": end.safe_new_key}
        if end.kind == "done":
            line["payment"] = end.json()["id"]
        with open(self._path, "ab") as stream:
            # After a line that a crash cut off, a line break.
            stream.write(b"\n" if stream.tell() and not self._is_whole() else b"")
            stream.write(json.dumps(line).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())

    def _is_whole(self) -> bool:
        with open(self._path, "rb") as stream:
            stream.seek(-1, os.SEEK_END)
            return stream.read() == b"\n"


def run(plan: Plan) -> None:
    """Works until every intent has an end in the books and is acknowledged."""
    if plan.transport in ASYNC:
        asyncio.run(_run_async(plan))
    elif plan.queue:
        _run_queue(plan)
    else:
        _run_sync(plan)


def _fast_sleep(seconds: float) -> None:
    time.sleep(seconds / SPEED)


async def _fast_async_sleep(seconds: float) -> None:
    await asyncio.sleep(seconds / SPEED)


def _settings(plan: Plan) -> Dict[str, Any]:
    path = os.path.join(plan.folder, "intents")
    chance = random.Random(plan.seed)
    return {
        "storage": SqliteStorage(path + ".db") if plan.storage == "sqlite" else FileStorage(path),
        "credentials": CREDENTIALS,
        "random": chance.random,
        "clock": FastClock(plan.began),
        "sleep": _fast_async_sleep if plan.transport in ASYNC else _fast_sleep,
        "on_event": _killer(plan),
        "give_up_after": plan.give_up_after,
        "attempt_timeout": 20.0,
    }


def _killer(plan: Plan) -> Callable[[Event], None]:
    left = plan.kill_after

    def hook(event: Event) -> None:
        nonlocal left
        if event.step == plan.kill_at:
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    return hook


def _transport(plan: Plan) -> Any:
    if plan.transport == "httpx":
        from firstwrite.transports.httpx import HttpxTransport

        return HttpxTransport()
    if plan.transport == "httpx, async":
        from firstwrite.transports.httpx import AsyncHttpxTransport

        return AsyncHttpxTransport()
    if plan.transport == "requests":
        from firstwrite.transports.requests import RequestsTransport

        return RequestsTransport()
    return None


def _body(name: str, amount: int) -> Dict[str, Any]:
    return {"amount": amount, "currency": "EUR", "customer": name}


def _run_sync(plan: Plan) -> None:
    books = Books(plan.folder)
    with Client(transport=_transport(plan), **_settings(plan)) as client:
        for name, amount in plan.intents.items():
            if name in books.read():
                found = client.find(name)
                if found is not None and not plan.keep:
                    found.acknowledge()
                continue
            with client.intent(name, "POST", plan.url, json=_body(name, amount), headers=plan.headers) as pay:
                end = pay.send(wait_for=plan.give_up_after)
                while end.kind == "unknown":
                    end = pay.resume(wait_for=plan.give_up_after)
                books.write(name, end)
                if not plan.keep:
                    pay.acknowledge()


async def _run_async(plan: Plan) -> None:
    books = Books(plan.folder)
    async with AsyncClient(transport=_transport(plan), **_settings(plan)) as client:

        async def pay_once(name: str, amount: int) -> None:
            if name in books.read():
                found = await client.find(name)
                if found is not None and not plan.keep:
                    await found.acknowledge()
                return
            async with client.intent(
                name, "POST", plan.url, json=_body(name, amount), headers=plan.headers
            ) as pay:
                end = await pay.send(wait_for=plan.give_up_after)
                while end.kind == "unknown":
                    end = await pay.resume(wait_for=plan.give_up_after)
                books.write(name, end)
                if not plan.keep:
                    await pay.acknowledge()

        await asyncio.gather(*(pay_once(name, amount) for name, amount in plan.intents.items()))


def _run_queue(plan: Plan) -> None:
    books = Books(plan.folder)

    def settle(intent: QueuedIntent) -> None:
        assert intent.end is not None
        books.write(intent.name, intent.end)

    with Client(transport=_transport(plan), **_settings(plan)) as client:
        # One lane at a time, since the books are one file.
        queue = client.queue(confirm=settle, rollback=settle, acknowledge=True, lanes_at_once=1)
        for name, amount in plan.intents.items():
            if name not in books.read():
                queue.enqueue(
                    name.partition("/")[0],
                    name,
                    "POST",
                    plan.url,
                    json=_body(name, amount),
                    headers=plan.headers,
                )
        for lane in queue.run():
            assert lane.state == "empty", lane
        assert queue.entries() == [], "an entry is left"


def _main(arguments: List[str]) -> None:
    run(Plan(**json.loads(arguments[0])))


if __name__ == "__main__":
    _main(sys.argv[1:])
