"""Entries in memory: for tests, and for servers without storage that derive their keys."""

from __future__ import annotations

import threading
from typing import Dict, List, NamedTuple, Optional

from .model import Item, check_room


class _Stored(NamedTuple):
    lane: Optional[str]
    revision: int
    data: bytes


class MemoryStorage:
    """Keeps entries in this process. They are gone when it ends, and with them the keys that are not derived."""

    is_durable = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: Dict[str, _Stored] = {}

    def read(self, name: str) -> Optional[Item]:
        with self._lock:
            stored = self._entries.get(name)
        return None if stored is None else Item(name, "memory", stored.data, stored.lane)

    def create(self, name: str, lane: Optional[str], revision: int, data: bytes) -> bool:
        with self._lock:
            if name in self._entries:
                return False
            check_room(len(self._entries), "memory")
            self._entries[name] = _Stored(lane, revision, data)
            return True

    def replace(
        self, name: str, old_revision: int, revision: int, data: bytes, to_end: bool = False
    ) -> bool:
        with self._lock:
            stored = self._entries.get(name)
            if stored is None or stored.revision != old_revision:
                return False
            if to_end:
                del self._entries[name]
            self._entries[name] = _Stored(stored.lane, revision, data)
            return True

    def delete(self, name: str, revision: int) -> bool:
        with self._lock:
            stored = self._entries.get(name)
            if stored is None or stored.revision != revision:
                return False
            del self._entries[name]
            return True

    def list(self, lane: Optional[str] = None) -> List[Item]:
        with self._lock:
            entries = list(self._entries.items())
        return [
            Item(name, "memory", stored.data, stored.lane)
            for name, stored in entries
            if lane in (None, stored.lane)
        ]

    def close(self) -> None:
        """Keeps the entries, so that another client in this process can use them."""
