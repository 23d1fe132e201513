"""Grants: what a request may do."""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct

from pushup.net.exchange import Client

Right = Literal["publish", "inspect", "poll", "see details", "see details locally"]
"""Something that a request may be allowed to do.

| right | allows |
|---|---|
| publish | publishing; creating, renewing and closing channels |
| inspect | listing channels and nodes, showing a channel |
| poll | polling, where polls have to be authorized |
| see details | seeing what concerns the server's surroundings, such as the address of its Redis |
| see details locally | the same, if the client's address is this machine's; finding that out takes a system call |

Text, not an enum: the rights of each publication are looked up, and an enum's hash takes ten times as long.
"""


class Grant(Struct, frozen=True):
    """What a request may do."""

    rights: frozenset[Right] = frozenset()
    channels: tuple[str, ...] | None = None
    """The channels that the rights are for; None: all."""
    subject: str = ""
    """Who sent the request, where that is known."""
    valid_until: float = math.inf
    """Seconds since the epoch."""
    new_ticket: str = ""
    """A ticket for this grant, for the client to send with its next requests; empty if it has one."""

    def shows_details_to(self, client: Client) -> bool:
        """Whether the operator's details of an error may be sent to this client."""
        return "see details" in self.rights or ("see details locally" in self.rights and client.is_local)


NOTHING = Grant()
"""What everybody may do: calls that require no right."""
