"""The simulated client's reading of an event stream."""

from __future__ import annotations

import pytest

from tests.simulation.network import End, Network
from tests.simulation.streams import Event, EventStream
from tests.simulation.world import Process, World

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Streaming:
    """A client with a stream, and the server's end of it."""

    def __init__(self, slow: float = 0.0) -> None:
        self.world = World("streams")
        self.network = Network(self.world)
        self.server = Process(self.world, "server")
        self.ends: list[End] = []
        self.asked = b""
        self.events: list[list[Event]] = []
        self.over: list[str] = []
        self.network.listen("server", self.server, self._accept)
        self.stream = EventStream(
            self.network,
            Process(self.world, "client"),
            silence=10.0,
            slow=lambda: slow,
            on_events=self.events.append,
            on_end=self.over.append,
        )
        self.stream.open("server", "/v1/events?channel=a")
        self.run()

    def _accept(self, end: End) -> None:
        self.ends.append(end)

        def received(data: bytes) -> None:
            self.asked += data

        end.on_data = received

    def run(self, seconds: float = 1.0) -> None:
        self.world.run(self.world.now + seconds)

    def send(self, data: bytes) -> None:
        self.ends[0].send(data)
        self.run()


@pytest.fixture
def streaming() -> Streaming:
    return Streaming()


def test_events_come_with_each_chunk(streaming: Streaming) -> None:
    """However its bytes are split."""
    assert streaming.asked.startswith(b"GET /v1/events?channel=a HTTP/1.1\r\n")
    data = (
        HEAD
        + chunk(b":\nretry: 1000\n\n")
        + chunk(b'event: gap\ndata: {"channel": "a"}\n\nid: e-2\ndata: {"id": "e-2"}\n\n')
    )
    for at in range(0, len(data), 7):
        streaming.send(data[at : at + 7])
    assert streaming.events == [[Event("gap", "", {"channel": "a"}), Event("", "e-2", {"id": "e-2"})]]
    streaming.send(chunk(b":\nid: e-3\n\n"))
    assert streaming.events[1:] == [[Event("", "e-3", None)]]
    assert streaming.over == []


def test_a_stream_that_ends_in_order(streaming: Streaming) -> None:
    streaming.send(HEAD + b"0\r\n\r\n")
    assert streaming.over == [""]


def test_a_stream_that_is_cut_off(streaming: Streaming) -> None:
    """What has come of a chunk does not count."""
    streaming.send(HEAD + chunk(b"id: e-3\n\n")[:-4])
    streaming.ends[0].close()
    streaming.run()
    assert (streaming.events, streaming.over) == ([], ["the connection has ended"])


def test_silence(streaming: Streaming) -> None:
    """It counts from the last bytes."""
    streaming.send(HEAD)
    streaming.run(8.0)
    streaming.send(chunk(b":\n\n"))
    streaming.run(8.0)
    assert streaming.over == []
    streaming.run(3.0)
    assert streaming.over == ["silence"]


def test_a_refusal(streaming: Streaming) -> None:
    streaming.send(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}")
    assert streaming.over == ["503 {}"]


def test_no_server() -> None:
    world = World("streams")
    over: list[str] = []
    stream = EventStream(
        Network(world),
        Process(world, "client"),
        silence=10.0,
        slow=lambda: 0.0,
        on_events=lambda events: None,
        on_end=over.append,
    )
    stream.open("nowhere", "/v1/events")
    world.run(world.now + 2.0)
    assert over == ["no server"]


def test_a_slow_reader() -> None:
    streaming = Streaming(slow=3.0)
    streaming.send(HEAD + chunk(b"id: e-1\n\n"))
    assert streaming.events == []
    streaming.run(3.0)
    assert streaming.events == [[Event("", "e-1", None)]]


def test_a_stream_that_is_dropped_tells_nobody(streaming: Streaming) -> None:
    streaming.send(HEAD)
    streaming.stream.drop()
    streaming.run(20.0)
    assert streaming.over == []
