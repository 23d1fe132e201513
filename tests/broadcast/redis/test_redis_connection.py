"""A connection to Redis: replies in order, however they are split; deadlines; and its end, reported to all callers."""

from __future__ import annotations

import socket
from itertools import accumulate
from typing import Any
from weakref import ref

import hiredis
import pytest
from OpenSSL import SSL
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import ITCPTransport
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from zope.interface import alsoProvides

from pushup.broadcast.redis.redis_connection import PIECE_BYTES, PROGRESS_BYTES, RedisConnection, Reply
from pushup.broadcast.redis.redis_errors import ErrorCode, ErrorReply, Lost
from tests.broadcast.redis.fake_redis import encode_reply

REPLIES: tuple[Any, ...] = (b"PONG", 7, None, [b"a", None, [b"b", 3]], b"", [], b"\r\n$-1\r\n", -1)


class Ends:
    """Both ends of a connection, and the replies to commands in the order of their arrival."""

    def __init__(self, timeout: float = 5.0) -> None:
        self.clock = Clock()
        self.transport = StringTransport()
        self.connection = RedisConnection(self.clock, timeout)
        self.connection.makeConnection(self.transport)
        self.replies: list[tuple[str, Reply]] = []

    def send(self, name: str, blocks: float = 0.0) -> None:
        self.connection.send((name,), lambda reply: self.replies.append((name, reply)), blocks=blocks)

    def reply(self, *values: Any) -> None:
        self.connection.dataReceived(b"".join(map(encode_reply, values)))

    def end(self, why: Exception | None = None) -> None:
        self.connection.connectionLost(Failure(why or ConnectionDone()))

    def aborted(self) -> bool:
        return bool(self.transport.disconnected)

    def given_up_after(self, seconds: float) -> list[tuple[str, str]]:
        """The commands that fail because the connection is given up after this time, no sooner and no later."""
        self.clock.advance(seconds - 0.1)
        assert not self.aborted()
        self.clock.advance(0.2)
        assert self.aborted()
        self.end()
        return self.lost()

    def lost(self) -> list[tuple[str, str]]:
        """The commands that failed with the connection, and the reason."""
        return [(name, str(reply)) for name, reply in self.replies if isinstance(reply, Lost)]


@pytest.fixture
def ends() -> Ends:
    return Ends()


def test_commands_are_sent_at_once_as_arrays_of_strings(ends: Ends) -> None:
    """Text as UTF-8, bytes unchanged, numbers as text; no command waits for the reply to an earlier one."""
    ends.connection.send(("SET", "é", b"\x00\r\n", 7, 1.5), lambda reply: None)
    ends.send("PING")
    reader = hiredis.Reader()
    reader.feed(ends.transport.value())
    assert reader.gets() == [b"SET", "é".encode(), b"\x00\r\n", b"7", b"1.5"]
    assert reader.gets() == [b"PING"]
    assert reader.gets() is False


def test_replies_are_matched_to_commands_in_order(ends: Ends) -> None:
    """Even if the replies to many commands arrive in one piece."""
    names = [f"C{n}" for n in range(len(REPLIES))]
    for name in names:
        ends.send(name)
    ends.reply(*REPLIES)
    assert ends.replies == list(zip(names, REPLIES, strict=True))


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_replies_may_be_split_anywhere(ends: Ends, size: int) -> None:
    """Each reply is passed on when its last byte has arrived."""
    for n in range(len(REPLIES)):
        ends.send(f"C{n}")
    data = b"".join(map(encode_reply, REPLIES))
    complete = list(accumulate(len(encode_reply(reply)) for reply in REPLIES))
    for start in range(0, len(data), size):
        ends.connection.dataReceived(data[start : start + size])
        assert len(ends.replies) == sum(end <= start + size for end in complete)
    assert [reply for _, reply in ends.replies] == list(REPLIES)


def test_an_error_is_the_reply_of_its_command_only(ends: Ends, logged_failures: list[str]) -> None:
    """`send` passes it on as a value, `ask` raises it, and the connection stays open."""
    asked = ends.connection.ask("A")
    ends.send("B")
    ends.send("C")
    ends.reply(RuntimeError("ERR no"), RuntimeError("OOM full"), 1)
    failure: list[Failure] = []
    asked.addErrback(failure.append)
    assert failure[0].check(ErrorReply)
    assert str(failure[0].value) == "ERR no"
    assert isinstance(ends.replies[0][1], ErrorReply)
    assert ends.replies[0][1].code is ErrorCode.OUT_OF_MEMORY
    assert [(name, str(reply)) for name, reply in ends.replies] == [("B", "OOM full"), ("C", "1")]
    assert not ends.aborted()


