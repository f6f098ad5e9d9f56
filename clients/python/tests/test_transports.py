"""Every transport against a server of raw sockets: what was not sent, what was lost, what is an answer."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import unittest
from typing import Any, Callable, Dict, Iterator, List, Optional
from unittest import mock

from firstwrite import Answer, NotSent, Outgoing
from tests.carriers import CARRIERS, Carrier, needs
from tests.servers import Connection, RawServer, Script, closed_port, tls_context

OK = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}"
SHORT = 0.3
"""Time limit of attempts that hang, in seconds."""


def after_request(data: bytes) -> Script:
    """Reads the request, sends bytes and closes."""

    def script(connection: Connection) -> None:
        connection.request()
        connection.send(data)

    return script


def endless(head: bytes, piece: bytes) -> Script:
    """Sends the same bytes until the client goes away."""

    def script(connection: Connection) -> None:
        connection.request()
        connection.send(head)
        while True:
            connection.send(piece)

    return script


def trickle(head: bytes, piece: bytes) -> Script:
    """Sends one piece every now and then, each long before a read's own time limit."""

    def script(connection: Connection) -> None:
        connection.request()
        connection.send(head)
        connection.raw.settimeout(SHORT / 8)
        while True:
            connection.send(piece)
            try:
                if not connection.raw.recv(1):
                    return
            except socket.timeout:
                continue

    return script


def _before_request(act: Callable[[Connection], None]) -> Script:
    return act


def _reset_after_request(connection: Connection) -> None:
    connection.request()
    connection.reset()


def _hang_after_request(connection: Connection) -> None:
    connection.request()
    connection.hang()


def _hang_in(data: bytes) -> Script:
    def script(connection: Connection) -> None:
        connection.request()
        connection.send(data)
        connection.hang()

    return script


class EachTransport(unittest.TestCase):
    def each(self, check: Callable[[Carrier], None], but: str = "") -> None:
        for carrier in CARRIERS:
            with self.subTest(transport=carrier.name):
                if carrier.name != but:
                    check(carrier)


class Extras(unittest.TestCase):
    """Says by name which transports these tests leave out."""

    def test_the_transports_of_httpx_are_tested(self) -> None:
        needs("httpx")

    def test_the_transport_of_requests_is_tested(self) -> None:
        needs("requests")


class NotSentFailures(EachTransport):
    def test_a_refused_connection(self) -> None:
        sent: List[str] = []
        url = f"http://127.0.0.1:{closed_port()}/payments"
        self.each(lambda carrier: self.assertEqual(carrier.send(url, sent=sent), "not-sent"))
        self.assertEqual(sent, [])

    def test_a_name_that_is_not_resolved(self) -> None:
        real = socket.getaddrinfo

        def resolve(host: Any, *arguments: Any, **named: Any) -> Any:
            if host in ("nowhere.example", b"nowhere.example"):
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            return real(host, *arguments, **named)

        with mock.patch("socket.getaddrinfo", resolve):
            self.each(
                lambda carrier: self.assertEqual(carrier.send("http://nowhere.example/payments"), "not-sent")
            )

    def test_a_connection_that_is_not_accepted(self) -> None:
        # The backlog of the listener is full, so that the kernel drops what comes after.
        with socket.socket() as listener, contextlib.ExitStack() as stack:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            for _ in range(4):
                filler = stack.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex(listener.getsockname())
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/payments"
            self.each(lambda carrier: self.assertEqual(carrier.send(url, timeout=SHORT), "not-sent"))

    def tls(self, script: Script, **how: Any) -> None:
        """A script that takes the place of a TLS server."""
        with RawServer(script) as server:
            url = server.url.replace("http:", "https:") + "/payments"
            self.each(lambda carrier: self.assertEqual(carrier.send(url, **how), "not-sent"))
            self.assertEqual(server.accepted, len(CARRIERS))

    def test_a_server_that_does_not_speak_tls(self) -> None:
        self.tls(lambda connection: connection.send(b"220 mail.example ESMTP\r\n" * 10))

    def test_a_server_that_closes_in_the_handshake(self) -> None:
        self.tls(lambda connection: connection.raw.close())

    def test_a_server_that_resets_in_the_handshake(self) -> None:
        def script(connection: Connection) -> None:
            connection.raw.recv(10)
            connection.reset()

        self.tls(script)

    def test_a_server_that_hangs_in_the_handshake(self) -> None:
        self.tls(Connection.hang, timeout=SHORT)

    def test_a_certificate_that_is_not_trusted(self) -> None:
        with RawServer(after_request(OK), tls=True) as server:
            self.each(
                lambda carrier: self.assertEqual(
                    carrier.send(server.url + "/payments", trusts=False), "not-sent"
                )
            )
            self.assertEqual(server.requests, [])

    def test_a_certificate_of_another_host(self) -> None:
        with RawServer(after_request(OK), tls=True) as server:
            url = f"https://127.0.0.2:{server.port}/payments"
            # The server listens on 127.0.0.1 alone; this machine's other loopback address leads there.
            with mock.patch("socket.getaddrinfo", _leads_to("127.0.0.1")):
                self.each(lambda carrier: self.assertEqual(carrier.send(url), "not-sent"))
            self.assertEqual(server.requests, [])


