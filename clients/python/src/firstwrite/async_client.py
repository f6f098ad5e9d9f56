"""The asyncio client. It does what `Client` does, and awaits it."""

from __future__ import annotations

import asyncio
import os
from types import TracebackType
from typing import Any, Awaitable, Callable, Generator, List, Mapping, Optional, Type, Union

from .async_io import AsyncCredentials, AsyncIo
from .async_queue import AsyncQueue, AsyncQueueHook
from .client import certain, refuse_lane
from .clock import Clock
from .end import End
from .engine import Engine, Seal
from .entry import Entry
from .event import EventHook
from .listing import IntentInfo, describe
from .patience import Patience
from .request import NO_JSON, Request, build_request
from .rules import Dialect
from .schedule import POLL_SECONDS
from .settings import (
    ANSWER_BYTES_MAX,
    ATTEMPT_TIMEOUT_SECONDS,
    GIVE_UP_AFTER_SECONDS,
    RETENTION_SECONDS,
    WAIT_FOR_SECONDS,
    build_settings,
    check_seconds,
)
from .storage import Storage, storage_of
from .transports import AsyncTransport, StreamTransport


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
        poll: float = POLL_SECONDS,
    ) -> AsyncQueue:
        """Returns the queue of this client's storage."""
        return AsyncQueue(
            self._engine, self._io, apply, rollback, confirm, acknowledge, lanes_at_once, poll
        )

    async def aclose(self) -> None:
        """Closes storage and transport."""
        await self._io.aclose()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
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
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
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
        """Opens the intent anew with another request and a new key.

        It must have ended `refused` with a safe new key, or no attempt was begun.
        """
        refuse_lane(self._entry)
        request = build_request(method, url, json, body, headers)
        self._entry = await self._engine.supersede(self._entry, request)
        return self

    def __repr__(self) -> str:
        return f"<AsyncIntent {self.name!r} {self.state}>"
