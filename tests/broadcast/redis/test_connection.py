"""A connection to Redis: replies in their order, however they come; deadlines; and its end, told to all who wait."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from pushup.broadcast.redis.connection import PROGRESS_BYTES, RedisConnection, Reply
from pushup.broadcast.redis.errors import ErrorCode, ErrorReply, Lost
from tests.broadcast.redis.fake_redis import encode_reply

REPLIES: tuple[Any, ...] = (b"PONG", 7, None, [b"a", None, [b"b", 3]], b"", [], b"\r\n$-1\r\n", -1)


class Ends:
    """Both ends of a connection, and what came of each command, in the order in which it came."""

    def __init__(self, timeout: float = 5.0) -> None:
        self.clock = Clock()
        self.transport = StringTransport()
        self.connection = RedisConnection(self.clock, timeout)
        self.connection.makeConnection(self.transport)
        self.told: list[tuple[str, Reply]] = []

    def send(self, name: str, blocks: float = 0.0) -> None:
        self.connection.send((name,), lambda reply: self.told.append((name, reply)), blocks=blocks)

    def reply(self, *values: Any) -> None:
        self.connection.dataReceived(b"".join(map(encode_reply, values)))

    def end(self) -> None:
        self.connection.connectionLost(Failure(ConnectionDone()))

    def aborted(self) -> bool:
        return bool(self.transport.disconnected)

    def lost(self) -> list[tuple[str, str]]:
        """Who was told that the connection is lost, and why."""
        return [(name, str(reply)) for name, reply in self.told if isinstance(reply, Lost)]


@pytest.fixture
def ends() -> Ends:
    return Ends()


def test_commands_are_sent_at_once_as_arrays_of_strings(ends: Ends) -> None:
    """Text in UTF-8, bytes as they are, numbers as text; nothing waits for the reply to what was sent before."""
    ends.connection.send(("SET", "é", b"\x00\r\n", 7, 1.5), lambda reply: None)
    ends.send("PING")
    reader = hiredis.Reader()
    reader.feed(ends.transport.value())
    assert reader.gets() == [b"SET", "é".encode(), b"\x00\r\n", b"7", b"1.5"]
    assert reader.gets() == [b"PING"]
    assert reader.gets() is False


def test_replies_go_to_who_asked_in_order(ends: Ends) -> None:
    """Many commands under way, and their replies in one piece."""
    names = [f"C{n}" for n in range(len(REPLIES))]
    for name in names:
        ends.send(name)
    ends.reply(*REPLIES)
    assert ends.told == list(zip(names, REPLIES, strict=True))


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_replies_may_be_split_anywhere(ends: Ends, size: int) -> None:
    """Each reply is given when its last byte is there."""
    for n in range(len(REPLIES)):
        ends.send(f"C{n}")
    data = b"".join(map(encode_reply, REPLIES))
    for start in range(0, len(data), size):
        ends.connection.dataReceived(data[start : start + size])
    assert [reply for _, reply in ends.told] == list(REPLIES)


def test_a_reply_in_two_pieces_split_at_every_byte() -> None:
    """Nothing is told before the last byte; then it is, at once."""
    data = encode_reply([b"a", [b"bc", 12], None])
    for at in range(1, len(data)):
        ends = Ends()
        ends.send("A")
        ends.connection.dataReceived(data[:at])
        assert ends.told == []
        ends.connection.dataReceived(data[at:])
        assert ends.told == [("A", [b"a", [b"bc", 12], None])]


def test_an_error_is_the_reply_of_its_command_only(ends: Ends, logged_failures: list[str]) -> None:
    """`send` takes it as a value, `ask` fails with it, and the connection goes on."""
    asked = ends.connection.ask("A")
    ends.send("B")
    ends.send("C")
    ends.reply(RuntimeError("ERR no"), RuntimeError("OOM full"), 1)
    failure: list[Failure] = []
    asked.addErrback(failure.append)
    assert failure[0].check(ErrorReply)
    assert str(failure[0].value) == "ERR no"
    assert isinstance(ends.told[0][1], ErrorReply)
    assert ends.told[0][1].code is ErrorCode.OUT_OF_MEMORY
    assert [(name, str(reply)) for name, reply in ends.told] == [("B", "OOM full"), ("C", "1")]
    assert not ends.aborted()


def test_a_reply_that_does_not_come_ends_the_connection(ends: Ends) -> None:
    """At the deadline of the one that waits longest, and not before; all are told why."""
    ends.send("A")
    ends.clock.advance(3.0)
    ends.send("B")
    ends.clock.advance(1.9)
    assert not ends.aborted()
    ends.clock.advance(0.2)
    assert ends.aborted()
    ends.end()
    assert ends.lost() == [("A", "no reply within 5 s"), ("B", "no reply within 5 s")]


def test_each_reply_gives_the_next_its_time(ends: Ends) -> None:
    """A Redis that answers one after the other is not given up, however many wait; one that stops to is."""
    for n in range(10):
        ends.send(f"C{n}")
    for n in range(9):
        ends.clock.advance(4.9)
        ends.reply(n)
    ends.clock.advance(4.9)
    assert not ends.aborted()
    ends.clock.advance(0.2)
    assert ends.aborted()
    ends.end()
    assert ends.lost() == [("C9", "no reply within 5 s")]


def test_a_reply_may_take_as_long_as_its_bytes_need(ends: Ends) -> None:
    """As long as some KiB come in each five seconds; the next command's time begins when it has come."""
    ends.send("LOAD")
    ends.send("NEXT")
    data = encode_reply(b"x" * 60 * PROGRESS_BYTES)
    for start in range(0, len(data), PROGRESS_BYTES):
        ends.clock.advance(4.9)
        ends.connection.dataReceived(data[start : start + PROGRESS_BYTES])
        assert not ends.aborted()
    assert [name for name, _ in ends.told] == ["LOAD"]
    ends.clock.advance(4.9)
    assert not ends.aborted()
    ends.reply(1)
    assert ends.told[-1] == ("NEXT", 1)


