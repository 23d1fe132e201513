"""JSON <-> values: what publishers send, and what everybody is sent (docs/http.md).

    {"channels": ["author:John", "tag:c++"], "data": <any JSON>}          one message
    {"messages": [{"channels": [...], "data": ...}, ...]}                 several, all or nothing
    {..., "ack": "stable", "ack_timeout": 5}                              how sure the publisher wants to be; optional
    {"name": "tag:c++", "ttl": 3600}                                      create; both optional
    {"ttl": 3600}                                                         renew; optional

`data` is checked to be JSON in UTF-8 and kept as it was written.
"""

from __future__ import annotations

import re
from array import array
from itertools import accumulate
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from pushup.core.channels import is_id
from pushup.core.commands import Ack, Confirmation, Create, Draft, Publish, Published, Renew
from pushup.core.errors import BadRequest, MessageTooLarge

NAME_LIMIT_BYTES = 255
"""A channel's name in UTF-8; what a file system allows for a name, and ample."""

TTL_LIMIT_SECONDS = 366 * 86400.0
"""A channel that nobody publishes on for a year is closed."""

ACK_SECONDS = 5.0
"""How long a publisher waits to be surer, unless it says so."""

ACK_LIMIT_SECONDS = 60.0
"""And at most."""

NESTING_LIMIT = 64
"""Levels of arrays and objects in a body. A decoder's own limit is what is left of the stack, 970 levels or so, and
differs from place to place: what one node accepts, another could fail to read from the log."""

# Where msgspec's texts say what is wrong.
_AT = re.compile(r" - at `\$\.?(.*)`$")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]").search
_FIELD = re.compile(r"(?:unknown|required) field `(.*?)`")

_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = bytes.maketrans(b"[{]}", array("b", (1, 1, -1, -1)).tobytes())


class PublicationLimits(Struct, frozen=True, kw_only=True):
    """The limits of one publication."""

    message_limit_bytes: int = 64 * 1024
    """Maximum size of one message's data, as JSON text."""
    batch_limit: int = 100
    """Maximum number of messages in one publication."""
    message_channels_limit: int = 100
    """Maximum number of channels of one message."""


class _MessageBody(Struct, forbid_unknown_fields=True):
    channels: tuple[str, ...]
    data: Raw


class _PublicationBody(Struct, forbid_unknown_fields=True):
    ack: Ack = "accepted"
    ack_timeout: float = ACK_SECONDS
    channels: tuple[str, ...] | UnsetType = UNSET
    data: Raw | UnsetType = UNSET
    messages: tuple[_MessageBody, ...] | UnsetType = UNSET


class _CreateBody(Struct, forbid_unknown_fields=True):
    name: str | None = None
    ttl: float | None = None


class _RenewBody(Struct, forbid_unknown_fields=True):
    ttl: float | None = None


T = TypeVar("T")


