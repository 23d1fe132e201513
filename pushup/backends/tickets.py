"""A ticket: a decision on who may poll what, sealed, which the client carries so that no node has to remember it.

It is `<expires>.<seal>`: when it expires, and a keyed hash of that and of the channels it is for. Every node with the
key can check it, and its size does not depend on the number of channels. Whoever has a ticket can use it, as with a
key; therefore tickets are short-lived (docs/security.md).
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
    """Seals and checks tickets. A ticket is valid only with the key that sealed it."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, channels: Iterable[str], expires: int) -> str:
        """A ticket for exactly these channels; `expires` in whole seconds since the epoch."""
        return f"{expires}.{self._seal(channels, expires)}"

    def expires(self, ticket: str, channels: Iterable[str]) -> int | None:
        """When the ticket expires; None if it was not sealed with this key, or not for exactly these channels."""
        match = _TICKET(ticket)
        if match is None:
            return None
        expires = int(match[1])
        return expires if compare_digest(match[2], self._seal(channels, expires)) else None

    def _seal(self, channels: Iterable[str], expires: int) -> str:
        # Names contain no control characters, so line ends separate them.
        text = "\n".join(("pushup-ticket", str(expires), *sorted(set(channels))))
        return urlsafe_b64encode(digest(self._key, text.encode(), "sha256")[:SEAL_BYTES]).decode()
