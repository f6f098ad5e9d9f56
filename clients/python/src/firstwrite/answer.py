"""Answers of a server, and what they say: times, problems, marks of a kept answer.

Nothing here trusts what it reads: a header or a body that makes no sense says nothing.
"""

from __future__ import annotations

import calendar
import json
import math
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Dict, Iterable, Mapping, Optional, Tuple

RETRY_AFTER_SECONDS_MAX = 3600
"""A server that asks for more is asked again after an hour."""

_INTEGER_DIGITS_MAX = 20
_WHITE_SPACE = " \t"
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_IMF_FIXDATE = re.compile(r"([A-Z][a-z]{2}), (\d{2}) ([A-Z][a-z]{2}) (\d{4}) (\d{2}):(\d{2}):(\d{2}) GMT")
_RFC_850 = re.compile(r"([A-Z][a-z]{5,8}), (\d{2})-([A-Z][a-z]{2})-(\d{2}) (\d{2}):(\d{2}):(\d{2}) GMT")
_ASCTIME = re.compile(r"([A-Z][a-z]{2}) ([A-Z][a-z]{2}) ([ \d]\d) (\d{2}):(\d{2}):(\d{2}) (\d{4})")


class Failure(Enum):
    """An attempt without a whole answer."""

    NOT_SENT = "not-sent"
    """Not a byte of the request was sent."""
    LOST = "lost"
    """The request may have reached the server."""


@dataclass(frozen=True)
class Answer:
    """A whole answer. Header names are kept in lower case; values of the same name are joined by a comma."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)
    truncated: bool = False
    """True if the body was longer than the client reads; `body` is its beginning."""
    hidden: bool = False
    """True if the transport may read none of the server's `Idempotency-…` headers, as a browser's in a page that calls
    another origin. Then they may have been there."""

    def __post_init__(self) -> None:
        if any(name != name.lower() for name in self.headers):
            object.__setattr__(self, "headers", joined(self.headers.items()))

    def header(self, name: str) -> Optional[str]:
        """Returns the value of a header without white space around it."""
        value = self.headers.get(name)
        return None if value is None else value.strip(_WHITE_SPACE)

    def says(self, name: str, word: str) -> bool:
        """Returns true if the value of a header is this word, in letters of any case."""
        return (self.header(name) or "").lower() == word

    def json_object(self) -> Optional[Dict[str, Any]]:
        """Returns the body if it is a whole JSON object."""
        if self.truncated or self.header("content-encoding"):
            return None
        try:
            value = json.loads(self.body.decode("utf-8"), parse_int=_integer, parse_constant=_no_json)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    @property
    def kept(self) -> bool:
        """True if the server says that it keeps this answer, so that a retry gets it again."""
        return self._expires is not None or self.replayed

    @property
    def replayed(self) -> bool:
        """True if this is the answer of an earlier attempt."""
        return self.says("idempotent-replayed", "true")

    @property
    def interim(self) -> bool:
        """True if a draft-07 server says that the final answer comes later."""
        if 200 <= self.status < 300 and self.says("idempotency-interim", "true"):
            return True
        applied = (self.header("preference-applied") or "").split(",")
        preferences = {item.split(";")[0].strip(_WHITE_SPACE).lower() for item in applied}
        return self.status == 202 and (self.hidden or "respond-async" in preferences)

    @property
    def is_uncertain(self) -> bool:
        """True if the server passed an answer on while the key stays uncertain: a retry will not get it again."""
        return self.says("idempotency-outcome", "unknown")

    def expires_at(self, received_at: int) -> Optional[int]:
        """Returns the time until which the key is kept, by the client's clock, where the server says so."""
        expires = self._expires
        return None if expires is None else received_at + expires - self.server_time(received_at)

    def server_time(self, received_at: int) -> int:
        """Returns the server's time of this answer, in milliseconds."""
        return server_time(self.header("date"), received_at)

    @property
    def _expires(self) -> Optional[int]:
        return http_date(self.header("idempotency-expires") or "")


