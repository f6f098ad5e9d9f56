"""The life of an intent, step by step, written once for the sync and the async client.

The engine decides nothing (`rules` does) and does no I/O (its `Io` does). It keeps the order of steps: what
is written down before what is sent, and what is written down before the caller learns of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable, Mapping, Optional, Protocol, Tuple, Union

from .answer import Answer, Failure, Problem
from .budget import Origins
from .clock import Clock
from .end import End
from .entry import Entry, EntryEnd, decode, encode
from .errors import IntentConflict, IntentGone, Lost, NotSent, Pending, SealError, StorageError, WrongState
from .event import Event, EventHook, Step, emit
from .keys import derived_key, random_key
from .request import Outgoing, Request, check_name, origin_of, with_key
from .rules import (
    KNOWN_CODES,
    RETRY_WAIT_MAX_MS,
    Ask,
    Decision,
    Dialect,
    Finish,
    Life,
    Retry,
    StatusAsk,
    StatusRefresh,
    back_off_ms,
    decide,
    decide_status,
    end_of_life,
)
from .storage import Item

STATUS_WAIT_SECONDS = 20
"""Time that the status resource is asked to wait for an outcome."""

_ASK_SECONDS = 10.0
_ATTEMPT_SECONDS_MIN = 1.0
_OPENS_MAX = 10
_NOT_STORED = frozenset(
    ("set-cookie", "set-cookie2", "www-authenticate", "proxy-authenticate", "authentication-info")
)

Seal = Callable[[bytes], bytes]


class Io(Protocol):
    """What the engine asks of the outside. The sync client's methods never wait for another coroutine."""

    @property
    def is_durable(self) -> bool:
        """True if entries outlive the process."""

    async def read(self, name: str) -> Optional[Item]:
        """Reads an entry."""

    async def create(self, name: str, lane: Optional[str], revision: int, data: bytes) -> bool:
        """Writes a new entry."""

    async def replace(self, name: str, old_revision: int, revision: int, data: bytes) -> bool:
        """Writes an entry in the place of another."""

    async def delete(self, name: str, revision: int) -> bool:
        """Deletes an entry."""

    async def credentials(self, refresh: bool) -> Mapping[str, str]:
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


class Patience:
    """How long a caller waits. `until` is a monotonic time, None waits for the end."""

    def __init__(self, clock: Clock, wait_for: Optional[float], waits: bool = True) -> None:
        self._clock = clock
        self._until = None if wait_for is None else clock.monotonic() + wait_for
        self._waits = waits

    def left(self) -> Optional[float]:
        """Returns the seconds that are left."""
        return None if self._until is None else max(0.0, self._until - self._clock.monotonic())

    def allows(self, seconds: float) -> bool:
        """Returns true if a wait ends in time."""
        left = self.left()
        return self._waits and (left is None or seconds <= left)

    def attempt_seconds(self, most: float) -> float:
        """Returns the time limit of an attempt: what is left, but never so little that it only makes doubt."""
        left = self.left()
        return most if left is None or not self._waits else min(most, max(left, _ATTEMPT_SECONDS_MIN))

    def status_seconds(self) -> Tuple[int, float]:
        """Returns the seconds that the status resource is asked to wait, and the time limit of asking."""
        left = self.left()
        if not self._waits:
            return 0, _ASK_SECONDS
        if left is None:
            return STATUS_WAIT_SECONDS, STATUS_WAIT_SECONDS + _ASK_SECONDS
        wait = min(STATUS_WAIT_SECONDS, int(left))
        return wait, min(wait + _ASK_SECONDS, max(left, _ATTEMPT_SECONDS_MIN))


