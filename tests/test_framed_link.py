"""The stream of frames between two processes: frames, holding, a full transport, and the end."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from pushup.transport.framed_link import LENGTH_BYTES, UNSENT_LIMIT_BYTES, Link, framed
from tests.piped_links import TurnClock, join

BODIES = [b"", b"a", b"", b"two\n", bytes(range(256)) * 3, b"\x00\x00\x00\x01", b"last"]


class Ends:
    """Two joined links; what arrives at `far`, and why each has ended."""

    def __init__(self, *, buffer_bytes: int = 100) -> None:
        self.clock = TurnClock()
        self.received: list[bytes] = []
        self.reasons: list[str] = []
        self.far_reasons: list[str] = []
        self.on_frame: Callable[[bytes], None] = lambda body: None
        self.near = Link(lambda body: None, self.reasons.append)
        self.far = Link(self._take, self.far_reasons.append)
        self.near_end, self.far_end = join(self.near, self.far, self.clock, buffer_bytes=buffer_bytes)

    def _take(self, body: bytes) -> None:
        self.received.append(body)
        self.on_frame(body)

    def send(self, *bodies: bytes) -> None:
        for body in bodies:
            self.near.send(framed(body))

    def run(self, size: int = 1000) -> None:
        """Carry everything to the far end."""
        while self.near_end.carry(size) or self.clock.is_due:
            self.clock.turn()


def test_a_frame_is_its_length_and_its_bytes() -> None:
    """Four bytes, the most significant first."""
    assert framed(b"") == b"\0\0\0\0"
    assert framed(b"x" * 258) == b"\0\0\1\2" + b"x" * 258


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 100, 10_000])
def test_frames_arrive_whole_however_the_bytes_come(size: int) -> None:
    """Byte by byte, many frames in one chunk, and empty frames; each as soon as its last byte is here."""
    ends = Ends(buffer_bytes=10_000)
    ends.send(*BODIES)
    ends.run(size)
    assert ends.received == BODIES


def test_frames_may_be_split_at_every_byte() -> None:
    """In two chunks, wherever the border is."""
    stream = b"".join(map(framed, BODIES))
    for border in range(len(stream) + 1):
        ends = Ends()
        ends.far.dataReceived(stream[:border])
        complete = len(ends.received)
        assert ends.received == BODIES[:complete]
        assert sum(LENGTH_BYTES + len(body) for body in BODIES[: complete + 1]) > border or complete == len(BODIES)
        ends.far.dataReceived(stream[border:])
        assert ends.received == BODIES


def test_a_large_frame_arrives() -> None:
    """Of some megabytes, in many chunks, with a small one behind it."""
    large = Random(1).randbytes(3_000_000)
    ends = Ends()
    ends.send(large, b"small")
    ends.run(65_536)
    assert ends.received == [large, b"small"]


def test_what_is_taken_is_no_part_of_the_buffer() -> None:
    """A frame that is kept keeps its value, and type, when others come."""
    ends = Ends()
    ends.send(b"kept")
    ends.run()
    ends.send(b"next")
    ends.run()
    assert ends.received == [b"kept", b"next"]
    assert all(type(body) is bytes for body in ends.received)


# Holding.


def test_a_held_link_keeps_what_comes() -> None:
    """The transport stops reading; what had come before is kept, and passed on once, in order."""
    ends = Ends(buffer_bytes=10_000)
    ends.far.hold()
    assert not ends.far_end.is_reading
    ends.far.dataReceived(framed(b"had come") + framed(b"more")[:5])
    assert ends.received == []
    ends.far.go_on()
    assert (ends.received, ends.far_end.is_reading) == ([b"had come"], True)
    ends.far.dataReceived(framed(b"more")[5:])
    assert ends.received == [b"had come", b"more"]


def test_a_frame_may_hold_the_link() -> None:
    """The frames behind it in the same chunk wait; nothing is passed on twice."""
    ends = Ends()
    ends.on_frame = lambda body: ends.far.hold() if body in (b"a", b"two\n") else None
    ends.far.dataReceived(b"".join(map(framed, BODIES)))
    assert ends.received == BODIES[:2]
    ends.far.go_on()
    assert ends.received == BODIES[:4]
    ends.far.go_on()
    assert ends.received == BODIES


def test_a_frame_may_hold_the_link_and_let_it_go_on() -> None:
    """As when there is nothing to wait for: the frames behind it follow, in order."""
    ends = Ends()

    def hold_and_go_on(body: bytes) -> None:
        ends.far.hold()
        ends.far.go_on()

    ends.on_frame = hold_and_go_on
    ends.far.dataReceived(b"".join(map(framed, BODIES)))
    assert ends.received == BODIES
    assert ends.far_end.is_reading


@pytest.mark.parametrize("seed", range(30))
def test_no_order_of_holding_loses_or_repeats_a_frame(seed: int) -> None:
    """Chunks of any size; frames, and others between them, hold the link and let it go on."""
    random = Random(seed)
    ends = Ends(buffer_bytes=random.choice((10, 1_000)))
    bodies = [random.randbytes(random.choice((0, 1, 3, 40))) for _ in range(100)]

    def disturb(body: bytes = b"") -> None:
        for _ in range(random.choice((0, 0, 1, 2))):
            random.choice((ends.far.hold, ends.far.hold, ends.far.go_on))()

    ends.on_frame = disturb
    for body in bodies:
        ends.send(body)
        ends.near_end.carry(random.choice((1, 5, 50)))
        disturb()
        assert ends.received == bodies[: len(ends.received)]
    ends.on_frame = lambda body: None
    ends.far.go_on()
    ends.run()
    assert ends.received == bodies


def test_holding_twice_is_holding_once() -> None:
    """And so is going on."""
    ends = Ends()
    ends.far.go_on()
    ends.far.hold()
    ends.far.hold()
    ends.far.go_on()
    ends.far.go_on()
    ends.send(b"x")
    ends.run()
    assert ends.received == [b"x"]


# A transport that takes no more.


def test_frames_wait_while_the_transport_is_full() -> None:
    """They are counted, and sent in order when it takes frames again; who waits for room is told then, not before."""
    ends = Ends(buffer_bytes=100)
    told: list[int] = []
    ends.near.on_room = lambda: told.append(ends.near.unsent_bytes)
    bodies = [bytes([number]) * 60 for number in range(6)]
    ends.send(*bodies[:2])
    assert (ends.near.is_full, ends.near.unsent_bytes) == (True, 0)
    ends.send(*bodies[2:])
    assert ends.near.unsent_bytes == 4 * 64
    assert len(ends.near_end.unsent) == 2 * 64
    ends.near_end.carry(128)
    assert (ends.near.is_full, ends.near.unsent_bytes, told) == (True, 2 * 64, [])
    ends.near_end.carry(128)
    assert (ends.near.is_full, ends.near.unsent_bytes, told) == (True, 0, [])
    ends.near_end.carry(128)
    assert (ends.near.is_full, told) == (False, [0])
    assert ends.received == bodies


def test_a_frame_sent_when_there_is_room_again_comes_last() -> None:
    """It does not overtake those that waited, and may fill the transport again."""
    ends = Ends(buffer_bytes=10)
    bodies = [b"first, and long", b"second, and long", b"third, and long"]
    ends.near.on_room = lambda: ends.send(bodies[2]) if len(ends.received) == 2 else None
    ends.send(*bodies[:2])
    ends.run()
    assert ends.received == bodies


def test_a_process_that_is_too_far_behind_is_given_up() -> None:
    """At more than the limit, with the reason at both ends; the frames are dropped."""
    ends = Ends()
    block = framed(bytes((1 << 20) - LENGTH_BYTES))
    ends.near.send(block)
    for _ in range(64):
        ends.near.send(block)
    assert (ends.near.unsent_bytes, ends.near.was_aborted) == (UNSENT_LIMIT_BYTES, False)
    ends.near.send(framed(b""))
    assert (ends.near.was_aborted, ends.reasons) == (True, [])
    ends.clock.turn()
    assert ends.reasons == ["it is more than 64 MiB behind"]
    assert (len(ends.far_reasons), ends.received, ends.near_end.unsent) == (1, [], b"")
    assert (ends.near.is_open, ends.far.is_open, ends.far.was_aborted) == (False, False, False)


# The end.


def test_closing_sends_everything_first() -> None:
    """Also if the transport is full, and frames wait."""
    for count in range(4):
        ends = Ends(buffer_bytes=10)
        bodies = [b"x" * 20] * count
        ends.send(*bodies)
        ends.near.close()
        ends.run()
        assert ends.received == bodies
        assert (len(ends.reasons), len(ends.far_reasons), ends.near.was_aborted) == (1, 1, False)


def test_after_the_end_nothing_happens() -> None:
    """Whatever is called; and the end is told once."""
    ends = Ends()
    ends.far.hold()
    ends.far.dataReceived(framed(b"late"))
    ends.near_end.die()
    reasons = [*ends.reasons, *ends.far_reasons]
    assert len(reasons) == 2
    for link in (ends.near, ends.far):
        link.send(framed(b"x"))
        link.go_on()
        link.close()
        link.abort("too late")
    ends.run()
    assert [*ends.reasons, *ends.far_reasons] == reasons
    assert (ends.received, ends.near_end.unsent, ends.far.was_aborted) == ([], b"", False)


def test_a_link_that_is_not_connected_sends_nothing() -> None:
    """Nor does it fail."""
    link = Link(lambda body: None, lambda reason: None)
    link.send(framed(b"x"))
    link.abort("never begun")
    link.close()
    assert (link.is_open, link.was_aborted, link.unsent_bytes) == (False, False, 0)


def test_an_end_for_a_reason_of_its_own() -> None:
    """That of `abort` is told at the end where it was called; the other learns that the connection was lost."""
    ends = Ends()
    ends.near.abort("it sent nonsense")
    ends.run()
    assert ends.reasons == ["it sent nonsense"]
    assert "lost" in ends.far_reasons[0]


def test_no_frame_follows_one_that_ended_the_link() -> None:
    """Not even one that was in the same chunk."""
    ends = Ends()
    ends.on_frame = lambda body: ends.far.abort("enough") if body == b"a" else None
    ends.far.dataReceived(b"".join(map(framed, BODIES)))
    assert ends.received == BODIES[:2]
    ends.run()
    assert ends.far_reasons == ["enough"]


def test_a_frame_that_cannot_be_taken_ends_the_link() -> None:
    """As an end of its own: whoever watches the other process must not take it for one that has ended by itself."""
    ends = Ends()

    def fail(body: bytes) -> None:
        raise ValueError(body)

    ends.on_frame = fail
    with pytest.raises(ValueError, match=r"^b''$"):
        ends.far.dataReceived(b"".join(map(framed, BODIES)))
    ends.run()
    assert (ends.received, ends.far.was_aborted) == (BODIES[:1], True)
    assert ends.far_reasons == ["an error of this process, see the log"]


def test_a_link_that_was_aborted_sends_nothing_more() -> None:
    """The first reason counts."""
    ends = Ends()
    ends.near.abort("first")
    ends.near.abort("second")
    ends.send(b"x")
    assert ends.near_end.unsent == b""
    ends.run()
    assert ends.reasons == ["first"]
