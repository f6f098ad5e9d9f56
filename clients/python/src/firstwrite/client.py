"""The sync client."""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import Callable, List, Mapping, Optional, Type, Union

from .clock import Clock
from .end import End
from .engine import Engine, Seal
from .entry import Entry
from .errors import WrongState
from .event import EventHook
from .listing import IntentInfo, describe
from .patience import Patience
from .queue import Queue, QueueHook
from .request import NO_JSON, build_request
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
from .sync_io import Credentials, SyncIo, run
from .transports import SocketTransport, Transport


class Client:
    """Opens intents and sends them. Threads may share a client.

    `storage` is a storage or the path of an SQLite file. Times are in seconds. `clock`, `sleep` and `random` are
    for tests.
    """

    def __init__(
        self,
        *,
        storage: Union[Storage, str, "os.PathLike[str]"],
        credentials: Optional[Credentials] = None,
        transport: Optional[Transport] = None,
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
        sleep: Callable[[float], None] = time.sleep,
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
        self._io = SyncIo(storage_of(storage), transport or SocketTransport(), credentials, sleep)
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
    ) -> "Intent":
        """Opens an intent with its request, durably, or finds the one that was opened before.

        Raises `IntentConflict` if it was opened with another request.
        """
        request = build_request(method, url, json, body, headers)
        return Intent(self, run(self._engine.open(name, request)))

    def find(self, name: str) -> Optional["Intent"]:
        """Returns an intent that was opened before, or None."""
        entry = run(self._engine.load(name))
        return None if entry is None else Intent(self, entry)

    def intents(self) -> List[IntentInfo]:
        """Lists all intents that were not acknowledged, in the order in which they were opened."""
        return [describe(item) for item in self._io.storage.list()]

    def queue(
        self,
        *,
        apply: Optional[QueueHook] = None,
        rollback: Optional[QueueHook] = None,
        confirm: Optional[QueueHook] = None,
        acknowledge: bool = False,
        lanes_at_once: int = 8,
        poll: float = POLL_SECONDS,
    ) -> Queue:
        """Returns the queue of this client's storage."""
        return Queue(
            self._engine, self._io, apply, rollback, confirm, acknowledge, lanes_at_once, poll
        )

    def close(self) -> None:
        """Closes storage and transport."""
        self._io.transport.close()
        self._io.storage.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()


class Intent:
    """One intent. As a context it changes nothing at its end: what is not acknowledged stays."""

    def __init__(self, client: Client, entry: Entry) -> None:
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

    def send(self, wait_for: Optional[float] = None) -> End:
        """Sends the intent until it has an end, and returns the end once it is written down.

        An intent that has an end is not sent again. Raises `Pending` when `wait_for` runs out, or at once if nothing
        may be sent before it does.
        """
        if wait_for is not None:
            check_seconds("wait_for", wait_for, 0)
        refuse_lane(self._entry)
        patience = Patience(
            self._engine.settings.clock, self._client._wait_for if wait_for is None else wait_for
        )
        self._entry = run(self._engine.send(self._entry, patience))
        return certain(self._engine.end_of(self._entry))

    def resume(self, wait_for: Optional[float] = None) -> End:
        """Sends an intent that ended `unknown` again, under the same key."""
        refuse_lane(self._entry)
        self._entry = run(self._engine.resume(self._entry))
        return self.send(wait_for)

    def acknowledge(self) -> None:
        """Forgets the intent, which must have an end. Its name may then mean another action."""
        run(self._engine.acknowledge(self._entry))

    def supersede(
        self,
        method: str,
        url: str,
        *,
        json: object = NO_JSON,
        body: Union[bytes, str, None] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> "Intent":
        """Opens the intent anew with another request and a new key.

        It must have ended `refused` with a safe new key, or no attempt was begun.
        """
        refuse_lane(self._entry)
        request = build_request(method, url, json, body, headers)
        self._entry = run(self._engine.supersede(self._entry, request))
        return self

    def __enter__(self) -> "Intent":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        return None

    def __repr__(self) -> str:
        return f"<Intent {self.name!r} {self.state}>"


def refuse_lane(entry: Entry) -> None:
    """Raises an error if an intent belongs to a lane, whose order only the queue keeps."""
    if entry.lane is not None:
        raise WrongState(f"intent {entry.name!r} belongs to lane {entry.lane!r}; the queue sends, resumes and supersedes it")


def certain(end: Optional[End]) -> End:
    """Returns the end that an intent has after it was sent."""
    assert end is not None, "`Engine.send` returns an entry with an end"
    return end