def test_a_reply_to_no_command_ends_the_connection(ends: Ends) -> None:
    """Otherwise each later command would get the reply of the one before."""
    ends.send("A")
    ends.reply(1, b"2" * 1000)
    assert ends.aborted()
    ends.send("B")
    ends.end()
    assert ends.replies[0] == ("A", 1)
    ((name, reason),) = ends.lost()
    assert name == "B"
    assert reason.startswith("a reply to no command: b'222")
    assert len(reason) < 200


def test_a_missing_reply_ends_the_connection(ends: Ends) -> None:
    """At the deadline of the oldest command, not before; all callers get the reason."""
    ends.send("A")
    ends.clock.advance(3.0)
    ends.send("B")
    assert ends.given_up_after(2.0) == [("A", "no reply within 5 s"), ("B", "no reply within 5 s")]


def test_each_reply_restarts_the_deadline_of_the_next(ends: Ends) -> None:
    """A Redis that keeps replying is not given up, however many commands wait; one that stops is."""
    for n in range(10):
        ends.send(f"C{n}")
    for n in range(9):
        ends.clock.advance(4.9)
        ends.reply(n)
    assert ends.given_up_after(5.0) == [("C9", "no reply within 5 s")]


def test_a_reply_may_take_as_long_as_its_bytes_need(ends: Ends) -> None:
    """As long as some KiB arrive every five seconds; the time of the next command starts afterwards."""
    ends.send("LOAD")
    ends.send("NEXT")
    data = encode_reply(b"x" * 60 * PROGRESS_BYTES)
    for start in range(0, len(data), PROGRESS_BYTES):
        ends.clock.advance(4.9)
        ends.connection.dataReceived(data[start : start + PROGRESS_BYTES])
        assert not ends.aborted()
    assert [name for name, _ in ends.replies] == ["LOAD"]
    ends.clock.advance(4.9)
    assert not ends.aborted()
    ends.reply(1)
    assert ends.replies[-1] == ("NEXT", 1)


def test_a_reply_that_stops_in_the_middle_ends_the_connection(ends: Ends) -> None:
    """Five seconds after the last progress, not after its beginning."""
    ends.send("LOAD")
    data = encode_reply(b"x" * 10 * PROGRESS_BYTES)
    ends.clock.advance(4.0)
    ends.connection.dataReceived(data[: 2 * PROGRESS_BYTES])
    assert ends.given_up_after(5.0) == [("LOAD", "a reply stalled: less than 4096 bytes in 5 s")]


def test_a_reply_that_trickles_ends_the_connection(ends: Ends) -> None:
    """A byte a second is not progress, otherwise a broken Redis would be waited for forever."""
    ends.send("LOAD")
    data = encode_reply(b"x" * PROGRESS_BYTES)
    seconds = 0
    while not ends.aborted() and seconds < 60:
        ends.clock.advance(1.0)
        seconds += 1
        ends.connection.dataReceived(data[seconds - 1 : seconds])
    assert seconds == 5
    ends.end()
    assert ends.lost() == [("LOAD", "a reply stalled: less than 4096 bytes in 5 s")]


def test_bytes_that_trickle_after_a_large_part_are_no_progress(ends: Ends) -> None:
    """The next `PROGRESS_BYTES` count from the last ones, not from the reply's beginning."""
    ends.send("LOAD")
    data = encode_reply(b"x" * 3 * PROGRESS_BYTES)
    ends.connection.dataReceived(data[:PROGRESS_BYTES])
    for seconds in range(5):
        assert not ends.aborted()
        ends.clock.advance(1.0)
        ends.connection.dataReceived(data[PROGRESS_BYTES + seconds : PROGRESS_BYTES + seconds + 1])
    assert ends.aborted()
    ends.end()
    assert ends.lost() == [("LOAD", "a reply stalled: less than 4096 bytes in 5 s")]


def pack(words: tuple[str | bytes, ...]) -> bytes:
    """A command in the wire format."""
    return b"*%d\r\n" % len(words) + b"".join(
        b"$%d\r\n%s\r\n" % (len(word), word) for word in (w.encode() if isinstance(w, str) else w for w in words)
    )