class Engine:
    """Opens, sends, acknowledges and supersedes intents."""

    def __init__(self, io: Io, settings: Settings) -> None:
        self.settings = settings
        self._io = io
        self._origins = Origins()

    # Opening

    async def open(self, name: str, request: Request, lane: Optional[str] = None) -> Entry:
        """Writes an intent down, or finds the one that was opened before with the same request."""
        check_name(name, "intent's name")
        if lane is not None:
            check_name(lane, "lane's name")
        entry = self._new_entry(name, lane, request)
        for _ in range(_OPENS_MAX):
            if await self._io.create(name, lane, entry.revision, encode(entry)):
                self._emit("opened", entry)
                return entry
            standing = await self.load(name)
            if standing is not None:
                self._check_same(standing, request, lane)
                return standing
        raise StorageError(f"intent {name!r} is opened and acknowledged elsewhere too fast to be opened here")

    async def load(self, name: str) -> Optional[Entry]:
        """Reads an intent."""
        item = await self._io.read(name)
        return None if item is None else decode(item.data, item.where, name)

    def _new_entry(self, name: str, lane: Optional[str], request: Request) -> Entry:
        settings = self.settings
        derived = settings.secret is not None
        key = random_key(settings.token_bytes) if settings.secret is None else derived_key(settings.secret, name)
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
            body=self._seal(request.body),
            sealed=settings.seal is not None,
            opened_at=settings.clock.now(),
            # A key that is derived anew after a restart may have been sent before, and only the storage knows.
            doubt=derived and not self._io.is_durable,
        )

    def _check_same(self, entry: Entry, request: Request, lane: Optional[str]) -> None:
        differs = [
            what
            for what, is_same in (
                ("method", entry.method == request.method),
                ("URL", entry.url == request.url),
                ("headers", entry.headers == request.headers),
                ("body", self._open(entry.body, entry.sealed) == request.body),
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
        return await _Send(self, await self._fresh(entry), patience).run()

    async def resume(self, entry: Entry) -> Entry:
        """Opens an intent that ended `unknown` again, under the same key."""
        entry = await self._fresh(entry)
        if entry.end is None:
            return entry
        if entry.end.kind != "unknown":
            raise WrongState(f"intent {entry.name!r} ended {entry.end.kind}; only an unknown end can be resumed")
        resumed = replace(
            entry, end=None, doubt=True, resumed_at=self.settings.clock.now(), not_before=None, told=False
        )
        return await self.write(entry, resumed) or await self.resume(await self._fresh(entry))

    # Ending

    async def acknowledge(self, entry: Entry) -> None:
        """Deletes an intent that has an end. One that is gone already stays gone."""
        for _ in range(_OPENS_MAX):
            if entry.end is None:
                raise WrongState(f"intent {entry.name!r} has no end yet, and cannot be acknowledged")
            if await self._io.delete(entry.name, entry.revision):
                self._emit("acknowledged", entry)
                return
            standing = await self.load(entry.name)
            if standing is None or not _is_same_life(standing, entry):
                return
            entry = standing
        raise StorageError(f"intent {entry.name!r} changes elsewhere too fast to be acknowledged")

    async def supersede(self, entry: Entry, request: Request) -> Entry:
        """Opens an intent anew with another request and a new key, where that cannot carry it out twice."""
        if self.settings.secret is not None or entry.derived:
            raise WrongState(
                f"intent {entry.name!r} has a derived key, which would stay the same; use another name"
            )
        entry = await self._fresh(entry)
        if entry.end is None:
            raise WrongState(f"intent {entry.name!r} has no end yet, and cannot be superseded")
        if entry.end.kind != "refused" or not entry.end.safe_new_key:
            raise WrongState(
                f"intent {entry.name!r} ended {entry.end.kind}; under a new key it might be carried out twice"
            )
        opened = replace(self._new_entry(entry.name, entry.lane, request), revision=entry.revision + 1)
        if not await self._io.replace(entry.name, entry.revision, opened.revision, encode(opened)):
            raise IntentGone(f"intent {entry.name!r} was changed elsewhere; nothing was superseded")
        self._emit("opened", opened)
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
            body=self._open(end.body, end.sealed),
            truncated=end.truncated,
            replayed=end.replayed,
            code=end.code,
        )

    def request_of(self, entry: Entry) -> Request:
        """Returns the request of an entry."""
        return Request(entry.method, entry.url, entry.headers, self._open(entry.body, entry.sealed))

    # Shared by the steps

    async def write(self, old: Entry, new: Entry) -> Optional[Entry]:
        """Writes the next revision of an entry. Returns None if another revision stands."""
        new = replace(new, revision=old.revision + 1)
        return new if await self._io.replace(old.name, old.revision, new.revision, encode(new)) else None

    async def _fresh(self, entry: Entry) -> Entry:
        standing = await self.load(entry.name)
        if standing is None or not _is_same_life(standing, entry):
            raise IntentGone(f"intent {entry.name!r} was acknowledged or superseded elsewhere")
        return standing

    def _seal(self, body: Optional[bytes]) -> Optional[bytes]:
        if body is None or self.settings.seal is None:
            return body
        try:
            return bytes(self.settings.seal(body))
        except Exception as error:
            raise SealError(f"the `seal` hook failed: {type(error).__name__}") from error

    def _open(self, body: Optional[bytes], sealed: bool) -> Optional[bytes]:
        if body is None or not sealed:
            return body
        if self.settings.open is None:
            raise SealError("the body is sealed; give the client the `open` hook that belongs to its `seal`")
        try:
            return bytes(self.settings.open(body))
        except Exception as error:
            raise SealError(f"the `open` hook failed: {type(error).__name__}") from error

    def _emit(
        self,
        step: Step,
        entry: Entry,
        result: Union[Answer, Failure, None] = None,
        decision: Optional[str] = None,
    ) -> None:
        status = result.status if isinstance(result, Answer) else None
        failure = result.value if isinstance(result, Failure) else None
        emit(self.settings.on_event, Event(step, entry.name, entry.attempts, status, failure, decision))


class _Send:
    """One run of `Engine.send`."""

    def __init__(self, engine: Engine, entry: Entry, patience: Patience) -> None:
        self._engine = engine
        self._settings = engine.settings
        self._clock = engine.settings.clock
        self._io = engine._io
        self._entry = entry
        self._patience = patience
        self._refresh = False
        self._refreshed = False
        # After a restart nobody remembers how the last attempt failed, only that it is in doubt.
        self._asks = entry.doubt
        self._origin = origin_of(entry.url)
        self._budget = engine._origins.budget(self._origin, self._clock.monotonic())

    async def run(self) -> Entry:
        while True:
            if self._entry.end is not None:
                return self._entry
            if await self._has_outlived() or await self._has_waited():
                continue
            if self._asks and self._has_status():
                self._asks = await self._ask()
                continue
            if not await self._has_token():
                continue
            credentials = await self._fetch_credentials()
            # Waiting and fetching took time.
            if await self._has_outlived():
                continue
            before = self._entry
            marked = await self._engine.write(before, self._mark(before))
            if marked is None:
                if before.attempts:
                    self._budget.give_back()
                await self._reload()
                continue
            self._entry = marked
            self._engine._emit("marked", marked)
            result = await self._attempt(marked, credentials)
            await self._record(marked, before.doubt, result)

    # Before an attempt

    async def _has_outlived(self) -> bool:
        """Ends the intent if nothing may be sent any more."""
        entry = self._entry
        finish = end_of_life(
            self._settings.life,
            self._clock.now(),
            entry.first_attempt_at,
            entry.expires_at,
            entry.doubt,
            entry.resumed_at,
        )
        if finish is None:
            return False
        ended = await self._engine.write(entry, replace(entry, end=self._end(finish, None), not_before=None))
        if ended is None:
            await self._reload()
        else:
            self._entry = ended
            self._engine._emit("ended", ended, decision=finish.kind)
        return True

    async def _has_waited(self) -> bool:
        """Waits for the time before which nothing is sent, if there is one."""
        not_before = self._entry.not_before
        if not_before is None:
            return False
        now = max(self._clock.now(), self._entry.first_attempt_at or 0)
        # Nothing asks for more than this; a larger distance is a clock that jumped back.
        milliseconds = min(not_before - now, RETRY_WAIT_MAX_MS)
        if milliseconds > 0:
            await self._pause(milliseconds / 1000)
            # Another process may have ended it meanwhile.
            await self._reload()
        # A wait is done once: the clock of the day may jump while it lasts.
        if self._entry.not_before == not_before:
            self._entry = replace(self._entry, not_before=None)
        return True

    async def _has_token(self) -> bool:
        """Takes a token of the retry budget, or waits for one. The first attempt needs none."""
        seconds = self._budget.take(self._clock.monotonic()) if self._entry.attempts else 0.0
        if not seconds:
            return True
        await self._pause(seconds)
        await self._reload()
        return False

    async def _pause(self, seconds: float) -> None:
        if not self._patience.allows(seconds):
            entry = self._entry
            raise Pending(entry.name, seconds, entry.attempts, entry.doubt)
        await self._io.sleep(seconds)

    async def _fetch_credentials(self) -> Mapping[str, str]:
        refresh, self._refresh = self._refresh, False
        self._refreshed = self._refreshed or refresh
        return await self._io.credentials(refresh)

    def _mark(self, entry: Entry) -> Entry:
        first = self._clock.now() if entry.first_attempt_at is None else entry.first_attempt_at
        return replace(entry, attempts=entry.attempts + 1, doubt=True, first_attempt_at=first, not_before=None)

    # The attempt

    async def _attempt(self, entry: Entry, credentials: Mapping[str, str]) -> Union[Answer, Failure]:
        request = self._engine.request_of(entry)
        key_header = f'"{entry.key}"' if entry.dialect == "draft-07" else entry.key
        outgoing = with_key(request, request.body, key_header, credentials)
        is_sent = False

        def on_sent() -> None:
            nonlocal is_sent
            if not is_sent:
                is_sent = True
                self._engine._emit("sent", entry)

        timeout = self._patience.attempt_seconds(self._settings.attempt_timeout)
        try:
            result: Union[Answer, Failure] = await self._io.send(
                outgoing, timeout, self._settings.answer_bytes_max, on_sent
            )
        except NotSent:
            result = Failure.NOT_SENT
        except Lost:
            result = Failure.LOST
        if result is not Failure.NOT_SENT:
            on_sent()
        return result

    async def _record(self, marked: Entry, doubt: bool, result: Union[Answer, Failure]) -> None:
        """Writes down what an answer means. `doubt` stood before the attempt."""
        self._learn(result)
        base = marked
        is_first_try = True
        while True:
            now = self._clock.now()
            decision = decide(base.dialect, result, doubt, self._refreshed, now)  # type: ignore[arg-type]
            if is_first_try:
                self._engine._emit("answered", marked, result, _name(decision))
            recorded = await self._engine.write(base, self._after(base, decision, result, now))
            if recorded is not None:
                break
            # Another process began an attempt meanwhile, whose request may have arrived.
            is_first_try, doubt = False, True
            await self._reload()
            base = self._entry
            if base.end is not None:
                return
        self._entry = recorded
        if isinstance(decision, Finish):
            if decision.kind == "done":
                self._budget.give_back()
            self._engine._emit("ended", marked, result, _name(decision))
            return
        self._engine._emit("recorded", marked, result, _name(decision))
        self._asks = isinstance(decision, Ask)
        self._refresh = isinstance(decision, Retry) and decision.refresh
        if isinstance(result, Answer) and result.status not in (401, 407):
            # The credentials were taken; when they lapse later, they may be refreshed again.
            self._refreshed = False

    def _after(self, base: Entry, decision: Decision, result: Union[Answer, Failure], now: int) -> Entry:
        """Returns the entry after an answer."""
        expires_at = result.expires_at if isinstance(result, Answer) else None
        entry = replace(base, expires_at=base.expires_at if expires_at is None else expires_at)
        if isinstance(decision, Finish):
            return replace(entry, end=self._end(decision, result), not_before=None)
        wait = decision.wait * 1000 + back_off_ms(base.attempts, self._settings.random())
        not_before = max(base.not_before or 0, now + wait)
        return replace(entry, doubt=True if isinstance(decision, Ask) else decision.doubt, not_before=not_before)

    def _end(self, finish: Finish, result: Union[Answer, Failure, None]) -> EntryEnd:
        answer = result if isinstance(result, Answer) else None
        # The body of an answer that tells of another one is not the first answer's body.
        body = answer.body if answer is not None and finish.status is None else None
        headers = {} if answer is None else answer.headers
        return EntryEnd(
            kind=finish.kind,
            safe_new_key=finish.safe_new_key,
            replayed=finish.replayed,
            code=finish.code,
            status=finish.status if finish.status is not None or answer is None else answer.status,
            headers={name: value for name, value in headers.items() if name not in _NOT_STORED},
            body=self._engine._seal(body),
            truncated=answer is not None and answer.truncated,
            sealed=self._settings.seal is not None,
        )

    # The status resource

    def _learn(self, result: Union[Answer, Failure]) -> None:
        """Notes whether an answer says that this origin has a status resource."""
        if not isinstance(result, Answer):
            return
        problem = Problem.of(result) if self._entry.dialect == "draft-07" else None
        marks = "idempotency-expires" in result.headers or "idempotency-interim" in result.headers
        if marks or (problem is not None and problem.code in KNOWN_CODES):
            self._engine._origins.learn_status(self._origin)

    def _has_status(self) -> bool:
        if self._settings.status == "never":
            return False
        return self._engine._origins.has_status(self._origin, default=self._settings.status == "always")

    async def _ask(self) -> bool:
        """Asks the status resource once. Returns true if it is to be asked again."""
        entry = self._entry
        wait, timeout = self._patience.status_seconds()
        headers: Tuple[Tuple[str, str], ...] = (("accept", "application/json"),)
        request = Request("GET", f"{self._origin}/.firstwrite/operations/{entry.key}?wait={wait}s", headers)
        outgoing = with_key(request, None, None, await self._fetch_credentials())
        try:
            result: Union[Answer, Failure] = await self._io.send(
                outgoing, timeout, self._settings.answer_bytes_max, lambda: None
            )
        except NotSent:
            result = Failure.NOT_SENT
        except Lost:
            result = Failure.LOST
        now = self._clock.now()
        decision = decide_status(result, self._refreshed, now)
        if isinstance(decision, StatusAsk):
            not_before = now + decision.wait * 1000 + back_off_ms(1, self._settings.random())
            written = await self._engine.write(entry, replace(entry, not_before=not_before))
            if written is None:
                await self._reload()
            else:
                self._entry = written
            return True
        if isinstance(decision, StatusRefresh):
            self._refresh = True
            return True
        if decision.forget:
            self._engine._origins.forget_status(self._origin)
        return False

    async def _reload(self) -> None:
        self._entry = await self._engine._fresh(self._entry)


def _is_same_life(standing: Entry, entry: Entry) -> bool:
    return standing.key == entry.key and standing.opened_at == entry.opened_at


def _name(decision: Decision) -> str:
    if isinstance(decision, Finish):
        return decision.kind
    return "ask" if isinstance(decision, Ask) else "retry"
