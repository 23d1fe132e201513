"""A swarm of long-polling clients and their publishers, in one process on a bare epoll loop.

locust spends more processor time on a poll than a server does; here a delivery costs about 15 us. Each subscriber keeps
its cursor and polls again at once. Each message carries its number and the time it was due, so that subscribers can
tell how long it took, and whether any is missing, repeated or out of order.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import psutil

from loadtest.load.epoll_client import Connection, Loop
from loadtest.reports.results import percentile

Address = tuple[str, int]

POLL_SECONDS = 50
"""Timeout that subscribers request for their polls; from PushUp §4.2."""

RETRY_SECONDS = 0.1
"""Delay before a client reconnects, or retries a poll that failed."""

CACHED_ANSWERS = 4096
"""Maximum number of different answers cached, so that equal ones are parsed only once."""


class Measured(NamedTuple):
    """A swarm's measurements. Times in seconds; `cpu`: processor seconds used by each watched group of processes, and
    `system_cpu` those of them in the kernel. `polls`: how many were answered.
    """

    subscribers: int
    published: int
    refused: int
    expected: int
    delivered: int
    repeated: int
    out_of_order: int
    gaps: int
    reconnected: int
    trips: list[float]
    acknowledgements: list[float]
    seconds: float
    cpu: dict[str, float]
    own_cpu: float
    system_cpu: dict[str, float]
    polls: int

    @property
    def received_share(self) -> float:
        """The share (0 to 1) of expected deliveries that arrived (PushUp §4.1.1, RMP)."""
        return self.delivered / self.expected if self.expected else 0.0

    @property
    def mean_trip(self) -> float:
        """Mean seconds from a message's creation to its reception (PushUp §4.1.1, MPT)."""
        return sum(self.trips) / len(self.trips) if self.trips else 0.0

    def trip(self, share: float) -> float:
        return percentile(self.trips, share)


class Answer(NamedTuple):
    """A parsed poll response: the next cursor, the number and creation time of each message, the number of gaps."""

    cursor: str
    messages: tuple[tuple[int, float], ...]
    gaps: int


class Interface(Protocol):
    """A server's HTTP interface. A message is the JSON array [number, creation time, padding]."""

    def first_cursor(self, ask: Callable[[str], bytes]) -> str:
        """The cursor to start from; `ask` fetches the body at a path."""

    def poll(self, channel: str, cursor: str) -> tuple[str, str]:
        """A poll's target and header fields, each field ending in CRLF."""

    def read(self, head: bytes, body: bytes) -> Answer:
        """Parse a response with status 200."""

    def publish(self, channel: str, message: str) -> tuple[str, str]:
        """A publication's target and body."""


class StreamInterface(Interface, Protocol):
    """A server's HTTP interface with streams of server-sent events."""

    def stream(self, channel: str, cursor: str) -> tuple[str, str]:
        """A stream's target and header fields, each field ending in CRLF."""

    def read_event(self, event: bytes) -> Answer:
        """Parse the lines of an event."""


class PushUpInterface:
    """PushUp's interface (docs/guide/http.md). Equal answers are parsed only once."""

    def __init__(self) -> None:
        self._answers: dict[bytes, Answer] = {}

    def first_cursor(self, ask: Callable[[str], bytes]) -> str:
        return str(json.loads(ask("/v1/cursor"))["cursor"])

    def poll(self, channel: str, cursor: str) -> tuple[str, str]:
        return f"/v1/poll?channel={channel}&cursor={cursor}&timeout={POLL_SECONDS}", ""

    def read(self, head: bytes, body: bytes) -> Answer:
        answer = self._answers.get(body)
        if answer is None:
            value: dict[str, Any] = json.loads(body)
            messages = tuple((message["data"][0], message["data"][1]) for message in value["messages"])
            if len(self._answers) >= CACHED_ANSWERS:
                self._answers.clear()
            answer = self._answers[body] = Answer(value["cursor"], messages, len(value["gaps"]))
        return answer

    def publish(self, channel: str, message: str) -> tuple[str, str]:
        return "/v1/messages", f'{{"channels":["{channel}"],"data":{message}}}'


class PushUpStreams(PushUpInterface):
    """PushUp's event streams. Equal events are parsed only once."""

    def stream(self, channel: str, cursor: str) -> tuple[str, str]:
        return f"/v1/events?channel={channel}&cursor={cursor}", ""

    def read_event(self, event: bytes) -> Answer:
        answer = self._answers.get(event)
        if answer is None:
            fields = dict(line.split(b": ", 1) for line in event.split(b"\n") if b": " in line)
            cursor = fields.get(b"id", b"").decode()
            if b"data" not in fields or b"event" in fields:
                return Answer(cursor, (), fields.get(b"event") == b"gap")
            message = json.loads(fields[b"data"])
            if len(self._answers) >= CACHED_ANSWERS:
                self._answers.clear()
            answer = self._answers[event] = Answer(cursor, ((message["data"][0], message["data"][1]),), 0)
        return answer


