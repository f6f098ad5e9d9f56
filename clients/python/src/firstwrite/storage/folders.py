"""Folders: made for their owner alone, and durable with all folders above them."""

from __future__ import annotations

import os
import sys


def make_folder(folder: str) -> None:
    """Makes a folder and those above it that are missing, and syncs each with the one above it."""
    missing = []
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for path in reversed(missing):
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            # Another process was faster, and may not have synced it yet.
            if not os.path.isdir(path):
                raise
        sync_folder(os.path.dirname(path))


def sync_folder(folder: str) -> None:
    """Makes the names in a folder durable."""
    # Windows cannot open a folder; its file systems journal a rename.
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
