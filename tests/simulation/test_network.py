"""The simulated network: order, clogged and cut links, and readers that are slow, paused or dead."""

from __future__ import annotations

import pytest

from tests.simulation.network import WINDOW_BYTES, End, Network
from tests.simulation.world import START, Process, World


class Host:
    """A process with a listener, and what it sees."""

    def __init__(self, network: Network, name: str) -> None:
        self.network = network
        self.process = Process(network.world, name)
        self.ends: list[End] = []
        self.seen: list[str] = []
        network.listen(name, self.process, self._use)

    def _use(self, end: End) -> None:
        self.ends.append(end)
        end.on_data = lambda data: self.seen.append(data.decode() if len(data) < 99 else f"{len(data)} bytes")
        end.on_end = lambda: self.seen.append("end")
        end.on_lost = lambda: self.seen.append("lost")
        end.on_room = lambda: self.seen.append("room")

    def connect(self, target: str) -> None:
        self.network.connect(self.process.name, self.process, target, self._use, lambda: self.seen.append("failed"))

    def taken(self) -> list[str]:
        seen, self.seen = self.seen, []
        return seen


class Pair:
    """Two hosts; `one` has connected to `other`."""

    def __init__(self) -> None:
        self.world = World("test")
        self.network = Network(self.world)
        self.one, self.other = Host(self.network, "one"), Host(self.network, "other")
        self.one.connect("other")
        self.run(1)

    def run(self, seconds: float) -> None:
        self.world.run(self.world.now + seconds)

    @property
    def ends(self) -> tuple[End, End]:
        return self.one.ends[0], self.other.ends[0]


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_bytes_arrive_late_and_in_order(pair: Pair) -> None:
    """Although each has a delay of its own; nothing arrives at once, and the end comes last."""
    one, other = pair.ends
    for number in range(50):
        one.send(b"%d" % number)
    one.end()
    one.send(b"never")
    other.send(b"hello")
    assert pair.other.taken() == []
    pair.run(1)
    assert pair.other.taken() == [*map(str, range(50)), "end"]
    assert pair.one.taken() == ["hello"]  # it may still be sent to


@pytest.mark.parametrize("direction", ["to", "from"])
def test_a_clogged_direction(pair: Pair, direction: str) -> None:
    """What is sent that way is kept and arrives in order when the link is released; the other way is free."""
    one, other = pair.ends
    there, back = pair.network.both("one", "other")
    clogged = there if direction == "to" else back
    clogged.clogged = True
    one.send(b"a")
    other.send(b"x")
    pair.run(9)
    assert (pair.other.taken(), pair.one.taken()) == (([], ["x"]) if direction == "to" else (["a"], []))
    one.send(b"b")
    other.send(b"y")
    clogged.release()
    one.send(b"c")
    pair.run(1)
    assert (pair.other.taken(), pair.one.taken()) == (
        (["a", "b", "c"], ["y"]) if direction == "to" else (["b", "c"], ["x", "y"])
    )


@pytest.mark.parametrize("direction", [0, 1])
def test_nobody_can_connect_by_a_clogged_link(pair: Pair, direction: int) -> None:
    """Whichever direction it is; the attempt fails after a while."""
    pair.network.both("one", "other")[direction].clogged = True
    pair.one.connect("other")
    pair.run(0.9)
    assert pair.one.taken() == []
    pair.run(0.2)
    assert pair.one.taken() == ["failed"]
    assert len(pair.other.ends) == 1


def test_a_cut_link(pair: Pair) -> None:
    """Its connections are reset at both ends, new ones fail until it is mended, and others are not affected."""
    third = Host(pair.network, "third")
    third.connect("other")
    pair.run(1)
    pair.ends[0].send(b"lost on the way")
    pair.network.cut("one", "other")
    pair.run(1)
    assert set(pair.one.taken()) == {"lost"}
    assert set(pair.other.taken()) == {"lost"}
    assert third.taken() == []
    assert [end.is_open for end in (*pair.ends, third.ends[0])] == [False, False, True]
    pair.one.connect("other")
    pair.run(1)
    assert pair.one.taken() == ["failed"]
    pair.network.heal()
    pair.one.connect("other")
    pair.run(1)
    assert pair.one.taken() == []
    assert pair.one.ends[-1].is_open


