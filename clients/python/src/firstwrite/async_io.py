"""Carries the engine's steps out for the asyncio client."""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Awaitable, Callable, List, Mapping, Optional, TypeVar, Union

from .answer import Answer
from .errors import CredentialsError, FirstwriteError
from .lanes import QueuedIntent
from .request import CredentialsRequest, Outgoing, check_credentials
from .storage import Item, Storage
from .transports import AsyncTransport

_T = TypeVar("_T")

AsyncCredentials = Union[
    Mapping[str, str],
    Callable[[CredentialsRequest], Union[Mapping[str, str], Awaitable[Mapping[str, str]]]],
]
"""Headers that say who calls, or a function, also an `async` one, that fetches them."""

_STORAGE_THREADS = 4


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

    async def replace(
        self, name: str, old_revision: int, revision: int, data: bytes, to_end: bool = False
    ) -> bool:
        return await self._in_thread(self._storage.replace, name, old_revision, revision, data, to_end)

    async def delete(self, name: str, revision: int) -> bool:
        return await self._in_thread(self._storage.delete, name, revision)

    async def list(self, lane: Optional[str]) -> List[Item]:
        return await self._in_thread(self._storage.list, lane)

    async def credentials(self, wanted: CredentialsRequest) -> Mapping[str, str]:
        if self._credentials is None:
            return {}
        if not callable(self._credentials):
            return check_credentials(self._credentials)
        try:
            credentials = self._credentials(wanted)
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
