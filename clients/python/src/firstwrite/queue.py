"""The queue of the sync client."""

from __future__ import annotations

import concurrent.futures
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Mapping, Optional, Union

from .engine import Engine
from .lanes import Lane, Lanes, QueuedIntent
from .listing import IntentInfo
from .request import NO_JSON, build_request
from .settings import check_seconds
from .sync_io import SyncIo, run

QueueHook = Callable[[QueuedIntent], Any]


class Queue:
    """Sends intents in lanes: each lane in order, lanes independently of each other, also after a restart.

    `apply` is called when an intent is enqueued, `rollback` when it ended `refused`, `confirm` when it ended `done`.
    A crash may repeat such a call. With `acknowledge`, an intent is forgotten once `rollback` or `confirm` returned.
    """

    def __init__(
        self,
        engine: Engine,
        io: SyncIo,
        apply: Optional[QueueHook],
        rollback: Optional[QueueHook],
        confirm: Optional[QueueHook],
        acknowledge: bool,
        lanes_at_once: int,
    ) -> None:
        if lanes_at_once < 1:
            raise ValueError("`lanes_at_once` must be 1 or more")
        self._lanes = Lanes(engine, io, apply, rollback, confirm, acknowledge)
        self._clock = engine.settings.clock
        self._sleep = io.sleep_now
        self._lanes_at_once = lanes_at_once

    def enqueue(
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
        run(self._lanes.enqueue(lane, name, build_request(method, url, json, body, headers)))

    def entries(self, lane: Optional[str] = None) -> List[IntentInfo]:
        """Lists the intents of a lane, or of all lanes, in order."""
        return run(self._lanes.entries(lane))

    def resume(self, name: str) -> None:
        """Lets the next `run` send an intent that ended `unknown` again, under the same key."""
        run(self._lanes.resume(name))

    def supersede(
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
        run(self._lanes.supersede(name, build_request(method, url, json, body, headers)))

    def acknowledge(self, name: str) -> None:
        """Forgets an intent that has an end."""
        run(self._lanes.acknowledge(name))

    def run(self, wait_for: Optional[float] = None) -> List[Lane]:
        """Sends until every lane is empty or stopped, or until `wait_for` seconds are over. Returns the lanes.

        A lane that must wait longer than that is left at once, and the next `run` goes on with it.
        """
        if wait_for is not None:
            check_seconds("wait_for", wait_for, 0)
        until = None if wait_for is None else self._clock.monotonic() + wait_for
        with ThreadPoolExecutor(self._lanes_at_once, thread_name_prefix="firstwrite-lane") as pool:
            return self._run(pool, until)

    def _run(self, pool: ThreadPoolExecutor, until: Optional[float]) -> List[Lane]:
        results: Dict[str, Lane] = {}
        running: Dict["Future[Lane]", str] = {}
        due = {name: self._clock.monotonic() for name in run(self._lanes.names())}
        while due or running:
            now = self._clock.monotonic()
            for name in [name for name, at in due.items() if at <= now]:
                del due[name]
                running[pool.submit(_run_lane, self._lanes, name)] = name
            wait = min(due.values()) - now if due else None
            if not running:
                self._sleep(wait or 0.0)
                continue
            done, _ = concurrent.futures.wait(
                running, timeout=wait, return_when=concurrent.futures.FIRST_COMPLETED
            )
            for future in done:
                lane = future.result()
                name = running.pop(future)
                results[name] = lane
                at = self._clock.monotonic() + (lane.retry_in or 0.0)
                if lane.state == "waiting" and (until is None or at <= until):
                    due[name] = at
            if not due and not running:
                # Others may have enqueued in new lanes meanwhile.
                due = {name: now for name in run(self._lanes.names()) - results.keys()}
        return [results[name] for name in sorted(results)]


def _run_lane(lanes: Lanes, name: str) -> Lane:
    return run(lanes.run(name))
