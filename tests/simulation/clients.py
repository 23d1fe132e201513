"""Publishers and subscribers, as processes of their own: what they send, what they are told, and when they give up."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from zlib import crc32

from loadtest.history.events import (
    BrokenPromise,
    Draft,
    Failed,
    Fork,
    GivenUp,
    Poll,
    Publish,
    Refused,
    acknowledged,
    answered,
)  # fmt: skip
from tests.simulation.http import HttpClient, Message, request
from tests.simulation.network import Network
from tests.simulation.record import Record
from tests.simulation.streams import Event, EventStream
from tests.simulation.world import Process, World

if TYPE_CHECKING:
    from tests.simulation.unread import Seen, UnreadMessages
    from tests.simulation.users import Session

Unread = tuple[float, tuple[str, ...]]
"""After how many seconds the application is told about which subjects."""

RETRY_SECONDS = 0.3
PUBLISHER_SECONDS = 8.0
"""How long a publisher waits for a response."""

ATTEMPTS = 12
"""How often a publisher with an idempotency key tries."""

PROMPT_SECONDS = 1.0
"""In this time a held poll is answered with a message that was acknowledged, where there is no fault."""

HEARTBEAT_SECONDS = 5.0
"""How long a stream may be silent (`stream_heartbeat_seconds`)."""

EMPTY_AT_ONCE = 10
"""So many answers without anything, each at once although the poll had a timeout, are a loop. A drain gives a few."""


def attributes_of(data: str) -> dict[str, str | bool]:
    """What a message with this data has beside it: a third of them have no event, and one of eight is ephemeral."""
    number = crc32(data.encode())
    attributes: dict[str, str | bool] = {"event": f"e{number % 97}"} if number % 3 else {}
    return {**attributes, "ephemeral": True} if number % 8 == 0 else attributes


def key_of(publisher: str) -> str:
    """The publish key of the publisher with this name."""
    return f"key-of-publisher-{publisher}"


class Publisher:
    """Makes one publication after the other."""

    def __init__(self, world: World, network: Network, name: str, record: Record) -> None:
        self.world = world
        self.process = Process(world, name)
        self._network = network
        self._record = record
        self._number = 0
        self.unread: UnreadMessages | None = None

    def publish(
        self,
        host: str,
        channels: list[tuple[str, ...]],
        key: str | None,
        ack: str,
        name: str | None = None,
        unread: Unread | None = None,
    ) -> None:
        """Publish a message for each of these groups of channels. `unread`: those that last wait for readers."""
        self._number += 1
        name = name or f"{self.process.name}.{self._number}"
        each = [(group, f"{name}/{number}") for number, group in enumerate(channels)]
        messages = tuple(Draft(group, data, "ephemeral" in attributes_of(data)) for group, data in each)
        publication = Publish(at=self._record.now, publication=name, messages=messages, key=key, ack=ack)
        self._record.take(publication)
        if unread is not None and self.unread is not None:
            for message in messages:
                if not message.ephemeral:
                    self.unread.published(message.data, unread)
        self._try(host, publication, 1, unread)

    def _try(self, host: str, publication: Publish, attempt: int, unread: Unread | None) -> None:
        client = HttpClient(self._network, self.process)
        name = publication.publication
        messages = [
            {
                "channels": list(message.channels),
                "data": message.data,
                **attributes_of(message.data),
                **({} if unread is None or message.ephemeral else {"unread_after": unread[0], "for": unread[1]}),
            }
            for message in publication.messages
        ]
        body: dict[str, object] = {**messages[0]} if len(messages) == 1 else {"messages": messages}
        if publication.ack != "accepted":
            body.update(ack=publication.ack, ack_timeout=3.0)
        headers = {"Authorization": f"Bearer {key_of(self.process.name)}"}
        if publication.key is not None:
            headers["Idempotency_Key"] = publication.key
        data = request("POST", "/v1/messages", body, **headers)
        self.world.tell(f"{name}: publishes on {[message.channels for message in publication.messages]} at {host}")

        began = self.world.now

        def replied(reply: Message | None) -> None:
            client.drop()
            text = "no reply" if reply is None else f"{reply.status} {reply.body.decode()}"
            self.world.tell(f"{name}: {text}")
            if reply is not None and reply.status == 201:
                if attempt > 1 and reply.json["time"] < began - 0.1:
                    self.world.reach("a key was tried again after its publication had succeeded")
                self._record.take(acknowledged(self._record.now, name, reply.json))
            elif reply is not None and 400 <= reply.status < 500 and attempt == 1:
                self._record.take(Refused(at=self._record.now, publication=name, why=text))
            elif reply is not None and 400 <= reply.status < 500:
                self._record.take(GivenUp(at=self._record.now, publication=name, why=text))
            elif publication.key is not None and attempt < ATTEMPTS:
                self.process.later(RETRY_SECONDS * attempt, lambda: self._try(host, publication, attempt + 1, unread))
            else:
                self._record.take(GivenUp(at=self._record.now, publication=name, why=text))

        client.ask(host, data, PUBLISHER_SECONDS, replied)


class Subscriber:
    """Polls, and continues with the cursor of each answer that it got."""

    def __init__(
        self, world: World, network: Network, name: str, record: Record, channels: tuple[str, ...], cursor: str
    ) -> None:
        self.world = world
        self.process = Process(world, name)
        self.name = name
        self.channels = channels
        self.cursor = cursor
        self.has_begun = False
        """Whether it has a cursor of a server."""
        self._polled_at = 0.0
        self._last_trouble = ""
        self._random = world.random("subscriber", name)
        self._network = network
        self._record = record
        self._client = HttpClient(network, self.process)
        self._stream: EventStream | None = None
        self._why_streamed = ""
        self.hosts = ["balancer"]
        self.nodes: list[str] = []
        """If there are any, it opens streams there as often as it polls."""
        self.timeout = 10.0
        self.limit = 100
        self.slow = 0.0
        """Seconds before it reads an answer."""
        self.must_be_in_time = False
        """Whether a late answer is a broken promise: there is no fault that excuses it."""
        self.prompt_from = math.inf
        """From this time on, in seconds since the beginning, a late delivery is a broken promise as well."""
        self._asked_timeout = 0.0
        self._empty_at_once = 0
        self.session: Session | None = None
        """Its user; None: it sends no token."""
        self.unread: UnreadMessages | None = None
        self._says = HttpClient(network, self.process)
        """What says that it has seen something, beside its stream."""
        self._is_asked = False
        """Whether it was asked once more meanwhile."""
        self._seen: Seen | None = None
        """What its last poll or stream has said."""
        self.pause = 0.0
        """Seconds between an answer and the next poll."""
        self.sleeps_until = 0.0

    def start(self) -> None:
        self.process.later(0, self._poll)

    def sleep(self, seconds: float) -> None:
        """Break off, and come back with the old cursor."""
        self.sleeps_until = self.world.now + seconds
        if self._is_busy:
            self._record.take(Failed(at=self._record.now, subscriber=self.name, why="it breaks off, and sleeps"))
        self._drop()
        self.process.later(seconds, self._poll)

    def leave(self) -> None:
        """End, with whatever is under way."""
        self.process.die()
        self._drop()

    @property
    def is_prompt(self) -> bool:
        """Whether it waits for what comes, and will read it at once."""
        return self._is_busy and not self.slow

    @property
    def _is_busy(self) -> bool:
        return self._client.is_busy or self._stream is not None

    def _drop(self) -> None:
        """Break off whatever is under way."""
        self._client.drop()
        self._says.drop()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.drop()

    def fork(self, name: str) -> Subscriber:
        """Another subscriber that continues from the same cursor, and has received the same."""
        other = Subscriber(self.world, self._network, name, self._record, self.channels, self.cursor)
        self._record.take(Fork(at=self._record.now, subscriber=name, of=self.name))
        other.has_begun = self.has_begun
        other.session = None if self.session is None else self.session.again()
        other.unread = self.unread
        other.hosts, other.nodes, other.timeout, other.limit = self.hosts, self.nodes, self.timeout, self.limit
        return other

    def _poll(self) -> None:
        if self._is_busy or self.world.now < self.sleeps_until - 1e-6:
            return
        query = self._query()
        self._seen = self._sends()
        if self.nodes and self._random.random() < 0.5:
            self._open_stream(query)
            return
        target = f"/v1/poll?{query}&timeout={self.timeout:g}&limit={self.limit}"
        host = self._random.choice(self.hosts)
        self._note_poll(self.timeout)
        self._client.ask(host, request("GET", target, **self._headers()), self.timeout + 10.0, self._replied, self.slow)

    def _query(self) -> str:
        return "&".join(f"channel={quote(name, safe='')}" for name in self.channels) + f"&cursor={self.cursor}"

    def _sends(self) -> Seen | None:
        """It says what it has seen."""
        if self.unread is None or self.session is None:
            return None
        return self.unread.sends(self.session.subject, self.channels, self.cursor)

    def _was_told(self, seen: Seen | None) -> None:
        """What it has said was answered."""
        if seen is not None and self.unread is not None:
            self.unread.answered(seen)

    def _say_what_was_seen(self) -> None:
        """A stream asks for it (the event `unread`)."""
        self.world.reach("a stream was asked what its client has seen")
        self._is_asked = self._says.is_busy
        if self._is_asked:
            return  # it says so when it has said what it knew before
        seen = self._sends()

        def replied(reply: Message | None) -> None:
            if reply is not None and reply.status == 200:
                self._was_told(seen)
            if self._is_asked:
                self._say_what_was_seen()

        data = request("GET", f"/v1/poll?{self._query()}&timeout=0&limit=1", **self._headers())
        self._says.ask(self._random.choice(["balancer", *self.nodes]), data, 5.0, replied)

    def _headers(self) -> dict[str, str]:
        return {} if self.session is None else self.session.begin()

    def _failed(self, why: str) -> None:
        self._record.take(Failed(at=self._record.now, subscriber=self.name, why=why))
        if self.session is not None:
            self.session.refused(why, self.process.later)

    def _note_poll(self, timeout: float) -> None:
        """It waits for what comes after its cursor."""
        self._polled_at = self.world.now
        self._asked_timeout = timeout
        self._record.take(
            Poll(at=self._record.now, subscriber=self.name, channels=self.channels, cursor=self.cursor, timeout=timeout)
        )

    # A stream is recorded as a chain of polls: each group of events answers one, and the next begins there.

    def _open_stream(self, query: str) -> None:
        self._note_poll(HEARTBEAT_SECONDS)
        self._stream = EventStream(
            self._network,
            self.process,
            silence=HEARTBEAT_SECONDS + 10.0,
            slow=lambda: self.slow,
            on_events=self._streamed,
            on_end=self._stream_ended,
        )
        self._stream.open(self._random.choice(self.nodes), f"/v1/events?{query}", self._headers())

    def _streamed(self, events: list[Event]) -> None:
        held = self.world.now - self._polled_at
        self.world.reach("an event of a stream")
        if self.must_be_in_time and held > self._asked_timeout + self.slow + 1.5:
            raise BrokenPromise(f"heartbeats come: {self.name} heard nothing for {held:.1f} s")
        self._why_streamed = next((event.data["type"] for event in events if event.event == "error"), "")
        self._was_told(self._seen)
        self._seen = None
        is_asked = any(event.event == "unread" for event in events)
        events = [event for event in events if event.event != "unread"]
        if events:
            self._take(events, held)
        if is_asked:
            self._say_what_was_seen()

    def _take(self, events: list[Event], held: float) -> None:
        """What a poll would have been answered with."""
        cursor = next((event.id for event in reversed(events) if event.id), None)
        if cursor is None:
            self.world.tell(f"{self.name}: at {self.cursor or 'the beginning'}, by a stream: {events}")
            return
        answer = {
            "cursor": cursor,
            "messages": [event.data for event in events if event.data is not None and not event.event],
            "gaps": [event.data for event in events if event.event == "gap"],
            "closed": [event.data["channel"] for event in events if event.event == "closed"],
            "more": False,
        }
        if answer["messages"] or answer["gaps"] or answer["closed"]:
            self.world.tell(f"{self.name}: at {self.cursor or 'the beginning'}, by a stream: {answer}")
        self._record.take(answered(self._record.now, self.name, answer))
        self.cursor, self.has_begun = cursor, True
        self._check(answer, max(held, 1.0))  # heartbeats have times of their own
        self._note_poll(HEARTBEAT_SECONDS)

    def _stream_ended(self, why: str) -> None:
        self._stream = None
        if not why:
            self.world.reach("a stream ended in order")
        self._failed(why or self._why_streamed or "the stream has ended")
        self._why_streamed = ""
        if why:
            self.world.tell(f"{self.name}: at {self.cursor or 'the beginning'}, by a stream: {why}")
        self.process.later(RETRY_SECONDS * (0.5 + self._random.random()), self._poll)

    def _replied(self, reply: Message | None) -> None:
        wait = self.pause
        held = self.world.now - self._polled_at
        if self.must_be_in_time and held > self._asked_timeout + self.slow + 1.5:
            raise BrokenPromise(
                f"holds end in time: {self.name} asked for {self._asked_timeout:g} s, and was held for {held:.1f} s"
            )
        if reply is None or reply.status != 200:
            text = "no reply" if reply is None else f"{reply.status} {reply.body.decode()}"
            if text != self._last_trouble:
                self._last_trouble = text
                self.world.tell(f"{self.name}: at {self.cursor or 'the beginning'}: {text}")
            self._failed(text)
            wait = RETRY_SECONDS * (0.5 + self._random.random())
        else:
            self._last_trouble = ""
            self._was_told(self._seen)
            answer = reply.json
            if answer["messages"] or answer["gaps"] or answer["closed"]:
                self.world.tell(f"{self.name}: at {self.cursor or 'the beginning'}: {reply.body.decode()}")
            self._record.take(answered(self._record.now, self.name, answer))
            self.cursor, self.has_begun = answer["cursor"], True
            self._check(answer, held)
            if not answer["messages"] and not answer["gaps"] and self.timeout == 0:
                wait = max(wait, 0.25)
        self.process.later(wait, self._poll)

    def _check(self, answer: Any, held: float) -> None:
        """Messages come as they were published and as soon as they are acknowledged; empty answers take their time."""
        for message in answer["messages"]:
            if self.session is not None:
                self.session.got(message["data"])
            fields = {name: message[name] for name in message if name not in ("id", "time", "channels", "data")}
            if fields != attributes_of(message["data"]):
                raise BrokenPromise(f"as it was published: {self.name} got {message}")
            publication = self._record.checker.publications[message["data"].rpartition("/")[0]]
            polled_at = self._polled_at - self.world.began
            late = self._record.now - max(polled_at, publication.acknowledged_at) - self.slow
            if publication.ids and publication.began_at >= self.prompt_from and late > PROMPT_SECONDS:
                raise BrokenPromise(
                    f"delivered at once: {self.name} got {message['data']} {late:.1f} s after it was acknowledged"
                )
        is_empty = not answer["messages"] and not answer["gaps"] and not answer["closed"]
        is_early = self._asked_timeout >= 1 and held - self.slow < 0.1
        self._empty_at_once = self._empty_at_once + 1 if is_empty and is_early else 0
        if self._empty_at_once > EMPTY_AT_ONCE:
            raise BrokenPromise(
                f"no hot loop: {self.name} was answered {self._empty_at_once} times at once, each time without anything"
            )
