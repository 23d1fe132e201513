"""TLS to other servers, in memory: which certificates are accepted, and what the errors say about the others."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from OpenSSL.crypto import FILETYPE_PEM, X509, load_certificate
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure

from pushup.broadcast.redis.redis_connection import RedisConnection
from pushup.transport.client_tls import ClientTls, certificate_mistake
from tests.net.tls_in_memory import ServerTls, Wire, exchange
from tests.server.certificates import DAY, make_certificate


def certificate(*names: str) -> X509:
    return load_certificate(FILETYPE_PEM, make_certificate(*names)[0])


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("127.0.0.1", ("127.0.0.1",)),
        ("::1", ("10.0.0.1", "::1")),
        ("redis.example.org", ("redis.example.org",)),
        ("a.example.org", ("*.example.org",)),
        ("localhost", ("127.0.0.1", "localhost")),
    ],
)
def test_a_certificate_that_names_the_host_is_accepted(host: str, names: tuple[str, ...]) -> None:
    """It may name the address or the host name, among others."""
    assert certificate_mistake(host, certificate(*names), 0, 0, is_trusted=True) == ""


@pytest.mark.parametrize(
    ("host", "names", "why"),
    [
        (
            "127.0.0.1",
            (),
            "has no subjectAltName, so it names no server; have it reissued",
        ),
        (
            "redis",
            (),
            "has no subjectAltName, so it names no server; have it reissued",
        ),
        (
            "127.0.0.1",
            ("localhost",),
            "does not name 127.0.0.1; connect by a name that it contains, or have",
        ),
        ("localhost", ("127.0.0.1",), "does not name localhost; "),
        ("a.b.example.org", ("*.example.org",), "does not name a.b.example.org; "),
        ("::1", ("127.0.0.1",), "reissued with subjectAltName=IP:::1"),
    ],
)
def test_a_certificate_for_another_host_is_refused_with_advice(host: str, names: tuple[str, ...], why: str) -> None:
    """As in browsers, the name in the subject does not count."""
    assert why in certificate_mistake(host, certificate(*names), 0, 0, is_trusted=True)


def test_an_untrusted_certificate_is_refused_whatever_it_names() -> None:
    """An unknown error number is passed on; names are only compared with the server's own certificate."""
    good, nameless = certificate("127.0.0.1"), certificate()
    root = "set SSL_CERT_FILE to its root authority's certificate"
    for number, why in ((2, root), (18, root), (20, root), (10, "has expired"), (77, "error 77")):
        assert why in certificate_mistake("127.0.0.1", good, number, 0, is_trusted=False)
    assert certificate_mistake("127.0.0.1", nameless, 0, 1, is_trusted=True) == ""


class Listening(Protocol):
    """A server that says nothing; `received` is what it got."""

    def __init__(self) -> None:
        self.received = b""

    def dataReceived(self, data: bytes) -> None:
        self.received += data


class Talk:
    """A connection to such a server, and its outcome."""

    def __init__(self, *names: str, trusted_in: Path | None, host: str = "127.0.0.1", age: dt.timedelta = DAY) -> None:
        """`trusted_in`: the file in which this machine has the certificates that it trusts; None: not the server's."""
        clock = Clock()
        server_tls = ServerTls(names, age)
        if trusted_in is not None:
            trusted_in.write_bytes(server_tls.certificate)
        client_tls = ClientTls(host)
        self.connection = RedisConnection(clock, 5.0)
        self.server = Listening()
        client = TLSMemoryBIOFactory(client_tls, True, Factory.forProtocol(lambda: self.connection), clock)
        server = TLSMemoryBIOFactory(server_tls, False, Factory.forProtocol(lambda: self.server), clock)
        ends = [(factory.buildProtocol(None), Wire()) for factory in (client, server)]
        for protocol, transport in ends:
            protocol.makeConnection(transport)
        self.replies: list[str] = []
        self.connection.send(("AUTH", "secret"), lambda reply: self.replies.append(str(reply)))
        exchange(clock, *ends)
        if ends[0][1].disconnected:
            ends[0][0].connectionLost(Failure(ConnectionDone()))  # TLS knows the reason


def test_the_outcome_of_verification_reaches_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either the connection is accepted, or it ends with the reason before the caller has sent anything."""
    trusted = tmp_path / "trusted.pem"
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    unsigned = "its certificate is not signed by an authority that this machine trusts"
    for talk, why in (
        (Talk("127.0.0.1", trusted_in=trusted), None),
        (Talk(trusted_in=trusted), "its certificate has no subjectAltName, so it names no server"),
        (Talk("10.0.0.1", trusted_in=trusted), "its certificate does not name 127.0.0.1"),
        (Talk("127.0.0.1", trusted_in=None), unsigned),
        (Talk("127.0.0.1", age=3 * DAY, trusted_in=trusted), "its certificate has expired"),
    ):
        assert talk.connection.shook_hands is (why is None)
        assert (b"secret" in talk.server.received) is (why is None)
        assert [text.partition(";")[0] for text in talk.replies] == ([] if why is None else [why])
        if why is not None:
            assert talk.connection.was_refused
