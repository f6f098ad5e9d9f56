"""The queue of the asyncio client."""

from __future__ import annotations

import asyncio
from typing import Any, Callable, Dict, List, Mapping, Optional, Union

from .async_io import AsyncIo
from .engine import Engine
from .lanes import Lane, Lanes, QueuedIntent
from .listing import IntentInfo
from .request import NO_JSON, build_request
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
    ) -> None:
        if lanes_at_once < 1:
            raise ValueError("`lanes_at_once` must be 1 or more")
        self._lanes = Lanes(engine, io, apply, rollback, confirm, acknowledge)
        self._clock = engine.settings.clock
        self._io = io
        self._lanes_at_once = lanes_at_once

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
        """Sends until every lane is empty or stopped, or until `wait_for` seconds are over. Returns the lanes.

        A lane that must wait longer than that is left at once, and the next `run` goes on with it.
        """
        if wait_for is not None:
            check_seconds("wait_for", wait_for, 0)
        until = None if wait_for is None else self._clock.monotonic() + wait_for
        places = asyncio.Semaphore(self._lanes_at_once)
        results: Dict[str, Lane] = {}
        # Others may enqueue in new lanes meanwhile.
        while True:
            names = await self._lanes.names() - results.keys()
            if not names:
                return [results[name] for name in sorted(results)]
            for lane in await asyncio.gather(*(self._run_lane(name, places, until) for name in names)):
                results[lane.name] = lane

    async def _run_lane(self, name: str, places: asyncio.Semaphore, until: Optional[float]) -> Lane:
        while True:
            async with places:
                lane = await self._lanes.run(name)
            if lane.state != "waiting" or lane.retry_in is None:
                return lane
            if until is not None and self._clock.monotonic() + lane.retry_in > until:
                return lane
            await self._io.sleep(lane.retry_in)
