"""A ticket: a verdict on who may poll what, sealed, which the client carries instead of this node.

It is `<expires>.<seal>`: when it is over, and a keyed hash of that and of the channels it is for. So every node that
has the key can tell whether a ticket is good, none has to remember any, and its size does not depend on the channels.
It is good for whoever has it, as a key is; hence it is short-lived (docs/security.md).
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from hmac import compare_digest, digest

SEAL_BYTES = 24
"""Of the 32 of HMAC-SHA256: 192 bits, and no padding in base64."""

_TICKET = re.compile(r"([0-9]{1,12})\.([A-Za-z0-9_-]{32})", re.ASCII).fullmatch


class Tickets:
    """Seals tickets, and tells whether one is good. The same key on every node; another key and none is good."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, channels: Iterable[str], expires: int) -> str:
        """A ticket for exactly these channels; `expires` in whole seconds since the epoch."""
        return f"{expires}.{self._seal(channels, expires)}"

    def expires(self, ticket: str, channels: Iterable[str]) -> int | None:
        """When the ticket is over; None if it is not one of ours, or not for exactly these channels."""
        match = _TICKET(ticket)
        if match is None:
            return None
        expires = int(match[1])
        return expires if compare_digest(match[2], self._seal(channels, expires)) else None

    def _seal(self, channels: Iterable[str], expires: int) -> str:
        # Names have no control characters, so the line ends keep them apart.
        text = "\n".join(("pushup-ticket", str(expires), *sorted(set(channels))))
        return urlsafe_b64encode(digest(self._key, text.encode(), "sha256")[:SEAL_BYTES]).decode()
