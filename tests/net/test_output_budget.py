"""What all clients together leave unread: counted once where they share it, and bounded; they continue elsewhere."""

from __future__ import annotations

import tracemalloc
from collections import Counter, deque
from random import Random

import pytest

from pushup.core.limits import Limits
from pushup.net.edge_limits import EdgeLimits
from pushup.net.output_buffer import BUFFER_BYTES, HOLDER_BYTES, PART_OVERHEAD_BYTES, RELIEF, OutputBudget, OutputBuffer
from pushup.testing.in_memory import InMemorySocket
from tests.net.event_reader import Event, cursor_of, data_of, read_events
from tests.net.in_memory_node import behind_an_edge
from tests.net.in_memory_server import Client
from tests.net.observed_log import logged_at
from tests.net.scripted_application import get

KIB = 1024
MIB = 1024 * KIB


class Slow:
    """A client that accepts what it is asked to."""

    def __init__(self, budget: OutputBudget) -> None:
        self.kernel = InMemorySocket(capacity=0)
        self.buffer = OutputBuffer(self, 1 << 30, budget)
        self.unsent: deque[bytes] = deque()
        """What it has not accepted all of."""
        self.is_lost = False
        self._accepted = 0  # bytes of the first of these

    def lost(self) -> None:
        self.is_lost = True
        self.unsent.clear()
        self.buffer.discard()

    def append(self, data: bytes) -> None:
        self.unsent.append(data)
        self.buffer.append(data)

    def accept(self, size: int) -> None:
        self.kernel.capacity = size
        self._accepted += self.buffer.write(self.kernel.send)
        while self.unsent and self._accepted >= len(self.unsent[0]):
            self._accepted -= len(self.unsent.popleft())


def ignore() -> None:
    """A budget that is exceeded."""


def test_bytes_that_clients_share_count_once() -> None:
    """They count until the last client has sent them, whoever was the first."""
    budget = OutputBudget(MIB, ignore)
    first, second = Slow(budget), Slow(budget)
    empty = budget.used
    assert empty == 2 * BUFFER_BYTES
    data = bytes(1000)
    first.buffer.append(data)
    second.buffer.append(data, 400)
    assert budget.used == empty + 1000 + PART_OVERHEAD_BYTES + HOLDER_BYTES
    first.accept(1000)
    assert budget.used == empty + 1000 + PART_OVERHEAD_BYTES
    second.accept(599)
    assert budget.used == empty + 1000 + PART_OVERHEAD_BYTES
    second.accept(1)
    assert budget.used == empty
    first.buffer.discard()
    second.buffer.discard()
    assert budget.used == 0


@pytest.mark.parametrize("seed", range(20))
def test_the_count_is_that_of_what_exists(seed: int) -> None:
    """After any appends, sends and losses it is the sum of the different parts that buffers hold; in the end 0."""
    random = Random(seed)
    budget = OutputBudget(1 << 40, ignore)
    clients = [Slow(budget) for _ in range(5)]
    shared = [bytes([number]) * random.randint(0, 300) for number in range(2, 8)]
    owners: dict[bytes, Slow | None] = {}  # who was the first to hold it, until that client has sent it
    for _ in range(300):
        client = random.choice(clients)
        kind, before = random.random(), Counter(client.unsent)
        if kind < 0.5:
            data = random.choice(shared)
            client.append(data)
            owners.setdefault(data, client)
        elif kind < 0.9:
            client.accept(random.randint(0, 400))
        else:
            client.lost()
            clients[clients.index(client)] = Slow(budget)
        owners |= {data: None for data in before - Counter(client.unsent) if owners[data] is client}
        holders = sum(len(client.unsent) for client in clients)
        unsent = {data for client in clients for data in client.unsent}
        own = sum(len(data) + PART_OVERHEAD_BYTES for data in unsent)
        assert budget.used == own + HOLDER_BYTES * (holders - len(unsent)) + BUFFER_BYTES * len(clients)
        owners = {data: owner for data, owner in owners.items() if data in unsent}
        for client in clients:
            mine = [data for data, owner in owners.items() if owner is client]
            assert client.buffer.own_bytes == sum(len(data) + PART_OVERHEAD_BYTES for data in mine)
    for client in clients:
        client.lost()
    assert budget.used == 0


