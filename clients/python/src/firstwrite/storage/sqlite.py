"""Entries in an SQLite file, in WAL mode with `synchronous=FULL`: every commit is on the disk."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from typing import Any, Callable, List, Optional, Sequence, Tuple, TypeVar, Union

from ..errors import StorageDamaged, StorageError
from .folders import sync_folder
from .model import Item, check_room

_T = TypeVar("_T")

_BUSY_SECONDS = 10.0
"""Time that a write waits for other processes."""

_SCHEMA = (
    """
    CREATE TABLE IF NOT EXISTS firstwrite_intents (
        position INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        lane TEXT,
        revision INTEGER NOT NULL,
        entry BLOB NOT NULL
    )
    """,
    "CREATE INDEX IF NOT EXISTS firstwrite_lanes ON firstwrite_intents (lane, position)",
)


class SqliteStorage:
    """Keeps entries in an SQLite file, which is created if it is not there.

    Threads and processes may share the file. After a `fork` the child opens it anew.
    """

    is_durable = True

    def __init__(self, path: Union[str, "os.PathLike[str]"]) -> None:
        self._path = os.path.abspath(os.fspath(path))
        self._lock = threading.Lock()
        self._connection: Optional[sqlite3.Connection] = None
        self._pid = os.getpid()
        self._abandoned: Optional[sqlite3.Connection] = None
        self._guarded(lambda connection: None)

    def read(self, name: str) -> Optional[Item]:
        rows = self._rows("SELECT name, entry, lane FROM firstwrite_intents WHERE name = ?", (name,))
        return rows[0] if rows else None

    def create(self, name: str, lane: Optional[str], revision: int, data: bytes) -> bool:
        def insert(connection: sqlite3.Connection) -> bool:
            if connection.execute("SELECT 1 FROM firstwrite_intents WHERE name = ?", (name,)).fetchone():
                return False
            check_room(connection.execute("SELECT count(*) FROM firstwrite_intents").fetchone()[0], self._path)
            connection.execute(
                "INSERT INTO firstwrite_intents (name, lane, revision, entry) VALUES (?, ?, ?, ?)",
                (name, lane, revision, data),
            )
            return True

        return self._written(insert)

    def replace(
        self, name: str, old_revision: int, revision: int, data: bytes, to_end: bool = False
    ) -> bool:
        place = "(SELECT max(position) + 1 FROM firstwrite_intents)" if to_end else "position"
        return self._changed(
            f"UPDATE firstwrite_intents SET revision = ?, entry = ?, position = {place}"
            " WHERE name = ? AND revision = ?",
            (revision, data, name, old_revision),
        )

    def delete(self, name: str, revision: int) -> bool:
        return self._changed(
            "DELETE FROM firstwrite_intents WHERE name = ? AND revision = ?", (name, revision)
        )

    def list(self, lane: Optional[str] = None) -> List[Item]:
        select = "SELECT name, entry, lane FROM firstwrite_intents"
        if lane is None:
            return self._rows(f"{select} ORDER BY position", ())
        return self._rows(f"{select} WHERE lane = ? ORDER BY position", (lane,))

    def close(self) -> None:
        """Closes the file. The next call opens it again."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None and self._pid == os.getpid():
                connection.close()

    def _rows(self, sql: str, values: Sequence[Any]) -> List[Item]:
        def select(connection: sqlite3.Connection) -> List[Tuple[Any, Any, Any]]:
            return connection.execute(sql, values).fetchall()

        # A row that holds something else is a damaged entry, which hides no other.
        return [
            Item(
                name if isinstance(name, str) else None,
                self._path,
                data if isinstance(data, bytes) else b"",
                lane if isinstance(lane, str) else None,
            )
            for name, data, lane in self._guarded(select)
        ]

    def _changed(self, sql: str, values: Sequence[Any]) -> bool:
        return self._written(lambda connection: connection.execute(sql, values).rowcount == 1)

    def _written(self, write: Callable[[sqlite3.Connection], bool]) -> bool:
        def change(connection: sqlite3.Connection) -> bool:
            connection.execute("BEGIN IMMEDIATE")
            try:
                changed = write(connection)
                connection.execute("COMMIT")
            except BaseException:
                # Some errors, a full disk among them, roll back by themselves.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return changed

        return self._guarded(change)

    def _guarded(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        if self._pid != os.getpid():
            # The lock and the connection of a parent process must not be used here, nor closed.
            self._abandoned = self._connection
            self._connection, self._lock, self._pid = None, threading.Lock(), os.getpid()
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._open()
                return work(self._connection)
            except sqlite3.Error as error:
                # SQLite's own word for a file that is none, or whose pages are torn; its kinds mean other things.
                if type(error) is sqlite3.DatabaseError:
                    raise StorageDamaged(f"{self._path}: {error}. The file is left as it is") from error
                raise StorageError(f"{self._path}: {error}") from error
            except OSError as error:
                raise StorageError(f"{self._path}: {error.strerror or error}") from error

    def _open(self) -> sqlite3.Connection:
        # Bodies and keys are for this user alone; SQLite gives its other files the same mode.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        # SQLite syncs the folder for files that it makes itself.
        sync_folder(os.path.dirname(self._path))
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            # SQLite does not wait by itself for another process that is just changing the mode.
            until = time.monotonic() + _BUSY_SECONDS
            while True:
                try:
                    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                    break
                except sqlite3.OperationalError as error:
                    if "locked" not in str(error) or time.monotonic() > until:
                        raise
                    time.sleep(0.01)
            # Where there is no WAL, FULL leaves a rollback journal's deletion to luck after a power cut.
            connection.execute(f"PRAGMA synchronous = {'FULL' if mode == 'wal' else 'EXTRA'}")
            for statement in _SCHEMA:
                connection.execute(statement)
        except BaseException:
            connection.close()
            raise
        return connection
