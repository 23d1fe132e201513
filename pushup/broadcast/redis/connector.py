"""Connects to Redis: asks the Sentinels for the master, if there are any, and authenticates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import CancelledError
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.error import ConnectingCancelledError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Factory

from pushup.broadcast.redis.redis_connection import RedisConnection
from pushup.broadcast.redis.redis_errors import CannotConnect, ErrorReply, Lost
from pushup.broadcast.redis.redis_settings import RedisAddress
from pushup.transport import SharedTransport


class Connects(Protocol):
    """Makes connections to Redis."""

    async def connect(self) -> RedisConnection:
        """Raises: CannotConnect."""


class Connector:
    """Makes connections to one Redis."""

    def __init__(
        self,
        address: RedisAddress,
        *,
        reactor: Any,
        timeout: float,
        name: str,
        adopt: Callable[[Any], SharedTransport] | None = None,
    ) -> None:
        """`timeout`: seconds for connecting, and for progress with each reply; `name`: shown by CLIENT LIST.

        `adopt`: hands a transport to another driver than the reactor.
        """
        self._adopt = adopt
        self.address = address
        self._reactor = reactor
        self._timeout = timeout
        self._name = name

    async def connect(self) -> RedisConnection:
        """A connection to the master, ready for use. Raises: CannotConnect."""
        address = self.address
        host, port = await self._ask_sentinels() if address.master else address.hosts[0]
        connection = await self._open(host, port, tls=address.tls)
        connection.server, connection.is_from_sentinel = _place(host, port, connection), bool(address.master)
        try:
            if address.password:
                await connection.ask("AUTH", *([address.user] if address.user else []), address.password)
            await connection.ask("CLIENT", "SETNAME", self._name)
            if address.database:
                await connection.ask("SELECT", address.database)
            role = await connection.ask("ROLE")
            if role[0] != b"master":
                raise CannotConnect(f"{host}:{port} is not the master but a {role[0].decode()}")
        except (ErrorReply, Lost) as error:
            connection.abort("the connection is not usable")
            raise CannotConnect(f"{host}:{port}: {error}{_hint(connection, tls=address.tls)}") from None
        except Exception:  # also when this node stops
            connection.abort("the connection is not usable")
            raise
        return connection

    async def _ask_sentinels(self) -> tuple[str, int]:
        """The master's address, from the first Sentinel that knows it. Raises: CannotConnect."""
        reasons = []
        for host, port in self.address.hosts:
            try:
                sentinel = await self._open(host, port, tls=False)
                try:
                    found = await sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.address.master)
                finally:
                    sentinel.abort("Sentinel was asked")
                if found is not None:
                    return found[0].decode(), int(found[1])
                reasons.append(f"{host}:{port} knows no master {self.address.master!r}")
            except (CannotConnect, Lost, ErrorReply) as error:
                reasons.append(str(error))
        raise CannotConnect("no Sentinel knows the master's address: " + "; ".join(reasons))

    async def _open(self, host: str, port: int, *, tls: bool) -> RedisConnection:
        endpoint: IStreamClientEndpoint = HostnameEndpoint(self._reactor, host, port, timeout=self._timeout)
        if tls:
            from pushup.transport.client_tls import ClientTls  # needs the extra `tls`

            endpoint = wrapClientTLS(ClientTls(host), endpoint)
        connection = RedisConnection(self._reactor, self._timeout, self._adopt)
        factory = Factory.forProtocol(lambda: connection)
        factory.noisy = False
        try:
            await endpoint.connect(factory)
        except (CancelledError, ConnectingCancelledError):
            raise CancelledError from None
        except Exception as error:
            raise CannotConnect(f"{host}:{port}: {str(error) or type(error).__name__}") from None
        return connection


def _place(host: str, port: int, connection: RedisConnection) -> str:
    """Where the connection leads: the name, and which of its addresses. With another master, it may have another."""
    assert connection.transport is not None
    address = connection.transport.getPeer().host  # type: ignore[attr-defined]
    return f"{host}:{port}" if address == host else f"{host}:{port} ({address})"


def _hint(connection: RedisConnection, *, tls: bool) -> str:
    """What may be wrong with the URL, if the connection ended before anything was received."""
    if tls and not connection.shook_hands and not connection.was_refused:
        return " (no TLS handshake; if this Redis does not use TLS, use redis:// instead of rediss://)"
    if not tls and connection.closed_unheard:
        return " (no reply; if this Redis accepts only TLS, use rediss:// instead of redis://)"
    return ""
