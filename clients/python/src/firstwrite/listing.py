"""What lists show of an intent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from .entry import decode
from .errors import StorageError
from .storage import Item


@dataclass(frozen=True)
class IntentInfo:
    """One line of a list. Names are None where a damaged entry does not tell them."""

    name: Optional[str]
    lane: Optional[str]
    state: str
    """`open`, `sending`, `done`, `refused`, `unknown`, `expired`, or `damaged`."""
    attempts: int = 0
    in_doubt: bool = False
    method: str = ""
    url: str = ""
    opened_at: int = 0
    """Time of opening, in milliseconds since 1970."""
    where: str = ""
    """The file that holds it."""
    problem: Optional[str] = None
    """What is wrong with a damaged entry."""


def describe(item: Item) -> IntentInfo:
    """Returns the line of an entry. A damaged one is listed, not left out."""
    try:
        entry = decode(item.data, item.where, item.name)
    except StorageError as error:
        return IntentInfo(item.name, item.lane, "damaged", where=item.where, problem=str(error))
    return IntentInfo(
        name=entry.name,
        lane=entry.lane,
        state=entry.state,
        attempts=entry.attempts,
        in_doubt=entry.doubt,
        method=entry.method,
        url=entry.url,
        opened_at=entry.opened_at,
        where=item.where,
    )
