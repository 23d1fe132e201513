"""Non-blocking HTTP requests to another server (Hsu §4.2, the service requesting mechanism).

Twisted's `Agent` sends them over persistent connections and resolves names in the reactor's threads. The number of
concurrent requests is limited and the others wait (Hsu §4.3: a web server has a limited number of processes).
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.error import ConnectingCancelledError
from twisted.internet.interfaces import IConsumer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.web.client import Agent, HTTPConnectionPool, ResponseDone, ResponseFailed
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IResponse
from zope.interface import implementer

from pushup.backends.limited_service import RETRY_AFTER_SECONDS, LimitedService, ServiceLimits
from pushup.core.errors import Unavailable
from pushup.metrics import BackendCounters

REPLY_LIMIT_BYTES = 64 * 1024
"""Maximum size of a reply. A decision is far smaller."""

RETRIES = 1
"""How often a GET without a reply is sent again: the server may just be restarting."""

RETRY_SECONDS = 0.2
"""The pause before a retry."""

IDLE_SECONDS = 30
"""How long an idle connection is kept open."""


class Reply(Struct, frozen=True):
    """The other server's reply."""

    status: int
    body: bytes


class ServiceRequestor:
    """Sends requests to one service. GET changes nothing there, so it is sent again if there is no reply."""

    def __init__(
        self,
        name: str,
        limits: ServiceLimits,
        *,
        reactor: Any,
        counters: BackendCounters,
        agent: IAgent | None = None,
        tls: bool = False,
    ) -> None:
        """`reactor` is an IReactorTCP and IReactorTime; `agent` is one with its own connections unless given.

        `tls`: the service is called by https, which needs the extra `tls`.
        """
        self._name = name
        self._limits = limits
        self._tls = tls
        self._clock = reactor
        self._service = LimitedService(name, limits, clock=reactor, give_up=Deferred.cancel, counters=counters)
        self._connections: HTTPConnectionPool | None = None
        if agent is None:
            self._connections, agent = self._connect()
        self._agent = agent

    def _connect(self) -> tuple[HTTPConnectionPool, IAgent]:
        """An empty pool of persistent connections, and an agent that uses it."""
        connections = HTTPConnectionPool(self._clock)
        connections.maxPersistentPerHost = self._limits.at_most
        connections.cachedConnectionTimeout = IDLE_SECONDS
        timeout = self._limits.deadline_seconds
        if not self._tls:
            return connections, Agent(self._clock, connectTimeout=timeout, pool=connections)
        from pushup.transport.client_tls import TlsPolicy

        return connections, Agent(self._clock, TlsPolicy(), connectTimeout=timeout, pool=connections)

    def renew_connections(self) -> None:
        """Send later requests over new connections, which trust the certificates that are installed now.

        Running requests finish on their old connections.
        """
        if self._connections is not None:
            old = self._connections
            self._connections, self._agent = self._connect()
            old.cachedConnectionTimeout = 0
            old.closeCachedConnections()

    def get(self, url: bytes, headers: dict[bytes, bytes]) -> Deferred[Reply]:
        """Send a GET request; redirects are not followed. Fails with Unavailable or Overloaded."""
        return self._request(b"GET", url, headers, None, RETRIES)

    def post(self, url: bytes, headers: dict[bytes, bytes], body: bytes) -> Deferred[Reply]:
        """Send a POST request, once. The body of a reply that is too long is left out. Fails as `get`."""
        return self._request(b"POST", url, headers, body, 0)

    def _request(
        self, method: bytes, url: bytes, headers: dict[bytes, bytes], body: bytes | None, retries: int
    ) -> Deferred[Reply]:
        raw = Headers({name: [value] for name, value in headers.items()})
        return self._service.call(lambda: Deferred.fromCoroutine(self._send(method, url, raw, body, retries)))

    def stop(self) -> Deferred[None]:
        """Send no more requests; fires when the connections are closed."""
        self._service.stop()
        if self._connections is None:
            return succeed(None)
        closed: Deferred[None] = self._connections.closeCachedConnections().addBoth(lambda _: None)
        return closed

    async def _send(self, method: bytes, url: bytes, headers: Headers, body: bytes | None, retries: int) -> Reply:
        while True:
            try:
                producer = None if body is None else _Bytes(body)
                response = await self._agent.request(method, url, headers, producer)
                return Reply(response.code, await _body(response, is_needed=body is None))
            except Exception as error:
                if _was_cancelled(error):
                    raise  # the caller has given up
                if not retries:
                    raise self._no_reply(url, error)  # noqa: B904 - it has its cause
            retries -= 1
            await deferLater(self._clock, RETRY_SECONDS, lambda: None)

    def _no_reply(self, url: bytes, error: Exception) -> Unavailable:
        cause = error
        while reasons := getattr(cause, "reasons", None):
            cause = reasons[0].value
        where = urlsplit(url.decode()).netloc
        text = f"no reply from {self._name} at {where}: {type(cause).__name__}: {cause}"
        unavailable = Unavailable(text.rstrip(": ."), retry_after=RETRY_AFTER_SECONDS)
        unavailable.__cause__ = cause.with_traceback(None)  # Twisted's traceback would tell operators nothing
        return unavailable


@implementer(IBodyProducer)
class _Bytes:
    """The body of a request."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.length = len(body)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None:
        """All is written."""

    def resumeProducing(self) -> None:
        """All is written."""

    def stopProducing(self) -> None:
        """All is written."""


def _was_cancelled(error: Exception) -> bool:
    """Whether the request was cancelled: once it is sent, it fails as a broken connection with this reason."""
    if isinstance(error, CancelledError | ConnectingCancelledError):
        return True
    return any(reason.check(CancelledError) for reason in getattr(error, "reasons", ()))


def _body(response: IResponse, *, is_needed: bool) -> Deferred[bytes]:
    """The body of a response. Fails with ResponseFailed when it is incomplete, or too long and needed."""
    body = _Body(is_needed=is_needed)
    response.deliverBody(body)
    return body.whole


class _Body(Protocol):
    """Collects a body up to REPLY_LIMIT_BYTES."""

    def __init__(self, *, is_needed: bool) -> None:
        self._is_needed = is_needed
        self._data = bytearray()
        self.whole: Deferred[bytes] = Deferred(lambda _: self._abort())

    def dataReceived(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > REPLY_LIMIT_BYTES:
            self._abort()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.whole.called:
            return
        if len(self._data) > REPLY_LIMIT_BYTES:
            if self._is_needed:
                error = ValueError(f"it has more than {REPLY_LIMIT_BYTES} bytes")
                self.whole.errback(ResponseFailed([Failure(error)]))
            else:
                self.whole.callback(b"")
        elif reason.check(ResponseDone, PotentialDataLoss):
            self.whole.callback(bytes(self._data))
        else:
            self.whole.errback(ResponseFailed([reason]))

    def _abort(self) -> None:
        transport: Any = self.transport
        transport.stopProducing()  # `loseConnection` reads on until the other end has closed TLS as well
