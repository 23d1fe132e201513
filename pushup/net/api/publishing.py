"""Publications: `POST /v1/messages`.

    {"channels": ["author:John", "tag:c++"], "data": <any JSON>}          one message
    {"messages": [{"channels": [...], "data": ...}, ...]}                 several, all or nothing
    {..., "event": "answer", "ephemeral": true}                           of each message; optional
    {..., "unread_after": 60, "for": ["ann"]}                             of each message; optional (decision 38)
    {..., "ack": "stable", "ack_timeout": 5}                              the acknowledgement to wait for; optional
    {..., "producer": {"name": "outbox", "epoch": 1, "sequence": 0}}      for producers that count; optional

`data` is checked to be JSON in UTF-8 and kept as it was written. `schemas` has the fields.
"""

from __future__ import annotations

import re
from typing import NamedTuple, get_args

from msgspec import UNSET, Raw, structs
from twisted.internet.defer import Deferred

from pushup.core.channel import Unread, attributes_of
from pushup.core.commands import Ack, Confirmation, Draft, Duplicate, Outcome, Producer, Publish, Published
from pushup.core.cursor import Cursor
from pushup.core.errors import BadRequest, Forbidden, PushUpError
from pushup.core.grant import Grant, is_subject
from pushup.net.api.access import Access, check_channels
from pushup.net.api.bodies import BodyDecoder, check_name, write
from pushup.net.api.error_responses import ErrorResponder
from pushup.net.api.node_interface import Node
from pushup.net.api.publishers import Publishers
from pushup.net.api.schemas import (
    MessageBody,
    MessageFields,
    ProducerBody,
    PublicationBody,
    PublicationLimits,
    PublishedMany,
    PublishedOne,
)
from pushup.net.api.traceparent import traceparent_of
from pushup.net.api.turns import PublisherTurns
from pushup.net.application_interface import Exchange
from pushup.net.http_errors import MessageTooLarge
from pushup.net.requests_and_responses import Request, Response

KEY_LIMIT = 255
"""Characters of an idempotency key; a UUID has 36."""

ACK_LIMIT_SECONDS = 60.0
"""The most that a publisher can wait."""

EVENT_LIMIT = 64
"""Characters of a message's `event`."""

RESERVED_EVENTS = frozenset(
    {"closed", "cursor", "error", "expiry", "gap", "message", "open", "presence", "ticket", "unread"}
)
"""For events of PushUp's own, and those that browsers' `EventSource` fires."""

PRODUCER_LIMIT = 128
"""Characters of a producer's name."""

UNREAD_LIMIT_SECONDS = 86_400.0
"""The longest `unread_after`."""

SUBJECTS_LIMIT = 100
"""Subjects that a message can wait for."""

READERS_LIMIT = 10_000
"""Those of all messages of a publication, each counted for each channel of its message: 15 ms of each node."""

NUMBER_LIMIT = 2**53
"""Numbers of producers are below this: JSON has larger ones, but JavaScript rounds them."""

DUPLICATE = b'{"duplicate":true}'

_OF_EACH = structs.asdict(MessageFields())
"""Fields that each of several messages has for itself, and their values if they are not given."""

_WORD = re.compile(r"[A-Za-z0-9_.:/-]+").fullmatch

_publication = BodyDecoder(
    PublicationBody,
    '{"channels": ["news"], "data": "hello"}',
    parts={"messages": MessageBody, "producer": ProducerBody},
    choices={"ack": get_args(Ack)},
)


