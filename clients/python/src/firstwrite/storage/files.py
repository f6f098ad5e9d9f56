"""Entries as plain files of one folder.

A write is a temporary file, fsync, rename, fsync of the folder, under a lock that the processes share.
A file's name is `POSITION-LANE-NAME.intent`: the position gives the order, the two others are digests.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import time
from contextlib import contextmanager
from typing import Iterator, List, Optional, Union

from ..entry import decode
from ..errors import StorageDamaged, StorageError
from .folders import make_folder, sync_folder
from .model import Item, check_room

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_BUSY_SECONDS = 10.0
"""Time that a write waits for other processes."""

_SUFFIX = ".intent"
_FILE = re.compile(r"[0-9]{16}-(?:0|[0-9a-f]{32})-[0-9a-f]{32}\.intent")
_TEMPORARY = "writing.tmp"
_LOCK = "lock"
_ENTRY_BYTES_MAX = 64 * 1024 * 1024
_READS_MAX = 100


class FileStorage:
    """Keeps each entry in a file of a folder, which is created if it is not there.

    Every call lists the folder, which is quick up to some thousands of entries. Threads and processes may share
    the folder if it is on a disk of their machine.
    """

    is_durable = True

    def __init__(self, folder: Union[str, "os.PathLike[str]"]) -> None:
        self._folder = os.path.abspath(os.fspath(folder))
        with self._errors():
            make_folder(self._folder)

    def read(self, name: str) -> Optional[Item]:
        # An entry that is acknowledged and opened anew meanwhile has another file.
        for _ in range(_READS_MAX):
            file = self._find(name)
            if file is None:
                return None
            data = self._load(file)
            if data is not None:
                return Item(name, self._at(file), data)
        raise StorageError(f"{self._folder}: intent {name!r} changes too fast to be read")

    def create(self, name: str, lane: Optional[str], revision: int, data: bytes) -> bool:
        with self._locked():
            if self._find(name) is not None:
                return False
            check_room(len(self._files()), self._folder)
            self._write(f"{self._next_position()}-{_digest(lane)}-{_digest(name)}{_SUFFIX}", data)
            return True

    def replace(
        self, name: str, old_revision: int, revision: int, data: bytes, to_end: bool = False
    ) -> bool:
        with self._locked():
            file = self._standing(name, old_revision)
            if file is None:
                return False
            if to_end:
                # Moved first: a crash in between leaves one file, with the entry that stood.
                moved = f"{self._next_position()}-{file.partition('-')[2]}"
                os.rename(self._at(file), self._at(moved))
                sync_folder(self._folder)
                file = moved
            self._write(file, data)
            return True

    def delete(self, name: str, revision: int) -> bool:
        with self._locked():
            file = self._standing(name, revision)
            if file is None:
                return False
            os.unlink(self._at(file))
            sync_folder(self._folder)
            return True

    def list(self, lane: Optional[str] = None) -> List[Item]:
        part = None if lane is None else _digest(lane)
        items = []
        for file in self._files():
            if part is None or file.split("-")[1] == part:
                try:
                    data = self._load(file)
                except StorageError:
                    # It is listed as damaged, and hides no other.
                    data = b""
                if data is not None:
                    items.append(Item(None, self._at(file), data))
        return items

    def close(self) -> None:
        """Does nothing: no file is held open between calls."""

    def _next_position(self) -> str:
        files = self._files()
        return f"{int(files[-1].partition('-')[0]) + 1 if files else 1:016d}"

    def _standing(self, name: str, revision: int) -> Optional[str]:
        """Returns the file of an entry if it has this revision."""
        file = self._find(name)
        data = None if file is None else self._load(file)
        if file is None or data is None:
            return None
        return file if decode(data, self._at(file), name).revision == revision else None

    def _find(self, name: str) -> Optional[str]:
        suffix = f"-{_digest(name)}{_SUFFIX}"
        found = [file for file in self._files() if file.endswith(suffix)]
        if len(found) > 1:
            raise StorageDamaged(
                f"{self._folder}: intent {name!r} has two files, {' and '.join(found)}", name
            )
        return found[0] if found else None

    def _files(self) -> List[str]:
        with self._errors():
            return sorted(file for file in os.listdir(self._folder) if _FILE.fullmatch(file))

    def _load(self, file: str) -> Optional[bytes]:
        with self._errors():
            try:
                with open(self._at(file), "rb") as stream:
                    data = stream.read(_ENTRY_BYTES_MAX + 1)
            except FileNotFoundError:
                return None
        if len(data) > _ENTRY_BYTES_MAX:
            raise StorageDamaged(f"{self._at(file)} is larger than any entry")
        return data

    def _write(self, file: str, data: bytes) -> None:
        if len(data) > _ENTRY_BYTES_MAX:
            raise StorageError(f"{self._at(file)}: an entry of {len(data)} bytes is larger than can be read again")
        # One name for all temporary files: the lock is held, and what a crash left is written over.
        temporary = self._at(_TEMPORARY)
        try:
            descriptor = os.open(
                temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o600
            )
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, self._at(file))
        except BaseException:
            try:
                os.unlink(temporary)
            except OSError:
                pass
            raise
        sync_folder(self._folder)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the lock that all threads and processes share."""
        with self._errors():
            descriptor = os.open(self._at(_LOCK), os.O_RDWR | os.O_CREAT, 0o600)
            try:
                _lock(descriptor, self._folder)
                yield
            finally:
                # Closing it also frees the lock.
                os.close(descriptor)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(f"{self._folder}: {error.strerror or error}") from error

    def _at(self, file: str) -> str:
        return os.path.join(self._folder, file)


def _digest(name: Optional[str]) -> str:
    # Names are digests, since file systems do not agree on what a name may hold.
    return "0" if name is None else hashlib.sha256(name.encode("utf-8")).hexdigest()[:32]


def _lock(descriptor: int, folder: str) -> None:
    until = time.monotonic() + _BUSY_SECONDS
    while not _try_lock(descriptor):
        if time.monotonic() > until:
            raise StorageError(f"{folder}: another process has held the lock for {_BUSY_SECONDS:.0f} s")
        time.sleep(0.002)


def _try_lock(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
