"""Connects to Redis: finds the master, by asking Sentinels where there are some, and introduces itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hiredis
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Factory

from pushup.broadcast.redis.address import RedisAddress
from pushup.broadcast.redis.connection import Lost, RedisConnection
from pushup.shared_transport import SharedTransport


class NotThere(Exception):
    """There is no Redis that can be used at the address; the text says why."""


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
        """`timeout`: seconds to connect in, and for each reply; `name`: what Redis calls the connections.

        `adopt`: who drives their transports, if it is not the reactor.
        """
        self._adopt = adopt
        self.address = address
        self._reactor = reactor
        self._timeout = timeout
        self._name = name

    async def connect(self) -> RedisConnection:
        """A connection to the master, ready for use. Raises: NotThere."""
        address = self.address
        host, port = await self._ask_sentinels() if address.master else address.hosts[0]
        connection = await self._open(host, port, tls=address.tls)
        try:
            if address.password:
                await connection.ask("AUTH", *([address.user] if address.user else []), address.password)
            await connection.ask("CLIENT", "SETNAME", self._name)
            if address.database:
                await connection.ask("SELECT", address.database)
            role = await connection.ask("ROLE")
            if role[0] != b"master":
                raise NotThere(f"{host}:{port} is not the master but a {role[0].decode()}")
        except (hiredis.ReplyError, Lost) as error:
            connection.abort("it cannot be used")
            raise NotThere(f"{host}:{port}: {error}{_hint(connection, tls=address.tls)}") from None
        except Exception:  # this node stops, too
            connection.abort("it cannot be used")
            raise
        return connection

    async def _ask_sentinels(self) -> tuple[str, int]:
        """Where the master is, by the first Sentinel that knows. Raises: NotThere."""
        reasons = []
        for host, port in self.address.hosts:
            try:
                sentinel = await self._open(host, port, tls=False)
                try:
                    found = await sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.address.master)
                finally:
                    sentinel.abort("asked")
                if found is not None:
                    return found[0].decode(), int(found[1])
                reasons.append(f"{host}:{port} knows no master {self.address.master!r}")
            except (NotThere, Lost, hiredis.ReplyError) as error:
                reasons.append(str(error))
        raise NotThere("no Sentinel knows where it is: " + "; ".join(reasons))

    async def _open(self, host: str, port: int, *, tls: bool) -> RedisConnection:
        endpoint: IStreamClientEndpoint = HostnameEndpoint(self._reactor, host, port, timeout=self._timeout)
        if tls:
            from pushup.tls import ClientTls  # needs the extra `tls`

            endpoint = wrapClientTLS(ClientTls(host), endpoint)
        connection = RedisConnection(self._reactor, self._timeout, self._adopt)
        factory = Factory.forProtocol(lambda: connection)
        factory.noisy = False
        try:
            await endpoint.connect(factory)
        except Exception as error:
            raise NotThere(f"{host}:{port}: {str(error) or type(error).__name__}") from None
        return connection


def _hint(connection: RedisConnection, *, tls: bool) -> str:
    """What may be wrong with the URL of a connection that has ended before it was of use."""
    if tls and not connection.shook_hands and not connection.was_refused:
        return " (there was no TLS handshake; if this Redis does not speak TLS, use redis:// instead of rediss://)"
    if not tls and connection.closed_unheard:
        return " (it never replied; if this Redis speaks nothing but TLS, use rediss:// instead of redis://)"
    return ""
