"""The queue of the asyncio client."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any, Callable, Iterable, List, Mapping, Optional, Set, Union

from .async_io import AsyncIo
from .engine import Engine
from .lanes import Lane, Lanes, QueuedIntent
from .listing import IntentInfo
from .request import NO_JSON, build_request
from .schedule import Schedule, check_runs
from .settings import check_seconds

AsyncQueueHook = Callable[[QueuedIntent], Any]
"""A hook of a queue, also an `async` one."""


class AsyncQueue:
    """Sends intents in lanes, as `Queue` does. Its hooks may be `async`."""

    def __init__(
        self,
        engine: Engine,
        io: AsyncIo,
        apply: Optional[AsyncQueueHook],
        rollback: Optional[AsyncQueueHook],
        confirm: Optional[AsyncQueueHook],
        acknowledge: bool,
        lanes_at_once: int,
        poll: float,
    ) -> None:
        check_runs(lanes_at_once, poll)
        self._lanes = Lanes(engine, io, apply, rollback, confirm, acknowledge)
        self._clock = engine.settings.clock
        self._io = io
        self._changes = engine.changes
        self._lanes_at_once = lanes_at_once
        self._poll = poll

    async def enqueue(
        self,
        lane: str,
        name: str,
        method: str,
        url: str,
        *,
        json: object = NO_JSON,
        body: Union[bytes, str, None] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> None:
        """Opens an intent at the end of a lane, durably. Nothing is sent before `run`."""
        await self._lanes.enqueue(lane, name, build_request(method, url, json, body, headers))

    async def entries(self, lane: Optional[str] = None) -> List[IntentInfo]:
        """Lists the intents of a lane, or of all lanes, in order."""
        return await self._lanes.entries(lane)

    async def resume(self, name: str) -> None:
        """Lets the next `run` send an intent that ended `unknown` again, under the same key."""
        await self._lanes.resume(name)

    async def supersede(
        self,
        name: str,
        method: str,
        url: str,
        *,
        json: object = NO_JSON,
        body: Union[bytes, str, None] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> None:
        """Opens an intent anew at the end of its lane, with another request and a new key, and calls `apply`.

        It must have ended `refused` with a safe new key, or no attempt was begun.
        """
        await self._lanes.supersede(name, build_request(method, url, json, body, headers))

    async def acknowledge(self, name: str) -> None:
        """Forgets an intent that has an end."""
        await self._lanes.acknowledge(name)

    async def run(self, wait_for: Optional[float] = None) -> List[Lane]:
        """Sends until every lane is empty or stopped, and returns the lanes. Lanes that come meanwhile start at once.

        With `wait_for`, a lane that must wait past that many seconds from now is left, and the next `run` goes on
        with it.
        """
        if wait_for is not None:
            check_seconds("wait_for", wait_for, 0)
        schedule = Schedule(self._clock, self._lanes_at_once, self._poll, wait_for)
        bell = _Bell()
        running: Set["asyncio.Task[Lane]"] = set()
        try:
            with self._changes.heard_by(bell.change):
                while True:
                    if bell.has_changed() or schedule.is_look_due():
                        schedule.looked(await self._lanes.look())
                        if schedule.is_idle():
                            return schedule.lanes()
                    for name in schedule.start():
                        task = asyncio.ensure_future(self._lanes.run(name))
                        task.add_done_callback(bell.finish)
                        running.add(task)
                    await self._pause(bell, schedule)
                    for task in [task for task in running if task.done()]:
                        running.discard(task)
                        schedule.finished(task.result())
        finally:
            await _end(running)

    async def _pause(self, bell: "_Bell", schedule: Schedule) -> None:
        rung = asyncio.ensure_future(bell.wait())
        waiting: Set["asyncio.Future[None]"] = {rung}
        limit: Optional[float] = schedule.seconds()
        if not schedule.is_running():
            waiting.add(asyncio.ensure_future(self._io.sleep(schedule.seconds())))
            limit = None
        try:
            over, _ = await asyncio.wait(waiting, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            for future in over:
                # An application's sleep that fails ends the run.
                future.result()
        finally:
            await _end(waiting)


class _Bell:
    """Wakes a run when a lane ends its turn, or may have more to send."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()
        self._changed = threading.Event()

    def change(self) -> None:
        self._changed.set()
        # Other threads enqueue too. A loop that is closed has no run to wake.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._rung.set)

    def finish(self, _: object) -> None:
        self._rung.set()

    async def wait(self) -> None:
        await self._rung.wait()
        self._rung.clear()

    def has_changed(self) -> bool:
        has_changed = self._changed.is_set()
        self._changed.clear()
        return has_changed


async def _end(futures: Iterable["asyncio.Future[Any]"]) -> None:
    """Cancels what is not done, and waits for its end."""
    for future in futures:
        future.cancel()
    await asyncio.gather(*futures, return_exceptions=True)
