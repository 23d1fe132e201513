"""A link's socket, driven by a demultiplexer: writing, a full kernel, reading, and the end."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import cast

from pushup.net.wait.demultiplexer import Demultiplexer, Watched, write_to
from pushup.transport.framed_link import Link, framed
from pushup.workers.socket_transport import FULL_BYTES, SocketTransport


class Kernel:
    """The socket: it takes `room` bytes; `sent` are those that it took."""

    def __init__(self) -> None:
        self.room = 1 << 30
        self.sent: list[bytes] = []
        self.error: OSError | None = None
        self.is_blocking = True
        self.is_closed = False

    def setblocking(self, flag: bool) -> None:
        self.is_blocking = flag

    def send(self, data: bytes) -> int:
        assert not self.is_closed
        if self.error is not None:
            raise self.error
        size = min(len(data), self.room)
        if not size:
            raise BlockingIOError
        self.room -= size
        self.sent.append(data[:size])
        return size

    def close(self) -> None:
        self.is_closed = True


class Driver:
    """A demultiplexer: what a connection is watched for, and the calls of this batch."""

    def __init__(self) -> None:
        self.watched: dict[Watched, tuple[bool, bool]] = {}
        self.calls: list[Callable[[], None]] = []
        self.is_closed = False

    def add(self, connection: Watched) -> None:
        self.watched[connection] = (True, False)

    def want(self, connection: Watched, *, reading: bool, writing: bool) -> None:
        if self.is_closed:
            raise ValueError("I/O operation on closed epoll object")
        assert connection in self.watched
        self.watched[connection] = (reading, writing)

    def remove(self, connection: Watched) -> None:
        assert not cast(Kernel, connection.socket).is_closed
        del self.watched[connection]

    def soon(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def end_batch(self) -> None:
        while self.calls:
            calls, self.calls = self.calls, []
            for call in calls:
                call()


class Ends:
    """A link on such a socket."""

    def __init__(self) -> None:
        self.kernel = Kernel()
        self.driver = Driver()
        self.received: list[bytes] = []
        self.reasons: list[str] = []
        self.link = Link(self.received.append, self.reasons.append)
        sock, demultiplexer = cast(socket.socket, self.kernel), cast(Demultiplexer, self.driver)
        self.transport = SocketTransport(sock, self.link, demultiplexer)

    @property
    def wanted(self) -> tuple[bool, bool]:
        """Whether it is watched for reading, and for writing."""
        return self.driver.watched[self.transport]

    def sent(self) -> bytes:
        return b"".join(self.kernel.sent)


def test_the_link_is_open_from_the_beginning() -> None:
    """The socket does not block, and is read."""
    ends = Ends()
    assert (ends.link.is_open, ends.kernel.is_blocking, ends.wanted) == (True, False, (True, False))


def test_the_frames_of_a_batch_are_sent_together() -> None:
    """At its end, in one call of the kernel."""
    ends = Ends()
    ends.link.send(framed(b"one"))
    ends.link.send(framed(b"two"))
    assert (ends.kernel.sent, len(ends.driver.calls)) == ([], 1)
    ends.driver.end_batch()
    assert ends.kernel.sent == [framed(b"one") + framed(b"two")]
    ends.link.send(framed(b"three"))
    ends.driver.end_batch()
    assert ends.kernel.sent[1:] == [framed(b"three")]


def test_the_link_may_add_to_a_batch_at_its_end() -> None:
    """What it adds is sent in the same call, behind what was written; a full kernel comes first."""
    ends = Ends()
    ends.link.on_flush = lambda: ends.link.send(framed(b"added"))
    ends.link.flush_soon()
    ends.link.send(framed(b"one"))
    assert len(ends.driver.calls) == 1
    ends.driver.calls.pop()()
    assert ends.kernel.sent == [framed(b"one") + framed(b"added")]
    assert ends.driver.calls == []  # or the demultiplexer would make another round
    ends.link.on_flush, ends.kernel.room = lambda: None, 0
    ends.link.send(framed(b"two"))
    ends.driver.end_batch()
    ends.link.flush_soon()
    assert ends.driver.calls == []
    ends.link.on_flush, ends.kernel.room = lambda: ends.link.send(framed(b"three")), 1000
    ends.transport.writable()
    assert ends.kernel.sent[1:] == [framed(b"two") + framed(b"three")]


def test_what_the_kernel_does_not_take_waits() -> None:
    """Until it does; what is written meanwhile comes behind it."""
    ends = Ends()
    ends.kernel.room = 5
    ends.link.send(framed(b"first"))
    ends.driver.end_batch()
    assert ends.wanted == (True, True)
    ends.link.send(framed(b"second"))
    ends.driver.end_batch()
    assert len(ends.kernel.sent) == 1
    ends.transport.writable()
    assert ends.wanted == (True, True)
    ends.kernel.room = 1000
    ends.transport.writable()
    assert (ends.sent(), ends.wanted) == (framed(b"first") + framed(b"second"), (True, False))


def test_the_link_is_told_to_pause_when_much_waits() -> None:
    """And to go on when all of that is sent: the frames keep their order."""
    ends = Ends()
    ends.kernel.room = 0
    half = framed(b"x" * (FULL_BYTES // 2 - 4))
    ends.link.send(half)
    ends.link.send(half)
    assert not ends.link.is_full
    ends.link.send(framed(b"too much"))
    ends.link.send(framed(b"waits"))
    assert (ends.link.is_full, ends.link.unsent_bytes) == (True, 9)
    ends.driver.end_batch()
    ends.kernel.room = FULL_BYTES
    ends.transport.writable()
    full = [ends.link.is_full]
    ends.kernel.room = 1000
    ends.transport.writable()
    assert [*full, ends.link.is_full] == [True, False]
    ends.driver.end_batch()
    assert ends.sent() == half + half + framed(b"too much") + framed(b"waits")


def test_it_may_be_full_again_and_again() -> None:
    """What the kernel has taken does not count; who waits for room is told each time, and only then."""
    ends = Ends()
    rooms: list[int] = []
    ends.link.on_room = lambda: rooms.append(len(ends.kernel.sent))
    ends.link.send(framed(b"x"))
    ends.driver.end_batch()
    assert rooms == []
    for times in range(1, 4):
        ends.link.send(framed(b"x" * FULL_BYTES))
        full = [ends.link.is_full]
        ends.driver.end_batch()
        assert ([*full, ends.link.is_full], len(rooms)) == ([True, False], times)
    ends.kernel.room = FULL_BYTES - 10
    ends.link.send(framed(b"x" * (FULL_BYTES - 4)))
    ends.driver.end_batch()
    ends.link.send(framed(b"y" * 100))
    assert not ends.link.is_full


def test_an_error_of_this_process_is_not_an_end_of_the_other(logged_failures: list[str]) -> None:
    """Such as one while it adds to what is sent: the supervisor then kills a worker, which would go on otherwise."""
    ends = Ends()
    ends.kernel.room = 0
    ends.link.send(framed(b"x"))
    ends.driver.end_batch()
    ends.link.on_flush = lambda: [][0]
    write_to(ends.transport)
    assert (ends.link.was_aborted, ends.reasons) == (True, ["an error of this process, see the log"])
    ends.driver.end_batch()
    assert (ends.driver.watched, ends.kernel.is_closed, len(ends.reasons)) == ({}, True, 1)
    logged_failures.clear()


def test_nothing_is_tried_while_the_kernel_takes_nothing() -> None:
    """The demultiplexer says when it does."""
    ends = Ends()
    ends.kernel.room = 0
    ends.link.send(framed(b"x"))
    ends.driver.end_batch()
    ends.link.send(framed(b"y"))
    assert ends.driver.calls == []


def test_what_arrives_goes_to_the_link() -> None:
    """While that holds, nothing is read."""
    ends = Ends()
    ends.transport.received(framed(b"one"))
    ends.link.hold()
    assert ends.wanted == (False, False)
    ends.link.go_on()
    assert (ends.wanted, ends.received) == ((True, False), [b"one"])


def test_holding_does_not_concern_writing() -> None:
    """What the kernel did not take is sent all the same."""
    ends = Ends()
    ends.kernel.room = 1
    ends.link.send(framed(b"x"))
    ends.driver.end_batch()
    ends.link.hold()
    assert ends.wanted == (False, True)
    ends.kernel.room = 100
    ends.transport.writable()
    assert (ends.wanted, ends.sent()) == ((False, False), framed(b"x"))


def test_closing_sends_everything_first() -> None:
    """What the kernel did not take, and what waits in the link."""
    for waiting in (b"", framed(b"y" * FULL_BYTES) + framed(b"z")):
        ends = Ends()
        ends.kernel.room = 1
        frames = [framed(b"y" * FULL_BYTES), framed(b"z")] if waiting else []
        for frame in (framed(b"x"), *frames):
            ends.link.send(frame)
        ends.link.close()
        ends.driver.end_batch()
        assert (ends.reasons, ends.kernel.is_closed) == ([], False)
        ends.kernel.room = 1 << 20
        ends.transport.writable()
        ends.driver.end_batch()
        assert (ends.sent(), len(ends.reasons)) == (framed(b"x") + waiting, 1)
        assert (ends.kernel.is_closed, ends.driver.watched) == (True, {})


def test_closing_with_nothing_to_send() -> None:
    """At the end of the batch, not while it is asked for."""
    ends = Ends()
    ends.link.close()
    assert ends.reasons == []
    ends.driver.end_batch()
    assert (len(ends.reasons), ends.kernel.is_closed) == (1, True)


def test_aborting_sends_nothing_more() -> None:
    """The link learns of its end later, not while it asks for it; what was written is dropped."""
    ends = Ends()
    ends.link.send(framed(b"x"))
    ends.link.abort("enough")
    assert ends.reasons == []
    ends.driver.end_batch()
    assert (ends.sent(), ends.reasons, ends.kernel.is_closed, ends.driver.watched) == (b"", ["enough"], True, {})


def test_the_end_is_told_once() -> None:
    """Whichever end comes first; then nothing is written, and nothing is asked of the socket."""
    for end in (SocketTransport.ended, SocketTransport.lost):
        ends = Ends()
        ends.link.send(framed(b"x"))
        end(ends.transport)
        assert (len(ends.reasons), ends.kernel.is_closed) == (1, True)
        ends.transport.lost()
        ends.transport.ended()
        ends.transport.write(b"y")
        ends.transport.pauseProducing()
        ends.driver.end_batch()
        assert (len(ends.reasons), ends.sent(), ends.link.is_open) == (1, b"", False)


def test_what_a_process_has_sent_before_it_ended_is_read() -> None:
    """Also if it is written to before: what is written is lost, and the end is told when everything is read."""
    for error in (BrokenPipeError(), ConnectionResetError()):
        ends = Ends()
        ends.kernel.error = error
        for _ in range(2):
            ends.link.send(framed(b"x" * FULL_BYTES))
            ends.driver.end_batch()
        assert (ends.reasons, ends.wanted, ends.link.is_full) == ([], (True, False), False)
        ends.transport.received(framed(b"last"))
        ends.transport.ended()
        assert (ends.received, len(ends.reasons)) == ([b"last"], 1)


def test_what_a_process_has_sent_before_it_ended_waits_while_the_link_is_held() -> None:
    """Both what has arrived and what is still in the kernel. While the link is held, its socket is not watched, because
    a broken one would be reported all the time."""
    ends = Ends()
    ends.link.hold()
    ends.transport.received(framed(b"one") + framed(b"two"))
    for _ in range(2):
        ends.transport.lost()
        ends.link.send(framed(b"x"))
        ends.driver.end_batch()
    assert (ends.received, ends.reasons, ends.driver.watched, ends.kernel.is_closed) == ([], [], {}, False)
    ends.link.go_on()
    assert (ends.received, ends.wanted) == ([b"one", b"two"], (True, False))
    ends.transport.received(framed(b"last"))
    ends.transport.lost()
    assert (ends.received[2:], len(ends.reasons), ends.kernel.is_closed) == ([b"last"], 1, True)


def test_a_link_that_is_lost_while_it_is_held_and_then_given_up() -> None:
    """What it has sent does not matter any more; nothing is asked of its socket."""
    ends = Ends()
    ends.kernel.room = 0
    ends.link.send(framed(b"x"))
    ends.driver.end_batch()
    ends.link.hold()
    ends.transport.lost()
    ends.link.abort("enough")
    ends.driver.end_batch()
    ends.link.go_on()
    ends.transport.lost()
    assert (ends.reasons, ends.driver.watched, ends.kernel.is_closed) == (["enough"], {}, True)


def test_a_broken_socket_ends_the_link() -> None:
    """When it is written to, for another reason than that the other end is closed."""
    ends = Ends()
    ends.kernel.error = OSError(errno.ENOBUFS, "no buffer")
    ends.link.send(framed(b"x"))
    ends.driver.end_batch()
    assert (ends.reasons, ends.driver.watched) == (["writing to it failed: no buffer"], {})
    assert ends.link.was_aborted


def test_a_demultiplexer_that_is_closed() -> None:
    """Is asked for nothing more: the process is about to exit."""
    ends = Ends()
    ends.driver.is_closed = True
    ends.link.hold()
    assert ends.link.is_open