@dataclass(frozen=True)
class Problem:
    """A refusal of a firstwrite server, as a problem document with the members that a client needs."""

    code: str
    retryable: bool
    safe_new_key: bool
    first_status: Optional[int]
    retry_after: Optional[float]

    @classmethod
    def of(cls, answer: Answer) -> Optional["Problem"]:
        """Returns the problem in an answer. A kept answer is the API's own, but for the one that stands for it."""
        problem = cls.read(answer)
        is_of_the_api = answer.kept and problem is not None and problem.code != "answer-not-kept"
        return None if is_of_the_api else problem

    @classmethod
    def read(cls, answer: Answer) -> Optional["Problem"]:
        """Returns the problem in the body of an answer, also of a kept one."""
        document = answer.json_object()
        if document is None:
            return None
        code, retryable = document.get("code"), document.get("retryable")
        safe_new_key = document.get("safe_new_key")
        if not isinstance(code, str) or not isinstance(retryable, bool) or not isinstance(safe_new_key, bool):
            return None
        first_status = document.get("first_status")
        return cls(
            code=code,
            retryable=retryable,
            safe_new_key=safe_new_key,
            first_status=_status(first_status),
            retry_after=number(document.get("retry_after")),
        )


def _status(value: object) -> Optional[int]:
    return value if type(value) is int and 100 <= value <= 599 else None


def number(value: object) -> Optional[float]:
    """Returns a JSON value if it is a number that can be waited for."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def retry_after(header: Optional[str], member: Optional[float], now: int) -> Optional[int]:
    """Returns the seconds that a server asks to wait: its header, else the member of its problem; None if neither does.

    `now` is the server's time. Seconds are rounded up, so that no client comes back before the time that was said.
    """
    asked = _retry_after_header(header, now)
    if asked is None:
        asked = member
    return None if asked is None else math.ceil(min(max(asked, 0), RETRY_AFTER_SECONDS_MAX))


def _retry_after_header(header: Optional[str], now: int) -> Optional[float]:
    if header is None:
        return None
    text = header.strip(_WHITE_SPACE)
    if text.isascii() and text.isdigit():
        # A number of any length is read without converting it first.
        seconds = text.lstrip("0") or "0"
        return RETRY_AFTER_SECONDS_MAX if len(seconds) > 6 else int(seconds)
    date = http_date(text)
    return None if date is None else (date - now) / 1000


def server_time(date: Optional[str], received_at: int) -> int:
    """Returns the time of a header `Date`; the client's own where it is none."""
    time = http_date((date or "").strip(_WHITE_SPACE))
    return received_at if time is None else time


def http_date(text: str) -> Optional[int]:
    """Reads an HTTP date, in the form of today or one of the two older ones, as milliseconds."""
    if not text.isascii():
        return None
    match = _IMF_FIXDATE.fullmatch(text)
    if match:
        weekday, day, month, year, hour, minute, second = match.groups()
        return _milliseconds(weekday, (year, month, day), (hour, minute, second))
    match = _RFC_850.fullmatch(text)
    if match:
        weekday, day, month, short_year, hour, minute, second = match.groups()
        if weekday not in _DAYS:
            return None
        year = ("19" if int(short_year) >= 70 else "20") + short_year
        return _milliseconds(weekday[:3], (year, month, day), (hour, minute, second))
    match = _ASCTIME.fullmatch(text)
    if match:
        weekday, month, day, hour, minute, second, year = match.groups()
        return _milliseconds(weekday, (year, month, day), (hour, minute, second))
    return None


def _milliseconds(weekday: str, date: Tuple[str, str, str], time: Tuple[str, str, str]) -> Optional[int]:
    if date[1] not in _MONTHS:
        return None
    year, month, day = int(date[0]), _MONTHS.index(date[1]) + 1, int(date[2])
    hour, minute, second = (int(part) for part in time)
    if not (1970 <= year and 1 <= day <= calendar.monthrange(year, month)[1]):
        return None
    if _DAYS[calendar.weekday(year, month, day)][:3] != weekday:
        return None
    if hour > 23 or minute > 59 or second > 60:
        return None
    # A leap second is written as 60, and counts as the second before it.
    return calendar.timegm((year, month, day, hour, minute, min(second, 59))) * 1000


def _integer(digits: str) -> Any:
    # Converting a number of a million digits takes minutes; nothing here needs one.
    return int(digits) if len(digits) <= _INTEGER_DIGITS_MAX else float(digits[:400])


def _no_json(constant: str) -> None:
    # Python reads these three words as numbers; JSON has none of them.
    raise ValueError(f"{constant} is not JSON")


def joined(pairs: Iterable[Tuple[str, str]]) -> Dict[str, str]:
    """Returns headers by their names in lower case, with values of the same name joined."""
    headers: Dict[str, str] = {}
    for name, value in pairs:
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return headers
