"""Commands, entries and outcomes: what the replicated state is to do, in which order, and with what result.

A command becomes an entry when the broadcast gives it its place in the order. Every node applies the same entries in
the same order, so every node arrives at the same state and the same outcomes (PushUp §3.4).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal

from msgspec import Raw, Struct, json
from msgspec.structs import force_setattr

from pushup.core.attendance import PresenceCommand
from pushup.core.channel import Attributes, Unread
from pushup.core.cursor import Cursor
from pushup.core.errors import PushUpError
from pushup.core.limits import Limits


class Draft(Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """A message that has no place in the order yet; `channels` are distinct names or ids."""

    channels: tuple[str, ...]
    data: Raw
    attributes: Attributes | None = None
    unread: Unread | None = None

    @property
    def is_ephemeral(self) -> bool:
        return self.attributes is not None and self.attributes.ephemeral


class Producer(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A publication's place among all those of one producer, who counts its own messages (`producers`).

    `sequence`: the number of the publication's first message. Numbers go on from one `epoch` of the producer to the
    next: an epoch only says who is the producer now.
    """

    name: str
    epoch: int
    sequence: int


class Publish(Struct, frozen=True, omit_defaults=True, tag="publish", forbid_unknown_fields=True):
    """Publish all these messages or none (PushUp §3.3, batch publication).

    If the `key` is still remembered, nothing is published: the outcome is the first one again, or `KeyReused` if these
    are different messages. No key is remembered if all messages are ephemeral. `owner`: the name of the publisher's
    key, whose messages they count as. A publication has a key, or a producer, or neither. `traceparent`: that of its
    request (W3C Trace Context); another try has another one.
    """

    messages: tuple[Draft, ...]
    key: str | None = None
    owner: str = ""
    producer: Producer | None = None
    traceparent: str = ""

    @property
    def width(self) -> int:
        return len(self.messages)

    @property
    def is_ephemeral(self) -> bool:
        """Whether all its messages are."""
        return all(draft.is_ephemeral for draft in self.messages)

    @property
    def fingerprint(self) -> str:
        """A digest of the messages, the same on every node: 32 hexadecimal digits. O(bytes)."""
        digest = blake2b(digest_size=16)
        for draft in self.messages:
            names = [name.encode() for name in draft.channels]
            sizes = (len(memoryview(draft.data)), *map(len, names))
            digest.update(b"%b:%b%b" % (repr(sizes).encode(), b"".join(names), draft.data))
            if draft.attributes is not None:
                digest.update(json.encode(draft.attributes))
            if draft.unread is not None:
                digest.update(json.encode(draft.unread))
        return digest.hexdigest()


class Create(Struct, frozen=True, tag="create", forbid_unknown_fields=True):
    """Create a channel; without a name, its id is its name. `ttl` in seconds; None: `channel_ttl_seconds`."""

    width = 1
    name: str | None = None
    ttl: float | None = None


class Renew(Struct, frozen=True, tag="renew", forbid_unknown_fields=True):
    """Restart the channel's `ttl`, and change it if one is given."""

    width = 1
    channel: str
    ttl: float | None = None


class Close(Struct, frozen=True, tag="close", forbid_unknown_fields=True):
    """Close a channel: its messages are dropped, its subscribers are told."""

    width = 1
    channel: str


RevokedBy = Literal["sub", "jti"]
"""What a revocation names: a subject, or a token by its own name."""


class Revoke(Struct, frozen=True, omit_defaults=True, tag="revoke", forbid_unknown_fields=True):
    """From this entry on, nobody may use what was issued to a subject before some time, or the token with this name.

    `issued_before`: seconds since the epoch; None: the end of this entry's second.
    """

    width = 1
    by: RevokedBy
    name: str
    issued_before: float | None = None


ErasedBy = Literal["message", "channel", "owner"]
"""What an erasure selects messages by."""


class Erase(Struct, frozen=True, omit_defaults=True, tag="erase", forbid_unknown_fields=True):
    """Remove one message, or all of a channel or an owner up to a cursor, from all of their channels.

    `name`: of the channel (or its id) or owner; empty for a message, whose id `cursor` is. None: up to this entry. One
    entry removes a limited number. If the outcome says that there are more, the same command with its cursor goes on.
    """

    width = 1
    by: ErasedBy
    name: str = ""
    cursor: Cursor | None = None


