"""Pays once through a connection that is cut after the request was forwarded.

The official Stripe library sends a request with a key of its own, gets no answer, and sends it again. Between
it and the gateway stands a line that passes every request on and, the first time, hangs up instead of bringing
the answer back.

    pay.py URL      URL: where the library thinks Stripe is
"""

import http.client
import json
import socketserver
import sys
import threading
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler

import stripe

SECRET = "sk_test_firstwrite"
stripe.enable_telemetry = False


def line(target):
    """A line to `target` that loses the first answer to a POST."""
    state = {"lost": 0, "requests": []}

    class Line(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def pass_on(self):
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            there = http.client.HTTPConnection(target.hostname, target.port)
            there.request(self.command, self.path, body, dict(self.headers))
            answer = there.getresponse()
            text = answer.read()
            key = self.headers.get("idempotency-key")
            replayed = answer.headers.get("idempotent-replayed")
            state["requests"].append((self.command, self.path, key, answer.status, replayed))
            if self.command == "POST" and state["lost"] == 0:
                state["lost"] = 1
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                    self.send_header(name, value)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = pass_on

        def log_message(self, *_):
            pass

    class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
        allow_reuse_address = daemon_threads = True

    server = Server(("127.0.0.1", 0), Line)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}", state


def main():
    target = urllib.parse.urlparse(sys.argv[1])
    url, state = line(target)
    client = stripe.StripeClient(SECRET, base_addresses={"api": url}, max_network_retries=3)
    customers = lambda: {one.id for one in client.v1.customers.list({"limit": 100}).data}
    before = customers()
    customer = client.v1.customers.create({"email": "ada@example.com"})
    made = sorted(customers() - before)
    for request in state["requests"]:
        print("  ", *request)
    posts = [request for request in state["requests"] if request[0] == "POST"]
    print(json.dumps({"answered": customer.id, "made": made, "posts": len(posts),
                      "keys": len({request[2] for request in posts})}))
    sys.exit(0 if made == [customer.id] and len(posts) > 1 else 1)


if __name__ == "__main__":
    main()
