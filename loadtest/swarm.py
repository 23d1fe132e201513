"""A swarm of long-polling clients and the publishers they hear, in one process on a bare epoll loop.

locust spends more processor time on a poll than a server does; here a delivery costs about 15 us. Each subscriber keeps
its cursor and polls again at once; each publisher numbers its messages and says when each was due, so that everything
that is received tells how long it took, and whether something is missing, repeated or out of order.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import psutil

from loadtest.epoll_client import Connection, Loop
from loadtest.results import percentile

Address = tuple[str, int]

POLL_SECONDS = 50
"""How long a subscriber asks to be held; as in PushUp §4.2."""

AGAIN_SECONDS = 0.1
"""After so long a client whose connection ended connects again."""

KNOWN_ANSWERS = 4096
"""Equal answers are read once; so many are remembered."""


class Measured(NamedTuple):
    """What a swarm has seen. Times in seconds; `cpu`: processor seconds of each group of processes that was watched."""

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

    @property
    def received_share(self) -> float:
        """Of what was published, how much was received (PushUp §4.1.1, RMP)."""
        return self.delivered / self.expected if self.expected else 0.0

    @property
    def mean_trip(self) -> float:
        """From a message's creation to its reception (PushUp §4.1.1, MPT)."""
        return sum(self.trips) / len(self.trips) if self.trips else 0.0

    def trip(self, share: float) -> float:
        return percentile(self.trips, share)


class Answer(NamedTuple):
    """What a poll got: where to go on; number and creation of each message; how many gaps were told."""

    cursor: str
    messages: tuple[tuple[int, float], ...]
    gaps: int


class Interface(Protocol):
    """How a server is spoken to; a message is the JSON of [number, creation, padding]."""

    def first_cursor(self, ask: Callable[[str], bytes]) -> str:
        """Where to begin; `ask` gets the body of a path."""

    def poll(self, channel: str, cursor: str) -> tuple[str, str]:
        """The target of a poll, and its header fields, each with its line end."""

    def read(self, head: bytes, body: bytes) -> Answer:
        """What is in a response with the status 200."""

    def publish(self, channel: str, message: str) -> tuple[str, str]:
        """The target and the body of a publication."""


class PushUpInterface:
    """docs/http.md. Equal answers are read once."""

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
            if len(self._answers) >= KNOWN_ANSWERS:
                self._answers.clear()
            answer = self._answers[body] = Answer(value["cursor"], messages, len(value["gaps"]))
        return answer

    def publish(self, channel: str, message: str) -> tuple[str, str]:
        return "/v1/messages", f'{{"channels":["{channel}"],"data":{message}}}'


class _Subscriber:
    """One client: its place in what is published on its channel, and its cursor."""

    __slots__ = ("address", "channel", "connection", "cursor", "number")

    def __init__(self, channel: int, address: Address, cursor: str) -> None:
        self.channel = channel
        self.address = address
        self.cursor = cursor
        self.number = 0
        self.connection: Connection | None = None


class _Publisher:
    """One connection that publishes; a channel stays on it, so that its messages are in order."""

    __slots__ = ("address", "connection", "sent")

    def __init__(self, address: Address) -> None:
        self.address = address
        self.connection: Connection | None = None
        self.sent: deque[float] = deque()


