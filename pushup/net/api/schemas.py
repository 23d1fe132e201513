"""The shapes of the JSON that clients send and are sent (docs/guide/http.md)."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from pushup.core.answer import Answer
from pushup.core.channel import Attributes
from pushup.core.commands import Ack

ACK_SECONDS = 5.0
"""How long a publisher waits for a stronger acknowledgement, unless it says so."""


class MessageBody(Attributes, frozen=True):
    channels: tuple[str, ...]
    data: Raw


class PublicationBody(Attributes, frozen=True):
    ack: Ack = "accepted"
    ack_timeout: float = ACK_SECONDS
    channels: tuple[str, ...] | UnsetType = UNSET
    data: Raw | UnsetType = UNSET
    messages: tuple[MessageBody, ...] | UnsetType = UNSET


class CreateBody(Struct, forbid_unknown_fields=True):
    name: str | None = None
    ttl: float | None = None


class RenewBody(Struct, forbid_unknown_fields=True):
    ttl: float | None = None


class PollBody(Struct, forbid_unknown_fields=True):
    channels: tuple[str, ...]
    cursor: str = ""
    timeout: float | None = None
    limit: int | None = None
    from_: float | str | None = msgspec.field(default=None, name="from")
    to: float | str | None = None


class PublishedOne(Struct, frozen=True, omit_defaults=True):
    id: str
    time: float
    cursor: str
    ack: Ack | None = None
    replicas: int | None = None
    nodes: int | None = None


class PublishedMany(Struct, frozen=True, omit_defaults=True):
    ids: tuple[str, ...]
    time: float
    cursor: str
    ack: Ack | None = None
    replicas: int | None = None
    nodes: int | None = None


class AnswerWithTicket(Answer, frozen=True):
    """A poll's answer to a client that gets a ticket with it."""

    ticket: str
