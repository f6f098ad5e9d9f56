"""Errors of the client. Each says what is wrong and what to do next, and none holds a key or a body."""

from __future__ import annotations

from typing import Optional


class FirstwriteError(Exception):
    """Base class of everything that this package raises by itself."""


class InvalidIntent(FirstwriteError, ValueError):
    """A name, a request or a body cannot be used. Nothing was written down and nothing was sent."""


class IntentConflict(FirstwriteError):
    """The intent was opened before with another request or in another lane. Nothing was sent."""


class IntentGone(FirstwriteError):
    """The intent was acknowledged or superseded elsewhere while this process worked on it."""


class WrongState(FirstwriteError):
    """The intent is not in a state that allows the call, such as `acknowledge` before it has an end."""


class Pending(FirstwriteError):
    """`wait_for` ran out before the intent had an end. The intent stands, and the next `send` goes on with it.

    `retry_in` is the number of seconds before which nothing is sent again, `in_doubt` says whether an attempt
    may have reached the server.
    """

    def __init__(self, intent: str, retry_in: float, attempts: int, in_doubt: bool) -> None:
        self.intent = intent
        self.retry_in = retry_in
        self.attempts = attempts
        self.in_doubt = in_doubt
        super().__init__(
            f"intent {intent!r} has no end yet after {attempts} attempts;"
            f" it is kept, and `send` goes on with it in {retry_in:.1f} s or later"
        )


class StorageError(FirstwriteError):
    """An entry cannot be written or read. What was to be sent after it was not sent."""


class StorageDamaged(StorageError):
    """A stored entry or file cannot be read. It is left where it is."""

    def __init__(self, message: str, intent: Optional[str] = None) -> None:
        self.intent = intent
        super().__init__(message)


class SealError(FirstwriteError):
    """The `seal` or `open` hook failed, or a body is sealed and there is no `open` hook."""


class CredentialsError(FirstwriteError):
    """The `credentials` hook failed or returned headers that cannot be sent. Nothing was sent."""


class NotSent(FirstwriteError):
    """A transport raises this when the attempt failed before the first byte of the request."""


class Lost(FirstwriteError):
    """A transport raises this when the request may have reached the server and no whole answer came."""
