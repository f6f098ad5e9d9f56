"""Storages keep entries durably. `SqliteStorage` and `FileStorage` may be shared by several processes."""

from __future__ import annotations

import os
from typing import Union

from .files import FileStorage
from .memory import MemoryStorage
from .model import Item, Storage
from .sqlite import SqliteStorage

__all__ = ["FileStorage", "Item", "MemoryStorage", "SqliteStorage", "Storage", "storage_of"]


def storage_of(storage: Union[Storage, str, "os.PathLike[str]"]) -> Storage:
    """Returns a storage; a path is an SQLite file."""
    if isinstance(storage, (str, os.PathLike)):
        return SqliteStorage(storage)
    return storage