def test_a_reset_and_a_close(pair: Pair) -> None:
    """The other end sees a reset, or an end; who sends to a closed end is reset."""
    one, other = pair.ends
    one.close()
    pair.run(1)
    assert pair.other.taken() == ["end"]
    other.send(b"is anybody there?")
    pair.run(1)
    assert pair.other.taken() == ["lost"]
    assert pair.one.taken() == []
    pair.one.connect("other")
    pair.run(1)
    pair.one.ends[-1].reset()
    pair.run(1)
    assert pair.other.taken() == ["lost"]
    assert not pair.network.connections


def test_the_window_of_somebody_who_does_not_read(pair: Pair) -> None:
    """The sender has less and less room, none at all when it is full, and is told when there is some again."""
    one, other = pair.ends
    other.read(False)
    one.send(bytes(WINDOW_BYTES - 100))
    assert one.room == 100
    one.send(bytes(100))
    pair.run(1)
    assert one.room == 0
    assert (pair.one.taken(), pair.other.taken()) == ([], [])
    other.read()
    pair.run(1)
    assert pair.other.taken() == [f"{WINDOW_BYTES - 100} bytes", "100 bytes"]
    assert pair.one.taken() == ["room"]
    assert one.room == WINDOW_BYTES


def test_a_paused_process(pair: Pair) -> None:
    """Its kernel accepts connections and bytes; it finds them, in order, when it is resumed."""
    pair.other.process.pause()
    pair.ends[0].send(b"a")
    pair.one.connect("other")
    pair.run(5)
    assert len(pair.one.ends) == 2
    pair.one.ends[1].send(b"b")
    pair.run(1)
    assert (pair.other.taken(), len(pair.other.ends)) == ([], 1)
    pair.other.process.resume()
    pair.run(1)
    assert (pair.other.taken(), len(pair.other.ends)) == (["a", "b"], 2)


def test_a_dead_process(pair: Pair) -> None:
    """Its connections are reset and nobody can connect, until another process listens there."""
    pair.other.process.die()
    pair.run(1)
    assert pair.one.taken() == ["lost"]
    pair.one.connect("other")
    pair.run(1)
    assert pair.one.taken() == ["failed"]
    again = Host(pair.network, "other")
    pair.one.connect("other")
    pair.run(1)
    assert len(again.ends) == 1
    assert pair.other.taken() == []


def test_a_process_that_dies_while_it_connects() -> None:
    """The other end, which was accepted, is reset."""
    pair = Pair()
    pair.network.close_all(pair.one.process)
    pair.run(1)
    pair.other.taken()
    client = Process(pair.world, "client")
    for link in pair.network.both("client", "other"):
        link.seconds = 0.1
    pair.network.connect("client", client, "other", lambda end: None, lambda: None)
    while len(pair.other.ends) < 2:
        pair.run(0.01)
    client.die()
    pair.run(1)
    assert pair.other.taken() == ["lost"]
    assert pair.network.connections == {}


def test_the_delay_of_a_link(pair: Pair) -> None:
    """From half to twice of what is usual there, each direction by itself."""
    there = pair.network.link("one", "other")
    there.seconds = 1.0
    delays = [there.delay() for _ in range(500)]
    assert 0.5 <= min(delays) < 0.6
    assert 1.9 < max(delays) <= 2.0
    pair.ends[0].send(b"slow")
    pair.ends[1].send(b"fast")
    pair.run(0.4)
    assert (pair.one.taken(), pair.other.taken()) == (["fast"], [])
    pair.run(1.7)
    assert pair.other.taken() == ["slow"]
    assert pair.world.now > START
