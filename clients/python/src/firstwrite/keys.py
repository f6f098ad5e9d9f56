"""Keys: 128 bits in 22 characters of base64url, random or derived from the intent's name."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Callable

_KEY_BYTES = 16


def random_key(token_bytes: Callable[[int], bytes]) -> str:
    """Returns a key of 128 random bits."""
    return _text(token_bytes(_KEY_BYTES))


def derived_key(secret: bytes, intent: str) -> str:
    """Returns the first 128 bits of HMAC-SHA-256 of the intent's name under the application's secret."""
    return _text(hmac.new(secret, intent.encode("utf-8"), hashlib.sha256).digest()[:_KEY_BYTES])


def _text(key: bytes) -> str:
    return base64.urlsafe_b64encode(key).decode("ascii").rstrip("=")
