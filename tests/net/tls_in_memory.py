"""A TLS server, and the wire to it, in memory."""

from __future__ import annotations

import datetime as dt
from typing import Any

from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate
from OpenSSL.SSL import TLS_METHOD, Connection, Context
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from zope.interface import implementer

from tests.server.certificates import DAY, make_certificate

ENOUGH = 20
"""Exchanges after which a handshake is over."""


@implementer(IOpenSSLServerConnectionCreator)
class ServerTls:
    """A TLS server with this certificate."""

    def __init__(self, names: tuple[str, ...], age: dt.timedelta = DAY) -> None:
        self.certificate, key = make_certificate(*names, age=age)
        self._context = Context(TLS_METHOD)
        self._context.use_certificate(load_pem_x509_certificate(self.certificate))
        self._context.use_privatekey(load_pem_private_key(key, None))  # type: ignore[arg-type]

    def serverConnectionForTLS(self, tls_protocol: Any) -> Connection:
        return Connection(self._context, None)


class Wire(StringTransport):
    """A TCP connection in memory."""

    def setTcpNoDelay(self, enabled: bool) -> None:
        pass

    def setTcpKeepAlive(self, enabled: bool) -> None:
        pass


def exchange(clock: Clock, *ends: tuple[Any, Wire]) -> None:
    """Pass on what each of two protocols has written, until there is nothing left."""
    for _ in range(ENOUGH):
        clock.advance(0)
        for (_, source), (target, to) in zip(ends, ends[::-1], strict=True):
            data = source.value()  # type: ignore[no-untyped-call]
            source.clear()  # type: ignore[no-untyped-call]
            if data and not to.disconnected:
                target.dataReceived(data)
