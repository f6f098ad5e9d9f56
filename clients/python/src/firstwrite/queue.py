"""The queue of the sync client."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Callable, Iterator, List, Mapping, Optional, Union

from .engine import Engine
from .lanes import Lane, Lanes, QueuedIntent
from .listing import IntentInfo
from .request import NO_JSON, build_request
from .schedule import Schedule, check_runs
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
        poll: float,
    ) -> None:
        check_runs(lanes_at_once, poll)
        self._lanes = Lanes(engine, io, apply, rollback, confirm, acknowledge)
        self._clock = engine.settings.clock
        self._sleep = io.sleep_now
        self._changes = engine.changes
        self._lanes_at_once = lanes_at_once
        self._poll = poll

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
        """Sends until every lane is empty or stopped, and returns the lanes. Lanes that come meanwhile start at once.

        With `wait_for`, a lane that must wait past that many seconds from now is left, and the next `run` goes on
        with it.
        """
        if wait_for is not None:
            check_seconds("wait_for", wait_for, 0)
        schedule = Schedule(self._clock, self._lanes_at_once, self._poll, wait_for)
        bell = _Bell()
        pool = ThreadPoolExecutor(self._lanes_at_once, thread_name_prefix="firstwrite-lane")
        with self._changes.heard_by(bell.change), pool:
            while True:
                if bell.has_changed() or schedule.is_look_due():
                    schedule.looked(run(self._lanes.look()))
                    if schedule.is_idle():
                        return schedule.lanes()
                for name in schedule.start():
                    pool.submit(_run_lane, self._lanes, name).add_done_callback(bell.finish)
                self._pause(bell, schedule)
                for lane in bell.finished():
                    schedule.finished(lane)

    def _pause(self, bell: "_Bell", schedule: Schedule) -> None:
        if self._sleep is time.sleep or schedule.is_running():
            bell.wait(schedule.seconds())
        else:
            # A sleep of the application's own is not woken, so it lasts no longer than until the next look.
            self._sleep(schedule.seconds())


class _Bell:
    """Wakes a run when a lane ends its turn, or may have more to send."""

    def __init__(self) -> None:
        self._rung = threading.Event()
        self._changed = threading.Event()
        self._finished: "SimpleQueue[Future[Lane]]" = SimpleQueue()

    def change(self) -> None:
        self._changed.set()
        self._rung.set()

    def finish(self, future: "Future[Lane]") -> None:
        self._finished.put(future)
        self._rung.set()

    def wait(self, seconds: float) -> None:
        self._rung.wait(seconds)
        self._rung.clear()

    def has_changed(self) -> bool:
        has_changed = self._changed.is_set()
        self._changed.clear()
        return has_changed

    def finished(self) -> Iterator[Lane]:
        while not self._finished.empty():
            yield self._finished.get().result()


def _run_lane(lanes: Lanes, name: str) -> Lane:
    return run(lanes.run(name))
