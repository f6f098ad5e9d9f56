"""Sends one intent until it has an end: marks, attempts, what answers mean, the status resource, waits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Mapping, Optional, Tuple, Union

from .answer import Answer, Failure, Problem
from .clock import Clock
from .entry import Entry, EntryEnd
from .errors import Lost, NotSent, Pending
from .request import Request, origin_of, with_key
from .rules import (
    KNOWN_CODES,
    RETRY_WAIT_MAX_MS,
    Ask,
    Decision,
    Finish,
    Retry,
    StatusAsk,
    StatusRefresh,
    back_off_ms,
    decide,
    decide_status,
    end_of_life,
    key_ends_at,
)

if TYPE_CHECKING:
    from .engine import Engine

STATUS_WAIT_SECONDS = 20
"""Time that the status resource is asked to wait for an outcome."""

_ASK_SECONDS = 10.0
_ATTEMPT_SECONDS_MIN = 1.0
_NOT_STORED = frozenset(
    ("set-cookie", "set-cookie2", "www-authenticate", "proxy-authenticate", "authentication-info")
)


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


class Sending:
    """One run of `Engine.send`."""

    def __init__(self, engine: Engine, entry: Entry, patience: Patience) -> None:
        self._engine = engine
        self._settings = engine.settings
        self._clock = engine.settings.clock
        self._io = engine.io
        self._entry = entry
        self._patience = patience
        self._refresh = False
        self._refreshed = False
        # After a restart nobody remembers how the last attempt failed, only that it is in doubt.
        self._asks = entry.doubt
        self._origin = origin_of(entry.url)
        self._budget = engine.origins.budget(self._origin, self._clock.monotonic())

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
            self._engine.emit("marked", marked)
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
            self._engine.emit("ended", ended, decision=finish.kind)
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
        return replace(
            entry, attempts=entry.attempts + 1, doubt=True, first_attempt_at=first, not_before=None
        )

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
                self._engine.emit("sent", entry)

        timeout = min(
            self._patience.attempt_seconds(self._settings.attempt_timeout), self._key_seconds_left(entry)
        )
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

    def _key_seconds_left(self, entry: Entry) -> float:
        """Returns the time until the key ends, so that a slow attempt does not reach past it."""
        now = self._clock.now()
        first = now if entry.first_attempt_at is None else entry.first_attempt_at
        return max(0, key_ends_at(self._settings.life, first, entry.expires_at) - max(now, first)) / 1000

    async def _record(self, marked: Entry, doubt: bool, result: Union[Answer, Failure]) -> None:
        """Writes down what an answer means. `doubt` stood before the attempt."""
        self._learn(result)
        base = marked
        is_first_try = True
        while True:
            now = self._clock.now()
            decision = decide(base.dialect, result, doubt, self._refreshed, now)  # type: ignore[arg-type]
            if is_first_try:
                self._engine.emit("answered", marked, result, _name(decision))
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
            self._engine.emit("ended", marked, result, _name(decision))
            return
        self._engine.emit("recorded", marked, result, _name(decision))
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
        return replace(
            entry, doubt=True if isinstance(decision, Ask) else decision.doubt, not_before=not_before
        )

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
            body=self._engine.seal(body),
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
            self._engine.origins.learn_status(self._origin)

    def _has_status(self) -> bool:
        if self._settings.status == "never":
            return False
        return self._engine.origins.has_status(self._origin, default=self._settings.status == "always")

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
            self._engine.origins.forget_status(self._origin)
        return False

    async def _reload(self) -> None:
        self._entry = await self._engine.fresh(self._entry)


def _name(decision: Decision) -> str:
    if isinstance(decision, Finish):
        return decision.kind
    return "ask" if isinstance(decision, Ask) else "retry"