def decode(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """A request body as a value.

    Raises: BadRequest naming the field, when it is not JSON in UTF-8 of the decoder's shape, or nests too deeply.
    """
    try:
        body.decode()  # msgspec looks at what it decodes, but not into strings that it passes over as Raw
        value = decoder.decode(body)
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is not UTF-8: byte {error.start} is wrong") from None
    except msgspec.ValidationError as error:
        text = str(error)
        at, name = _AT.search(text), _FIELD.search(text)
        path = [found[1] for found in (at, name) if found and found[1]]
        raise BadRequest(_AT.sub("", text), field=".".join(path) or None) from None
    except msgspec.DecodeError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise _too_deep() from None
    if body.count(b"[") + body.count(b"{") > NESTING_LIMIT and _depth(body) > NESTING_LIMIT:
        raise _too_deep()
    return value


def _depth(body: bytes) -> int:
    """How deeply arrays and objects nest in valid JSON. O(bytes) without recursion: 40 ms for 1 MiB of brackets."""
    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside_strings = b"".join(unescaped.split(b'"')[::2])
    steps = array("b", outside_strings.translate(_STEPS, _NO_BRACKETS))
    return max(accumulate(steps), default=0)


def _too_deep() -> BadRequest:
    return BadRequest(f"the body nests arrays and objects more than {NESTING_LIMIT} levels deep")


_publication = msgspec.json.Decoder(_PublicationBody)
_create = msgspec.json.Decoder(_CreateBody)
_renew = msgspec.json.Decoder(_RenewBody)


class Publication(NamedTuple):
    """What a publisher wants: whether it came as a list; how sure it wants to be, and for how many seconds it waits."""

    command: Publish
    as_list: bool
    ack: Ack = "accepted"
    ack_timeout: float = ACK_SECONDS


def read_publication(body: bytes, key: str | None, limits: PublicationLimits) -> Publication:
    """The publication in a body.

    Raises: BadRequest, MessageTooLarge.
    """
    given = decode(body, _publication)
    if not 0 < given.ack_timeout <= ACK_LIMIT_SECONDS:
        raise BadRequest(f"seconds, above 0 and at most {ACK_LIMIT_SECONDS:.0f}", field="ack_timeout")
    if given.messages is not UNSET:
        if given.channels is not UNSET or given.data is not UNSET:
            raise BadRequest("give either 'messages', or 'channels' and 'data'", field="messages")
        if not given.messages:
            raise BadRequest("there is no message in it", field="messages")
        if len(given.messages) > limits.batch_limit:
            raise BadRequest(f"more than {limits.batch_limit} messages in one publication", field="messages")
        drafts = tuple(_draft(m.channels, m.data, f"messages[{i}].", limits) for i, m in enumerate(given.messages))
        return Publication(Publish(drafts, key), True, given.ack, given.ack_timeout)
    if given.channels is UNSET:
        raise BadRequest("'channels' is missing", field="channels")
    if given.data is UNSET:
        raise BadRequest("'data' is missing", field="data")
    publish = Publish((_draft(given.channels, given.data, "", limits),), key)
    return Publication(publish, False, given.ack, given.ack_timeout)


def _draft(channels: tuple[str, ...], data: Raw, at: str, limits: PublicationLimits) -> Draft:
    if not channels:
        raise BadRequest("a message needs a channel", field=at + "channels")
    if len(channels) > limits.message_channels_limit:
        raise BadRequest(f"more than {limits.message_channels_limit} channels", field=at + "channels")
    for channel in channels:
        check_name(channel, at + "channels")
    if len(memoryview(data)) > limits.message_limit_bytes:
        raise MessageTooLarge(f"a message has at most {limits.message_limit_bytes} bytes", field=at + "data")
    return Draft(tuple(dict.fromkeys(channels)), data.copy())


def read_create(body: bytes) -> Create:
    """Raises: BadRequest."""
    given = decode(body or b"{}", _create)
    if given.name is not None:
        check_name(given.name, "name")
        if is_id(given.name):
            raise BadRequest("a name of digits only would be taken for an id", field="name")
    return Create(given.name, check_ttl(given.ttl))


def read_renew(channel: str, body: bytes) -> Renew:
    """Raises: BadRequest."""
    return Renew(channel, check_ttl(decode(body or b"{}", _renew).ttl))


def check_name(name: str, field: str) -> str:
    """The name or id of a channel, if it can be one.

    Raises: BadRequest.
    """
    if not name or (len(name) > NAME_LIMIT_BYTES // 4 and len(name.encode()) > NAME_LIMIT_BYTES):
        raise BadRequest(f"a channel's name has 1 to {NAME_LIMIT_BYTES} bytes of UTF-8", field=field)
    if not name.isprintable() and _CONTROL(name):
        raise BadRequest("a channel's name has no control characters", field=field)
    return name


def check_ttl(ttl: float | None) -> float | None:
    """Raises: BadRequest."""
    if ttl is not None and not 0 < ttl <= TTL_LIMIT_SECONDS:
        raise BadRequest(f"ttl is in seconds, above 0 and at most {TTL_LIMIT_SECONDS:.0f}", field="ttl")
    return ttl


class _PublishedOne(Struct, frozen=True, omit_defaults=True):
    id: str
    time: float
    cursor: str
    ack: Ack | None = None
    replicas: int | None = None
    nodes: int | None = None


class _PublishedMany(Struct, frozen=True, omit_defaults=True):
    ids: tuple[str, ...]
    time: float
    cursor: str
    ack: Ack | None = None
    replicas: int | None = None
    nodes: int | None = None


def write_published(published: Published, as_list: bool, confirmed: Confirmation | None = None) -> bytes:
    """`{"id","time","cursor"}`, or `{"ids","time","cursor"}` for a list; with `"ack","replicas","nodes"` if asked."""
    epoch, first, last = published.epoch, published.sequence, published.sequence + published.count - 1
    cursor = f"{epoch}-{last}"
    sure = () if confirmed is None else (confirmed.ack, confirmed.replicas, confirmed.nodes)
    if as_list:
        ids = tuple(f"{epoch}-{n}" for n in range(first, last + 1))
        return write(_PublishedMany(ids, published.time, cursor, *sure))
    return write(_PublishedOne(cursor, published.time, cursor, *sure))


write = msgspec.json.Encoder().encode
"""Any value of ours as JSON in UTF-8."""
