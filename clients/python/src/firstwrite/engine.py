"""The life of an intent, step by step, written once for the sync and the async client.

The engine decides nothing (`rules` does) and does no I/O (its `Io` does). It keeps the order of steps: what
is written down before what is sent, and what is written down before the caller learns of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable, List, Mapping, Optional, Protocol, Tuple, Union

from .answer import Answer, Failure
from .budget import Origins
from .changes import Changes
from .clock import Clock
from .end import End
from .entry import Entry, decode, encode
from .errors import IntentConflict, IntentGone, SealError, StorageError, WrongState
from .event import Event, EventHook, Step, emit
from .keys import derived_key, random_key
from .life import Life
from .patience import Patience
from .request import CredentialsRequest, Outgoing, Request, check_name
from .rules import Dialect, wait_ms
from .sending import Sending
from .storage import Item
from .waits import Waits

_OPENS_MAX = 10

Seal = Callable[[str, bytes], bytes]
"""Protects a body at rest, or opens it again: the name of its intent, and the body."""


class Io(Protocol):
    """What the engine asks of the outside. The sync client's methods never wait for another coroutine."""

    @property
    def is_durable(self) -> bool:
        """True if entries outlive the process."""

    async def read(self, name: str) -> Optional[Item]:
        """Reads an entry."""

    async def create(self, name: str, lane: Optional[str], revision: int, data: bytes) -> bool:
        """Writes a new entry."""

    async def replace(
        self, name: str, old_revision: int, revision: int, data: bytes, to_end: bool = False
    ) -> bool:
        """Writes an entry in the place of another, or behind all others."""

    async def delete(self, name: str, revision: int) -> bool:
        """Deletes an entry."""

    async def credentials(self, wanted: CredentialsRequest) -> Mapping[str, str]:
        """Fetches the headers that say who calls."""

    async def send(
        self, request: Outgoing, timeout: float, bytes_max: int, on_sent: Callable[[], None]
    ) -> Answer:
        """Sends a request. Raises `NotSent` or `Lost`."""

    async def sleep(self, seconds: float) -> None:
        """Waits."""


@dataclass(frozen=True)
class Settings:
    """The settings of a client, checked."""

    dialect: Dialect
    life: Life
    attempt_timeout: float
    status: str
    answer_bytes_max: int
    secret: Optional[bytes]
    seal: Optional[Seal]
    open: Optional[Seal]
    on_event: Optional[EventHook]
    clock: Clock
    random: Callable[[], float]
    token_bytes: Callable[[int], bytes]


