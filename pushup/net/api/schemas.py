"""What clients send and are sent: the fields of the JSON (docs/guide/http.md), and what one request can ask for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from pushup.core.answer import Answer
from pushup.core.channel import Attributes
from pushup.core.commands import Ack

ACK_SECONDS = 5.0
"""How long a publisher waits for a stronger acknowledgement, unless it says so."""


class PollLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a poll. A client that asks for more time or messages gets the maximum."""

    poll_timeout_seconds: float = 25.0
    """Default wait when a poll gives no timeout."""
    poll_timeout_limit_seconds: float = 60.0
    """Maximum wait."""
    poll_channels_limit: int = 100
    """Maximum number of channels in one poll."""
    poll_limit: int = 100
    """Maximum number of messages in one answer."""
    poll_body_limit_bytes: int = 64 * 1024
    """Maximum size of the body of a poll, or of a call that creates or renews a channel. 100 names of 255 bytes fit."""

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """Each setting whose value cannot be used, and why."""
        if self.poll_timeout_seconds > self.poll_timeout_limit_seconds:
            yield "poll_timeout_seconds", "must not exceed poll_timeout_limit_seconds"


class StreamLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of event streams."""

    stream_heartbeat_seconds: float = 15.0
    """Time without events after which an event stream gets a heartbeat, so that its client and proxies see that it is
    alive."""
    stream_seconds: float = 3600.0
    """Maximum age of an event stream. Then it ends, and its client returns, perhaps to another node."""


class PublicationLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of one publication."""

    message_limit_bytes: int = 64 * 1024
    """Maximum size of one message's data, as JSON text."""
    batch_limit: int = 100
    """Maximum number of messages in one publication."""
    message_channels_limit: int = 100
    """Maximum number of channels of one message."""
    publication_channels_limit: int = 1000
    """Maximum number of channels of all messages in one publication together, a channel counted for each of its
    messages. A publication is applied in one go, on each node: 1000 take up to 6 ms."""
    turn_limit_seconds: float = 0.5
    """Maximum time for which a publication waits for its turn, if more arrive than can be carried out; then 503."""


class MessageFields(Attributes, frozen=True, kw_only=True):
    """What a publisher may say about a message besides its channels and data."""

    unread_after: float | None = None
    for_: tuple[str, ...] | UnsetType = msgspec.field(default=UNSET, name="for")


class MessageBody(MessageFields, frozen=True):
    channels: tuple[str, ...]
    data: Raw


class ProducerBody(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    epoch: int
    sequence: int


class PublicationBody(MessageFields, frozen=True):
    ack: Ack = "accepted"
    ack_timeout: float = ACK_SECONDS
    channels: tuple[str, ...] | UnsetType = UNSET
    data: Raw | UnsetType = UNSET
    messages: tuple[MessageBody, ...] | UnsetType = UNSET
    producer: ProducerBody | None = None


class CreateBody(Struct, forbid_unknown_fields=True):
    name: str | None = None
    ttl: float | None = None


class RenewBody(Struct, forbid_unknown_fields=True):
    ttl: float | None = None


class ChannelView(Struct):
    """A channel as clients see it; `bytes` of message data."""

    id: int
    name: str
    ttl: float
    expires: float
    messages: int
    bytes: int
    subscribers: int


Format = Literal["json", "raw"]
"""How an event stream sends a message: with all of its fields, or only its data, under the name of its `event`."""

DEFAULT_FORMAT: Format = "json"


class PollBody(Struct, forbid_unknown_fields=True):
    channels: tuple[str, ...]
    cursor: str = ""
    timeout: float | None = None
    limit: int | None = None
    from_: float | str | None = msgspec.field(default=None, name="from")
    to: float | str | None = None
    token: str | None = None
    format: Format | None = None
    hidden: bool = False


class ChannelsBody(Struct, forbid_unknown_fields=True):
    channels: tuple[str, ...]
    token: str | None = None


class PublishedOne(Struct, frozen=True, omit_defaults=True):
    id: str
    time: float
    cursor: str
    after_loss: bool = False
    ack: Ack | None = None
    replicas: int | None = None
    nodes: int | None = None


class PublishedMany(Struct, frozen=True, omit_defaults=True):
    ids: tuple[str, ...]
    time: float
    cursor: str
    after_loss: bool = False
    ack: Ack | None = None
    replicas: int | None = None
    nodes: int | None = None


class AnswerBeforeEnd(Answer, frozen=True, omit_defaults=True):
    """A poll's answer to a client that gets a new ticket with it, or whose token ends in so many seconds."""

    ticket: str = ""
    expires_in: int | None = None