class _Subscriber:
    """One client: its cursor, and the number of the last message it received."""

    __slots__ = ("address", "channel", "connection", "cursor", "number")

    def __init__(self, channel: int, address: Address, cursor: str) -> None:
        self.channel = channel
        self.address = address
        self.cursor = cursor
        self.number = 0
        self.connection: Connection | None = None


class _Publisher:
    """One publishing connection. A channel always uses the same one, so that its messages stay in order."""

    __slots__ = ("address", "connection", "sent")

    def __init__(self, address: Address) -> None:
        self.address = address
        self.connection: Connection | None = None
        self.sent: deque[float] = deque()


class Swarm:
    """Subscribers spread evenly over channels and addresses, and publishers that divide the channels among them."""

    def __init__(
        self,
        polls: Sequence[Address],
        publications: Sequence[Address],
        *,
        subscribers: int,
        channels: int = 1,
        publishers: int = 1,
        publish_headers: str = "",
        poll_headers: str = "",
        watched: Mapping[str, Sequence[int]] | None = None,
        payload_bytes: int = 128,
        interface: Interface | None = None,
        streams: StreamInterface | None = None,
    ) -> None:
        """`watched`: groups of process ids, by name, whose processor time is measured. With `streams`, subscribers open
        streams instead of polling. `poll_headers`: further fields of each poll, each ending in CRLF.
        """
        self._loop = Loop()
        self._addresses = polls
        self._publishers = [_Publisher(publications[number % len(publications)]) for number in range(publishers)]
        self._publish_headers = publish_headers
        self._poll_headers = poll_headers
        self._watched = {name: [psutil.Process(pid) for pid in pids] for name, pids in (watched or {}).items()}
        self._channels = channels
        self._name = f"swarm-{time.time_ns()}"
        self._payload = "x" * payload_bytes
        self._interface = interface or PushUpInterface()
        self._streams = streams
        self._subscribers = [
            _Subscriber(number % channels, polls[number % len(polls)], "") for number in range(subscribers)
        ]
        self._by_connection: dict[Connection, _Subscriber] = {}
        self._numbers = [0] * channels
        self._next_channel = 0
        self._since = 0.0
        self._window = 0.0
        self._closes = 0.0
        self._clear()

    def _clear(self) -> None:
        self._trips: list[float] = []
        self._acknowledgements: list[float] = []
        self.published = self.refused = self.expected = self.delivered = 0
        self.repeated = self.out_of_order = self.gaps = self.reconnected = self.polls = 0

    # Running.

    def begin(self) -> None:
        """Connect all clients, and start polling from the current cursor.

        Publishers connect first, so that messages are published even if the server cannot accept all subscribers.
        """
        cursor = self._interface.first_cursor(self._ask)
        for publisher in self._publishers:
            self._connect_publisher(publisher)
        for subscriber in self._subscribers:
            subscriber.cursor = cursor
            self._connect(subscriber)
        self._loop.run_until(time.time() + 0.5 + len(self._subscribers) / 10_000)

    def measure(self, *, interval: float = 0.0, window: float = 0, seconds: float, drain: float = 3.0) -> Measured:
        """Publish for `seconds` on one channel after another, and count deliveries.

        A message per `interval` seconds; or, in a closed loop, as many as keep `window` messages under way. Without
        subscribers, a message is under way until it is acknowledged. Waits up to `drain` seconds more for the last
        ones. Messages of before are not counted.
        """
        self._clear()
        cpu = self._cpu()
        own = time.process_time()
        began = self._since = time.time()
        planned = 0
        if window:
            self._window, self._closes = window, began + seconds
            self._fill()
        else:
            planned = max(1, round(seconds / interval))
            for number in range(planned):
                due = began + number * interval
                self._loop.at(due, partial(self._publish, due))
        self._loop.run_until(began + seconds)
        self._window = 0.0
        end = time.time() + drain
        # Not all may have been published, if this process did not run for a while.
        while time.time() < end and (
            self.published < planned
            or self.delivered + self.repeated < self.expected
            or (window and self._under_way > 0)
        ):
            self._loop.run_until(min(end, time.time() + 0.05))
        took = time.time() - began
        after = self._cpu()
        return Measured(
            len(self._subscribers), self.published, self.refused, self.expected, self.delivered, self.repeated,
            self.out_of_order, self.gaps, self.reconnected, self._trips, self._acknowledgements, took,
            {name: sum(after[name]) - sum(cpu[name]) for name in cpu}, (time.process_time() - own) / took,
            {name: after[name][1] - cpu[name][1] for name in cpu}, self.polls,
        )  # fmt: skip

    def close(self) -> None:
        self._loop.close()

    # Polling.

    def _ask(self, path: str) -> bytes:
        found: list[bytes] = []

        def responded(connection: Connection, status: int, body: bytes) -> None:
            found.append(body)
            connection.close()
            self._loop.stop()

        Connection(self._loop, self._addresses[0], responded).get(path)
        self._loop.run_until(time.time() + 10)
        if not found:
            raise RuntimeError(f"the server did not answer {path}")
        return found[0]

    def _connect(self, subscriber: _Subscriber) -> None:
        try:
            connection = Connection(self._loop, subscriber.address, self._answered, ended=self._ended)
        except OSError:
            self._loop.at(time.time() + RETRY_SECONDS, lambda: self._connect(subscriber))
            return
        subscriber.connection = connection
        self._by_connection[connection] = subscriber
        self._poll(subscriber, connection)

    def _ended(self, connection: Connection) -> None:
        subscriber = self._by_connection.pop(connection)
        self.reconnected += 1
        self._loop.at(time.time() + RETRY_SECONDS, lambda: self._connect(subscriber))

    def _poll(self, subscriber: _Subscriber, connection: Connection) -> None:
        channel, streams = f"{self._name}-{subscriber.channel}", self._streams
        if streams is None:
            target, headers = self._interface.poll(channel, subscriber.cursor)
            connection.get(target, headers + self._poll_headers)
        else:
            target, headers = streams.stream(channel, subscriber.cursor)
            connection.stream(target, self._streamed, headers)

    def _streamed(self, connection: Connection, event: bytes) -> None:
        subscriber, streams = self._by_connection[connection], self._streams
        assert streams is not None
        answer = streams.read_event(event)
        subscriber.cursor = answer.cursor or subscriber.cursor
        self._count(subscriber, answer)
        if self._window:
            self._fill()

    def _answered(self, connection: Connection, status: int, body: bytes) -> None:
        subscriber = self._by_connection[connection]
        if status != 200:
            self._loop.at(time.time() + RETRY_SECONDS, lambda: self._poll_again(connection))
            return
        answer = self._interface.read(connection.head, body)
        self.polls += 1
        subscriber.cursor = answer.cursor
        self._poll(subscriber, connection)
        self._count(subscriber, answer)
        if self._window:
            self._fill()

    def _count(self, subscriber: _Subscriber, answer: Answer) -> None:
        if answer.messages:
            now = time.time()
            for number, due in answer.messages:
                if due < self._since:
                    subscriber.number = max(subscriber.number, number)
                elif number > subscriber.number:
                    self.delivered += 1
                    self._trips.append(now - due)
                    subscriber.number = number
                elif number == subscriber.number:
                    self.repeated += 1
                else:
                    self.out_of_order += 1
        self.gaps += answer.gaps

    def _poll_again(self, connection: Connection) -> None:
        if not connection.closed:
            self._poll(self._by_connection[connection], connection)

    # Publishing.

    def _fill(self) -> None:
        """Publish until as many messages are under way as there should be."""
        now = time.time()
        while now < self._closes and self._under_way < self._window:
            self._publish(now)

    @property
    def _under_way(self) -> float:
        if not self._subscribers:
            return self.published - len(self._acknowledgements) - self.refused
        return (self.expected - self.delivered - self.repeated) * self._channels / len(self._subscribers)

    def _publish(self, due: float) -> None:
        channel = self._next_channel
        self._next_channel = (channel + 1) % self._channels
        self._numbers[channel] += 1
        message = json.dumps([self._numbers[channel], due, self._payload])
        target, body = self._interface.publish(f"{self._name}-{channel}", message)
        publisher = self._publishers[channel % len(self._publishers)]
        if publisher.connection is None or publisher.connection.closed:
            self._connect_publisher(publisher)
        publisher.sent.append(time.time())
        assert publisher.connection is not None
        try:
            publisher.connection.post(target, body.encode(), self._publish_headers)
        except OSError:  # the server has closed it, and that has not been read yet
            publisher.connection.close()
            self.refused += 1
        if due >= self._since:  # else it is of the warm-up, and late
            self.published += 1
            self.expected += len(range(channel, len(self._subscribers), self._channels))

    def _connect_publisher(self, publisher: _Publisher) -> None:
        def acknowledged(connection: Connection, status: int, body: bytes) -> None:
            sent = publisher.sent.popleft()
            if status in (201, 202):
                self._acknowledgements.append(time.time() - sent)
            else:
                self.refused += 1
            if self._window and not self._subscribers:
                self._fill()

        publisher.sent.clear()
        publisher.connection = Connection(self._loop, publisher.address, acknowledged)

    def _cpu(self) -> dict[str, tuple[float, float]]:
        """Of each group, in user mode and in the kernel."""
        found = {}
        for name, processes in self._watched.items():
            times = [process.cpu_times() for process in processes]
            found[name] = sum(t.user for t in times), sum(t.system for t in times)
        return found
