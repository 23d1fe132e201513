"""The JSON of the HTTP interface (docs/guide/http.md): what publishers send, and what everybody is sent.

    {"channels": ["author:John", "tag:c++"], "data": <any JSON>}          one message
    {"messages": [{"channels": [...], "data": ...}, ...]}                 several, all or nothing
    {..., "event": "answer", "ephemeral": true}                           of each message; optional
    {..., "ack": "stable", "ack_timeout": 5}                              the acknowledgement to wait for; optional
    {"name": "tag:c++", "ttl": 3600}                                      create; both optional
    {"ttl": 3600}                                                         renew; optional

`data` is checked to be JSON in UTF-8 and kept as it was written. `schemas` has the fields; a
poll's body is read in `poll_parameters`.
"""

from __future__ import annotations

import re
from typing import NamedTuple, get_args

import msgspec
from msgspec import UNSET, Raw

from pushup.core.channel import Attributes, attributes_of
from pushup.core.channels import is_id
from pushup.core.commands import Ack, Confirmation, Create, Draft, Publish, Published, Renew
from pushup.core.errors import BadRequest
from pushup.net.api.api_limits import PublicationLimits
from pushup.net.api.decoding import BodyDecoder
from pushup.net.api.schemas import (
    ACK_SECONDS,
    CreateBody,
    MessageBody,
    PublicationBody,
    PublishedMany,
    PublishedOne,
    RenewBody,
)
from pushup.net.http_errors import MessageTooLarge
from pushup.net.requests_and_responses import Response

NAME_LIMIT_BYTES = 255
"""A channel's name in UTF-8; as long as file systems allow names to be."""

TTL_LIMIT_SECONDS = 366 * 86400.0
"""The longest lifetime of a channel on which nobody publishes: a year."""

ACK_LIMIT_SECONDS = 60.0
"""The most that a publisher can wait."""

EVENT_LIMIT = 64
"""Characters of a message's `event`."""

RESERVED_EVENTS = frozenset({"closed", "cursor", "error", "gap", "message", "open", "ticket"})
"""For events of PushUp's own, and those that browsers' `EventSource` fires."""

_EVENT = re.compile(r"[A-Za-z0-9_.:/-]+").fullmatch
_CONTROL = re.compile(r"[\x00-\x1f\x7f]").search


_LIST = 'a comma; write several channels as channel=a&channel=b, or as ["a", "b"] in JSON'
_PATTERN = "*; patterns are not supported, so name each channel"

_publication = BodyDecoder(
    PublicationBody,
    '{"channels": ["news"], "data": "hello"}',
    items=MessageBody,
    choices={"ack": get_args(Ack)},
)
_create = BodyDecoder(CreateBody, '{"name": "news", "ttl": 3600}')
_renew = BodyDecoder(RenewBody, '{"ttl": 3600}')


class Publication(NamedTuple):
    """A publication; `as_list`: it came as `messages`. The publisher waits `ack_timeout` seconds for its `ack`."""

    command: Publish
    as_list: bool
    ack: Ack = "accepted"
    ack_timeout: float = ACK_SECONDS


def read_publication(body: bytes, key: str | None, limits: PublicationLimits, owner: str = "") -> Publication:
    """The publication in a body, with its idempotency key, by the owner of this name.

    Raises: BadRequest, MessageTooLarge.
    """
    given = _publication.decode(body)
    if not 0 < given.ack_timeout <= ACK_LIMIT_SECONDS:
        raise BadRequest(
            f"ack_timeout must be above 0 and at most {ACK_LIMIT_SECONDS:.0f} seconds", field="ack_timeout"
        )
    if given.messages is not UNSET:
        if given.channels is not UNSET or given.data is not UNSET:
            raise BadRequest("give either `messages`, or `channels` and `data`, not both", field="messages")
        if attributes_of(given) is not None:
            field = "event" if given.event else "ephemeral"
            raise BadRequest(f"each message has its own `{field}`; write it in `messages`", field=field)
        if not given.messages:
            raise BadRequest("`messages` is empty", field="messages")
        if len(given.messages) > limits.batch_limit:
            raise BadRequest(f"a publication can have at most {limits.batch_limit} messages", field="messages")
        drafts = tuple(_draft(m.channels, m.data, m, f"messages[{i}].", limits) for i, m in enumerate(given.messages))
        _check_size(drafts, limits, field="messages")
        return Publication(Publish(drafts, key, owner), True, given.ack, given.ack_timeout)
    if given.channels is UNSET:
        raise BadRequest("the field `channels` is missing", field="channels")
    if given.data is UNSET:
        raise BadRequest("the field `data` is missing", field="data")
    drafts = (_draft(given.channels, given.data, given, "", limits),)
    _check_size(drafts, limits, field="channels")
    return Publication(Publish(drafts, key, owner), False, given.ack, given.ack_timeout)


