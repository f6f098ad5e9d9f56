"""Carries the engine's steps out for the sync client: every wait returns at once, or blocks the thread."""

from __future__ import annotations

from typing import Any, Callable, Coroutine, List, Mapping, Optional, TypeVar, Union

from .answer import Answer
from .errors import CredentialsError, FirstwriteError
from .lanes import QueuedIntent
from .request import CredentialsRequest, Outgoing, check_credentials
from .storage import Item, Storage
from .transports import Transport

_T = TypeVar("_T")

Credentials = Union[Mapping[str, str], Callable[[CredentialsRequest], Mapping[str, str]]]
"""Headers that say who calls, or a function that fetches them for an intent and an address."""


def run(steps: Coroutine[Any, Any, _T]) -> _T:
    """Runs steps whose waits all return at once, as those of `SyncIo` do."""
    try:
        steps.send(None)
    except StopIteration as stop:
        result: _T = stop.value
        return result
    finally:
        steps.close()
    raise RuntimeError("a step of the sync client waited for another coroutine")


class SyncIo:
    """The outside of the sync client."""

    def __init__(
        self,
        storage: Storage,
        transport: Transport,
        credentials: Optional[Credentials],
        sleep: Callable[[float], None],
    ) -> None:
        self.storage = storage
        self.transport = transport
        self.sleep_now = sleep
        self._credentials = credentials

    @property
    def is_durable(self) -> bool:
        return self.storage.is_durable

    async def read(self, name: str) -> Optional[Item]:
        return self.storage.read(name)

    async def create(self, name: str, lane: Optional[str], revision: int, data: bytes) -> bool:
        return self.storage.create(name, lane, revision, data)

    async def replace(
        self, name: str, old_revision: int, revision: int, data: bytes, to_end: bool = False
    ) -> bool:
        return self.storage.replace(name, old_revision, revision, data, to_end)

    async def delete(self, name: str, revision: int) -> bool:
        return self.storage.delete(name, revision)

    async def list(self, lane: Optional[str]) -> List[Item]:
        return self.storage.list(lane)

    async def credentials(self, wanted: CredentialsRequest) -> Mapping[str, str]:
        if self._credentials is None:
            return {}
        if not callable(self._credentials):
            return check_credentials(self._credentials)
        try:
            credentials = self._credentials(wanted)
        except FirstwriteError:
            raise
        except Exception as error:
            raise CredentialsError(f"the `credentials` hook failed: {type(error).__name__}") from error
        return check_credentials(credentials)

    async def send(
        self, request: Outgoing, timeout: float, bytes_max: int, on_sent: Callable[[], None]
    ) -> Answer:
        return self.transport.send(request, timeout, bytes_max, on_sent)

    async def sleep(self, seconds: float) -> None:
        self.sleep_now(seconds)

    async def call(self, hook: Callable[[QueuedIntent], Any], intent: QueuedIntent) -> None:
        hook(intent)