class SlowTransport(StringTransport):
    """A transport that holds at most 64 KiB, as Twisted's does, and sends when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.most_held = 0
        self.full = False

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        assert streaming, "a producer that is pulled is asked for every write"
        super().registerProducer(producer, streaming)

    @property
    def held(self) -> int:
        return len(self.value())

    def write(self, data: bytes) -> None:
        super().write(data)
        self.most_held = max(self.most_held, self.held)
        if self.held > 64 * 1024:
            self.full = True
            self.producer.pauseProducing()  # type: ignore[union-attr]

    def send_all(self) -> bytes:
        """Send everything it holds."""
        data: bytes = self.value()
        self.clear()
        if self.full:
            self.full = False
            self.producer.resumeProducing()  # type: ignore[union-attr]
        return data


def slow_ends() -> tuple[Ends, SlowTransport]:
    ends = Ends()
    transport = ends.transport = SlowTransport()
    ends.connection = RedisConnection(ends.clock, 5.0)
    ends.connection.makeConnection(transport)
    return ends, transport


def test_a_request_may_take_as_long_as_its_bytes_need() -> None:
    """The time for its reply starts when the last piece has been sent, whatever was sent before."""
    ends, transport = slow_ends()
    ends.connection.send(("PING",), lambda reply: None)
    ends.reply(b"PONG")
    transport.send_all()
    command: tuple[str | bytes, ...] = ("SAVE", b"x" * 2_000_000)
    ends.connection.send(command, lambda reply: ends.replies.append(("SAVE", reply)))
    sent = b""
    times = 0
    while transport.full:
        ends.clock.advance(4.9)
        assert not ends.aborted()
        sent += transport.send_all()
        times += 1
    assert times > 10
    assert sent + transport.send_all() == pack(command)
    assert ends.given_up_after(5.0) == [("SAVE", "no reply within 5 s")]


def test_a_request_that_is_not_accepted_ends_the_connection() -> None:
    """In this case it is known that Redis did not get all of it."""
    ends, transport = slow_ends()
    ends.connection.send(("SAVE", b"x" * 2_000_000), lambda reply: ends.replies.append(("SAVE", reply)))
    ends.clock.advance(3.0)
    transport.send_all()
    assert ends.given_up_after(5.0) == [("SAVE", "Redis accepted no data for 5 s")]


@pytest.mark.parametrize("size", [PIECE_BYTES + 1, 2 * PIECE_BYTES - 100, 2_000_000])
def test_a_transport_that_takes_nothing_ends_the_connection(size: int) -> None:
    """Five seconds after the request, whether it holds part of it or all, and whatever else is sent meanwhile."""
    ends, _ = slow_ends()
    ends.connection.send(("SAVE", b"x" * size), lambda reply: ends.replies.append(("SAVE", reply)))
    for _ in range(4):
        ends.clock.advance(1.0)
        ends.connection.send(("B",), lambda reply: None)
    assert ends.given_up_after(1.0) == [("SAVE", "Redis accepted no data for 5 s")]


def test_each_of_several_large_requests_has_its_time_when_it_is_sent() -> None:
    """Those that are behind it may still be waiting."""
    ends, transport = slow_ends()
    ends.connection.send(("A", b"x" * 2_000_000), lambda reply: ends.replies.append(("A", reply)))
    ends.connection.send(("B", b"x" * 2_000_000), lambda reply: ends.replies.append(("B", reply)))
    ends.clock.advance(1.0)
    sent = 0
    while sent <= 2_000_100:
        sent += len(transport.send_all())
    assert ends.given_up_after(5.0) == [(name, "no reply within 5 s") for name in ("A", "B")]


def test_sending_does_not_extend_earlier_deadlines() -> None:
    """A Redis that hangs still accepts requests for a while, into the buffers of its kernel."""
    ends, transport = slow_ends()
    ends.send("A")
    for n in range(10):
        ends.connection.send((f"B{n}", b"x" * 200_000), lambda reply: None)
        ends.clock.advance(0.51)
        transport.send_all()
    assert ends.aborted()
    ends.end()
    assert ends.lost() == [("A", "no reply within 5 s")]


def test_requests_are_sent_in_order_in_small_amounts() -> None:
    """Large and small requests, while the transport is full and while it is not."""
    ends, transport = slow_ends()
    commands: list[tuple[str | bytes, ...]] = [
        ("A", b"a" * size) for size in (10, 300_000, 5, 70_000, 1_000_000, 1, 64 * 1024, 3)
    ]
    for command in commands:
        ends.connection.send(command, lambda reply: ends.replies.append(("A", reply)))
    sent = b""
    while transport.held:
        sent += transport.send_all()
        if len(sent) % 3 == 0 and len(commands) < 12:
            commands.append(("B", b"b" * len(commands) * 10_000))
            ends.connection.send(commands[-1], lambda reply: None)
    assert sent == b"".join(map(pack, commands))
    assert transport.most_held <= 3 * 64 * 1024
    ends.reply(*range(8))
    assert [reply for _, reply in ends.replies] == list(range(8))


@pytest.mark.parametrize("size", [1, 2_000_000])
def test_a_blocking_command_has_a_later_deadline(size: int) -> None:
    """Its deadline is extended by the time for which it may block, which begins when all of it was sent."""
    ends, transport = slow_ends()
    failed: list[Failure] = []
    ends.connection.ask("XREAD", b"x" * size, blocks=10.0).addErrback(failed.append)
    ends.clock.advance(1.0)
    while transport.held:
        transport.send_all()
    ends.given_up_after(14.0 if size == 1 else 15.0)
    assert [failure.getErrorMessage() for failure in failed] == ["no reply within 5 s"]


def test_a_blocking_command_does_not_extend_later_deadlines(ends: Ends) -> None:
    """Once it was answered, the commands behind it have the usual time."""
    ends.send("XREAD", blocks=10.0)
    ends.clock.advance(1.0)
    ends.reply(None)
    ends.send("B")
    ends.given_up_after(5.0)
    ends = Ends()
    ends.send("WAIT", blocks=10.0)
    ends.send("B")
    ends.clock.advance(9.0)
    assert not ends.aborted()
    ends.reply(0)
    ends.clock.advance(6.1)
    assert ends.aborted()
    ends.end()


def test_a_deadline_that_was_met_has_no_effect(ends: Ends) -> None:
    """However long ago it was; and no timer is left when the connection has ended."""
    ends.send("A")
    ends.reply(1)
    ends.clock.advance(20.0)
    assert not ends.aborted()
    assert ends.clock.getDelayedCalls() == []
    ends.send("B")
    ends.clock.advance(4.0)
    ends.end()
    assert ends.clock.getDelayedCalls() == []


def test_the_driver_is_told_when_to_flush_and_when_to_release() -> None:
    """It gets the transport that reads and writes (under TLS the lower one), flushes after commands, and a release."""
    for transport in (StringTransport(), TlsTransport()):
        driven = Driven()
        connection = RedisConnection(Clock(), 5.0, driven.adopt)
        connection.makeConnection(transport)
        assert driven.adopted is getattr(transport, "transport", transport)
        connection.send(("A",), lambda reply: None)
        connection.send(("B",), lambda reply: None)
        assert driven.said == ["flush", "flush"]
        connection.connectionLost(Failure(ConnectionDone()))
        assert driven.said == ["flush", "flush", "release"]


class TcpTransport(StringTransport):
    """A transport that is a TCP connection; `options` are those of its socket."""

    def __init__(self) -> None:
        super().__init__()
        alsoProvides(self, ITCPTransport)
        self.options: dict[Any, Any] = {}

    def setTcpNoDelay(self, enabled: bool) -> None:
        self.options["no delay"] = enabled

    def setTcpKeepAlive(self, enabled: bool) -> None:
        self.options["keep alive"] = enabled

    def getHandle(self) -> TcpTransport:
        return self

    def setsockopt(self, level: int, name: int, value: int) -> None:
        self.options[level, name] = value


def test_the_options_of_the_socket() -> None:
    """A small command is sent at once, a peer that vanished is noticed, and the kernel's buffer hides no progress."""
    lowat: dict[Any, Any] = {(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT): PIECE_BYTES}
    tcp, upper, lower = TcpTransport(), TcpTransport(), TcpTransport()
    RedisConnection(Clock(), 5.0).makeConnection(tcp)
    assert tcp.options == {"no delay": True, "keep alive": True, **lowat}
    upper.transport = lower  # type: ignore[attr-defined]  # with TLS
    RedisConnection(Clock(), 5.0).makeConnection(upper)
    assert lower.options == lowat