class LostAnswers(EachTransport):
    def lost(self, script: Script, but: str = "", **how: Any) -> None:
        def check(carrier: Carrier) -> None:
            with RawServer(script) as server:
                begun = time.monotonic()
                self.assertEqual(carrier.send(server.url + "/payments", **how), "lost")
                self.assertLess(time.monotonic() - begun, 8)
                self.assertEqual(server.accepted, 1, "a transport tries once")

        self.each(check, but)

    def test_a_server_that_closes_at_once(self) -> None:
        self.lost(lambda connection: connection.raw.close())

    def test_a_server_that_closes_without_an_answer(self) -> None:
        self.lost(after_request(b""))

    def test_a_server_that_resets(self) -> None:
        self.lost(_reset_after_request)

    def test_a_server_that_resets_in_a_long_body(self) -> None:
        def script(connection: Connection) -> None:
            connection.raw.recv(1000)
            connection.reset()

        self.lost(script, body=b"x" * 8_000_000)

    def test_half_an_answer(self) -> None:
        for length in (4, 20, 50, len(OK) - 1):
            with self.subTest(length=length):
                self.lost(after_request(OK[:length]))

    def test_half_a_chunked_answer(self) -> None:
        head = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n"
        for body in (b"", b"5\r\nab", b"2\r\nab\r\n", b"2\r\nab\r\n0\r\n"):
            # http.client ends a chunked body at `0` CRLF, without the empty line of the trailer.
            with self.subTest(body=body):
                self.lost(after_request(head + body), but="requests" if body.endswith(b"0\r\n") else "")

    def test_a_server_that_hangs(self) -> None:
        self.lost(_hang_after_request, timeout=SHORT)

    def test_a_server_that_hangs_in_head_and_body(self) -> None:
        for length in (20, len(OK) - 1):
            with self.subTest(length=length):
                self.lost(_hang_in(OK[:length]), timeout=SHORT)

    def test_a_head_that_trickles(self) -> None:
        self.lost(trickle(b"HTTP/1.1 201 Created\r\nX-A: ", b"a"), timeout=SHORT)

    def test_a_body_that_trickles(self) -> None:
        self.lost(trickle(b"HTTP/1.1 201 Created\r\nContent-Length: 1000\r\n\r\n", b"a"), timeout=SHORT)

    def test_an_endless_header(self) -> None:
        self.lost(endless(b"HTTP/1.1 201 Created\r\nX-A: ", b"a" * 4096))

    def test_endless_headers(self) -> None:
        self.lost(endless(b"HTTP/1.1 201 Created\r\n", b"X-A: a\r\n" * 512))

    def test_endless_interim_answers(self) -> None:
        self.lost(endless(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 64), timeout=SHORT)

    def test_what_is_no_answer(self) -> None:
        for data in (
            b"220 mail.example ESMTP\r\n\r\n",
            b"\x00" * 100,
            b"HTTP/1.1 abc\r\n\r\n",
            b"\r\n\r\n\r\n",
        ):
            with self.subTest(data=data):
                self.lost(after_request(data))


