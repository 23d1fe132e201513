"""Connecting to Redis: authentication, database, roles and Sentinels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hiredis
import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectError, ConnectionDone
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure

from pushup.broadcast.redis.connector import Connector
from pushup.broadcast.redis.redis_connection import RedisConnection
from pushup.broadcast.redis.redis_errors import CannotConnect
from pushup.broadcast.redis.redis_settings import parse_address
from tests.broadcast.redis.fake_redis import encode_reply
from tests.net.tls_in_memory import ServerTls, Wire, exchange

MASTER: list[Any] = [b"master", 0, []]
REPLICA: list[Any] = [b"slave", b"10.0.0.1", 6379, b"connected", 0]


class ScriptedServers:
    """Servers that reply from a table by `host:port`; any other address refuses connections."""

    def __init__(self, servers: dict[str, dict[str, Any]]) -> None:
        self.reactor = MemoryReactorClock()
        self.servers = servers
        self.asked: list[tuple[str, list[str]]] = []
        self._served = 0
        self.open: dict[str, list[StringTransport]] = {}

    def connect(self, url: str) -> tuple[list[RedisConnection], list[str]]:
        """Connect to servers that reply at once; returns connections made, and errors."""
        made: list[RedisConnection] = []
        failed: list[str] = []
        connector = Connector(parse_address(url), reactor=self.reactor, timeout=5.0, name="me")
        connecting = Deferred.fromCoroutine(connector.connect())
        connecting.addCallbacks(made.append, lambda failure: failed.append(self._why(failure)))
        while not made and not failed:
            for host, port, factory, timeout, _ in self.reactor.tcpClients[self._served :]:
                assert timeout == 5.0
                self._served += 1
                self._serve(f"{host}:{port}", factory)
            self.reactor.advance(0.1)
        return made, failed

    def _why(self, failure: Failure) -> str:
        failure.trap(CannotConnect)
        return str(failure.value)

    def _serve(self, place: str, factory: Any) -> None:
        if place not in self.servers:
            factory.clientConnectionFailed(None, Failure(ConnectError()))
            return
        transport = StringTransport()
        protocol = factory.buildProtocol(None)
        self.open.setdefault(place, []).append(transport)
        protocol.makeConnection(transport)
        reader = hiredis.Reader()
        while data := transport.value():
            transport.clear()
            reader.feed(data)
            while (words := reader.gets()) is not False:
                texts = [word.decode() for word in words]
                self.asked.append((place, texts))
                reply = self.servers[place].get(texts[0], b"OK")
                if reply is Ellipsis:
                    protocol.connectionLost(Failure(ConnectionDone()))
                    return
                protocol.dataReceived(encode_reply(reply))
        if transport.disconnected:
            protocol.connectionLost(Failure(ConnectionDone()))

    def words(self, place: str) -> list[str]:
        return [" ".join(words) for at, words in self.asked if at == place]


class Attempt:
    """A node connects; the test plays the server."""

    def __init__(self, url: str = "redis://127.0.0.1") -> None:
        self.reactor = MemoryReactorClock()
        self.made: list[RedisConnection] = []
        self.failed: list[Exception] = []
        connector = Connector(parse_address(url), reactor=self.reactor, timeout=5.0, name="me")
        self.connecting = Deferred.fromCoroutine(connector.connect())
        self.connecting.addCallbacks(self.made.append, lambda failure: self.failed.append(failure.value))

    def accept(self, transport: StringTransport) -> Any:
        """The node's protocol on a connection."""
        protocol: Any = self.reactor.tcpClients[0][2].buildProtocol(None)
        protocol.makeConnection(transport)
        return protocol


def test_a_connection_introduces_itself() -> None:
    """It sends its name, and nothing that was not configured."""
    servers = ScriptedServers({"127.0.0.1:6379": {"ROLE": MASTER}})
    (connection,), failed = servers.connect("redis://127.0.0.1")
    assert failed == []
    assert servers.words("127.0.0.1:6379") == ["CLIENT SETNAME me", "ROLE"]
    (transport,) = servers.open["127.0.0.1:6379"]
    assert not transport.disconnected
    connection.send(("PING",), lambda reply: None)
    assert b"PING" in transport.value()


@pytest.mark.parametrize(
    ("url", "first"),
    [
        ("redis://:p%20w@127.0.0.1:7000/3", "AUTH p w"),
        ("redis://me:p%20w@127.0.0.1:7000/3", "AUTH me p w"),
    ],
)
def test_password_user_and_database(url: str, first: str) -> None:
    """The password is sent first, with the user if there is one, and then the database."""
    servers = ScriptedServers({"127.0.0.1:7000": {"ROLE": MASTER}})
    made, _ = servers.connect(url)
    assert made
    assert servers.words("127.0.0.1:7000") == [first, "CLIENT SETNAME me", "SELECT 3", "ROLE"]