class TlsTransport(StringTransport):
    """A transport on top of another one."""

    def __init__(self) -> None:
        super().__init__()
        self.transport = StringTransport()


class Driven:
    """Drives a transport, and records the calls."""

    def __init__(self) -> None:
        self.adopted: Any = None
        self.said: list[str] = []

    def adopt(self, transport: Any) -> Driven:
        self.adopted = transport
        return self

    def flush_soon(self) -> None:
        self.said.append("flush")

    def release(self) -> None:
        self.said.append("release")


def test_the_end_is_reported_to_waiting_and_later_commands(ends: Ends) -> None:
    """In order, once each; after the end, commands fail without being sent."""
    ends.send("A")
    ends.send("B")
    ends.end()
    assert ends.connection.has_ended
    assert ends.lost() == [("A", "Redis closed the connection"), ("B", "Redis closed the connection")]
    sent = ends.transport.value()
    ends.send("C")
    assert ends.lost()[-1] == ("C", "not connected")
    assert ends.transport.value() == sent


ALERT = SSL.Error([("SSL routines", "", "tlsv1 alert protocol version"), ("SSL routines", "", "and more")])
NO_TLS = SSL.Error([("SSL routines", "", "wrong version number")])


@pytest.mark.parametrize(
    ("why", "said", "was_refused"),
    [
        (ConnectionDone(), "Redis closed the connection", False),
        (ConnectionLost("reset"), "Connection to the other side was lost in a non-clean fashion: reset.", False),
        (ConnectionLost(), "Connection to the other side was lost in a non-clean fashion.", False),
        (ALERT, "TLS failed: tlsv1 alert protocol version, and more", True),
        (NO_TLS, "TLS failed: wrong version number", False),
        (ValueError("its certificate has expired"), "its certificate has expired", True),
        (ValueError(), "", True),
    ],
)
def test_how_a_connection_ended(ends: Ends, why: Exception, said: str, was_refused: bool) -> None:
    """The peer or the network ended it; or the peer accepted no TLS with us, or we none with the peer."""
    ends.send("A")
    ends.end(why)
    assert ends.lost() == [("A", said)]
    assert ends.connection.was_refused is was_refused
    assert ends.connection.closed_unheard is isinstance(why, ConnectionDone)


