"""The asyncio client. It does what `Client` does, and awaits it."""

from __future__ import annotations

import asyncio
import inspect
import os
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Awaitable, Callable, Dict, Generator, List, Mapping, Optional, Type, TypeVar, Union

from .answer import Answer
from .client import certain, refuse_lane
from .clock import Clock
from .end import End
from .engine import Engine, Patience, Seal
from .entry import Entry
from .errors import CredentialsError, FirstwriteError
from .event import EventHook
from .lanes import Lane, Lanes, QueuedIntent
from .listing import IntentInfo, describe
from .request import NO_JSON, Outgoing, Request, build_request, check_credentials
from .rules import Dialect
from .settings import (
    ANSWER_BYTES_MAX,
    ATTEMPT_TIMEOUT_SECONDS,
    GIVE_UP_AFTER_SECONDS,
    RETENTION_SECONDS,
    WAIT_FOR_SECONDS,
    build_settings,
    check_seconds,
)
from .storage import Item, Storage, storage_of
from .transports import AsyncTransport, StreamTransport

_T = TypeVar("_T")

AsyncCredentials = Union[
    Mapping[str, str], Callable[[bool], Union[Mapping[str, str], Awaitable[Mapping[str, str]]]]
]
"""Headers that say who calls, or a function, also an `async` one, that fetches them."""

AsyncQueueHook = Callable[[QueuedIntent], Any]
"""A hook of a queue, also an `async` one."""

_STORAGE_THREADS = 4