class Publishing:
    """Publishes messages, and tells publishers what became of them."""

    def __init__(
        self,
        node: Node,
        limits: PublicationLimits,
        error_responder: ErrorResponder,
        access: Access,
        publishers: Publishers,
        turns: PublisherTurns | None,
    ) -> None:
        self._node = node
        self._limits = limits
        self._error_responder = error_responder
        self._rules = access.rules
        self._quotas = access.quotas
        self._publishers = publishers
        self._turns = turns
        self._seconds = publishers.seconds
        self._latency = node.metrics.publication_latency

    def publish(self, request: Request, query: bytes, exchange: Exchange, grant: Grant) -> Deferred[None] | None:
        turn = None if self._turns is None else self._turns.wait(grant.key_name, len(request.body))
        if turn is None:
            self._publish(request, exchange, grant)
            return None
        return turn.addCallback(lambda _: self._publish(request, exchange, grant))

    def _publish(self, request: Request, exchange: Exchange, grant: Grant) -> None:
        began_at = self._seconds()
        key = request.header(b"idempotency-key")
        if len(key) > KEY_LIMIT:
            raise BadRequest(f"Idempotency-Key can have at most {KEY_LIMIT} characters", field="Idempotency-Key")
        if key and grant.is_of_token:
            key = f"{grant.subject}\n{key}"  # a page must not use up the key of another; no header contains a new line
        traceparent = traceparent_of(request) if b"traceparent" in request.headers else ""
        command, as_list, ack, seconds = read_publication(
            request.body, key or None, self._limits, grant.key_name, traceparent
        )
        readers = 0
        for draft in command.messages:
            check_channels(grant, "publish", draft.channels, self._node, self._rules)
            if draft.unread is not None:
                readers += len(draft.channels) * len(draft.unread.subjects)
                self._check_unread(grant, readers)
        if grant.is_of_token and command.producer is not None:
            raise Forbidden("only publish keys have producers, not tokens", field="producer")
        self._quotas.use_up("bytes_per_second", len(request.body), grant, exchange)
        self._quotas.use_up("messages_per_second", len(command.messages), grant, exchange)
        audited = self._publishers.audited_channels(command) if self._publishers.audit else ()

        # The callback may be kept for a long time: it must not keep the request and the command alive.
        def on_outcome(outcome: Outcome) -> None:
            if isinstance(outcome, PushUpError):
                self._error_responder.answer(outcome, exchange, grant)
                return
            if isinstance(outcome, Duplicate):
                exchange.respond(Response(200, DUPLICATE))
                return
            assert isinstance(outcome, Published)
            self._publishers.published(grant, outcome, audited, exchange, traceparent)
            if ack == "accepted":
                self._latency[ack].observe(self._seconds() - began_at)
                exchange.respond(Response(201, write_published(outcome, as_list)))
            else:
                self._confirm(outcome, as_list, ack, seconds, exchange, began_at)

        self._node.submit(command, on_outcome)

    def _check_unread(self, grant: Grant, readers: int) -> None:
        """Raises: Forbidden, BadRequest."""
        if grant.is_of_token:
            raise Forbidden("only publish keys can say who should read a message, not tokens", field="unread_after")
        if not self._node.webhook_caller.is_on:
            raise BadRequest("set webhook_url: this server cannot tell who has not read it", field="unread_after")
        if readers > READERS_LIMIT:
            text = f"subjects times channels can be at most {READERS_LIMIT} in one publication"
            raise BadRequest(f"{text}; publish in several requests", field="for")

    def _confirm(
        self, published: Published, as_list: bool, ack: Ack, seconds: float, exchange: Exchange, began_at: float
    ) -> None:
        """Answer a publisher that waits for a stronger acknowledgement than `accepted`."""

        def on_confirmation(confirmation: Confirmation) -> None:
            self._latency[confirmation.ack].observe(self._seconds() - began_at)
            exchange.respond(Response(201, write_published(published, as_list, confirmation)))

        last = Cursor(published.epoch, published.sequence + published.count - 1)
        self._node.confirm(ack, last, seconds, on_confirmation)


class Publication(NamedTuple):
    """A publication; `as_list`: it came as `messages`. The publisher waits `ack_timeout` seconds for its `ack`."""

    command: Publish
    as_list: bool
    ack: Ack
    ack_timeout: float


def read_publication(
    body: bytes, key: str | None, limits: PublicationLimits, owner: str = "", traceparent: str = ""
) -> Publication:
    """The publication in a body, with its idempotency key, by the owner of this name.

    Raises: BadRequest, MessageTooLarge.
    """
    given = _publication.decode(body)
    producer = None if given.producer is None else _producer(given.producer, key)
    if not 0 < given.ack_timeout <= ACK_LIMIT_SECONDS:
        raise BadRequest(
            f"ack_timeout must be above 0 and at most {ACK_LIMIT_SECONDS:.0f} seconds", field="ack_timeout"
        )
    if given.messages is not UNSET:
        if given.channels is not UNSET or given.data is not UNSET:
            raise BadRequest("give either `messages`, or `channels` and `data`, not both", field="messages")
        field = next((name for name, usual in _OF_EACH.items() if getattr(given, name) != usual), "").rstrip("_")
        if field:
            raise BadRequest(f"each message has its own `{field}`; write it in `messages`", field=field)
        if not given.messages:
            raise BadRequest("`messages` is empty", field="messages")
        if len(given.messages) > limits.batch_limit:
            raise BadRequest(f"a publication can have at most {limits.batch_limit} messages", field="messages")
        drafts = tuple(_draft(m.channels, m.data, m, f"messages[{i}].", limits) for i, m in enumerate(given.messages))
    elif given.channels is UNSET:
        raise BadRequest("the field `channels` is missing", field="channels")
    elif given.data is UNSET:
        raise BadRequest("the field `data` is missing", field="data")
    else:
        drafts = (_draft(given.channels, given.data, given, "", limits),)
    as_list = given.messages is not UNSET
    count, most = sum([len(draft.channels) for draft in drafts]), limits.publication_channels_limit
    if count > most:
        raise BadRequest(
            f"the messages of a publication can have at most {most} channels together, and these have {count} "
            "(publication_channels_limit); publish them in several requests",
            field="messages" if as_list else "channels",
        )
    return Publication(Publish(drafts, key, owner, producer, traceparent), as_list, given.ack, given.ack_timeout)