class Read(Struct, frozen=True, tag="read", forbid_unknown_fields=True):
    """This subject has read the messages with these ids."""

    width = 1
    subject: str
    ids: tuple[str, ...]


class Claim(Struct, frozen=True, tag="claim", forbid_unknown_fields=True):
    """Whoever appends this is going to call the application about the messages with these ids, if nobody else is."""

    width = 1
    ids: tuple[str, ...]


class Told(Struct, frozen=True, tag="told", forbid_unknown_fields=True):
    """The application was told about the messages with these ids, or nobody will try any more."""

    width = 1
    ids: tuple[str, ...]


class Expire(Struct, frozen=True, tag="expire", forbid_unknown_fields=True):
    """Expire what is due by the entry's time; appended by nodes while nothing else happens."""

    width = 1


class Continue(Struct, frozen=True, tag="continue", forbid_unknown_fields=True):
    """The same order goes on under a new epoch name: sequences, messages, channels and keys stay.

    The entry is the last of the old epoch, and the first place of the new one. Cursors of the old one stay valid up to
    the entry before it. One beyond that has seen entries that this order does not contain, and is lost.
    """

    width = 1
    epoch: str


class Upgrade(Struct, frozen=True, tag="upgrade", forbid_unknown_fields=True):
    """Continue with this version of the state machine; nothing happens if it is not higher than the present one."""

    width = 1
    version: int


class Configure(Struct, frozen=True, tag="configure", forbid_unknown_fields=True):
    """Continue with these limits.

    What exceeds smaller ones goes a little at a time: messages and keys when others are added to the channel or to the
    whole (at most two for one), closed channels when others close. Open channels stay until they close, and keep their
    `ttl`. A changed `retention_seconds` is applied to messages and keys at once, but not to closings. Messages stay in
    the class in which they were published: if its policy is gone, they are kept as the next longest prefix says.
    """

    width = 1
    limits: Limits


Command = (
    Publish | Create | Renew | Close | Revoke | Erase
    | Read | Claim | Told | PresenceCommand | Expire
    | Continue | Upgrade | Configure
)  # fmt: skip
"""Clients ask for those in the first line, nodes append those in the second, and their broadcasts the last three."""


def own_data(command: Command) -> None:
    """Give its messages data of their own: theirs is a part of what was decoded, and would keep the whole alive."""
    if type(command) is Publish:
        for draft in command.messages:
            force_setattr(draft, "data", draft.data.copy())


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """One command in its place in the order.

    A publication of n messages takes n places, so that each message has its own sequence and thereby its own id:
    the entry's `sequence` is that of its first message, and the next entry's is `sequence + command.width`.
    `time` is in seconds since the epoch and never decreases from one entry to the next.
    """

    epoch: str
    sequence: int
    time: float
    command: Command


class Published(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The places that a publication's messages got: `count` places, the first is `sequence`.

    `after_loss`: the producer's numbers before this publication's are not known.
    """

    epoch: str
    sequence: int
    count: int
    time: float
    after_loss: bool = False


class Duplicate(Struct, frozen=True):
    """The producer has published these numbers before its last publication; their places are no longer known."""


class ChannelState(Struct, frozen=True):
    """A channel after `Create` or `Renew`; `expires` in seconds since the epoch."""

    id: int
    name: str
    expires: float


class Closed(Struct, frozen=True):
    """The channel is closed."""

    name: str


class RevokedBefore(Struct, frozen=True):
    """What was issued before this time is revoked; seconds since the epoch."""

    issued_before: float


class Erased(Struct, frozen=True):
    """How many messages this entry has removed, and whether there are more to remove up to `cursor`."""

    count: int
    cursor: Cursor
    more: bool = False


class Claimed(Struct, frozen=True):
    """Those of a `Claim` that nobody else has."""

    ids: tuple[str, ...]


class Done(Struct, frozen=True):
    """The outcome of commands that nobody waits for."""


Outcome = Published | Duplicate | ChannelState | Closed | RevokedBefore | Erased | Claimed | Done | PushUpError
"""Errors are values here: an error is as much a part of the order as a success, and the same on every node."""


Ack = Literal["accepted", "replicated", "stable"]
"""What a publisher wants to wait for: the message has its place in the order; a replica of the order has it as well;
every node that is alive has applied it (Mishra §2, stability)."""


class Confirmation(Struct, frozen=True):
    """The acknowledgement that was reached, and by how many replicas or nodes."""

    ack: Ack
    replicas: int = 0
    nodes: int = 0