class AsyncClient:
    """Opens intents and sends them. It has the arguments of `Client`; storage calls run in threads of its own."""

    def __init__(
        self,
        *,
        storage: Union[Storage, str, "os.PathLike[str]"],
        credentials: Optional[AsyncCredentials] = None,
        transport: Optional[AsyncTransport] = None,
        dialect: Dialect = "draft-07",
        wait_for: float = WAIT_FOR_SECONDS,
        give_up_after: float = GIVE_UP_AFTER_SECONDS,
        retention: float = RETENTION_SECONDS,
        attempt_timeout: float = ATTEMPT_TIMEOUT_SECONDS,
        status: str = "auto",
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        secret: Optional[bytes] = None,
        seal: Optional[Seal] = None,
        open: Optional[Seal] = None,
        on_event: Optional[EventHook] = None,
        clock: Optional[Clock] = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Optional[Callable[[], float]] = None,
    ) -> None:
        check_seconds("wait_for", wait_for, 0)
        self._wait_for = wait_for
        settings = build_settings(
            dialect=dialect,
            give_up_after=give_up_after,
            retention=retention,
            attempt_timeout=attempt_timeout,
            status=status,
            answer_bytes_max=answer_bytes_max,
            secret=secret,
            seal=seal,
            open=open,
            on_event=on_event,
            clock=clock,
            random=random,
        )
        self._io = AsyncIo(storage_of(storage), transport or StreamTransport(), credentials, sleep)
        self._engine = Engine(self._io, settings)

    def intent(
        self,
        name: str,
        method: str,
        url: str,
        *,
        json: object = NO_JSON,
        body: Union[bytes, str, None] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> "AsyncOpening":
        """Opens an intent, by `async with client.intent(…) as pay` or `pay = await client.intent(…)`."""
        return AsyncOpening(self, name, build_request(method, url, json, body, headers))

    async def find(self, name: str) -> Optional["AsyncIntent"]:
        """Returns an intent that was opened before, or None."""
        entry = await self._engine.load(name)
        return None if entry is None else AsyncIntent(self, entry)

    async def intents(self) -> List[IntentInfo]:
        """Lists all intents that were not acknowledged, in the order in which they were opened."""
        return [describe(item) for item in await self._io.list(None)]

    def queue(
        self,
        *,
        apply: Optional[AsyncQueueHook] = None,
        rollback: Optional[AsyncQueueHook] = None,
        confirm: Optional[AsyncQueueHook] = None,
        acknowledge: bool = False,
        lanes_at_once: int = 8,
    ) -> "AsyncQueue":
        """Returns the queue of this client's storage."""
        return AsyncQueue(self._engine, self._io, apply, rollback, confirm, acknowledge, lanes_at_once)

    async def aclose(self) -> None:
        """Closes storage and transport."""
        await self._io.aclose()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.aclose()


class AsyncOpening:
    """An intent that is about to be opened, once it is awaited."""

    def __init__(self, client: AsyncClient, name: str, request: Request) -> None:
        self._client = client
        self._name = name
        self._request = request

    async def _open(self) -> "AsyncIntent":
        return AsyncIntent(self._client, await self._client._engine.open(self._name, self._request))

    def __await__(self) -> Generator[Any, None, "AsyncIntent"]:
        return self._open().__await__()

    async def __aenter__(self) -> "AsyncIntent":
        return await self._open()

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        return None


class AsyncIntent:
    """One intent, with the methods of `Intent`."""

    def __init__(self, client: AsyncClient, entry: Entry) -> None:
        self._client = client
        self._engine = client._engine
        self._entry = entry

    @property
    def name(self) -> str:
        """The name that the application gave it."""
        return self._entry.name

    @property
    def key(self) -> str:
        """The key, for questions to the server's operator. It belongs into no log."""
        return self._entry.key

    @property
    def state(self) -> str:
        """`open`, `sending`, or how it ended, as this process last saw it."""
        return self._entry.state

    @property
    def attempts(self) -> int:
        """The number of attempts that were begun."""
        return self._entry.attempts

    @property
    def in_doubt(self) -> bool:
        """True if an attempt may have reached the server and no answer has settled it."""
        return self._entry.doubt

    @property
    def end(self) -> Optional[End]:
        """How it ended, or None."""
        return self._engine.end_of(self._entry)

    async def send(self, wait_for: Optional[float] = None) -> End:
        """Sends the intent until it has an end, and returns the end once it is written down.

        An intent that has an end is not sent again. Raises `Pending` when `wait_for` runs out, or at once if nothing
        may be sent before it does. A cancelled attempt counts as one whose answer was lost.
        """
        if wait_for is not None:
            check_seconds("wait_for", wait_for, 0)
        refuse_lane(self._entry)
        patience = Patience(
            self._engine.settings.clock, self._client._wait_for if wait_for is None else wait_for
        )
        self._entry = await self._engine.send(self._entry, patience)
        return certain(self._engine.end_of(self._entry))

    async def resume(self, wait_for: Optional[float] = None) -> End:
        """Sends an intent that ended `unknown` again, under the same key."""
        refuse_lane(self._entry)
        self._entry = await self._engine.resume(self._entry)
        return await self.send(wait_for)

    async def acknowledge(self) -> None:
        """Forgets the intent, which must have an end. Its name may then mean another action."""
        await self._engine.acknowledge(self._entry)

    async def supersede(
        self,
        method: str,
        url: str,
        *,
        json: object = NO_JSON,
        body: Union[bytes, str, None] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> "AsyncIntent":
        """Opens the intent anew with another request and a new key. It must have ended `refused`, with a safe new key."""
        request = build_request(method, url, json, body, headers)
        self._entry = await self._engine.supersede(self._entry, request)
        return self

    def __repr__(self) -> str:
        return f"<AsyncIntent {self.name!r} {self.state}>"


class AsyncQueue:
    """Sends intents in lanes, as `Queue` does. Its hooks may be `async`."""

    def __init__(
        self,
        engine: Engine,
        io: "AsyncIo",
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


class AsyncIo:
    """The outside of the asyncio client."""

    def __init__(
        self,
        storage: Storage,
        transport: AsyncTransport,
        credentials: Optional[AsyncCredentials],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._storage = storage
        self._transport = transport
        self._credentials = credentials
        self._sleep = sleep
        # An fsync must not stop the event loop.
        self._threads = ThreadPoolExecutor(_STORAGE_THREADS, thread_name_prefix="firstwrite-storage")

    @property
    def is_durable(self) -> bool:
        return self._storage.is_durable

    async def _in_thread(self, work: Callable[..., _T], *arguments: Any) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    async def read(self, name: str) -> Optional[Item]:
        return await self._in_thread(self._storage.read, name)

    async def create(self, name: str, lane: Optional[str], revision: int, data: bytes) -> bool:
        return await self._in_thread(self._storage.create, name, lane, revision, data)

    async def replace(self, name: str, old_revision: int, revision: int, data: bytes) -> bool:
        return await self._in_thread(self._storage.replace, name, old_revision, revision, data)

    async def delete(self, name: str, revision: int) -> bool:
        return await self._in_thread(self._storage.delete, name, revision)

    async def list(self, lane: Optional[str]) -> List[Item]:
        return await self._in_thread(self._storage.list, lane)

    async def credentials(self, refresh: bool) -> Mapping[str, str]:
        if self._credentials is None:
            return {}
        if not callable(self._credentials):
            return check_credentials(self._credentials)
        try:
            credentials = self._credentials(refresh)
            if inspect.isawaitable(credentials):
                credentials = await credentials
        except FirstwriteError:
            raise
        except Exception as error:
            raise CredentialsError(f"the `credentials` hook failed: {type(error).__name__}") from error
        return check_credentials(credentials)

    async def send(
        self, request: Outgoing, timeout: float, bytes_max: int, on_sent: Callable[[], None]
    ) -> Answer:
        return await self._transport.send(request, timeout, bytes_max, on_sent)

    async def sleep(self, seconds: float) -> None:
        await self._sleep(seconds)

    async def call(self, hook: Callable[[QueuedIntent], Any], intent: QueuedIntent) -> None:
        result = hook(intent)
        if inspect.isawaitable(result):
            await result

    async def aclose(self) -> None:
        await self._transport.aclose()
        await self._in_thread(self._storage.close)
        self._threads.shutdown()
