"""A ticket: a decision on who may poll what, sealed, which the client carries so that no node has to remember it.

It is `<issued_at>.<expires>.<subject>.<seal>`: when the application was asked and when it expires, in whole seconds
since the epoch; whom it named, in base64; and a keyed hash of all that and of the channels it is for. Every node with
the key can check it, and its size does not depend on the number of channels. Whoever has a ticket can use it, as with a
key; therefore tickets are short-lived (docs/guide/authorization.md).

A URL ticket stands for a signed token where a browser can send only a URL (docs/guide/tokens.md). Between subject and
seal it has the token's `jti`, and a hash of the key that signed the token; and it is bound to the origin of the page.
Neither kind is valid as the other.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from hashlib import sha256
from hmac import compare_digest, digest

from pushup.core.grant import Grant, Scope, to_read

SEAL_BYTES = 24
"""Of the 32 of HMAC-SHA256: 192 bits, and no padding in base64."""

_LABEL = "pushup-ticket"
"""What a seal is of, so that no kind of ticket is valid as the other."""

_URL_LABEL = "pushup-url-ticket\n"

_NAME = r"([A-Za-z0-9_=-]{0,340})"
"""340: `SUBJECT_LIMIT_BYTES` in base64. A ticket of an older form, without a subject, is not valid."""

_HEAD = rf"([0-9]{{1,12}})\.([0-9]{{1,12}})\.{_NAME}"

_TICKET = re.compile(rf"({_HEAD})\.([A-Za-z0-9_-]{{32}})").fullmatch

_URL_TICKET = re.compile(rf"({_HEAD}\.{_NAME}\.([A-Za-z0-9_-]{{12}}))\.([A-Za-z0-9_-]{{32}})").fullmatch


class Tickets:
    """Seals and checks tickets. A ticket is valid only with the key that sealed it."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.key_id = f"ticket {sha256(key).hexdigest()}"
        """What the grants in its tickets name this key."""

    def seal(self, channels: Iterable[str], *, issued_at: int, expires: int, subject: str) -> str:
        """A ticket for exactly these channels; times in whole seconds since the epoch."""
        head = f"{issued_at}.{expires}.{urlsafe_b64encode(subject.encode()).decode()}"
        return f"{head}.{self._seal(_LABEL, channels, head)}"

    def open(self, ticket: str, channels: tuple[str, ...]) -> Grant | None:
        """The grant in a ticket, which may have expired.

        None if it was not sealed with this key, or not for exactly these channels.
        """
        match = _TICKET(ticket)
        if match is None or not compare_digest(match[5], self._seal(_LABEL, channels, match[1])):
            return None
        subject = urlsafe_b64decode(match[4]).decode()
        issued_at, expires = int(match[2]), int(match[3])
        return to_read(channels, subject=subject, issued_at=issued_at, valid_until=expires, key_id=self.key_id)

    def seal_for_url(self, channels: Iterable[str], origin: str, token: Grant) -> str:
        """A URL ticket for exactly these channels and the pages of this origin, which stands for a token with an end.

        Times are rounded down: it never lasts longer than the token, nor outlives a revocation of it.
        """
        times = f"{int(token.issued_at)}.{int(token.valid_until)}"
        names = [urlsafe_b64encode(name.encode()).decode() for name in (token.subject, token.token_id)]
        head = ".".join((times, *names, _short(token.key_id)))
        return f"{head}.{self._seal(_URL_LABEL + origin, channels, head)}"

    def open_of_url(self, ticket: str, channels: tuple[str, ...], origin: str) -> Grant | None:
        """The token's grant to read these channels, which may have expired.

        None if the ticket was not sealed with this key, or not for exactly these channels and this origin.
        """
        match = _URL_TICKET(ticket)
        if match is None or not compare_digest(match[7], self._seal(_URL_LABEL + origin, channels, match[1])):
            return None
        subject, token_id = [urlsafe_b64decode(name).decode() for name in (match[4], match[5])]
        return Grant(
            {"read": Scope(channels)},
            subject,
            token_id=token_id,
            issued_at=int(match[2]),
            valid_until=int(match[3]),
            is_of_token=True,
            key_id=f"{self.key_id} {match[6]}",
        )

    def url_key_ends(self, ends: Mapping[str, float]) -> dict[str, float]:
        """Until when URL tickets may be valid, by their `Grant.key_id`. `ends`: the same for the keys of tokens."""
        return {f"{self.key_id} {_short(key_id)}": end for key_id, end in ends.items()}

    def _seal(self, label: str, channels: Iterable[str], head: str) -> str:
        # Names and origins contain no control characters, so line ends separate them.
        text = "\n".join((label, head, *sorted(set(channels))))
        return urlsafe_b64encode(digest(self._key, text.encode(), "sha256")[:SEAL_BYTES]).decode()


def _short(key_id: str) -> str:
    return urlsafe_b64encode(sha256(key_id.encode()).digest()[:9]).decode()
