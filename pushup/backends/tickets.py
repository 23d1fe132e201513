"""A ticket: a decision on who may poll what, sealed, which the client carries so that no node has to remember it.

It is `<issued_at>.<expires>.<subject>.<seal>`: when the application was asked and when it expires, in whole seconds
since the epoch; whom it named, in base64; and a keyed hash of all that and of the channels it is for. Every node with
the key can check it, and its size does not depend on the number of channels. Whoever has a ticket can use it, as with a
key; therefore tickets are short-lived (docs/guide/authorization.md).
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from hashlib import sha256
from hmac import compare_digest, digest

from pushup.core.grant import Grant, to_read

SEAL_BYTES = 24
"""Of the 32 of HMAC-SHA256: 192 bits, and no padding in base64."""

_TICKET = re.compile(r"(([0-9]{1,12})\.([0-9]{1,12})\.([A-Za-z0-9_=-]{0,340}))\.([A-Za-z0-9_-]{32})").fullmatch
"""340: `SUBJECT_LIMIT_BYTES` in base64. A ticket of an older form, without a subject, is not valid."""


class Tickets:
    """Seals and checks tickets. A ticket is valid only with the key that sealed it."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.key_id = f"ticket {sha256(key).hexdigest()}"
        """What the grants in its tickets name this key."""

    def seal(self, channels: Iterable[str], *, issued_at: int, expires: int, subject: str) -> str:
        """A ticket for exactly these channels; times in whole seconds since the epoch."""
        head = f"{issued_at}.{expires}.{urlsafe_b64encode(subject.encode()).decode()}"
        return f"{head}.{self._seal(channels, head)}"

    def open(self, ticket: str, channels: tuple[str, ...]) -> Grant | None:
        """The grant in a ticket, which may have expired.

        None if it was not sealed with this key, or not for exactly these channels.
        """
        match = _TICKET(ticket)
        if match is None or not compare_digest(match[5], self._seal(channels, match[1])):
            return None
        subject = urlsafe_b64decode(match[4]).decode()
        issued_at, expires = int(match[2]), int(match[3])
        return to_read(channels, subject=subject, issued_at=issued_at, valid_until=expires, key_id=self.key_id)

    def _seal(self, channels: Iterable[str], head: str) -> str:
        # Names contain no control characters, so line ends separate them.
        text = "\n".join(("pushup-ticket", head, *sorted(set(channels))))
        return urlsafe_b64encode(digest(self._key, text.encode(), "sha256")[:SEAL_BYTES]).decode()
