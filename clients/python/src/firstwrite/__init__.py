"""Safe retries for HTTP, the caller's half: one key for one action, through retries, crashes and restarts.

client = firstwrite.Client(storage="payments.db", credentials={"Authorization": "Bearer demo-acme"})
with client.intent("checkout/cart_42", "POST", url, json=order) as pay:
    end = pay.send()
    if end.kind == "done":
        pay.acknowledge()
"""

from __future__ import annotations

from .answer import Answer
from .async_client import AsyncClient, AsyncIntent, AsyncOpening
from .async_io import AsyncCredentials
from .async_queue import AsyncQueue, AsyncQueueHook
from .client import Client, Intent
from .clock import Clock, SystemClock
from .end import End
from .errors import (
    CredentialsError,
    FirstwriteError,
    IntentConflict,
    IntentGone,
    InvalidIntent,
    Lost,
    NotSent,
    Pending,
    SealError,
    StorageDamaged,
    StorageError,
    WrongState,
)
from .event import Event
from .lanes import Lane, QueuedIntent
from .listing import IntentInfo
from .queue import Queue, QueueHook
from .request import CredentialsRequest, Outgoing, Request
from .storage import FileStorage, Item, MemoryStorage, SqliteStorage, Storage
from .sync_io import Credentials
from .transports import AsyncTransport, SocketTransport, StreamTransport, Transport
from .version import VERSION as __version__

__all__ = [
    "Answer",
    "AsyncClient",
    "AsyncCredentials",
    "AsyncIntent",
    "AsyncOpening",
    "AsyncQueue",
    "AsyncQueueHook",
    "AsyncTransport",
    "Client",
    "Clock",
    "Credentials",
    "CredentialsError",
    "CredentialsRequest",
    "End",
    "Event",
    "FileStorage",
    "FirstwriteError",
    "Intent",
    "IntentConflict",
    "IntentGone",
    "IntentInfo",
    "InvalidIntent",
    "Item",
    "Lane",
    "Lost",
    "MemoryStorage",
    "NotSent",
    "Outgoing",
    "Pending",
    "Queue",
    "QueueHook",
    "QueuedIntent",
    "Request",
    "SealError",
    "SocketTransport",
    "SqliteStorage",
    "Storage",
    "StorageDamaged",
    "StorageError",
    "StreamTransport",
    "SystemClock",
    "Transport",
    "WrongState",
    "__version__",
]