def test_a_reply_that_stops_in_the_middle_ends_the_connection(ends: Ends) -> None:
    """Five seconds after the last progress, not after the beginning."""
    ends.send("LOAD")
    data = encode_reply(b"x" * 10 * PROGRESS_BYTES)
    ends.clock.advance(4.0)
    ends.connection.dataReceived(data[: 2 * PROGRESS_BYTES])
    ends.clock.advance(4.9)
    assert not ends.aborted()
    ends.clock.advance(0.2)
    assert ends.aborted()
    ends.end()
    assert ends.lost() == [("LOAD", "a reply stalled: less than 4096 bytes in 5 s")]


def test_a_reply_that_trickles_ends_the_connection(ends: Ends) -> None:
    """A byte a second is no progress: or a Redis that is broken would be waited for without end."""
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


def pack(words: tuple[str | bytes, ...]) -> bytes:
    """A command as it goes over the wire."""
    return b"*%d\r\n" % len(words) + b"".join(
        b"$%d\r\n%s\r\n" % (len(word), word) for word in (w.encode() if isinstance(w, str) else w for w in words)
    )


class SlowTransport(StringTransport):
    """A transport that holds 64 KiB at most, as Twisted's does, and lets bytes go when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.most_held = 0
        self.full = False

    @property
    def held(self) -> int:
        return len(self.value())

    def write(self, data: bytes) -> None:
        super().write(data)
        self.most_held = max(self.most_held, self.held)
        if self.held > 64 * 1024:
            self.full = True
            self.producer.pauseProducing()  # type: ignore[union-attr]

    def leave(self) -> bytes:
        """All that it holds goes."""
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
    """While it leaves, piece by piece; its reply is waited for from when the last piece has left."""
    ends, transport = slow_ends()
    command: tuple[str | bytes, ...] = ("SAVE", b"x" * 2_000_000)
    ends.connection.send(command, lambda reply: ends.told.append(("SAVE", reply)))
    sent = b""
    times = 0
    while transport.full:
        ends.clock.advance(4.9)
        assert not ends.aborted()
        sent += transport.leave()
        times += 1
    assert times > 10
    assert sent + transport.leave() == pack(command)
    ends.clock.advance(4.9)
    assert not ends.aborted()
    ends.clock.advance(0.2)
    assert ends.aborted()
    ends.end()
    assert ends.lost() == [("SAVE", "no reply within 5 s")]


def test_a_request_that_is_not_taken_ends_the_connection() -> None:
    """It is known, then, that Redis has not got it as a whole."""
    ends, transport = slow_ends()
    ends.connection.send(("SAVE", b"x" * 2_000_000), lambda reply: ends.told.append(("SAVE", reply)))
    ends.clock.advance(3.0)
    transport.leave()
    ends.clock.advance(4.9)
    assert not ends.aborted()
    ends.clock.advance(0.2)
    assert ends.aborted()
    ends.end()
    assert ends.lost() == [("SAVE", "Redis accepted no data for 5 s")]


def test_what_is_sent_later_gives_an_earlier_command_no_more_time() -> None:
    """A Redis that hangs takes requests for a while, into the buffers of its kernel."""
    ends, transport = slow_ends()
    ends.send("A")
    for n in range(10):
        ends.connection.send((f"B{n}", b"x" * 200_000), lambda reply: None)
        ends.clock.advance(0.51)
        transport.leave()
    assert ends.aborted()
    ends.end()
    assert ends.lost() == [("A", "no reply within 5 s")]


def test_the_transport_holds_little_and_what_waits_goes_in_order() -> None:
    """Large and small requests, while it takes nothing and while it does."""
    ends, transport = slow_ends()
    commands: list[tuple[str | bytes, ...]] = [
        ("A", b"a" * size) for size in (10, 300_000, 5, 70_000, 1_000_000, 1, 64 * 1024, 3)
    ]
    for command in commands:
        ends.connection.send(command, lambda reply: ends.told.append(("A", reply)))
    sent = b""
    while transport.held:
        sent += transport.leave()
        if len(sent) % 3 == 0 and len(commands) < 12:
            commands.append(("B", b"b" * len(commands) * 10_000))
            ends.connection.send(commands[-1], lambda reply: None)
    assert sent == b"".join(map(pack, commands))
    assert transport.most_held <= 3 * 64 * 1024
    ends.reply(*range(8))
    assert [reply for _, reply in ends.told] == list(range(8))


def test_a_command_that_blocks_has_longer(ends: Ends) -> None:
    """Its deadline is as long after the time that it may take."""
    ends.send("XREAD", blocks=10.0)
    ends.clock.advance(14.9)
    assert not ends.aborted()
    ends.clock.advance(0.2)
    assert ends.aborted()
    ends.end()
    assert ends.lost() == [("XREAD", "no reply within 5 s")]


def test_what_comes_after_a_command_that_blocks_has_no_longer_for_it(ends: Ends) -> None:
    """Once that was answered; what is behind it has no longer than the first, at most."""
    ends.send("XREAD", blocks=10.0)
    ends.clock.advance(1.0)
    ends.reply(None)
    ends.send("B")
    ends.clock.advance(4.9)
    assert not ends.aborted()
    ends.clock.advance(0.2)
    assert ends.aborted()
    ends.end()
    ends = Ends()
    ends.send("WAIT", blocks=10.0)
    ends.send("B")
    ends.clock.advance(9.0)
    assert not ends.aborted()
    ends.reply(0)
    ends.clock.advance(6.1)
    assert ends.aborted()
    ends.end()


def test_a_deadline_that_was_kept_ends_nothing(ends: Ends) -> None:
    """However long it was ago; and no timer is left when the connection has ended."""
    ends.send("A")
    ends.reply(1)
    ends.clock.advance(20.0)
    assert not ends.aborted()
    assert ends.clock.getDelayedCalls() == []
    ends.send("B")
    ends.clock.advance(4.0)
    ends.end()
    assert ends.clock.getDelayedCalls() == []


def test_who_drives_the_transport_is_told_when_to_write_and_when_it_ends() -> None:
    """It is given the transport that reads and writes, under TLS the one below; commands are flushed, then released."""
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


class TlsTransport(StringTransport):
    """A transport over another."""

    def __init__(self) -> None:
        super().__init__()
        self.transport = StringTransport()


class Driven:
    """Drives a transport, and notes what it is told."""

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


def test_the_end_is_told_to_all_who_wait_and_to_whoever_comes_later(ends: Ends) -> None:
    """In order, once each; then `lost` has fired, and commands fail without being sent."""
    order: list[str] = []
    ends.connection.lost.addCallback(lambda _: order.append("lost"))
    ends.send("A")
    ends.send("B")
    ends.end()
    assert ends.lost() == [("A", "Redis closed the connection"), ("B", "Redis closed the connection")]
    assert order == ["lost"]
    sent = ends.transport.value()
    ends.send("C")
    assert ends.lost()[-1] == ("C", "not connected")
    assert ends.transport.value() == sent


def test_whoever_is_told_of_the_end_may_ask_again(ends: Ends) -> None:
    """It is told at once that there is no connection, and nobody waits for ever."""
    told: list[str] = []
    ends.connection.send(("A",), lambda _: ends.connection.send(("B",), lambda reply: told.append(str(reply))))
    ends.end()
    assert told == ["not connected"]


def test_the_first_reason_for_an_end_counts(ends: Ends) -> None:
    """Whoever waits is told why it was given up, not what came of that."""
    ends.send("A")
    ends.connection.abort("a new epoch")
    ends.connection.abort("something else")
    ends.end()
    assert ends.lost() == [("A", "a new epoch")]


def test_before_it_is_made_a_connection_takes_no_commands() -> None:
    """They fail at once."""
    connection = RedisConnection(Clock(), 5.0)
    told: list[Reply] = []
    connection.send(("A",), told.append)
    assert isinstance(told[0], Lost)


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400 Bad\r\n\r\n", b"\x15", b"*-7\r\n", b"?1\r\n"])
def test_what_is_not_redis_ends_the_connection(ends: Ends, garbage: bytes) -> None:
    """Whoever waits is told that this is not Redis."""
    ends.send("A")
    ends.connection.dataReceived(garbage)
    assert ends.aborted()
    ends.end()
    ((name, reason),) = ends.lost()
    assert name == "A"
    assert reason.startswith("this is not Redis: ")


def test_replies_before_garbage_count(ends: Ends) -> None:
    """What was answered in order was answered."""
    ends.send("A")
    ends.send("B")
    ends.connection.dataReceived(b":1\r\n?\r\n")
    ends.end()
    assert ends.told[0] == ("A", 1)
    assert [name for name, _ in ends.lost()] == ["B"]


def test_replies_that_come_after_the_end_was_decided_are_given(ends: Ends) -> None:
    """A connection that is aborted may have replies under way; each waiting command is told one thing."""
    ends.send("A")
    ends.connection.abort("enough")
    ends.reply(1)
    ends.end()
    assert ends.told == [("A", 1)]
