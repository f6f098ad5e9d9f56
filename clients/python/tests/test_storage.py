"""The storages: the same behaviour, durable, safe for several processes, honest about what cannot be read."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import sqlite3
import stat
import tempfile
import threading
import unittest
from dataclasses import replace
from typing import Any, Callable, List, Optional
from unittest import mock

from firstwrite import FileStorage, MemoryStorage, SqliteStorage, Storage, StorageDamaged, StorageError
from firstwrite.entry import Entry, decode, encode
from tests.fakes import KEPT, URL, Rig, answer
from tests.test_request import Entries


def entry(name: str, lane: Optional[str] = None, revision: int = 1) -> Entry:
    return replace(Entries.ENTRY, name=name, lane=lane, revision=revision)


def create(storage: Storage, name: str, lane: Optional[str] = None, revision: int = 1) -> bool:
    return storage.create(name, lane, revision, encode(entry(name, lane, revision)))


class Folder(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="firstwrite-storage-")
        self.addCleanup(shutil.rmtree, self.folder)

    def storages(self) -> List[Any]:
        return [
            ("memory", MemoryStorage()),
            ("files", FileStorage(os.path.join(self.folder, "intents"))),
            ("sqlite", SqliteStorage(os.path.join(self.folder, "intents.db"))),
        ]

    def openers(self) -> List[Any]:
        return [
            ("files", lambda: FileStorage(os.path.join(self.folder, "intents"))),
            ("sqlite", lambda: SqliteStorage(os.path.join(self.folder, "intents.db"))),
        ]


class Behaviour(Folder):
    def each(self, check: Callable[[Any], None]) -> None:
        for name, storage in self.storages():
            with self.subTest(name):
                check(storage)
            storage.close()

    def test_what_is_created_is_read(self) -> None:
        def check(storage: Storage) -> None:
            self.assertIsNone(storage.read("a"))
            self.assertTrue(create(storage, "a"))
            item = storage.read("a")
            assert item is not None
            self.assertEqual(item.data, encode(entry("a")))

        self.each(check)

    def test_a_name_is_created_once(self) -> None:
        def check(storage: Storage) -> None:
            self.assertTrue(create(storage, "a", revision=1))
            self.assertFalse(create(storage, "a", revision=2))
            item = storage.read("a")
            assert item is not None
            self.assertEqual(decode(item.data, "").revision, 1)

        self.each(check)

    def test_a_write_compares_the_revision(self) -> None:
        def check(storage: Storage) -> None:
            create(storage, "a", revision=1)
            self.assertFalse(storage.replace("a", 2, 3, encode(entry("a", revision=3))))
            self.assertTrue(storage.replace("a", 1, 2, encode(entry("a", revision=2))))
            self.assertFalse(storage.replace("a", 1, 2, encode(entry("a", revision=2))))
            self.assertFalse(storage.replace("b", 1, 2, encode(entry("b", revision=2))))
            self.assertFalse(storage.delete("a", 1))
            self.assertTrue(storage.delete("a", 2))
            self.assertFalse(storage.delete("a", 2))
            self.assertIsNone(storage.read("a"))

        self.each(check)

    def test_entries_are_listed_in_order(self) -> None:
        names = ["z", "a", "ü/größe", "A", "m" * 500]

        def check(storage: Storage) -> None:
            for name in names:
                create(storage, name)
            storage.replace("a", 1, 2, encode(entry("a", revision=2)))
            listed = [decode(item.data, item.where).name for item in storage.list()]
            self.assertEqual(listed, names)
            storage.delete("z", 1)
            create(storage, "z")
            listed = [decode(item.data, item.where).name for item in storage.list()]
            self.assertEqual(listed, names[1:] + ["z"])

        self.each(check)

    def test_a_lane_is_listed_alone(self) -> None:
        def check(storage: Storage) -> None:
            for name, lane in (("a", "x"), ("b", None), ("c", "y"), ("d", "x")):
                create(storage, name, lane)
            listed = [decode(item.data, item.where).name for item in storage.list("x")]
            self.assertEqual(listed, ["a", "d"])
            self.assertEqual(storage.list("z"), [])

        self.each(check)

    def test_threads_do_not_disturb_each_other(self) -> None:
        def check(storage: Storage) -> None:
            create(storage, "count", revision=0)

            def add() -> None:
                for _ in range(10):
                    while True:
                        item = storage.read("count")
                        assert item is not None
                        revision = decode(item.data, "").revision
                        data = encode(entry("count", revision=revision + 1))
                        if storage.replace("count", revision, revision + 1, data):
                            break

            threads = [threading.Thread(target=add) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            item = storage.read("count")
            assert item is not None
            self.assertEqual(decode(item.data, "").revision, 40)

        self.each(check)


def add_in_process(opener: Callable[[], Storage], times: int) -> None:
    storage = opener()
    for _ in range(times):
        while True:
            item = storage.read("count")
            assert item is not None
            revision = decode(item.data, "").revision
            if storage.replace(
                "count", revision, revision + 1, encode(entry("count", revision=revision + 1))
            ):
                break
    storage.close()


def create_in_process(opener: Callable[[], Storage], results: Any) -> None:
    storage = opener()
    results.put(sum(create(storage, f"intent {number}") for number in range(20)))
    storage.close()


class Processes(Folder):
    def run_in_processes(self, count: int, work: Callable[..., None], *arguments: Any) -> None:
        # A fork, since the work is a closure.
        context = multiprocessing.get_context("fork")
        processes = [context.Process(target=work, args=arguments) for _ in range(count)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(timeout=60)
            if process.is_alive():
                process.kill()
                process.join()
            self.assertEqual(process.exitcode, 0)

    def test_no_write_of_several_processes_is_lost(self) -> None:
        for name, opener in self.openers():
            with self.subTest(name):
                storage = opener()
                create(storage, "count", revision=0)
                storage.close()
                self.run_in_processes(3, add_in_process, opener, 15)
                item = opener().read("count")
                self.assertEqual(decode(item.data, "").revision, 45)

    def test_of_several_processes_one_creates_an_intent(self) -> None:
        for name, opener in self.openers():
            with self.subTest(name):
                results = multiprocessing.get_context("fork").SimpleQueue()
                self.run_in_processes(3, create_in_process, opener, results)
                self.assertEqual(sum(results.get() for _ in range(3)), 20)
                self.assertEqual(len(opener().list()), 20)

    def test_a_child_of_a_fork_opens_the_file_anew(self) -> None:
        for name, opener in self.openers():
            with self.subTest(name):
                storage = opener()
                create(storage, "count", revision=0)
                # The child uses the object of its parent, and the parent goes on.
                self.run_in_processes(2, add_in_process, lambda: storage, 5)
                add_in_process(lambda: storage, 5)
                item = storage.read("count")
                self.assertEqual(decode(item.data, "").revision, 15)

    def test_a_child_of_a_fork_uses_neither_connection_nor_lock_of_its_parent(self) -> None:
        storage = SqliteStorage(os.path.join(self.folder, "intents.db"))
        create(storage, "count", revision=0)
        connection = storage._connection

        def work() -> None:
            add_in_process(lambda: storage, 1)
            storage.read("count")
            assert storage._connection is not connection, "the child uses its parent's connection"

        # Another thread is just writing when the process forks.
        with storage._lock:
            self.run_in_processes(1, work)


class Busy(Folder):
    def test_a_process_that_holds_the_storage_is_an_error_after_a_while(self) -> None:
        for module, opener in (("files", self.openers()[0][1]), ("sqlite", self.openers()[1][1])):
            with self.subTest(module), mock.patch(f"firstwrite.storage.{module}._BUSY_SECONDS", 0.05):
                storage, other = opener(), opener()
                create(storage, "a")
                if module == "files":
                    holding: Any = other._locked()
                    holding.__enter__()
                    self.addCleanup(holding.__exit__, None, None, None)
                else:
                    other._connection.execute("BEGIN IMMEDIATE")
                rig = Rig(storage=storage)
                with self.assertRaisesRegex(StorageError, "lock"):
                    rig.pay()
                self.assertEqual(rig.transport.requests, [])


class Durability(Folder):
    def test_sqlite_syncs_every_commit(self) -> None:
        storage = SqliteStorage(os.path.join(self.folder, "intents.db"))
        storage.read("a")
        assert storage._connection is not None
        self.assertEqual(storage._connection.execute("PRAGMA synchronous").fetchone(), (2,))
        self.assertEqual(storage._connection.execute("PRAGMA journal_mode").fetchone(), ("wal",))

    def test_where_sqlite_has_no_wal_the_journal_is_synced_with_its_folder(self) -> None:
        # A database in memory has no WAL, as one on some network file systems.
        storage = SqliteStorage.__new__(SqliteStorage)
        storage._path = os.path.join(self.folder, "intents.db")
        real = sqlite3.connect
        try:
            sqlite3.connect = lambda *arguments, **named: real(":memory:", isolation_level=None)  # type: ignore[assignment]
            connection = storage._open()
        finally:
            sqlite3.connect = real
        self.assertEqual(connection.execute("PRAGMA synchronous").fetchone(), (3,))

    def test_files_are_synced_before_and_after_the_rename(self) -> None:
        storage = FileStorage(os.path.join(self.folder, "intents"))
        calls: List[str] = []
        real_sync, real_replace = os.fsync, os.replace

        def sync(descriptor: int) -> None:
            calls.append("fsync folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "fsync file")
            real_sync(descriptor)

        def rename(*arguments: Any) -> None:
            calls.append("rename")
            real_replace(*arguments)

        os.fsync, os.replace = sync, rename  # type: ignore[assignment]
        try:
            create(storage, "a")
        finally:
            os.fsync, os.replace = real_sync, real_replace
        self.assertEqual(calls, ["fsync file", "rename", "fsync folder"])

    def test_others_cannot_read_what_is_stored(self) -> None:
        for name, opener in self.openers():
            with self.subTest(name):
                create(opener(), "a")
        found = []
        for folder, _, files in os.walk(self.folder):
            found += [os.path.join(folder, file) for file in files]
        self.assertGreaterEqual(len(found), 3)
        for path in found:
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode) & 0o077, 0, path)

    def test_what_a_crash_left_of_a_write_is_written_over(self) -> None:
        folder = os.path.join(self.folder, "intents")
        storage = FileStorage(folder)
        with open(os.path.join(folder, "writing.tmp"), "wb") as stream:
            stream.write(b"x" * 100_000)
        create(storage, "a")
        self.assertEqual(len(storage.list()), 1)
        self.assertEqual(sorted(os.listdir(folder))[1:], ["lock"])


class Damage(Folder):
    def test_a_damaged_entry_is_named_and_left_as_it_is(self) -> None:
        storage = FileStorage(os.path.join(self.folder, "intents"))
        rig = Rig(storage=storage)
        rig.pay()
        (path,) = [item.where for item in storage.list()]
        with open(path, "r+b") as stream:
            stream.truncate(100)
        for call in (
            rig.pay,
            lambda: rig.client.find("checkout/cart_42"),
            lambda: storage.replace("checkout/cart_42", 1, 2, b""),
            lambda: storage.delete("checkout/cart_42", 1),
        ):
            with self.assertRaisesRegex(StorageDamaged, "checkout/cart_42"):
                call()
        (info,) = rig.client.intents()
        self.assertEqual((info.state, info.where), ("damaged", path))
        self.assertEqual(os.path.getsize(path), 100)

    def test_a_damaged_row_is_named_and_left_as_it_is(self) -> None:
        path = os.path.join(self.folder, "intents.db")
        rig = Rig(storage=SqliteStorage(path))
        rig.pay()
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE firstwrite_intents SET entry = substr(entry, 1, 100)")
        with self.assertRaisesRegex(StorageDamaged, "checkout/cart_42"):
            rig.pay()
        (info,) = rig.client.intents()
        self.assertEqual((info.name, info.state), ("checkout/cart_42", "damaged"))

    def test_a_row_of_another_type_is_damage(self) -> None:
        path = os.path.join(self.folder, "intents.db")
        rig = Rig(storage=SqliteStorage(path))
        rig.pay()
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE firstwrite_intents SET entry = 'text'")
        with self.assertRaisesRegex(StorageDamaged, "damaged"):
            rig.pay()

    def test_an_entry_that_cannot_be_read_does_not_hide_the_others(self) -> None:
        path = os.path.join(self.folder, "intents.db")
        rig = Rig(storage=SqliteStorage(path))
        for name in ("a", "b", "c"):
            rig.pay(name)
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE firstwrite_intents SET entry = 'text' WHERE name = 'b'")
        states = [(info.name, info.state) for info in rig.client.intents()]
        self.assertEqual(states, [("a", "open"), ("b", "damaged"), ("c", "open")])

        rig = Rig(storage=FileStorage(os.path.join(self.folder, "intents")))
        for name in ("a", "b", "c"):
            rig.pay(name)
        (first, second, _) = (item.where for item in rig.storage.list())
        with open(second, "r+b") as stream:
            stream.truncate(100_000_000)
        self.assertEqual([info.state for info in rig.client.intents()], ["open", "damaged", "open"])
        os.unlink(second)
        # As a file that its owner may not read; root may read any.
        os.mkdir(second)
        infos = rig.client.intents()
        self.assertEqual([info.state for info in infos], ["open", "damaged", "open"])
        self.assertEqual((infos[0].where, infos[1].where), (first, second))

    def test_a_file_that_is_no_database_is_left_as_it_is(self) -> None:
        path = os.path.join(self.folder, "intents.db")
        with open(path, "wb") as stream:
            stream.write(b"this is no database, and somebody's only copy of something" * 100)
        before = os.stat(path).st_size
        with self.assertRaisesRegex(StorageDamaged, "not a database"):
            SqliteStorage(path)
        self.assertEqual(os.stat(path).st_size, before)

    def test_a_database_with_torn_pages_is_an_error(self) -> None:
        path = os.path.join(self.folder, "intents.db")
        storage = SqliteStorage(path)
        for number in range(200):
            create(storage, f"intent {number}")
        storage.close()
        with open(path, "r+b") as stream:
            stream.seek(4096)
            stream.write(os.urandom(os.path.getsize(path) - 4096))
        with self.assertRaises(StorageDamaged):
            SqliteStorage(path).list()

    def test_an_intent_with_two_files_is_damage(self) -> None:
        folder = os.path.join(self.folder, "intents")
        storage = FileStorage(folder)
        create(storage, "a")
        (path,) = [item.where for item in storage.list()]
        shutil.copy(path, path.replace("0000000000000001-", "0000000000000009-"))
        with self.assertRaisesRegex(StorageDamaged, "two files"):
            storage.read("a")

    def test_foreign_files_in_the_folder_are_left_alone(self) -> None:
        folder = os.path.join(self.folder, "intents")
        storage = FileStorage(folder)
        for name in ("notes.txt", "x.intent", ".intent"):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as stream:
                stream.write("mine")
        create(storage, "a")
        self.assertEqual(len(storage.list()), 1)

    def test_a_place_that_cannot_be_written_is_an_error_before_anything_is_sent(self) -> None:
        path = os.path.join(self.folder, "file")
        with open(path, "w", encoding="utf-8"):
            pass
        for opener in (
            lambda: FileStorage(os.path.join(path, "x")),
            lambda: SqliteStorage(os.path.join(path, "x")),
        ):
            with self.assertRaises(StorageError):
                opener()


def fill_disk(opener: Callable[[], Storage], at_mark: bool, bytes_max: int) -> None:
    """Opens an intent, or sends it, when no file may grow any more."""
    storage = opener()
    rig = Rig(answer(201, KEPT), storage=storage)
    if at_mark:
        pay = rig.pay("waiting")
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, resource.RLIM_INFINITY))
    try:
        if at_mark:
            pay.send()
        else:
            rig.client.intent("large", "POST", URL, body=b"x" * 200_000)
    except StorageError:
        pass
    else:
        raise AssertionError("a write to a full disk did not fail")
    assert rig.transport.requests == [], "something was sent"
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    expected = ["waiting"] if at_mark else []
    assert [info.name for info in rig.client.intents()] == expected
    # The disk has room again, and the same storage goes on.
    assert rig.pay("waiting").send().kind == "done"


class FullDisk(Processes):
    def test_a_full_disk_is_an_error_and_nothing_is_sent_or_lost(self) -> None:
        for name, opener in self.openers():
            for at_mark in (False, True):
                with self.subTest(name, at_mark=at_mark):
                    shutil.rmtree(self.folder)
                    os.mkdir(self.folder)
                    # A file of entries is small; SQLite's log has more in it.
                    self.run_in_processes(1, fill_disk, opener, at_mark, 100 if name == "files" else 16_000)