def test_who_costs_most_ends_first() -> None:
    """Then who has been behind for longest; who shares what others hold costs nothing by it."""
    budget = OutputBudget(100_000, ignore)
    news = bytes(30_000)
    owner, early, late, large, *sharing = clients = [Slow(budget) for _ in range(14)]
    owner.buffer.append(news)
    for client in sharing:
        client.buffer.append(news)
    late.buffer.append(bytes(20_000))
    early.buffer.append(bytes(20_000))
    large.buffer.append(bytes(25_000))
    assert budget.relieve() == 2
    assert [client for client in clients if client.is_lost] == [owner, large]
    late.buffer.append(bytes(15_000))
    early.buffer.append(bytes(15_000))
    assert budget.relieve() == 1
    assert early.is_lost
    assert budget.used <= budget.limit - budget.limit // RELIEF


def test_it_is_told_once_and_relieved_when_called() -> None:
    """Whoever writes is not disturbed; when it has been relieved, or has become free by itself, it is told again."""
    told: list[int] = []
    budget = OutputBudget(10_000, lambda: told.append(budget.used))
    client = Slow(budget)
    client.buffer.append(bytes(20_000))
    client.buffer.append(bytes(20_001))
    assert len(told) == 1
    assert not client.is_lost
    client.accept(40_001)
    assert budget.relieve() == 0
    client.buffer.append(bytes(20_000))
    assert len(told) == 2
    assert budget.relieve() == 1
    assert client.is_lost


LIMIT = 16 * MIB
STREAMS = 1000


class Streams:
    """A node with streams that follow `all` and a channel of their own each, so that no two get the same bytes."""

    def __init__(self, **limits: int) -> None:
        self.node, self.server = behind_an_edge(EdgeLimits(**limits), limits=Limits(retention_messages=10_000))

    def follow(self, number: int, capacity: int | None = None, cursor: str = "") -> Client:
        client = self.server.connect(capacity)
        field = f"Last-Event-ID: {cursor}\r\n".encode() if cursor else b""
        client.send(get(b"/v1/events?channel=all&channel=own:%d" % number, field))
        return client

    def publish(self, size: int) -> None:
        self.node.publish("all", data="x" * size)
        self.server.demultiplexer.run()


def complete_events(data: bytes) -> list[Event]:
    """The events of a response that may break off."""
    _, _, rest = data.partition(b"\r\n\r\n")
    content = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        content += rest[: int(size or b"0", 16)]
        rest = rest[int(size or b"0", 16) + 2 :]
    return read_events(content[: content.rfind(b"\n\n") + 2])


def test_streams_that_do_not_read() -> None:
    """A thousand of them, each with its own bytes, take the budget and no more; those that read notice nothing."""
    streams = Streams(unsent_limit_bytes=LIMIT)
    reader = streams.follow(STREAMS)
    for number in range(STREAMS):
        streams.follow(number, capacity=0)
    most = 0
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    with logged_at("warn") as lines:
        for _ in range(20):
            streams.publish(8 * KIB)
            most = max(most, streams.server.edge.unsent_bytes)
            assert streams.server.edge.unsent_bytes <= LIMIT
            reader.take()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert most > LIMIT // 2
    assert used < 1.1 * LIMIT
    metrics = streams.server.metrics
    assert metrics.failed_unsent > STREAMS // 2
    assert metrics.failed_outputs == 0
    assert streams.server.edge.connection_count == STREAMS + 1 - metrics.failed_unsent
    assert streams.node.streaming.count == streams.server.edge.connection_count
    assert not reader.closed()
    assert len(lines) == 1
    assert "unsent_limit_bytes (16777216)" in lines[0]


def test_streams_that_share_their_bytes() -> None:
    """A thousand that follow the same channels hold the same bytes, and none of them is ended."""
    streams = Streams(unsent_limit_bytes=LIMIT)
    for _ in range(STREAMS):
        streams.follow(0, capacity=2000)
    for _ in range(20):
        streams.publish(8 * KIB)
    assert streams.server.metrics.failed_unsent == 0
    assert streams.server.edge.connection_count == STREAMS


def test_a_stream_that_was_ended_continues_from_its_cursor() -> None:
    """Nothing is lost: it gets what it has not read on another connection."""
    streams = Streams(unsent_limit_bytes=2 * MIB)
    clients = [streams.follow(number, capacity=50_000) for number in range(100)]
    published = ["x" * (8 * KIB + number) for number in range(30)]
    for data in published:
        streams.publish(len(data))
    ended = [number for number, client in enumerate(clients) if client.closed()]
    assert len(ended) > 50
    for number in ended[:5]:
        got = complete_events(clients[number].take())
        again = streams.follow(number, cursor=cursor_of(got))
        assert data_of(got) + data_of(complete_events(again.take())) == published
