"""Who is in the team, and the protocol's times."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Timeout(Enum):
    """The paper's four timeouts (§2). The clock's is first: it goes before the others (§4)."""

    CLOCK = "clock synchronization"
    DECISION = "decision message"
    DECIDER = "decider"
    ELECTION = "decider election"


@dataclass(frozen=True, slots=True)
class Settings:
    """All times in seconds; the paper gives none.

    `decider`: how long a member is decider before it sends its decision. From Table 3: at an interarrival of 10 ms
    there are 5.0 messages a broadcast, one of which is the proposal, so there is a decision every 2.5 ms.
    """

    team: int = 3
    decider: float = 0.0025
    decision: float = 0.5
    election: float = 0.25
    clock: float = 0.5
    join: float = 0.1
    request: float = 0.05
    """Between two requests for what is missing, and before an own update without an ordinal is sent again."""
    late: float = 1.0
    """A datagram that took longer is dropped, as in a timed asynchronous system."""
    settle: float = 0.001
    """The age at which a time-ordered update gets its ordinal: a datagram's time plus what clocks differ."""
    precision: float = 0.02
    """A clock is synchronized while it differs at most this much from those of a majority, error included."""
    termination: float = 2.0
    """After this time at most, a proposer is told the outcome of its update, or that the outcome is unknown."""
    pending_limit: int = 200
    """Own updates of a member that are not stable; beyond that it refuses proposals."""
    entries_limit: int = 1500
    """Ordinals in a decision, so that it fits into a datagram."""
    acknowledge_at_once: bool = True
    """A decider acknowledges the updates that it orders in the same decision, not a rotation later in its next."""

    @property
    def majority(self) -> int:
        return self.team // 2 + 1
