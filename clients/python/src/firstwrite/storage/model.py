"""The interface of a storage: documents with a revision, which decide nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Optional, Protocol

from ..errors import StorageError


ENTRIES_MAX = 10_000
"""Most entries of a storage. Those that ended wait for the application to acknowledge them."""


@dataclass(frozen=True)
class Item:
    """A stored entry. `name` and `lane` are None where the storage cannot tell them without reading the entry."""

    name: Optional[str]
    where: str
    data: bytes = field(repr=False)
    lane: Optional[str] = None


class Storage(Protocol):
    """Keeps entries by the name of their intent.

    Every write is durable when the call returns, and takes place whole or not at all, whatever other threads
    and processes do. A write that compares a revision changes nothing if another revision stands.
    What cannot be written or read raises `StorageError`.
    """

    @property
    def is_durable(self) -> bool:
        """True if entries outlive the process."""

    def read(self, name: str) -> Optional[Item]:
        """Returns the entry of an intent."""

    def create(self, name: str, lane: Optional[str], revision: int, data: bytes) -> bool:
        """Writes a new entry behind all others. Returns False if the name has one.

        Raises `StorageError` if the storage holds `ENTRIES_MAX` already.
        """

    def replace(
        self, name: str, old_revision: int, revision: int, data: bytes, to_end: bool = False
    ) -> bool:
        """Writes an entry in the place of the one with the old revision, or moves it behind all others."""

    def delete(self, name: str, revision: int) -> bool:
        """Deletes an entry."""

    def list(self, lane: Optional[str] = None) -> List[Item]:
        """Returns all entries, or those of a lane, in the order in which they were created."""

    def close(self) -> None:
        """Frees what the storage holds open."""


def check_room(entries: int, where: str) -> None:
    """Raises an error if a storage has no room for one more entry."""
    if entries >= ENTRIES_MAX:
        raise StorageError(
            f"{where}: {entries} intents are kept here, which is the most; acknowledge those that have ended"
        )