class Engine:
    """Opens, sends, acknowledges and supersedes intents."""

    def __init__(self, io: Io, settings: Settings) -> None:
        self.settings = settings
        self.io = io
        self.origins = Origins()
        self.waits = Waits(settings.clock)
        self.changes = Changes()

    # Opening

    async def open(self, name: str, request: Request, lane: Optional[str] = None) -> Entry:
        """Writes an intent down, or finds the one that was opened before with the same request."""
        check_name(name, "intent's name")
        if lane is not None:
            check_name(lane, "lane's name")
        entry = self._new_entry(name, lane, request)
        for _ in range(_OPENS_MAX):
            if await self.io.create(name, lane, entry.revision, encode(entry)):
                self.emit("opened", entry)
                return entry
            standing = await self.load(name)
            if standing is not None:
                self._check_same(standing, request, lane)
                return standing
        raise StorageError(f"intent {name!r} is opened and acknowledged elsewhere too fast to be opened here")

    async def load(self, name: str) -> Optional[Entry]:
        """Reads an intent."""
        item = await self.io.read(name)
        return None if item is None else decode(item.data, item.where, name)

    def _new_entry(self, name: str, lane: Optional[str], request: Request) -> Entry:
        settings = self.settings
        derived = settings.secret is not None
        key = (
            random_key(settings.token_bytes)
            if settings.secret is None
            else derived_key(settings.secret, name)
        )
        return Entry(
            name=name,
            lane=lane,
            # A random start: an intent that is opened anew never has a revision of its earlier life.
            revision=int.from_bytes(settings.token_bytes(6), "big"),
            key=key,
            derived=derived,
            dialect=settings.dialect,
            method=request.method,
            url=request.url,
            headers=request.headers,
            body=self.seal(name, request.body),
            sealed=settings.seal is not None,
            opened_at=settings.clock.now(),
            # An earlier process, or an earlier life of this name, may have sent a derived key.
            doubt=derived,
        )

    def _check_same(self, entry: Entry, request: Request, lane: Optional[str]) -> None:
        differs = [
            what
            for what, is_same in (
                ("method", entry.method == request.method),
                ("URL", entry.url == request.url),
                ("content headers", _content_headers(entry.headers) == _content_headers(request.headers)),
                ("body", self._open(entry.name, entry.body, entry.sealed) == request.body),
                ("lane", entry.lane == lane),
            )
            if not is_same
        ]
        if differs:
            raise IntentConflict(
                f"intent {entry.name!r} was opened before with another {' and '.join(differs)};"
                " another action needs another name, and `supersede` replaces a refused one"
            )

    # Sending

    async def send(self, entry: Entry, patience: Patience) -> Entry:
        """Sends an intent until it has an end, or raises `Pending`."""
        if entry.end is not None:
            return entry
        return await Sending(self, await self.fresh(entry), patience).run()

    async def resume(self, entry: Entry) -> Entry:
        """Opens an intent that ended `unknown` again, under the same key."""
        entry = await self.fresh(entry)
        if entry.end is None:
            return entry
        if entry.end.kind != "unknown":
            raise WrongState(
                f"intent {entry.name!r} ended {entry.end.kind}; only an unknown end can be resumed"
            )
        resumed = replace(
            entry,
            end=None,
            doubt=True,
            resumed_at=self.settings.clock.now(),
            not_before=None,
            wait=0,
            told=False,
        )
        return await self.write(entry, resumed) or await self.resume(await self.fresh(entry))

    # Ending

    async def acknowledge(self, entry: Entry) -> None:
        """Deletes an intent that has an end. One that is gone already stays gone."""
        for _ in range(_OPENS_MAX):
            if entry.end is None:
                raise WrongState(f"intent {entry.name!r} has no end yet, and cannot be acknowledged")
            if await self.io.delete(entry.name, entry.revision):
                self.emit("acknowledged", entry)
                return
            standing = await self.load(entry.name)
            if standing is None or not _is_same_life(standing, entry):
                return
            entry = standing
        raise StorageError(f"intent {entry.name!r} changes elsewhere too fast to be acknowledged")

    async def supersede(self, entry: Entry, request: Request) -> Entry:
        """Opens an intent anew with another request and a new key, where that cannot carry it out twice.

        In a lane it takes a new place at the end.
        """
        if self.settings.secret is not None or entry.derived:
            raise WrongState(
                f"intent {entry.name!r} has a derived key, which would stay the same; use another name"
            )
        entry = await self.fresh(entry)
        if entry.end is None and entry.attempts:
            raise WrongState(f"intent {entry.name!r} has no end yet, and cannot be superseded")
        if entry.end is not None and not (entry.end.kind == "refused" and entry.end.safe_new_key):
            raise WrongState(
                f"intent {entry.name!r} ended {entry.end.kind}; under a new key it might be carried out twice"
            )
        opened = replace(self._new_entry(entry.name, entry.lane, request), revision=entry.revision + 1)
        to_end = entry.lane is not None
        if not await self.io.replace(entry.name, entry.revision, opened.revision, encode(opened), to_end):
            raise IntentGone(f"intent {entry.name!r} was changed elsewhere; nothing was superseded")
        self.emit("opened", opened)
        return opened

    def end_of(self, entry: Entry) -> Optional[End]:
        """Returns the end of an entry for the application."""
        end = entry.end
        if end is None:
            return None
        return End(
            kind=end.kind,  # type: ignore[arg-type]
            safe_new_key=end.safe_new_key,
            status=end.status,
            headers=dict(end.headers),
            body=self._open(entry.name, end.body, end.sealed),
            truncated=end.truncated,
            replayed=end.replayed,
            code=end.code,
        )

    def request_of(self, entry: Entry) -> Request:
        """Returns the request of an entry."""
        body = self._open(entry.name, entry.body, entry.sealed)
        return Request(entry.method, entry.url, entry.headers, body)

    # Shared by the steps

    async def write(self, old: Entry, new: Entry) -> Optional[Entry]:
        """Writes the next revision of an entry. Returns None if another revision stands."""
        new = replace(new, revision=old.revision + 1, latest_at=self._latest(new))
        if not await self.io.replace(old.name, old.revision, new.revision, encode(new)):
            return None
        if new.not_before != old.not_before:
            self.waits.begin(new)
        return new

    def wait_ms(self, asked: int, attempt: int) -> int:
        """Draws the wait after an attempt, whose answer asked for some of it."""
        return wait_ms(asked, attempt, self.settings.random())

    def waiting(self, entry: Entry, milliseconds: int) -> Entry:
        """Returns an entry of which nothing is sent for so long."""
        return replace(entry, not_before=self.settings.clock.now() + milliseconds, wait=milliseconds)

    def _latest(self, entry: Entry) -> Optional[int]:
        if entry.first_attempt_at is None:
            return None
        return max(entry.latest_at or entry.first_attempt_at, self.settings.clock.now())

    async def fresh(self, entry: Entry) -> Entry:
        standing = await self.load(entry.name)
        if standing is None or not _is_same_life(standing, entry):
            raise IntentGone(f"intent {entry.name!r} was acknowledged or superseded elsewhere")
        return standing

    def seal(self, intent: str, body: Optional[bytes]) -> Optional[bytes]:
        if body is None or self.settings.seal is None:
            return body
        try:
            return bytes(self.settings.seal(intent, body))
        except Exception as error:
            raise SealError(f"the `seal` hook failed: {type(error).__name__}") from error

    def _open(self, intent: str, body: Optional[bytes], sealed: bool) -> Optional[bytes]:
        if body is None or not sealed:
            return body
        if self.settings.open is None:
            raise SealError("the body is sealed; give the client the `open` hook that belongs to its `seal`")
        try:
            return bytes(self.settings.open(intent, body))
        except Exception as error:
            raise SealError(f"the `open` hook failed: {type(error).__name__}") from error

    def emit(
        self,
        step: Step,
        entry: Entry,
        result: Union[Answer, Failure, None] = None,
        decision: Optional[str] = None,
    ) -> None:
        status = result.status if isinstance(result, Answer) else None
        failure = result.value if isinstance(result, Failure) else None
        emit(self.settings.on_event, Event(step, entry.name, entry.attempts, status, failure, decision))


def _content_headers(headers: Tuple[Tuple[str, str], ...]) -> List[Tuple[str, str]]:
    """Returns the headers that belong to what is asked for; others, such as `traceparent`, may differ."""
    return [(name, value) for name, value in headers if name.startswith("content-")]


def _is_same_life(standing: Entry, entry: Entry) -> bool:
    return standing.key == entry.key and standing.opened_at == entry.opened_at