@pytest.mark.parametrize(
    ("replies", "why"),
    [
        ({"AUTH": RuntimeError("WRONGPASS invalid")}, "127.0.0.1:6379: WRONGPASS invalid"),
        ({"SELECT": RuntimeError("ERR DB index is out of range")}, "127.0.0.1:6379: ERR DB index is out of range"),
        (
            {"CLIENT": RuntimeError("NOAUTH who are you?")},
            "127.0.0.1:6379: NOAUTH who are you?",
        ),
        ({"ROLE": REPLICA}, "127.0.0.1:6379 is not the master but a slave"),
        ({"ROLE": ...}, "127.0.0.1:6379: Redis closed the connection"),
    ],
)
def test_an_unusable_redis_is_disconnected(replies: dict[str, Any], why: str) -> None:
    """The error names it, without the password, and the connection is closed."""
    servers = ScriptedServers({"127.0.0.1:6379": {"ROLE": MASTER, **replies}})
    made, failed = servers.connect("redis://me:secret@127.0.0.1/9")
    assert (made, failed) == ([], [why])
    assert replies.get("ROLE") is Ellipsis or servers.open["127.0.0.1:6379"][0].disconnected


def test_a_refused_connection() -> None:
    made, failed = ScriptedServers({}).connect("redis://127.0.0.1:7000")
    assert made == []
    assert failed[0].startswith("127.0.0.1:7000: An error occurred")


def test_a_silent_redis_is_given_up() -> None:
    attempt, transport = Attempt(), StringTransport()
    protocol = attempt.accept(transport)
    attempt.reactor.advance(4.9)
    assert not attempt.failed
    attempt.reactor.advance(0.2)
    assert transport.disconnected
    protocol.connectionLost(Failure(ConnectionDone()))
    assert [*map(str, attempt.failed)] == ["127.0.0.1:6379: no reply within 5 s"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (
            b"",
            "Redis closed the connection (no reply; if this Redis accepts only TLS, use rediss://",
        ),
        (b"\x15\x03\x01\x00\x02\x02\x46", "this port uses TLS: use rediss:// instead of redis://"),
        (b"HTTP/1.1 400 Bad Request\r\n", "this is not Redis: Protocol error"),
        (b"-DENIED protected mode\r\n", "DENIED protected mode"),
    ],
)
def test_a_server_that_is_not_plain_redis_is_named(data: bytes, why: str) -> None:
    """A TLS port closes the connection silently, or sends an alert."""
    attempt = Attempt()
    protocol = attempt.accept(StringTransport())
    protocol.dataReceived(data) if data else None
    protocol.connectionLost(Failure(ConnectionDone()))
    (received,) = attempt.failed
    assert str(received).startswith(f"127.0.0.1:6379: {why}")


class TlsRedis(Protocol):
    """Answers each command: it is a master."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader()

    def dataReceived(self, data: bytes) -> None:
        assert self.transport is not None
        self._reader.feed(data)
        while (words := self._reader.gets()) is not False:
            self.transport.write(encode_reply(MASTER if words == [b"ROLE"] else b"OK"))


class ClosingRedis(Protocol):
    """Closes the connection when it gets a command."""

    def dataReceived(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.loseConnection()


class TlsTalk(Attempt):
    """To a server with TLS, up to where the client has sent its first bytes."""

    def __init__(self) -> None:
        super().__init__("rediss://127.0.0.1")
        factory: Any = self.reactor.tcpClients[0][2]
        while not isinstance(factory, TLSMemoryBIOFactory):
            factory = factory._wrappedFactory
        factory._clock = self.reactor  # else what it writes waits for the global reactor
        self.wire = Wire()
        self.client = self.accept(self.wire)

    def speak_tls(self, tls: ServerTls, redis: Protocol) -> None:
        factory = TLSMemoryBIOFactory(tls, False, Factory.forProtocol(lambda: redis), self.reactor)
        server: Any = factory.buildProtocol(None)
        wire = Wire()
        server.makeConnection(wire)
        exchange(self.reactor, (self.client, self.wire), (server, wire))

    def end(self) -> str:
        """The server closes the connection, if nobody has yet; returns why the node does not use it."""
        self.client.connectionLost(getattr(self.client, "_reason", None) or Failure(ConnectionDone()))
        (why,) = self.failed
        return str(why).removeprefix("127.0.0.1:6379: ")


def test_a_server_without_tls_is_named() -> None:
    """With advice, unless TLS works and something else does not."""
    talk = TlsTalk()
    talk.client.dataReceived(b"-ERR unknown command\r\n")
    assert talk.end().endswith("(no TLS handshake; if this Redis does not use TLS, use redis:// instead of rediss://)")
    talk = TlsTalk()
    talk.client.dataReceived(b"\x15\x03\x01\x00\x02\x02\x46")
    assert (why := talk.end()).startswith("TLS failed: ")
    assert "alert protocol version" in why
    assert "(" not in why
    talk = TlsTalk()
    talk.speak_tls(ServerTls(("127.0.0.1",)), TlsRedis())
    assert (why := talk.end()).startswith("its certificate is not signed by an authority that this machine trusts")
    assert "(" not in why


def test_with_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To a server with a certificate that this machine trusts; no advice if that closes the connection."""
    tls = ServerTls(("127.0.0.1",))
    authorities = tmp_path / "authorities.pem"
    authorities.write_bytes(tls.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(authorities))
    talk = TlsTalk()
    talk.speak_tls(tls, TlsRedis())
    assert (len(talk.made), talk.failed) == (1, [])
    talk = TlsTalk()
    talk.speak_tls(tls, ClosingRedis())
    assert talk.end() == "Redis closed the connection"


