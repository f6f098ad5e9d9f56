"""Sends one intent until it has an end: marks, attempts, what answers mean, the status resource, waits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Callable, Mapping, Optional, Tuple, Union

from .answer import Answer, Failure
from .entry import Entry
from .errors import Lost, NotSent, Pending
from .life import KEY_LIFE_MARGIN_MS, end_of_life, key_ends_at
from .patience import Patience
from .recording import Received, after_answer, with_end
from .request import CredentialsRequest, Outgoing, Request, origin_of, with_key
from .rules import (
    Ask,
    Decision,
    Dialect,
    Finish,
    Retry,
    StatusAsk,
    StatusRefresh,
    decide,
    decide_status,
    name_of,
    shows_status,
)

if TYPE_CHECKING:
    from .engine import Engine


@dataclass(frozen=True)
class _MarkedAttempt:
    """An attempt whose mark is written down."""

    marked: Entry
    doubt: bool
    """Doubt that stood before the mark."""
    request: Request
    refreshed: bool
    """True if its credentials are fresh ones."""
    credentials: Mapping[str, str] = field(repr=False)


class Sending:
    """One run of `Engine.send`."""

    def __init__(self, engine: Engine, entry: Entry, patience: Patience) -> None:
        self._engine = engine
        self._settings = engine.settings
        self._clock = engine.settings.clock
        self._io = engine.io
        self._entry = entry
        self._patience = patience
        # The next attempt, or the next question, needs fresh credentials: the last one was refused for its own.
        self._refresh = False
        self._refresh_question = False
        # Questions since the last attempt: their back-off grows as that of attempts does.
        self._asked = 0
        # The entry says that the last attempt is in doubt, but not how it failed.
        self._asks = entry.doubt
        self._origin = origin_of(entry.url)
        self._budget = engine.origins.budget(self._origin, self._clock.monotonic())
        self._take(entry)

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
            takes_token = self._entry.attempts > 0
            attempt: Optional[_MarkedAttempt] = None
            try:
                attempt = await self._begin()
            finally:
                # Nothing is sent: other retries may use the token.
                if attempt is None and takes_token:
                    self._budget.give_back()
            if attempt is not None:
                result = await self._attempt(attempt)
                await self._record(attempt, result)

    # Before an attempt

    async def _begin(self) -> Optional["_MarkedAttempt"]:
        """Fetches credentials and marks an attempt. Returns None if the intent is to be looked at again."""
        refreshed = self._refresh
        credentials = await self._fetch_credentials(refreshed)
        # Waiting and fetching took time.
        if await self._has_outlived():
            return None
        before = self._entry
        # A body that cannot be opened is no attempt.
        request = self._engine.request_of(before)
        marked = await self._engine.write(before, self._mark(before))
        if marked is None:
            await self._reload()
            return None
        self._entry = marked
        self._refresh = False
        self._engine.emit("marked", marked)
        return _MarkedAttempt(marked, before.doubt, request, refreshed, credentials)

    async def _has_outlived(self) -> bool:
        """Ends the intent if nothing may be sent any more."""
        entry = self._entry
        finish = end_of_life(self._settings.life, self._clock.now(), entry.times, entry.doubt)
        if finish is None:
            return False
        written = await self._engine.write(entry, with_end(self._engine, entry, finish))
        if written is None:
            await self._reload()
        else:
            self._entry = written
            self._engine.emit("ended", written, decision=finish.kind)
        return True

    async def _has_waited(self) -> bool:
        """Waits for the time before which nothing is sent, if there is one."""
        not_before = self._entry.not_before
        if not_before is None:
            return False
        milliseconds = self._engine.waits.left(self._entry)
        if milliseconds > 0:
            await self._pause(milliseconds / 1000)
            # Another process may have ended it meanwhile.
            await self._reload()
        # A wait is done once, whatever the clocks say after it.
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

    async def _fetch_credentials(self, refresh: bool) -> Mapping[str, str]:
        return await self._io.credentials(CredentialsRequest(self._entry.name, self._entry.url, refresh))

    def _mark(self, entry: Entry) -> Entry:
        attempts = entry.attempts + 1
        marked = replace(
            entry,
            attempts=attempts,
            doubt=True,
            # A server that knows the key in one dialect does not know it in another.
            dialect=entry.dialect if entry.attempts else self._settings.dialect,
            first_attempt_at=self._clock.now() if entry.first_attempt_at is None else entry.first_attempt_at,
            has_status=self._knows_status(),
        )
        # If the process dies now, the next one does not send at once.
        return self._engine.waiting(marked, self._engine.wait_ms(0, attempts))

    # The attempt

    async def _attempt(self, attempt: "_MarkedAttempt") -> Union[Answer, Failure]:
        entry = attempt.marked
        key_header = f'"{entry.key}"' if entry.dialect == "draft-07" else entry.key
        outgoing = with_key(attempt.request, attempt.request.body, key_header, attempt.credentials)
        timeout = min(
            self._patience.attempt_seconds(self._settings.attempt_timeout), self._key_seconds_left(entry)
        )
        if timeout <= 0:
            # Writing the mark down took the rest of the key's life.
            return Failure.NOT_SENT
        is_sent = False

        def on_sent() -> None:
            nonlocal is_sent
            if not is_sent:
                is_sent = True
                self._engine.emit("sent", entry)

        result = await self._exchange(outgoing, timeout, on_sent)
        if result is not Failure.NOT_SENT:
            on_sent()
        return result

    async def _exchange(
        self, outgoing: Outgoing, timeout: float, on_sent: Callable[[], None]
    ) -> Union[Answer, Failure]:
        try:
            return await self._io.send(outgoing, timeout, self._settings.answer_bytes_max, on_sent)
        except NotSent:
            return Failure.NOT_SENT
        except Lost:
            return Failure.LOST

    def _key_seconds_left(self, entry: Entry) -> float:
        """Returns the time until nothing may be sent under the key, so that no attempt reaches past it."""
        ends_at = key_ends_at(self._settings.life, entry.times)
        if ends_at is None:
            return math.inf
        now = max(self._clock.now(), entry.latest_at or 0)
        return (ends_at - KEY_LIFE_MARGIN_MS - now) / 1000

    async def _record(self, attempt: "_MarkedAttempt", result: Union[Answer, Failure]) -> None:
        """Writes down what an answer means."""
        received = Received(result, self._clock.now())
        self._learn(result)
        base, doubt = attempt.marked, attempt.doubt
        decision = _decide(base, doubt, attempt.refreshed, received)
        self._engine.emit("answered", attempt.marked, result, name_of(decision))
        while True:
            after = after_answer(self._engine, attempt.marked, base, decision, received)
            recorded = await self._engine.write(base, replace(after, has_status=self._knows_status()))
            if recorded is not None:
                break
            await self._reload()
            base = self._entry
            if base.end is not None:
                return
            # Another process that began an attempt meanwhile has sent it, or will.
            doubt = doubt or base.attempts != attempt.marked.attempts
            decision = _decide(base, doubt, attempt.refreshed, received)
        self._entry = recorded
        if isinstance(decision, Finish):
            if decision.kind == "done":
                self._budget.give_back()
            self._engine.emit("ended", attempt.marked, result, name_of(decision))
            return
        self._engine.emit("recorded", attempt.marked, result, name_of(decision))
        self._asks = isinstance(decision, Ask)
        self._asked = 0
        self._refresh = isinstance(decision, Retry) and decision.refresh

    # The status resource

    def _learn(self, result: Union[Answer, Failure]) -> None:
        """Notes whether an answer says that this origin has a status resource."""
        if shows_status(result):
            self._engine.origins.learn_status(self._origin)

    def _has_status(self) -> bool:
        if self._settings.status == "never":
            return False
        return self._engine.origins.has_status(self._origin, default=self._settings.status == "always")

    def _knows_status(self) -> bool:
        return self._engine.origins.has_status(self._origin, default=False)

    async def _ask(self) -> bool:
        """Asks the status resource once. Returns true if it is to be asked again."""
        entry = self._entry
        wait, timeout = self._patience.status_seconds(self._settings.attempt_timeout)
        headers: Tuple[Tuple[str, str], ...] = (("accept", "application/json"),)
        query = f"?wait={wait}s" if wait else ""
        request = Request("GET", f"{self._origin}/.firstwrite/operations/{entry.key}{query}", headers)
        refreshed, self._refresh_question = self._refresh_question, False
        outgoing = with_key(request, None, None, await self._fetch_credentials(refreshed))
        result = await self._exchange(outgoing, timeout, lambda: None)
        decision = decide_status(result, refreshed, self._clock.now())
        self._asked += 1
        if isinstance(decision, StatusAsk):
            await self._wait_to_ask(self._engine.wait_ms(decision.wait * 1000, self._asked))
            return True
        if isinstance(decision, StatusRefresh):
            self._refresh_question = True
            return True
        if decision.forget:
            self._engine.origins.forget_status(self._origin)
        return False

    async def _wait_to_ask(self, milliseconds: int) -> None:
        """Writes down how long to wait, so that it holds over a restart. Of two waits the later end stands."""
        while True:
            base = self._entry
            written = await self._engine.write(base, self._engine.waiting(base, milliseconds))
            if written is not None:
                self._entry = written
                return
            await self._reload()
            if self._entry.end is not None or self._engine.waits.left(self._entry) >= milliseconds:
                return

    async def _reload(self) -> None:
        self._take(await self._engine.fresh(self._entry))

    def _take(self, entry: Entry) -> None:
        self._entry = entry
        if entry.has_status:
            # Another process learned it.
            self._engine.origins.learn_status(self._origin)


def _decide(base: Entry, doubt: bool, refreshed: bool, received: Received) -> Decision:
    dialect: Dialect = base.dialect  # type: ignore[assignment]
    return decide(dialect, received.result, doubt, refreshed, received.at)
