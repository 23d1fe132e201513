"""What a member's core asks of its driver."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from loadtest.mishra.core.messages import Update


class Outcome(Enum):
    """What became of an update, as its proposer is told (the paper's termination semantic, §2; the meaning is ours).

    Each update gets one outcome, `termination` seconds after its proposal at the latest.
    """

    STABLE = "every member of the group has it"
    LATE = "refused: a younger update in time order came first, or the clock was set back"
    UNKNOWN = "not known in time, or this process has left the group"


class Send(NamedTuple):
    """Send a datagram to these members."""

    to: tuple[int, ...]
    data: bytes


class Delivered(NamedTuple):
    """The update changes the service's state now."""

    update: Update


class Ended(NamedTuple):
    """An own update has its outcome."""

    sequence: int
    outcome: Outcome


class Joined(NamedTuple):
    """This process is in a group. `anew`: it has forgotten what it knew, and gets the state as of `base`."""

    view: int
    members: tuple[int, ...]
    anew: bool
    base: int


class Left(NamedTuple):
    """This process is in no group."""

    reason: str


Effect = Send | Delivered | Ended | Joined | Left
