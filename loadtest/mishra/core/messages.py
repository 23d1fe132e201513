"""The wire format: what members send each other, in one datagram each.

The paper (§2) names six messages; `Request` is ours. A datagram says who sent it and when, then comes the body.
MessagePack; a body is an array with its kind first.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

Id = tuple[int, int]
"""Of an update: who proposed it, and its sequence there."""

BOOT_BITS = 32
"""A process counts its updates from `boot << BOOT_BITS`, so that ids of before a restart never return."""


class Order(IntEnum):
    """In what order members deliver an update (§2); what each means is in `delivery`."""

    NONE = 0
    TOTAL = 1
    TIME = 2


class Atomicity(IntEnum):
    """What must be known of the updates that an update depends on before it is delivered (§2)."""

    WEAK = 0
    STRONG = 1
    STRICT = 2


class Fate(IntEnum):
    """What becomes of an update that has its place in the order."""

    DELIVERED = 0
    LATE = 1  # a time-ordered update that came after a younger one had its place, or is from the future
    LOST = 2  # nobody in the new group has it, or it depends on such an update


class Update(msgspec.Struct, frozen=True, array_like=True):
    """One update of the service's state. `stamp`: synchronized time of its proposal, rising for each proposer.

    `depends_on`: the proposer had delivered everything up to this ordinal.
    """

    proposer: int
    sequence: int
    order: Order
    atomicity: Atomicity
    stamp: float
    depends_on: int
    data: bytes

    @property
    def id(self) -> Id:
        return self.proposer, self.sequence


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """The place of an update in the order."""

    proposer: int
    sequence: int
    order: Order
    atomicity: Atomicity
    depends_on: int
    fate: Fate

    @property
    def id(self) -> Id:
        return self.proposer, self.sequence


class Place(msgspec.Struct, frozen=True, array_like=True):
    """A member of a group. `boot`: of its process; `joined`: the view in which it came in.

    `held`: the decider knows that this member holds every update up to this ordinal; `following`: the sequence of its
    next update that has no ordinal yet.
    """

    member: int
    boot: int
    joined: int
    held: int
    following: int


class Proposal(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """Disseminates an update (§2)."""

    update: Update


class Decision(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    """Disseminates ordinals (§2): all that are not known to be stable, so that a member may miss some decisions.

    `entries[i]` has the ordinal `base + 1 + i`; everything up to `base` is stable. `mark`: stamp and id of the last
    update in time order.
    """

    view: int
    number: int
    decider: int
    places: tuple[Place, ...]
    base: int
    entries: tuple[Entry, ...]
    mark: tuple[float, int, int]

    @property
    def key(self) -> tuple[int, int]:
        """Of two decisions in one history, the later has the greater."""
        return self.view, self.number

    @property
    def end(self) -> int:
        """The last ordinal."""
        return self.base + len(self.entries)

    @property
    def members(self) -> tuple[int, ...]:
        return tuple(place.member for place in self.places)

    def place(self, member: int) -> Place | None:
        return next((place for place in self.places if place.member == member), None)

    def after(self, member: int) -> int:
        """The member that follows this one in the ring, whether or not this one is in the group."""
        members = self.members
        return next((other for other in members if other > member), members[0])


class NoDecision(msgspec.Struct, frozen=True, array_like=True, tag="n"):
    """Tells of a suspicion (§2): the decision after this one has not come."""

    view: int
    number: int
    suspect: int


class Join(msgspec.Struct, frozen=True, array_like=True, tag="j"):
    """Asks to join the group (§2). `promised`: the highest view that this process has agreed to."""

    boot: int
    promised: int


class Reconfiguration(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """Calls for a new view, or agrees to one; tells what the sender has (§2).

    `alive`: whom the caller expects to answer. `known`: the last decision that the sender applied. `held`: it holds
    everything up to this ordinal; `ids`: and these updates. `trimmed`: it has dropped what is stable up to here.
    """

    view: int
    calling: bool
    alive: tuple[int, ...]
    boot: int
    following: int
    known: Decision | None
    held: int
    trimmed: int
    ids: tuple[Id, ...]


class Request(msgspec.Struct, frozen=True, array_like=True, tag="q"):
    """Asks for updates that have ordinals and did not come. Ours: §2 does not say how losses are repaired."""

    ids: tuple[Id, ...]


class Reading(msgspec.Struct, frozen=True, array_like=True):
    """What the sender of a clock message last had from another: its clock then, and how long that is ago, s."""

    member: int
    at: float
    ago: float


class ClockMessage(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """Lets others read the sender's clock (§2). `at`: that clock; `hardware`: the one it never sets.

    `was_synchronized`: since the sender's process began.
    """

    at: float
    was_synchronized: bool
    hardware: float
    readings: tuple[Reading, ...]


Body = Proposal | Decision | NoDecision | Join | Reconfiguration | Request | ClockMessage


class Datagram(msgspec.Struct, frozen=True, array_like=True):
    """`sent`: synchronized time, s; negative if the sender's clock is not synchronized."""

    sender: int
    sent: float
    body: Body


class BadDatagram(ValueError):
    """Bytes that are no datagram of this protocol."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Datagram)


def encode(datagram: Datagram) -> bytes:
    return _encoder.encode(datagram)


def decode(data: bytes) -> Datagram:
    """Raises: BadDatagram."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadDatagram(str(error)) from None
