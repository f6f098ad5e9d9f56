"""Requests, names and entries that cannot be used: a clear error, and nothing is written or sent."""

from __future__ import annotations

import unittest
from dataclasses import replace
from typing import Any, Dict

from firstwrite import InvalidIntent, Request, StorageDamaged, StorageError
from firstwrite.entry import Entry, EntryEnd, decode, encode
from firstwrite.request import BODY_BYTES_MAX, NAME_BYTES_MAX, origin_of
from tests.fakes import URL, Rig
from tests.test_send import stored_bytes


class Names(unittest.TestCase):
    def refused(self, name: Any, reason: str) -> None:
        rig = Rig()
        with self.assertRaisesRegex(InvalidIntent, reason):
            rig.client.intent(name, "POST", URL)
        self.assertEqual(rig.client.intents(), [])

    def test_a_name_that_is_too_long_is_refused(self) -> None:
        self.refused("ü" * (NAME_BYTES_MAX // 2 + 1), "the most is 255")

    def test_the_longest_name_is_taken(self) -> None:
        Rig().client.intent("ü" * (NAME_BYTES_MAX // 2), "POST", URL)

    def test_other_names_that_cannot_be_used(self) -> None:
        for name, reason in (
            ("", "not empty"),
            (None, "text"),
            (b"bytes", "text"),
            ("a\nb", "control"),
            ("a\x00b", "control"),
            ("a\ud800b", "surrogate"),
        ):
            with self.subTest(repr(name)):
                self.refused(name, reason)


class Requests(unittest.TestCase):
    def refused(self, reason: str, **request: Any) -> None:
        rig = Rig()
        call: Dict[str, Any] = {"method": "POST", "url": URL, **request}
        with self.assertRaisesRegex(InvalidIntent, reason):
            rig.client.intent("i", **call)
        self.assertEqual(rig.client.intents(), [])

    def test_a_body_that_is_no_json(self) -> None:
        loop: Dict[str, Any] = {}
        loop["self"] = loop
        deep: Any = []
        for _ in range(100_000):
            deep = [deep]
        for what, value, reason in (
            ("an object", object(), "object"),
            ("bytes", {"a": b"b"}, "bytes"),
            ("not a number", float("nan"), "JSON"),
            ("infinite", [float("inf")], "JSON"),
            ("a member without a text for a name", {1: "a"}, "name must be a text"),
            ("a value that holds itself", loop, "holds itself"),
            ("a value that is too deep", deep, "nested too deeply"),
            ("half of a surrogate pair", "\ud800", "surrogate"),
        ):
            with self.subTest(what):
                self.refused(reason, json=value)

    def test_a_body_of_eight_mebibytes_is_taken(self) -> None:
        self.assertEqual(BODY_BYTES_MAX, 8 * 1024 * 1024)
        Rig().client.intent("i", "POST", URL, body=b"x" * BODY_BYTES_MAX)

    def test_a_body_that_is_too_long(self) -> None:
        self.refused("the most is", body=b"x" * (BODY_BYTES_MAX + 1))

    def test_two_bodies(self) -> None:
        self.refused("not both", json={}, body=b"")

    def test_a_body_that_is_neither_bytes_nor_text(self) -> None:
        self.refused("use `json`", body={"a": 1})

    def test_none_is_a_json_value(self) -> None:
        rig = Rig()
        rig.client.intent("i", "POST", URL, json=None)
        self.assertEqual(decode(stored_bytes(rig, "i"), "memory").body, b"null")

    def test_methods_and_urls_that_cannot_be_used(self) -> None:
        for request, reason in (
            ({"method": "PO ST"}, "method"),
            ({"method": "CONNECT"}, "CONNECT"),
            ({"url": "/payments"}, "absolute"),
            ({"url": "ftp://api.example/"}, "absolute"),
            ({"url": "https://api.example/grüße"}, "ASCII"),
            ({"url": "https://api.example/a b"}, "ASCII"),
            ({"url": "https://api.example/\r\nX: 1"}, "ASCII"),
            ({"url": "https://api.example:port/"}, "cannot be read"),
            ({"url": "https://user:secret@api.example/"}, "credentials"),
            ({"url": "https://user@api.example/"}, "credentials"),
            ({"url": "https://api.example/#top"}, "fragment"),
            ({"url": "https://api.example/" + "a" * 9000}, "the most is"),
        ):
            with self.subTest(request):
                self.refused(reason, **request)

    def test_headers_that_cannot_be_used(self) -> None:
        for headers, reason in (
            ({"Authorization": "Bearer secret"}, "`credentials`"),
            ({"Cookie": "a=b"}, "`credentials`"),
            ({"Proxy-Authorization": "a"}, "`credentials`"),
            ({"X-API-Key": "a"}, "`credentials`"),
            ({"Api-Key": "a"}, "`credentials`"),
            ({"Idempotency-Key": "k"}, "the client's own"),
            ({"Content-Length": "1"}, "the client's own"),
            ({"X A": "b"}, "word"),
            ({"X-A": "b\r\nX-B: c"}, "line breaks"),
            ({"X-A": "日"}, "line breaks"),
            ({"X-A": 1}, "text"),
            ({"X-A": "b", "x-a": "c"}, "twice"),
        ):
            with self.subTest(headers):
                self.refused(reason, headers=headers)

    def test_json_is_written_the_same_way_always(self) -> None:
        rig = Rig()
        rig.client.intent("i", "post", URL, json={"b": "ü", "a": [1, 2.5, True, None]})
        entry = decode(stored_bytes(rig, "i"), "memory")
        self.assertEqual(entry.body, '{"a":[1,2.5,true,null],"b":"ü"}'.encode())
        self.assertEqual((entry.method, entry.headers), ("POST", (("content-type", "application/json"),)))

    def test_an_origin_is_scheme_host_and_port(self) -> None:
        for url, origin in (
            ("https://api.example/a?b", "https://api.example:443"),
            ("http://API.example", "http://api.example:80"),
            ("http://[::1]:8080/a", "http://[::1]:8080"),
        ):
            self.assertEqual(origin_of(url), origin)

    def test_an_origin_of_a_request(self) -> None:
        self.assertEqual(Request("POST", URL).origin, "https://api.example:443")


class Entries(unittest.TestCase):
    ENTRY = Entry(
        name="bestellung/größe",
        lane="orders",
        revision=5,
        key="k",
        derived=False,
        dialect="draft-07",
        method="POST",
        url=URL,
        headers=(("content-type", "application/json"),),
        body=b"\x00\xff",
        sealed=False,
        opened_at=1,
        end=EntryEnd("done", False, True, None, 201, {"location": "/p"}, b"{}", False, False),
    )

    def test_an_entry_comes_back_as_it_was(self) -> None:
        for entry in (self.ENTRY, replace(self.ENTRY, lane=None, body=None, end=None, expires_at=7)):
            self.assertEqual(decode(encode(entry), "memory"), entry)

    def test_any_changed_byte_is_damage(self) -> None:
        data = encode(self.ENTRY)
        for place in range(len(data)):
            changed = bytearray(data)
            changed[place] ^= 0x01
            with self.subTest(place), self.assertRaises(StorageError):
                decode(bytes(changed), "memory", "bestellung/größe")

    def test_any_missing_end_is_damage(self) -> None:
        data = encode(self.ENTRY)
        for length in range(len(data)):
            with self.subTest(length), self.assertRaises(StorageDamaged) as caught:
                decode(data[:length], "/data/x.intent", "bestellung/größe")
            self.assertIn("bestellung/größe", str(caught.exception))
            self.assertIn("/data/x.intent", str(caught.exception))

    def test_an_entry_of_another_intent_is_damage(self) -> None:
        with self.assertRaisesRegex(StorageDamaged, "bestellung"):
            decode(encode(self.ENTRY), "memory", "another")

    def test_an_entry_from_before_the_latest_time_was_written_is_read(self) -> None:
        import hashlib
        import json

        document = json.loads(encode(self.ENTRY).partition(b"\n")[2])
        del document["latest_at"]
        text = json.dumps(document).encode()
        head = f"firstwrite-intent 1 {hashlib.sha256(text).hexdigest()}\n".encode()
        self.assertEqual(decode(head + text, "memory"), self.ENTRY)

    def test_an_entry_of_a_later_version_is_named(self) -> None:
        data = encode(self.ENTRY).replace(b"firstwrite-intent 1", b"firstwrite-intent 2", 1)
        with self.assertRaisesRegex(StorageError, "format 2"):
            decode(data, "memory")

    def test_an_entry_with_a_right_checksum_and_wrong_members_is_damage(self) -> None:
        import hashlib
        import json

        document = json.loads(encode(self.ENTRY).partition(b"\n")[2])
        for member, value in (
            ("attempts", "1"),
            ("doubt", 1),
            ("end", {}),
            ("headers", 5),
            ("body", "!"),
            ("key", None),
        ):
            text = json.dumps({**document, member: value}).encode()
            head = f"firstwrite-intent 1 {hashlib.sha256(text).hexdigest()}\n".encode()
            with self.subTest(member), self.assertRaises(StorageDamaged):
                decode(head + text, "memory")
