"""A transport over `requests`. Install it with `pip install firstwrite[requests]`."""

from __future__ import annotations

import http.client
import socket
import threading
from http.cookiejar import DefaultCookiePolicy
from typing import Any, Dict, List, Optional, Tuple, Union

import requests
import requests.adapters
import urllib3

from ..answer import Answer, joined
from ..errors import Lost, NotSent
from ..request import Outgoing
from .model import OnSent
from .proxies import environment_proxy
from .sockets import reason
from .watchdog import Watchdog

_READ_BYTES = 64 * 1024
_INTERIM_ANSWERS_MAX = 100
_FAILURES = (
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    OSError,
    ValueError,
)


class RequestsTransport:
    """Carries attempts by a `requests.Session`.

    Without a session of yours each attempt has a new connection, and proxies of the environment are used except for
    loopback addresses. A session of yours keeps its settings, save that redirects are not followed; mount a
    `MarkingAdapter` in it, or every failure that `requests` does not name exactly counts as a lost answer.
    """

    def __init__(self, session: Optional[requests.Session] = None, verify: Union[bool, str] = True) -> None:
        self._is_own = session is None
        self._session = _own_session(verify) if session is None else session
        self._lock = threading.Lock()

    def send(self, request: Outgoing, timeout: float, bytes_max: int, on_sent: OnSent) -> Answer:
        with Watchdog(timeout) as watchdog:
            attempt = _Attempt(on_sent, watchdog)
            _current.attempt = attempt
            try:
                response = self._session.send(
                    self._prepared(request), **self._options(request.url), timeout=timeout
                )
                try:
                    return _answer(response, request.method, bytes_max)
                finally:
                    response.close()
            except _FAILURES as error:
                raise self._failure(request.url, attempt, error) from error
            finally:
                _current.attempt = None

    def close(self) -> None:
        """Closes the transport's own session."""
        if self._is_own:
            self._session.close()

    def _prepared(self, request: Outgoing) -> requests.PreparedRequest:
        headers: Dict[str, Union[str, bytes]] = {
            name: value.encode("latin-1") for name, value in request.headers
        }
        headers["accept-encoding"] = "identity"
        if self._is_own:
            headers["connection"] = "close"
        # Without an `auth` of its own, a session puts what `.netrc` says in the place of the header.
        auth = _keep_headers if "authorization" in headers else None
        with self._lock:
            return self._session.prepare_request(
                requests.Request(request.method, request.url, headers=headers, data=request.body, auth=auth)
            )

    def _options(self, url: str) -> Dict[str, Any]:
        if not self._is_own:
            return {
                **self._session.merge_environment_settings(url, {}, True, None, None),
                "allow_redirects": False,
            }
        proxy = environment_proxy(url)
        proxies = {"http": proxy.url, "https": proxy.url} if proxy else {}
        return {"proxies": proxies, "verify": self._session.verify, "stream": True, "allow_redirects": False}

    def _failure(self, url: str, attempt: "_Attempt", error: Exception) -> Union[NotSent, Lost]:
        try:
            adapter = self._session.get_adapter(url)
        except requests.RequestException:
            return NotSent(reason("cannot connect", error))
        exact = isinstance(adapter, MarkingAdapter)
        not_sent = not attempt.has_begun if exact else _is_before_sending(adapter, error)
        return (
            NotSent(reason("cannot connect", error))
            if not_sent
            else Lost(reason("the answer was lost", error))
        )


class _Attempt:
    """What the connections tell of the attempt of this thread."""

    def __init__(self, on_sent: OnSent, watchdog: Watchdog) -> None:
        self.watchdog = watchdog
        self.has_begun = False
        self._on_sent: Optional[OnSent] = on_sent

    def tell_sent(self) -> None:
        """Says that the request was sent, once: urllib3 before version 2 asks for the answer twice."""
        on_sent, self._on_sent = self._on_sent, None
        if on_sent is not None:
            on_sent()


class _Current(threading.local):
    attempt: Optional[_Attempt] = None


_current = _Current()