def test_nothing_of_a_request_is_kept_after_the_end() -> None:
    """Neither the bytes that were not sent, which nobody gets any more, nor who waits for the reply."""

    class Waiting:
        def __call__(self, reply: Reply) -> None:
            pass

    ends, transport = slow_ends()
    waiting = Waiting()
    kept = ref(waiting)
    ends.connection.send(("SAVE", b"x" * 2_000_000), waiting)
    del waiting
    held = transport.held
    ends.end()
    ends.connection.resumeProducing()
    assert transport.held == held
    assert kept() is None


def test_a_command_sent_from_the_callback_of_the_end_fails(ends: Ends) -> None:
    """It fails at once rather than wait forever."""
    replies: list[str] = []
    ends.connection.send(("A",), lambda _: ends.connection.send(("B",), lambda reply: replies.append(str(reply))))
    ends.end()
    assert replies == ["not connected"]


def test_the_first_reason_for_an_end_counts(ends: Ends) -> None:
    """Callers get the reason why the connection was given up, not an error that follows from it."""
    ends.send("A")
    ends.connection.abort("a new epoch")
    ends.connection.abort("something else")
    ends.end()
    assert ends.lost() == [("A", "a new epoch")]


def test_commands_fail_before_the_connection_is_made() -> None:
    connection = RedisConnection(Clock(), 5.0)
    replies: list[Reply] = []
    connection.send(("A",), replies.append)
    assert isinstance(replies[0], Lost)


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400 Bad\r\n\r\n", b"\x15", b"*-7\r\n", b"?1\r\n"])
def test_a_server_that_is_not_redis_ends_the_connection(ends: Ends, garbage: bytes) -> None:
    ends.send("A")
    ends.connection.dataReceived(garbage)
    assert ends.aborted()
    ends.end()
    ((name, reason),) = ends.lost()
    assert name == "A"
    assert reason.startswith("this is not Redis: ")


def test_through_tls_an_alert_is_garbage_like_any_other(ends: Ends) -> None:
    """The advice to use TLS would be wrong there."""
    ends.connection.handshakeCompleted()
    ends.send("A")
    ends.connection.dataReceived(b"\x15\x03\x01\x00\x02\x02\x46")
    ends.end()
    assert ends.lost()[0][1].startswith("this is not Redis: ")


def test_replies_before_garbage_count(ends: Ends) -> None:
    ends.send("A")
    ends.send("B")
    ends.connection.dataReceived(b":1\r\n?\r\n")
    ends.end()
    assert ends.replies[0] == ("A", 1)
    assert [name for name, _ in ends.lost()] == ["B"]


def test_replies_that_arrive_after_an_abort_are_passed_on(ends: Ends) -> None:
    """Each waiting command still gets exactly one reply or error."""
    ends.send("A")
    ends.connection.abort("enough")
    ends.reply(1)
    ends.end()
    assert ends.replies == [("A", 1)]
