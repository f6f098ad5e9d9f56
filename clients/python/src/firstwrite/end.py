"""The end of an intent, as the application sees it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional

from .rules import EndKind


@dataclass(frozen=True)
class End:
    """How an intent ended. It was written down before the application gets it."""

    kind: EndKind
    """`done`, `refused`, `unknown` or `expired`."""
    safe_new_key: bool
    """True if the action can be sent under a new key without being carried out twice."""
    status: Optional[int] = None
    """Status of the answer that ended it; None if time ran out instead."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers of that answer, with names in lower case. Cookies and challenges are not kept."""
    body: Optional[bytes] = field(default=None, repr=False)
    """Body of that answer, None if there was no answer, its body is too long, or the server did not keep it."""
    truncated: bool = False
    """True if the body was longer than the client reads, and is not kept."""
    replayed: bool = False
    """True if the answer is that of an earlier attempt."""
    code: Optional[str] = None
    """Code of the server's problem document, if that is what ended the intent."""

    def json(self) -> Any:
        """Returns the body as a JSON value. Raises `ValueError` if it is none."""
        if self.body is None:
            raise ValueError("the end has no body")
        return json.loads(self.body.decode("utf-8"))