def _draft(channels: tuple[str, ...], data: Raw, given: Attributes, at: str, limits: PublicationLimits) -> Draft:
    if not channels:
        raise BadRequest("a message needs at least one channel", field=at + "channels")
    if len(channels) > limits.message_channels_limit:
        raise BadRequest(f"a message can have at most {limits.message_channels_limit} channels", field=at + "channels")
    for channel in channels:
        check_name(channel, at + "channels")
    if len(memoryview(data)) > limits.message_limit_bytes:
        raise MessageTooLarge(
            f"the data of a message can have at most {limits.message_limit_bytes} bytes", field=at + "data"
        )
    if given.event:
        _check_event(given.event, at + "event")
    return Draft(tuple(dict.fromkeys(channels)), data.copy(), attributes_of(given))


def _check_event(event: str, field: str) -> None:
    if len(event) > EVENT_LIMIT or not _EVENT(event):
        raise BadRequest(f"an event's name has 1 to {EVENT_LIMIT} letters, digits or any of _.:/-", field=field)
    if event in RESERVED_EVENTS:
        raise BadRequest(f"the name {event} is reserved; choose another", field=field)


def _check_size(drafts: tuple[Draft, ...], limits: PublicationLimits, field: str) -> None:
    count, most = sum([len(draft.channels) for draft in drafts]), limits.publication_channels_limit
    if count > most:
        raise BadRequest(
            f"the messages of a publication can have at most {most} channels together, and these have {count} "
            "(publication_channels_limit); publish them in several requests",
            field=field,
        )


def read_create(body: bytes) -> Create:
    """Raises: BadRequest."""
    given = _create.decode(body or b"{}")
    if given.name is not None:
        check_name(given.name, "name")
        if is_id(given.name):
            raise BadRequest(
                "a name of digits only would be taken for an id; add a prefix, such as user:42", field="name"
            )
    return Create(given.name, check_ttl(given.ttl))


def read_renew(channel: str, body: bytes) -> Renew:
    """Raises: BadRequest."""
    return Renew(channel, check_ttl(_renew.decode(body or b"{}").ttl))


def check_name(name: str, field: str) -> str:
    """A text that can be the name or id of a channel.

    Raises: BadRequest.
    """
    if not name or (len(name) > NAME_LIMIT_BYTES // 4 and len(name.encode()) > NAME_LIMIT_BYTES):
        raise BadRequest(f"a channel's name must have 1 to {NAME_LIMIT_BYTES} bytes of UTF-8", field=field)
    if not name.isprintable() and _CONTROL(name):
        raise BadRequest("a channel's name must not contain control characters", field=field)
    if "," in name or "*" in name:  # clients mean a list or a pattern, and would follow nothing
        raise BadRequest(f"a channel's name must not contain {_LIST if ',' in name else _PATTERN}", field=field)
    return name


def check_ttl(ttl: float | None) -> float | None:
    """Raises: BadRequest."""
    if ttl is not None and not 0 < ttl <= TTL_LIMIT_SECONDS:
        raise BadRequest(f"ttl must be above 0 and at most {TTL_LIMIT_SECONDS:.0f} seconds", field="ttl")
    return ttl


def write_published(published: Published, as_list: bool, confirmed: Confirmation | None = None) -> bytes:
    """`{"id","time","cursor"}`, or `"ids"` for a list; with `"ack","replicas","nodes"` if it was confirmed."""
    epoch, first, last = published.epoch, published.sequence, published.sequence + published.count - 1
    cursor = f"{epoch}-{last}"
    acknowledged = () if confirmed is None else (confirmed.ack, confirmed.replicas, confirmed.nodes)
    if as_list:
        ids = tuple(f"{epoch}-{n}" for n in range(first, last + 1))
        return write(PublishedMany(ids, published.time, cursor, *acknowledged))
    return write(PublishedOne(cursor, published.time, cursor, *acknowledged))


write = msgspec.json.Encoder().encode
"""Any value of ours as JSON in UTF-8."""


def json_response(value: object, status: int = 200) -> Response:
    return Response(status, write(value))