class _Response(http.client.HTTPResponse):
    """An answer whose head is whole. `http.client` takes a head that breaks off for one that ends."""

    def begin(self) -> None:
        for _ in range(_INTERIM_ANSWERS_MAX):
            if self.headers is not None:
                return
            fp: Any = self.fp
            lines = _LastLine(fp)
            self.fp = lines
            try:
                super().begin()
            finally:
                self.fp = fp
            if not lines.last:
                raise http.client.IncompleteRead(b"")
            if 101 < self.status < 200:
                # `http.client` knows no 1xx but 100; the answer comes after it.
                self.headers = None
        if self.headers is None:
            raise http.client.HTTPException("too many 1xx answers")


class _LastLine:
    """Remembers the last line that was read. It is empty if the connection ended."""

    def __init__(self, fp: Any) -> None:
        self._fp = fp
        self.last = b""

    def readline(self, limit: int = -1) -> bytes:
        self.last = self._fp.readline(limit)
        return self.last

    def close(self) -> None:
        self._fp.close()


class _Marking:
    """What both kinds of connection tell of an attempt."""

    _is_connecting = False
    sock: Any

    def connect(self) -> None:
        self._is_connecting = True
        try:
            super().connect()  # type: ignore[misc]
        finally:
            self._is_connecting = False

    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()
        _begin(self.sock, self._is_connecting)
        super().send(data)  # type: ignore[misc]

    def getresponse(self, *args: Any, **kwargs: Any) -> Any:
        if _current.attempt is not None:
            _current.attempt.tell_sent()
        return super().getresponse(*args, **kwargs)  # type: ignore[misc]


class _HTTPConnection(_Marking, urllib3.connection.HTTPConnection):
    response_class = _Response


class _HTTPSConnection(_Marking, urllib3.connection.HTTPSConnection):
    response_class = _Response


def _begin(connection: Optional[socket.socket], is_connecting: bool) -> None:
    attempt = _current.attempt
    if attempt is None:
        return
    attempt.watchdog.watch(connection if isinstance(connection, socket.socket) else None)
    # What is sent while connecting is a proxy's CONNECT.
    if not is_connecting:
        attempt.has_begun = True


class _HTTPPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _HTTPConnection


class _HTTPSPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _HTTPSConnection


class MarkingAdapter(requests.adapters.HTTPAdapter):
    """An adapter that tells `RequestsTransport` exactly whether a byte of the request was sent.

    It also refuses an answer whose head breaks off, which `requests` by itself takes for a whole one.
    """

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}
        return manager


def _own_session(verify: Union[bool, str]) -> requests.Session:
    session = requests.Session()
    # Neither `.netrc` nor a proxy for loopback; the environment's proxies are chosen for each URL instead.
    session.trust_env = False
    session.verify = verify
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    for scheme in ("http://", "https://"):
        session.mount(scheme, MarkingAdapter(max_retries=0))
    return session


def _keep_headers(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _is_before_sending(adapter: object, error: BaseException) -> bool:
    """Returns true if an adapter that does not mark is clear about a failure."""
    retries = getattr(adapter, "max_retries", None)
    # After a retry, the last failure says nothing of the first try.
    if getattr(retries, "total", None) != 0:
        return False
    cause: Any = error.args[0] if error.args else None
    cause = getattr(cause, "reason", cause)
    return isinstance(cause, (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError))


def _answer(response: requests.Response, method: str, bytes_max: int) -> Answer:
    if response.status_code < 200:
        # Without a `MarkingAdapter`, a 1xx is taken for the answer, and the answer is not read.
        raise Lost("the answer was lost: a 1xx answer came before it, which `requests` cannot read")
    body = bytearray()
    truncated = False
    for data in response.raw.stream(_READ_BYTES, decode_content=False):
        room = bytes_max - len(body)
        body += data[:room]
        if len(data) > room:
            truncated = True
            break
    length = response.headers.get("content-length")
    if not truncated and method != "HEAD" and response.status_code not in (204, 304) and length is not None:
        # urllib3 before version 2 does not compare them.
        if (
            length.isascii()
            and length.isdigit()
            and int(length) > len(body)
            and "transfer-encoding" not in response.headers
        ):
            raise Lost("the answer was lost: the connection ended before it was whole")
    pairs: List[Tuple[str, str]] = list(response.raw.headers.items())
    return Answer(response.status_code, joined(pairs), bytes(body), truncated)
