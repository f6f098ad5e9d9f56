"""Lanes of the queue: each sends its intents in order, and calls the application's hooks. Shared by both queues."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, List, Literal, NamedTuple, Optional, Protocol, Set

from .end import End
from .engine import Engine, Io
from .entry import Entry, decode
from .errors import IntentGone, Pending, StorageError, WrongState
from .listing import IntentInfo, describe
from .patience import Patience
from .request import Request
from .storage import Item

LaneState = Literal["empty", "waiting", "stopped", "failed"]


@dataclass(frozen=True)
class QueuedIntent:
    """What the hooks of a queue get."""

    name: str
    lane: str
    request: Request
    end: Optional[End] = None
    """How it ended; None for `apply`."""


@dataclass(frozen=True)
class Lane:
    """A lane after a run."""

    name: str
    state: LaneState
    """`empty`: all sent; `waiting`: its head may not be sent yet; `stopped`: its head ended `unknown` or `expired`;
    `failed`: a hook or the storage raised `error`."""
    head: Optional[str] = None
    retry_in: Optional[float] = None
    error: Optional[Exception] = field(default=None, compare=False)


class Head(NamedTuple):
    """The first intent of a lane with something left to do."""

    name: str
    revision: int
    has_ended: bool = False


class QueueIo(Io, Protocol):
    """What lanes ask of the outside."""

    async def list(self, lane: Optional[str]) -> List[Item]:
        """Lists entries."""

    async def call(self, hook: Callable[[QueuedIntent], Any], intent: QueuedIntent) -> None:
        """Calls a hook of the application."""


class Lanes:
    """The steps of a queue."""

    def __init__(
        self,
        engine: Engine,
        io: QueueIo,
        apply: Optional[Callable[[QueuedIntent], Any]],
        rollback: Optional[Callable[[QueuedIntent], Any]],
        confirm: Optional[Callable[[QueuedIntent], Any]],
        acknowledge: bool,
    ) -> None:
        self._engine = engine
        self._io = io
        self._apply = apply
        self._hooks = {"refused": rollback, "done": confirm}
        self._acknowledge = acknowledge

    async def enqueue(self, lane: str, name: str, request: Request) -> None:
        """Opens an intent at the end of a lane, and applies it."""
        entry = await self._engine.open(name, request, lane)
        try:
            await self._applied(entry)
        finally:
            self._engine.changes.tell()

    async def supersede(self, name: str, request: Request) -> None:
        """Opens an intent anew at the end of its lane, and applies it."""
        entry = await self.find(name)
        rollback = self._hooks["refused"]
        if rollback is not None and entry.state == "refused" and not entry.told:
            # What the refused request changed is taken back before another one is applied.
            await self._io.call(rollback, self._queued(entry))
        opened = await self._engine.supersede(entry, request)
        try:
            await self._applied(opened)
        finally:
            self._engine.changes.tell()

    async def entries(self, lane: Optional[str]) -> List[IntentInfo]:
        """Lists the intents of a lane, or of all lanes."""
        infos = [describe(item) for item in await self._io.list(lane)]
        return [
            info for info in infos if lane is not None or info.lane is not None or info.state == "damaged"
        ]

    async def look(self) -> Dict[str, Optional[Head]]:
        """Returns the lanes that hold an intent, each with the first that has something left to do.

        A lane that is stopped has nothing to do.
        """
        heads: Dict[str, Optional[Head]] = {}
        decided: Set[str] = set()
        for item in await self._io.list(None):
            if item.lane in decided:
                continue
            try:
                entry = decode(item.data, item.where, item.name)
                lane, head, stops = entry.lane, self._head_of(entry), self._stops(entry)
            except StorageError:
                # The run of its lane says that it cannot be read.
                lane, head, stops = item.lane, Head(item.name or "", 0), False
            if lane is None or lane in decided:
                continue
            heads[lane] = head
            if head or stops:
                decided.add(lane)
        return heads

    def _head_of(self, entry: Entry) -> Optional[Head]:
        has_ended = entry.end is not None
        is_over = has_ended and (self._stops(entry) or self._is_settled(entry))
        return None if is_over else Head(entry.name, entry.revision, has_ended)

    def _stops(self, entry: Entry) -> bool:
        return entry.end is not None and entry.end.kind not in self._hooks

    def _is_settled(self, entry: Entry) -> bool:
        """Returns true if no hook is to be called for an end that lets its lane go on."""
        return entry.told or entry.end is None or self._hooks[entry.end.kind] is None

    async def find(self, name: str) -> Entry:
        """Returns an intent of a lane."""
        entry = await self._engine.load(name)
        if entry is None or entry.lane is None:
            raise WrongState(f"no lane holds an intent {name!r}")
        return entry

    async def resume(self, name: str) -> None:
        """Lets a lane go on with its head, which ended `unknown`."""
        await self._engine.resume(await self.find(name))
        self._engine.changes.tell()

    async def acknowledge(self, name: str) -> None:
        """Forgets an intent that has an end."""
        await self._engine.acknowledge(await self.find(name))
        self._engine.changes.tell()

    async def run(self, lane: str) -> Lane:
        """Sends the intents of a lane, until it is empty, must wait, or stops."""
        head: Optional[str] = None
        try:
            while True:
                has_moved = False
                for item in await self._io.list(lane):
                    head = item.name
                    entry = decode(item.data, item.where, item.name)
                    if entry.lane != lane:
                        raise StorageError(f"{item.where} holds intent {entry.name!r} in another lane")
                    head = entry.name
                    try:
                        has_moved = await self._advance(entry) or has_moved
                    except IntentGone:
                        # It was acknowledged elsewhere.
                        has_moved = True
                    except _Stop:
                        return Lane(lane, "stopped", head)
                if not has_moved:
                    return Lane(lane, "empty")
        except Pending as pending:
            return Lane(lane, "waiting", pending.intent, pending.retry_in)
        except Exception as error:
            return Lane(lane, "failed", head, error=error)

    async def _advance(self, entry: Entry) -> bool:
        """Does what is left to do for an intent. Returns false if there was nothing."""
        has_sent = entry.end is None
        if entry.end is None:
            entry = await self._applied(entry)
            entry = await self._engine.send(entry, Patience(self._engine.settings.clock, None, waits=False))
        if entry.end is None or self._stops(entry):
            raise _Stop
        hook = self._hooks[entry.end.kind]
        if hook is None or entry.told:
            return has_sent
        await self._io.call(hook, self._queued(entry))
        if self._acknowledge:
            await self._engine.acknowledge(entry)
        else:
            await self._engine.write(entry, replace(entry, told=True))
        return True

    async def _applied(self, entry: Entry) -> Entry:
        if self._apply is None or entry.applied:
            return entry
        await self._io.call(self._apply, replace(self._queued(entry), end=None))
        # If another process writes first, the hook is called again: it must be idempotent anyway.
        return await self._engine.write(entry, replace(entry, applied=True)) or entry

    def _queued(self, entry: Entry) -> QueuedIntent:
        engine = self._engine
        return QueuedIntent(entry.name, entry.lane or "", engine.request_of(entry), engine.end_of(entry))


class _Stop(Exception):
    """The head of a lane ended without saying what happened."""