class Answers(EachTransport):
    def answered(self, script: Script, check: Callable[[Answer], None], but: str = "", **how: Any) -> None:
        def run(carrier: Carrier) -> None:
            with RawServer(script) as server:
                answer = carrier.send(server.url + "/payments", **how)
                self.assertIsInstance(answer, Answer)
                assert isinstance(answer, Answer)
                check(answer)
                self.assertEqual(server.accepted, 1)

        self.each(run, but)

    def body_is(self, body: bytes) -> Callable[[Answer], None]:
        return lambda answer: self.assertEqual(
            (answer.status, answer.body, answer.truncated), (201, body, False)
        )

    def test_an_answer_with_a_length(self) -> None:
        self.answered(after_request(OK), self.body_is(b"{}"))

    def test_an_answer_over_tls(self) -> None:
        def check(carrier: Carrier) -> None:
            with RawServer(after_request(OK), tls=True) as server:
                answer = carrier.send(server.url + "/payments")
                assert isinstance(answer, Answer), answer
                self.assertEqual(answer.body, b"{}")

        self.each(check)

    def test_the_request_arrives_whole(self) -> None:
        def check(carrier: Carrier) -> None:
            with RawServer(after_request(OK)) as server:
                carrier.send(server.url + "/payments?a=b", body=b'{"amount":1}')
                head, _, body = server.requests[0].partition(b"\r\n\r\n")
                lines = head.lower().split(b"\r\n")
                self.assertEqual(lines[0], b"post /payments?a=b http/1.1")
                for line in (
                    b'idempotency-key: "k"',
                    b"content-type: application/json",
                    b"accept-encoding: identity",
                    f"host: 127.0.0.1:{server.port}".encode(),
                ):
                    self.assertEqual(lines.count(line), 1, line)
                self.assertEqual(body, b'{"amount":1}')

        self.each(check)

    def test_the_step_sent_comes_before_the_answer_and_once(self) -> None:
        def check(carrier: Carrier) -> None:
            steps: List[str] = []

            def script(connection: Connection) -> None:
                connection.request()
                # The whole request is here, so the client has sent it, but may not have said so yet.
                connection.send(OK)

            with RawServer(script) as server:
                carrier.send(server.url + "/payments", sent=steps)
            self.assertEqual(steps, ["sent"])

        self.each(check)

    def test_an_answer_without_a_body(self) -> None:
        for head in (b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 201\r\nContent-Length: 0\r\n\r\n"):
            with self.subTest(head=head):
                self.answered(after_request(head), lambda answer: self.assertEqual(answer.body, b""))

    def test_a_chunked_answer(self) -> None:
        data = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1;x=y\r\n}\r\n0\r\nX-T: a\r\n\r\n"
        self.answered(after_request(data), self.body_is(b"{}"))

    def test_an_answer_that_ends_with_the_connection(self) -> None:
        self.answered(after_request(b"HTTP/1.1 201 Created\r\n\r\n{}"), self.body_is(b"{}"))

    def test_interim_answers_before_the_answer(self) -> None:
        self.answered(after_request(b"HTTP/1.1 100 Continue\r\n\r\n" + OK), self.body_is(b"{}"))
        early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
        self.answered(after_request(early + early + OK), self.body_is(b"{}"))

    def test_an_endless_body_is_read_up_to_the_limit(self) -> None:
        def check(answer: Answer) -> None:
            self.assertEqual((answer.status, answer.body, answer.truncated), (201, b"a" * 1000, True))

        for head, piece in (
            (b"HTTP/1.1 201 Created\r\n\r\n", b"a" * 4096),
            (b"HTTP/1.1 201 Created\r\nContent-Length: 1000000000\r\n\r\n", b"a" * 4096),
            (b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n", b"8\r\naaaaaaaa\r\n" * 100),
        ):
            with self.subTest(head=head):
                self.answered(endless(head, piece), check, bytes_max=1000)

    def test_a_body_of_just_the_limit_is_whole(self) -> None:
        for head in (b"Content-Length: 1000\r\n", b""):
            data = b"HTTP/1.1 201 Created\r\n" + head + b"\r\n" + b"a" * 1000
            self.answered(after_request(data), self.body_is(b"a" * 1000), bytes_max=1000)

    def test_a_compressed_body_is_not_unpacked(self) -> None:
        packed = b"\x1f\x8b\x08\x00not really"
        data = (
            b"HTTP/1.1 201 Created\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
            + packed
        )
        self.answered(after_request(data), self.body_is(packed))

    def test_bytes_that_are_no_utf_8(self) -> None:
        data = b"HTTP/1.1 201 Cr\xe9\xe9\r\nX-Name: gr\xfc\xdfe\r\nContent-Length: 3\r\n\r\n\xff\xfe{"

        def check(answer: Answer) -> None:
            self.assertEqual((answer.status, answer.body), (201, b"\xff\xfe{"))
            self.assertIsNone(answer.json_object())
            self.assertIn("x-name", answer.headers)

        self.answered(after_request(data), check)

    def test_headers_of_one_name_are_joined(self) -> None:
        data = b"HTTP/1.1 201 Created\r\nPreference-Applied: a\r\npreference-applied: b\r\nContent-Length: 0\r\n\r\n"
        self.answered(
            after_request(data), lambda answer: self.assertEqual(answer.header("preference-applied"), "a, b")
        )

    def test_a_redirect_is_an_answer(self) -> None:
        for status in (301, 302, 303, 307, 308):
            with RawServer(after_request(OK)) as target:
                head = f"HTTP/1.1 {status} Moved\r\nLocation: {target.url}/\r\nContent-Length: 0\r\n\r\n"
                self.answered(
                    after_request(head.encode()), lambda answer: self.assertEqual(answer.status, status)
                )
                self.assertEqual(target.accepted, 0)

    def test_an_answer_before_the_body_is_read(self) -> None:
        def script(connection: Connection) -> None:
            connection.raw.recv(100)
            connection.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            connection.raw.shutdown(socket.SHUT_WR)
            connection.hang()

        self.answered(script, lambda answer: self.assertEqual(answer.status, 413), body=b"x" * 3_000_000)

    def test_cookies_of_a_server_are_not_sent_back(self) -> None:
        data = b"HTTP/1.1 201 Created\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n"
        with RawServer(after_request(data)) as server:
            for name, make in (("httpx", _httpx_twice), ("requests", _requests_twice)):
                with self.subTest(name):
                    needs(name)
                    make(server.url)
            self.assertEqual(
                [b"cookie:" in request.lower() for request in server.requests], [False] * len(server.requests)
            )


def _twice(transport: Any, url: str) -> None:
    from firstwrite import Outgoing

    for _ in range(2):
        transport.send(Outgoing("POST", url + "/", (), b""), 5, 1000, lambda: None)
    transport.close()


def _httpx_twice(url: str) -> None:
    from firstwrite.transports.httpx import HttpxTransport

    _twice(HttpxTransport(), url)


def _requests_twice(url: str) -> None:
    from firstwrite.transports.requests import RequestsTransport

    _twice(RequestsTransport(), url)


def _leads_to(address: str) -> Callable[..., Any]:
    """Returns a resolver by which all names lead to one address."""
    real = socket.getaddrinfo

    def resolve(host: Any, port: Any, *arguments: Any, **named: Any) -> Any:
        return real(address, port, *arguments, **named)

    return resolve


@contextlib.contextmanager
def environment(**variables: Optional[str]) -> Iterator[None]:
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
    clean: Dict[str, str] = {name: value for name, value in os.environ.items() if name.upper() not in names}
    clean.update({name: value for name, value in variables.items() if value is not None})
    with mock.patch.dict(os.environ, clean, clear=True):
        yield


class Proxies(EachTransport):
    def test_loopback_goes_through_no_proxy(self) -> None:
        for host in ("127.0.0.1", "localhost"):
            with RawServer(after_request(OK)) as server, RawServer(after_request(b"")) as proxy:
                with environment(http_proxy=proxy.url, HTTP_PROXY=proxy.url, ALL_PROXY=proxy.url):
                    url = f"http://{host}:{server.port}/payments"
                    self.each(lambda carrier: self.assertIsInstance(carrier.send(url), Answer))
                self.assertEqual(proxy.accepted, 0)

    def test_others_go_through_the_proxy_of_the_environment(self) -> None:
        with RawServer(after_request(OK)) as proxy:
            address = proxy.url.replace("http://", "http://user:pa%3Ass@")
            with environment(http_proxy=address):
                self.each(
                    lambda carrier: self.assertIsInstance(carrier.send("http://api.example/payments"), Answer)
                )
            self.assertEqual(len(proxy.requests), len(CARRIERS))
            for request in proxy.requests:
                self.assertTrue(request.startswith(b"POST http://api.example/payments HTTP/1.1\r\n"), request)
                self.assertIn(b"proxy-authorization: basic dxnlcjpwytpzcw==", request.lower())

    def test_no_proxy_is_respected(self) -> None:
        with RawServer(after_request(OK)) as server, RawServer(after_request(b"")) as proxy:
            with environment(http_proxy=proxy.url, no_proxy="api.example"):
                with mock.patch("socket.getaddrinfo", _leads_to("127.0.0.1")):
                    url = f"http://api.example:{server.port}/payments"
                    self.each(lambda carrier: self.assertIsInstance(carrier.send(url), Answer))
            self.assertEqual(proxy.accepted, 0)

    def tunnel(self, connection: Connection) -> None:
        """A proxy that is also the server behind the tunnel."""
        connection.request()
        connection.send(b"HTTP/1.1 200 OK\r\n\r\n")
        raw = tls_context().wrap_socket(connection.raw, server_side=True)
        with raw:
            Connection(raw, connection.server).request()
            raw.sendall(OK)

    def test_tls_goes_through_a_tunnel(self) -> None:
        with RawServer(self.tunnel) as proxy:
            with environment(https_proxy=proxy.url):
                self.each(
                    lambda carrier: self.assertIsInstance(
                        carrier.send("https://api.example/payments"), Answer
                    )
                )
            self.assertEqual(len(proxy.requests), 2 * len(CARRIERS))
            for number, request in enumerate(proxy.requests):
                if number % 2 == 0:
                    self.assertTrue(request.startswith(b"CONNECT api.example:443 HTTP/1."), request)
                    self.assertNotIn(b"idempotency-key", request.lower())

    def test_a_tunnel_that_is_not_opened_was_not_used(self) -> None:
        for script in (
            after_request(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"),
            after_request(b"HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n"),
            after_request(b""),
            after_request(b"HTTP/1.1 200 OK\r\n\r\n"),
            _reset_after_request,
        ):
            with RawServer(script) as proxy, environment(https_proxy=proxy.url):
                self.each(
                    lambda carrier: self.assertEqual(carrier.send("https://api.example/payments"), "not-sent")
                )

    def test_a_proxy_that_refuses_was_not_used(self) -> None:
        with environment(http_proxy=f"http://127.0.0.1:{closed_port()}"):
            self.each(
                lambda carrier: self.assertEqual(carrier.send("http://api.example/payments"), "not-sent")
            )

    def test_a_proxy_of_another_kind_is_not_used_silently(self) -> None:
        with environment(ALL_PROXY="socks5://127.0.0.1:1080"):
            self.each(
                lambda carrier: self.assertEqual(carrier.send("http://api.example/payments"), "not-sent")
            )


class GivenClients(EachTransport):
    """Clients of the application in the place of the transports' own."""

    def send(self, transport: Any, url: str) -> str:
        from firstwrite import Lost

        try:
            answer = transport.send(Outgoing("POST", url, (), b""), 5, 1000, lambda: None)
        except NotSent:
            return "not-sent"
        except Lost:
            return "lost"
        return str(answer.status)

    def test_an_httpx_client_that_reuses_a_dead_connection_has_lost_the_answer(self) -> None:
        needs("httpx")
        import httpx

        from firstwrite.transports.httpx import HttpxTransport

        def once(connection: Connection) -> None:
            connection.request()
            connection.send(OK)
            connection.request()

        with RawServer(once) as server, httpx.Client() as client:
            transport = HttpxTransport(client)
            self.assertEqual(self.send(transport, server.url + "/"), "201")
            self.assertEqual(self.send(transport, server.url + "/"), "lost")
            self.assertEqual(self.send(transport, f"http://127.0.0.1:{closed_port()}/"), "not-sent")
            self.assertEqual(server.accepted, 1)

    def test_an_httpx_transport_without_a_trace_is_believed_where_it_is_clear(self) -> None:
        needs("httpx")
        import httpx

        from firstwrite.transports.httpx import HttpxTransport

        for error, expected in (
            (httpx.ConnectError("refused"), "not-sent"),
            (httpx.ConnectTimeout("slow"), "not-sent"),
            (httpx.ReadError("reset"), "lost"),
            (httpx.WriteError("reset"), "lost"),
            (httpx.RemoteProtocolError("half"), "lost"),
        ):

            def handle(request: httpx.Request, error: Exception = error) -> httpx.Response:
                raise error

            with self.subTest(repr(error)), httpx.Client(transport=httpx.MockTransport(handle)) as client:
                self.assertEqual(self.send(HttpxTransport(client), "http://api.example/"), expected)

    def test_an_httpx_client_that_waited_for_a_connection_too_long_sends_nothing(self) -> None:
        needs("httpx")
        import httpx

        from firstwrite.transports.httpx import HttpxTransport

        begun: List[str] = []
        pause = threading.Event()

        def handle(request: httpx.Request) -> httpx.Response:
            # As a pool whose only connection is free when the time of the attempt is over.
            trace = request.extensions["trace"]
            for _ in range(2000):
                if trace.__self__.watchdog.is_over:
                    break
                pause.wait(0.005)
            trace("http11.send_request_headers.started", {"request": httpx.Request("POST", request.url)})
            begun.append("sent")
            return httpx.Response(201)

        with httpx.Client(transport=httpx.MockTransport(handle)) as client:
            transport = HttpxTransport(client)
            outgoing = Outgoing("POST", "http://api.example/", (), b"")
            with self.assertRaises(NotSent):
                transport.send(outgoing, 0.05, 1000, lambda: None)
        self.assertEqual(begun, [])

    def test_an_httpx_client_that_follows_redirects_does_not(self) -> None:
        needs("httpx")
        import httpx

        from firstwrite.transports.httpx import HttpxTransport

        with RawServer(
            after_request(b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n")
        ) as server:
            with httpx.Client(follow_redirects=True) as client:
                self.assertEqual(self.send(HttpxTransport(client), server.url + "/"), "302")

    def test_a_requests_session_without_marks_is_believed_where_it_is_clear(self) -> None:
        needs("requests")
        import requests

        from firstwrite.transports.requests import RequestsTransport

        transport = RequestsTransport(requests.Session())
        self.assertEqual(self.send(transport, f"http://127.0.0.1:{closed_port()}/"), "not-sent")
        # An answer that breaks off in its head is taken for a whole one here: this is why there are marks.
        for script in (after_request(b""), after_request(OK[:-1]), _reset_after_request):
            with RawServer(script) as server:
                self.assertEqual(self.send(transport, server.url + "/"), "lost")
        with RawServer(after_request(OK)) as server:
            self.assertEqual(self.send(transport, server.url + "/"), "201")

    def test_a_requests_session_that_retries_by_itself_is_not_believed(self) -> None:
        needs("requests")
        import requests

        from firstwrite.transports.requests import RequestsTransport

        session = requests.Session()
        session.mount("http://", requests.adapters.HTTPAdapter(max_retries=1))
        url = f"http://127.0.0.1:{closed_port()}/"
        self.assertEqual(self.send(RequestsTransport(session), url), "lost")

    def test_a_requests_session_with_marks_is_exact(self) -> None:
        needs("requests")
        import requests

        from firstwrite.transports.requests import MarkingAdapter, RequestsTransport

        session = requests.Session()
        session.mount("https://", MarkingAdapter())
        with RawServer(lambda connection: connection.raw.close()) as server:
            url = server.url.replace("http:", "https:")
            self.assertEqual(self.send(RequestsTransport(session), url + "/"), "not-sent")


if __name__ == "__main__":
    unittest.main()
