"""Grants: what a request may do, and on whose behalf.

A publish key, a ticket and the application's decision each become a grant, and every check of access reads only that.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any, Literal
from unicodedata import category

from msgspec import Struct

Right = Literal[
    "read", "publish", "channels", "operate", "revoke", "drain", "backup", "see details", "see details locally"
]
"""Something that a request may be allowed to do.

| right | allows |
|---|---|
| read | polling, and following an event stream |
| publish | publishing |
| channels | creating, renewing and closing channels, deleting their messages |
| operate | listing channels and nodes, showing a channel, deleting the messages of an owner |
| revoke | revoking tokens and tickets |
| drain | taking the server out of rotation, and back |
| backup | reading everything, at once |
| see details | seeing what concerns the server's surroundings, such as the address of its Redis |
| see details locally | the same, if the client's address is this machine's; finding that out takes a system call |

Text, not an enum: the rights of each publication are looked up, and an enum's hash takes ten times as long.
"""

SUBJECT_LIMIT_BYTES = 255
"""Longest subject in UTF-8. OpenID Connect allows as many characters."""

PATTERN_SHOWN = 40
"""Characters of a pattern that an error shows."""


class Scope(Struct, frozen=True):
    """The channels that a right is for: those with these names, and those whose names begin with these prefixes."""

    names: Collection[str] = ()
    prefixes: tuple[str, ...] = ()

    def covers(self, channels: Iterable[str]) -> bool:
        """Whether all these channels are in it."""
        names = self.names
        return channels is names or all(channel in names or channel.startswith(self.prefixes) for channel in channels)


EVERYTHING = Scope(prefixes=("",))
"""All channels; also the scope of rights that are not about channels."""


def scope_of(patterns: list[Any]) -> Scope:
    """The channels with these names. `*` at the end of one stands for all names that begin like this; alone, for all.

    Raises: ValueError, whose text says which of them is none: "has ...".
    """
    names: list[str] = []
    prefixes: list[str] = []
    for pattern in patterns:
        name = pattern.removesuffix("*") if isinstance(pattern, str) else ""
        if pattern != "*" and not (name and is_subject(name) and "*" not in name and "," not in name):
            shown = repr(pattern)[:PATTERN_SHOWN]
            raise ValueError(f"has {shown}; write a channel's name, or how names begin with * behind it: user:*")
        (names if name == pattern else prefixes).append(name)
    return EVERYTHING if "" in prefixes else Scope(frozenset(names), tuple(prefixes))


def is_subject(text: str) -> bool:
    """Whether a subject can be called this: at most 255 bytes of UTF-8, no control characters. Channels are alike."""
    is_short = len(text.encode(errors="replace")) <= SUBJECT_LIMIT_BYTES
    return is_short and not any(category(letter) in ("Cc", "Cs") for letter in text)


class Grant(Struct, frozen=True):
    """What a request may do."""

    rights: dict[Right, Scope] = {}
    """The rights that it has, each with the channels it is for. Not to be changed."""
    subject: str = ""
    """Whom the application named as the user; empty: it named none."""
    key_name: str = ""
    """The name of the publish key that the request was sent with; empty: none."""
    issued_at: float = 0.0
    """When it was decided on, in seconds since the epoch: 0 for a grant that no decision stands behind."""
    valid_until: float = math.inf
    """Seconds since the epoch, exclusive."""
    new_ticket: str = ""
    """A ticket for this grant, for the client to send with its next requests; empty if it has one."""
    token_id: str = ""
    """What the application calls the token (`jti`); empty: it has no name, or there is no token."""
    is_of_token: bool = False
    """Whether a signed token says all this."""
    presence: bytes = b""
    """What other members of a channel are shown of the subject, in JSON; empty: nothing."""
    key_id: str = ""
    """Which key all this stands on: the one that signed the token or sealed the ticket, or the publish key; empty: none
    does."""

    def allows(self, right: Right, channels: Iterable[str]) -> bool:
        """Whether it has this right for all these channels."""
        scope = self.rights.get(right)
        return scope is not None and scope.covers(channels)

    def shows_details(self, *, is_local: bool) -> bool:
        """Whether a client, which may be on this machine, is shown the details of an error that are for operators."""
        return "see details" in self.rights or (is_local and "see details locally" in self.rights)

    @property
    def names(self) -> tuple[str, ...]:
        """What a revocation of it may be called (`Revocation.row_name`): its subject, and its token's own name.

        Without any, it is called by its key, if there is one.
        """
        named = (("sub", self.subject), ("jti", self.token_id))
        return tuple([f"{by}:{name}" for by, name in named if name]) or ((f"key:{self.key_id}",) if self.key_id else ())


NOTHING = Grant()
"""What everybody may do: calls that require no right, and polls of channels that everybody may poll."""


def to_read(
    channels: tuple[str, ...],
    *,
    subject: str,
    issued_at: float,
    valid_until: float,
    new_ticket: str = "",
    key_id: str = "",
) -> Grant:
    """The grant to read exactly these channels."""
    rights: dict[Right, Scope] = {"read": Scope(channels)}
    return Grant(rights, subject, issued_at=issued_at, valid_until=valid_until, new_ticket=new_ticket, key_id=key_id)
