"""A clock that tests set, a transport with answers from a list, and a client with both."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, Mapping, Optional, Union

from firstwrite import Answer, AsyncClient, Client, Event, MemoryStorage, Lost, NotSent, Outgoing, Pending

URL = "https://api.example/payments"

Reply = Union[Answer, Exception, Callable[[Outgoing], Answer]]


class ManualClock:
    """Time that passes when a client waits."""

    def __init__(self, now: int = 1_800_000_000_000) -> None:
        self.day = now
        self.uptime = 1000.0
        self.waits: List[float] = []

    def now(self) -> int:
        return self.day

    def monotonic(self) -> float:
        return self.uptime

    def advance(self, seconds: float) -> None:
        self.day += round(seconds * 1000)
        self.uptime += seconds

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.advance(seconds)

    async def async_sleep(self, seconds: float) -> None:
        self.sleep(seconds)


class ScriptedTransport:
    """Gives its replies in order, and remembers the requests."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.requests: List[Outgoing] = []
        self.timeouts: List[float] = []

    def send(self, request: Outgoing, timeout: float, bytes_max: int, on_sent: Callable[[], None]) -> Answer:
        self.requests.append(request)
        self.timeouts.append(timeout)
        if not self.replies:
            raise AssertionError(f"an unexpected request: {request.method} {request.url}")
        reply = self.replies.pop(0)
        if not isinstance(reply, NotSent):
            on_sent()
        if isinstance(reply, Exception):
            raise reply
        return reply(request) if callable(reply) else reply

    def close(self) -> None:
        pass

    def keys(self) -> List[str]:
        return [dict(request.headers).get("idempotency-key", "") for request in self.requests]


class AsyncScriptedTransport:
    """The same for asyncio."""

    def __init__(self, *replies: Reply) -> None:
        self.inner = ScriptedTransport(*replies)

    async def send(
        self, request: Outgoing, timeout: float, bytes_max: int, on_sent: Callable[[], None]
    ) -> Answer:
        return self.inner.send(request, timeout, bytes_max, on_sent)

    async def aclose(self) -> None:
        pass


class Rig:
    """A client whose outside is all in the test's hands."""

    def __init__(self, *replies: Reply, storage: Any = None, **settings: Any) -> None:
        self.clock = settings.pop("clock", None) or ManualClock()
        self.transport = ScriptedTransport(*replies)
        self.storage = storage if storage is not None else MemoryStorage()
        self.events: List[Event] = []
        # Without luck there is no back-off: most tests are about the waits that a server asks for.
        self.luck: Optional[float] = settings.pop("luck", None)
        settings.setdefault("on_event", self.events.append)
        self.client = Client(
            storage=self.storage,
            transport=self.transport,
            clock=self.clock,
            sleep=self.clock.sleep,
            random=lambda: 0.0 if self.luck is None else self.luck,
            **settings,
        )
        engine = self.client._engine
        drawn = engine.wait_ms
        engine.wait_ms = lambda asked, attempt: asked if self.luck is None else drawn(asked, attempt)  # type: ignore[method-assign]

    def pay(self, name: str = "checkout/cart_42", amount: int = 1200) -> Any:
        return self.client.intent(name, "POST", URL, json={"amount": amount})

    def send_once(self, name: str = "checkout/cart_42") -> Pending:
        """Makes one attempt, which does not end the intent, and leaves the wait before the next to the test."""
        self.luck = 0.9
        try:
            self.pay(name).send(wait_for=0)
        except Pending as pending:
            return pending
        finally:
            self.luck = None
        raise AssertionError("the attempt ended the intent")

    def steps(self) -> List[str]:
        return [event.step for event in self.events]


class AsyncRig:
    """The same for asyncio."""

    def __init__(self, *replies: Reply, storage: Any = None, **settings: Any) -> None:
        self.clock = settings.pop("clock", None) or ManualClock()
        self.transport = AsyncScriptedTransport(*replies)
        self.storage = storage if storage is not None else MemoryStorage()
        self.events: List[Event] = []
        self.client = AsyncClient(
            storage=self.storage,
            transport=self.transport,
            clock=self.clock,
            sleep=self.clock.async_sleep,
            on_event=self.events.append,
            **settings,
        )
        self.client._engine.wait_ms = lambda asked, attempt: asked  # type: ignore[method-assign]


def answer(
    status: int, headers: Optional[Mapping[str, str]] = None, value: object = None, body: bytes = b""
) -> Answer:
    """Returns an answer with a JSON body, or with bytes."""
    lower: Dict[str, str] = {name.lower(): text for name, text in (headers or {}).items()}
    return Answer(status, lower, body if value is None else json.dumps(value).encode())


def problem(
    code: str, status: int, retryable: bool = False, safe_new_key: bool = False, **more: object
) -> Answer:
    """Returns a problem document of a firstwrite server."""
    document = {"code": code, "retryable": retryable, "safe_new_key": safe_new_key, **more}
    return answer(status, {"content-type": "application/problem+json"}, document)


KEPT = {"Idempotency-Expires": "Fri, 15 Jan 2100 08:00:00 GMT"}


def lost() -> Lost:
    return Lost("the connection was reset")


def not_sent() -> NotSent:
    return NotSent("connection refused")