def test_cancelling_while_connecting() -> None:
    """It is no connection that cannot be made: that would be tried again."""
    attempt = Attempt()
    attempt.connecting.cancel()
    assert [*map(type, attempt.failed)] == [CancelledError]
    assert [each.stoppedConnecting for each in attempt.reactor.connectors] == [True]


def test_cancelling_closes_the_connection() -> None:
    """The node stops while the connection is being authenticated."""
    attempt, transport = Attempt(), StringTransport()
    attempt.accept(transport)
    assert transport.value()
    attempt.connecting.cancel()
    assert [*map(type, attempt.failed)] == [CancelledError]
    assert transport.disconnected


SENTINELS = "redis+sentinel://:pw@127.0.0.1,127.0.0.1:26380/mymaster/2"


def test_sentinels_are_asked_in_turn_for_the_master() -> None:
    """Those that are down or do not know the master are skipped; passwords are sent to the master only."""
    servers = ScriptedServers(
        {
            "127.0.0.1:26380": {"SENTINEL": None},
            "127.0.0.1:26381": {"SENTINEL": [b"127.0.0.1", b"7001"]},
            "127.0.0.1:7001": {"ROLE": MASTER},
        }
    )
    made, failed = servers.connect("redis+sentinel://:pw@127.0.0.1,127.0.0.1:26380,127.0.0.1:26381/mymaster/2")
    assert (len(made), failed) == (1, [])
    assert servers.words("127.0.0.1:26381") == ["SENTINEL GET-MASTER-ADDR-BY-NAME mymaster"]
    assert servers.words("127.0.0.1:7001") == ["AUTH pw", "CLIENT SETNAME me", "SELECT 2", "ROLE"]
    assert all(servers.open[place][0].disconnected for place in ("127.0.0.1:26380", "127.0.0.1:26381"))


def test_a_master_that_is_a_replica_by_now_is_not_used() -> None:
    """A Sentinel may report the old master for a while."""
    servers = ScriptedServers(
        {"127.0.0.1:26379": {"SENTINEL": [b"127.0.0.1", b"7001"]}, "127.0.0.1:7001": {"ROLE": REPLICA}}
    )
    assert servers.connect(SENTINELS) == ([], ["127.0.0.1:7001 is not the master but a slave"])


def test_if_no_sentinel_knows_the_master_all_reasons_are_named() -> None:
    """Which one is down, which does not know the master, and which refuses."""
    servers = ScriptedServers({"127.0.0.1:26380": {"SENTINEL": None}})
    made, (reason,) = servers.connect(SENTINELS)
    assert made == []
    assert "127.0.0.1:26379: An error occurred" in reason
    assert "127.0.0.1:26380 knows no master 'mymaster'" in reason
    servers = ScriptedServers(
        {"127.0.0.1:26379": {"SENTINEL": RuntimeError("NOAUTH")}, "127.0.0.1:26380": {"SENTINEL": ...}}
    )
    made, (reason,) = servers.connect(SENTINELS)
    assert reason.startswith("no Sentinel knows the master's address: ")
    assert "NOAUTH" in reason
    assert "Redis closed the connection" in reason