def _draft(channels: tuple[str, ...], data: Raw, given: MessageFields, at: str, limits: PublicationLimits) -> Draft:
    if not channels:
        raise BadRequest("a message needs at least one channel", field=at + "channels")
    if len(channels) > limits.message_channels_limit:
        raise BadRequest(f"a message can have at most {limits.message_channels_limit} channels", field=at + "channels")
    for channel in channels:
        check_name(channel, at + "channels")
    if len(memoryview(data)) > limits.message_limit_bytes:
        text = f"the data of a message can have at most {limits.message_limit_bytes} bytes"
        raise MessageTooLarge(text, field=at + "data")
    if given.event:
        _check_event(given.event, at + "event")
    unread = None if given.unread_after is None and given.for_ is UNSET else _unread(given, at)
    return Draft(tuple(dict.fromkeys(channels)), data.copy(), attributes_of(given), unread)


def _unread(given: MessageFields, at: str) -> Unread:
    """For whom a message waits, and how long. Raises: BadRequest."""
    after = given.unread_after
    subjects = () if given.for_ is UNSET else tuple(dict.fromkeys(given.for_))
    if after is None:
        raise BadRequest("`for` goes with `unread_after`, a number of seconds", field=at + "unread_after")
    if not 0 < after <= UNREAD_LIMIT_SECONDS:
        raise BadRequest("unread_after must be above 0 and at most 86400 seconds, a day", field=at + "unread_after")
    if not 0 < len(subjects) <= SUBJECTS_LIMIT:
        text = f"name 1 to {SUBJECTS_LIMIT} subjects who should read the message, as their tokens do (`sub`)"
        raise BadRequest(text, field=at + "for")
    if not all(subject and is_subject(subject) for subject in subjects):
        raise BadRequest("a subject is text of 1 to 255 bytes without control characters", field=at + "for")
    if given.ephemeral:
        raise BadRequest("an ephemeral message cannot wait to be read: it is gone by then", field=at + "unread_after")
    return Unread(after, subjects)


def _producer(given: ProducerBody, key: str | None) -> Producer:
    if key is not None:
        raise BadRequest("give either an Idempotency-Key or a producer, not both", field="Idempotency-Key")
    if len(given.name) > PRODUCER_LIMIT or not _WORD(given.name):
        text = f"a producer's name has 1 to {PRODUCER_LIMIT} letters, digits or any of _.:/-"
        raise BadRequest(text, field="producer.name")
    for field, number in (("epoch", given.epoch), ("sequence", given.sequence)):
        if not 0 <= number < NUMBER_LIMIT:
            raise BadRequest(f"{field} must be at least 0 and below 2^53", field=f"producer.{field}")
    return Producer(given.name, given.epoch, given.sequence)


def _check_event(event: str, field: str) -> None:
    if len(event) > EVENT_LIMIT or not _WORD(event):
        raise BadRequest(f"an event's name has 1 to {EVENT_LIMIT} letters, digits or any of _.:/-", field=field)
    if event in RESERVED_EVENTS:
        raise BadRequest(f"the name {event} is reserved; choose another", field=field)


def write_published(published: Published, as_list: bool, confirmed: Confirmation | None = None) -> bytes:
    """`{"id","time","cursor"}`, or `"ids"` for a list; with `"ack","replicas","nodes"` if it was confirmed."""
    epoch, first, last = published.epoch, published.sequence, published.sequence + published.count - 1
    cursor = f"{epoch}-{last}"
    acknowledged = () if confirmed is None else (confirmed.ack, confirmed.replicas, confirmed.nodes)
    if as_list:
        ids = tuple(f"{epoch}-{n}" for n in range(first, last + 1))
        return write(PublishedMany(ids, published.time, cursor, published.after_loss, *acknowledged))
    return write(PublishedOne(cursor, published.time, cursor, published.after_loss, *acknowledged))
