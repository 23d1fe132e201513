"""The commands of presence: who follows a channel, and who no longer does (decision 39)."""

from __future__ import annotations

from msgspec import Raw, Struct

Key = tuple[str, str]
"""A member: the channel's name and the subject."""

NULL = Raw(b"null")


class Attendance(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A subject follows a channel, with these public data in JSON; `null` changes nothing of them."""

    channel: str
    subject: str
    data: Raw = NULL

    @property
    def key(self) -> Key:
        return self.channel, self.subject


class Here(Struct, frozen=True, tag="here", forbid_unknown_fields=True):
    """These follow by this node. It has a place for a message on each of the channels."""

    node: str
    members: tuple[Attendance, ...]

    @property
    def width(self) -> int:
        return len({member.channel for member in self.members})


class Away(Struct, frozen=True, tag="away", forbid_unknown_fields=True):
    """These members of this node follow no more. After so many seconds they may leave, unless a node says `Here`.

    `is_closed`: their pages said that they close, and members of other nodes are meant as well.
    """

    width = 1
    node: str
    members: tuple[Key, ...]
    seconds: float
    is_closed: bool = False


class Gone(Struct, frozen=True, tag="gone", forbid_unknown_fields=True):
    """The node is gone: as `Away`, for its members, a limited number in one entry."""

    width = 1
    node: str
    seconds: float


class Leave(Struct, frozen=True, tag="leave", forbid_unknown_fields=True):
    """Those of these leave whose time has come. It has a place for a message on each of the channels."""

    members: tuple[Key, ...]

    @property
    def width(self) -> int:
        return len({channel for channel, _ in self.members})


PresenceCommand = Here | Away | Gone | Leave