class Swarm:
    """Subscribers, spread evenly over channels and addresses, and publishers that share the channels."""

    def __init__(
        self,
        polls: Sequence[Address],
        publications: Sequence[Address],
        *,
        subscribers: int,
        channels: int = 1,
        publishers: int = 1,
        publish_headers: str = "",
        watched: Mapping[str, Sequence[int]] | None = None,
        payload_bytes: int = 128,
        interface: Interface | None = None,
    ) -> None:
        """`watched`: process ids by the name of a group, whose processor time is told."""
        self._loop = Loop()
        self._addresses = polls
        self._publishers = [_Publisher(publications[number % len(publications)]) for number in range(publishers)]
        self._publish_headers = publish_headers
        self._watched = {name: [psutil.Process(pid) for pid in pids] for name, pids in (watched or {}).items()}
        self._channels = channels
        self._name = f"swarm-{time.time_ns()}"
        self._payload = "x" * payload_bytes
        self._interface = interface or PushUpInterface()
        self._subscribers = [
            _Subscriber(number % channels, polls[number % len(polls)], "") for number in range(subscribers)
        ]
        self._by_connection: dict[Connection, _Subscriber] = {}
        self._numbers = [0] * channels
        self._next_channel = 0
        self._measuring = False
        self._clear()

    def _clear(self) -> None:
        self._trips: list[float] = []
        self._acknowledgements: list[float] = []
        self.published = self.refused = self.expected = self.delivered = 0
        self.repeated = self.out_of_order = self.gaps = self.reconnected = 0

    # The life of a swarm.

    def begin(self) -> None:
        """Connect everybody, and let them poll from here on.

        Publishers come first: where a server has no room for all its clients, there is still something to hear.
        """
        cursor = self._interface.first_cursor(self._ask)
        for publisher in self._publishers:
            self._connect_publisher(publisher)
        for subscriber in self._subscribers:
            subscriber.cursor = cursor
            self._connect(subscriber)
        self._loop.run_until(time.time() + 0.5 + len(self._subscribers) / 10_000)

    def measure(self, *, interval: float, seconds: float, drain: float = 3.0) -> Measured:
        """Publish a message each `interval` seconds, on one channel after the other, and count what comes."""
        self._clear()
        cpu = self._cpu()
        own = time.process_time()
        began = time.time()
        self._measuring = True
        for number in range(max(1, round(seconds / interval))):
            self._loop.at(began + number * interval, self._publish_next(began + number * interval))
        self._loop.run_until(began + seconds)
        self._measuring = False
        end = time.time() + drain
        while time.time() < end and self.delivered + self.repeated < self.expected:
            self._loop.run_until(min(end, time.time() + 0.05))
        took = time.time() - began
        after = self._cpu()
        return Measured(
            len(self._subscribers), self.published, self.refused, self.expected, self.delivered, self.repeated,
            self.out_of_order, self.gaps, self.reconnected, self._trips, self._acknowledgements, took,
            {name: after[name] - cpu[name] for name in cpu}, (time.process_time() - own) / took,
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
            self._loop.at(time.time() + AGAIN_SECONDS, lambda: self._connect(subscriber))
            return
        subscriber.connection = connection
        self._by_connection[connection] = subscriber
        self._poll(subscriber, connection)

    def _ended(self, connection: Connection) -> None:
        subscriber = self._by_connection.pop(connection)
        self.reconnected += 1
        self._loop.at(time.time() + AGAIN_SECONDS, lambda: self._connect(subscriber))

    def _poll(self, subscriber: _Subscriber, connection: Connection) -> None:
        connection.get(*self._interface.poll(f"{self._name}-{subscriber.channel}", subscriber.cursor))

    def _answered(self, connection: Connection, status: int, body: bytes) -> None:
        subscriber = self._by_connection[connection]
        if status != 200:
            self._loop.at(time.time() + AGAIN_SECONDS, lambda: self._poll_again(connection))
            return
        answer = self._interface.read(connection.head, body)
        subscriber.cursor = answer.cursor
        self._poll(subscriber, connection)
        if answer.messages:
            now = time.time()
            for number, due in answer.messages:
                if number > subscriber.number:
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

    def _publish_next(self, due: float) -> Any:
        return lambda: self._publish(due)

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
        publisher.connection.post(target, body.encode(), self._publish_headers)
        self.published += 1
        self.expected += len(range(channel, len(self._subscribers), self._channels))

    def _connect_publisher(self, publisher: _Publisher) -> None:
        def acknowledged(connection: Connection, status: int, body: bytes) -> None:
            sent = publisher.sent.popleft()
            if status in (201, 202):
                self._acknowledgements.append(time.time() - sent)
            else:
                self.refused += 1

        publisher.sent.clear()
        publisher.connection = Connection(self._loop, publisher.address, acknowledged)

    def _cpu(self) -> dict[str, float]:
        return {
            name: sum(times.user + times.system for times in (process.cpu_times() for process in processes))
            for name, processes in self._watched.items()
        }
