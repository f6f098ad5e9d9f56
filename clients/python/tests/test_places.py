"""Where storages keep entries: folders and files for their owner alone, room, and places that change."""

from __future__ import annotations

import os
import stat
from typing import Any, Callable, List, Tuple
from unittest import mock

from firstwrite import Answer, FileStorage, SqliteStorage, Storage, StorageError
from firstwrite.entry import decode, encode
from firstwrite.request import BODY_BYTES_MAX
from firstwrite.settings import ANSWER_BYTES_MOST
from firstwrite.storage.model import ENTRIES_MAX
from tests.fakes import URL, Rig
from tests.test_storage import Folder, create, entry


def names(storage: Storage) -> List[str]:
    return [decode(item.data, item.where).name for item in storage.list()]


class Folders(Folder):
    def test_every_level_that_is_made_is_synced_with_the_one_above_it(self) -> None:
        calls: List[Tuple[str, str]] = []
        real_mkdir, real_fsync = os.mkdir, os.fsync

        def mkdir(path: str, *arguments: Any) -> None:
            real_mkdir(path, *arguments)
            calls.append(("mkdir", os.path.relpath(path, self.folder)))

        def fsync(descriptor: int) -> None:
            real_fsync(descriptor)
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            calls.append(("fsync", os.path.relpath(path, os.path.realpath(self.folder))))

        with mock.patch("os.mkdir", mkdir), mock.patch("os.fsync", fsync):
            FileStorage(os.path.join(self.folder, "a", "b", "c"))
        self.assertEqual(
            calls,
            [
                ("mkdir", "a"),
                ("fsync", "."),
                ("mkdir", "a/b"),
                ("fsync", "a"),
                ("mkdir", "a/b/c"),
                ("fsync", "a/b"),
            ],
        )

    def test_folders_and_files_are_for_their_owner_alone(self) -> None:
        before = os.umask(0)
        try:
            create(FileStorage(os.path.join(self.folder, "a", "b")), "a")
            create(SqliteStorage(os.path.join(self.folder, "a", "intents.db")), "a")
        finally:
            os.umask(before)
        modes = set()
        for folder, folders, files in os.walk(self.folder):
            for name in folders + files:
                path = os.path.join(folder, name)
                modes.add((os.path.isdir(path), stat.S_IMODE(os.stat(path).st_mode)))
        self.assertEqual(modes, {(True, 0o700), (False, 0o600)})

    def test_a_file_in_the_way_of_a_folder_is_an_error(self) -> None:
        with open(os.path.join(self.folder, "a"), "w", encoding="utf-8"):
            pass
        for path in ("a", "a/b"):
            with self.subTest(path), self.assertRaises(StorageError):
                FileStorage(os.path.join(self.folder, path))

    def test_the_folder_of_an_sqlite_file_is_synced(self) -> None:
        synced: List[str] = []
        real = os.fsync

        def fsync(descriptor: int) -> None:
            synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            real(descriptor)

        with mock.patch("os.fsync", fsync):
            SqliteStorage(os.path.join(self.folder, "intents.db"))
        self.assertEqual(synced, [os.path.realpath(self.folder)])


class Room(Folder):
    def test_a_storage_takes_ten_thousand_intents(self) -> None:
        self.assertEqual(ENTRIES_MAX, 10_000)

    def test_what_has_no_room_is_an_error_and_nothing_is_lost(self) -> None:
        for name, storage in self.storages():
            with self.subTest(name), mock.patch("firstwrite.storage.model.ENTRIES_MAX", 3):
                rig = Rig(storage=storage)
                for number in range(3):
                    rig.pay(f"intent {number}")
                with self.assertRaisesRegex(StorageError, "acknowledge"):
                    rig.pay("one more")
                self.assertEqual(rig.pay("intent 0").state, "open")
                entry = decode(storage.read("intent 2").data, "")
                self.assertTrue(storage.delete("intent 2", entry.revision))
                rig.pay("one more")
                self.assertEqual(names(storage), ["intent 0", "intent 1", "one more"])


class Large(Folder):
    def test_an_entry_that_could_not_be_read_again_is_not_written(self) -> None:
        storage = FileStorage(os.path.join(self.folder, "intents"))
        create(storage, "a")
        with mock.patch("firstwrite.storage.files._ENTRY_BYTES_MAX", 100):
            for write in (
                lambda: create(storage, "b"),
                lambda: storage._write(os.path.basename(storage.list()[0].where), b"x" * 101),
            ):
                with self.assertRaisesRegex(StorageError, "larger"):
                    write()
        self.assertEqual(names(storage), ["a"])

    def test_the_largest_request_and_answer_are_read_again(self) -> None:
        for name, storage in self.storages():
            with self.subTest(name):
                body = b"x" * BODY_BYTES_MAX
                rig = Rig(
                    Answer(201, {}, b"y" * ANSWER_BYTES_MOST), storage=storage, answer_bytes_max=ANSWER_BYTES_MOST
                )
                rig.client.intent("i", "POST", URL, body=body).send()
                found = rig.client.find("i")
                assert found is not None and found.end is not None
                self.assertEqual(found.end.body, b"y" * ANSWER_BYTES_MOST)


class Places(Folder):
    def each(self, check: Callable[[Any], None]) -> None:
        for name, storage in self.storages():
            with self.subTest(name):
                for one in ("a", "b", "c"):
                    create(storage, one, "lane")
                check(storage)
            storage.close()

    def test_an_entry_can_be_moved_behind_all_others(self) -> None:
        def check(storage: Storage) -> None:
            changed = encode(entry("a", "lane", revision=2))
            self.assertFalse(storage.replace("a", 9, 10, changed, True))
            self.assertEqual(names(storage), ["a", "b", "c"])
            self.assertTrue(storage.replace("a", 1, 2, changed, True))
            self.assertEqual(names(storage), ["b", "c", "a"])
            self.assertEqual(len(storage.list("lane")), 3)
            create(storage, "d")
            self.assertEqual(names(storage), ["b", "c", "a", "d"])
            self.assertTrue(storage.replace("d", 1, 2, encode(entry("d", revision=2)), True))
            self.assertEqual(names(storage), ["b", "c", "a", "d"])

        self.each(check)

    def test_a_crash_while_an_entry_is_moved_leaves_the_entry_that_stood(self) -> None:
        folder = os.path.join(self.folder, "intents")
        storage = FileStorage(folder)
        for one in ("a", "b"):
            create(storage, one)

        class Crash(BaseException):
            pass

        with mock.patch("os.replace", side_effect=Crash), self.assertRaises(Crash):
            storage.replace("a", 1, 2, encode(entry("a", revision=2)), True)
        self.assertEqual(names(FileStorage(folder)), ["b", "a"])
        item = storage.read("a")
        assert item is not None
        self.assertEqual(decode(item.data, "").revision, 1)
