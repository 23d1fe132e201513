"""The whole server on one page: makes the parts and joins them."""

from __future__ import annotations

import gc
import resource
import secrets
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import random
from typing import Any

from msgspec import Struct, structs
from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from pushup.backends.authorization import Authorization, AuthorizationSettings, Authorizer
from pushup.backends.function_authorizer import FunctionAuthorizer, load
from pushup.backends.helper_pool import HelperPool
from pushup.backends.limited_service import ServiceLimits
from pushup.backends.tickets import Tickets
from pushup.broadcast import Broadcast
from pushup.broadcast.journal import Journal
from pushup.broadcast.journal_file import open_journal
from pushup.broadcast.memory import MemoryBroadcast
from pushup.core.subscription import Holder
from pushup.metrics import Metrics, MetricsPage
from pushup.net.api.access import Access
from pushup.net.api.application import Api
from pushup.net.api.authorized_polls import AuthorizedPolls
from pushup.net.api.origins import Origins
from pushup.net.api.poll_parameters import PollReader
from pushup.net.api.refusals import Refusals
from pushup.net.api.request_log import RequestLog
from pushup.net.edge import Edge
from pushup.net.exchange import Application
from pushup.net.listener import open_socket
from pushup.net.wait.demultiplexer import Demultiplexer
from pushup.net.wait.strategies import STRATEGIES
from pushup.node import Node
from pushup.settings import Reloaded, Settings, SettingsError, reload_settings

FLUSH_SECONDS = 3.0
"""How long the last responses may take to reach their clients when the server stops."""

RESERVED_FILES = 64
"""File descriptors that clients never get; a node needs some 20, and one for each question to the application."""

_log = Logger()


class Asking(Struct, frozen=True):
    """Who may poll what is asked, and how to stop that, or to go on over new connections."""

    authorization: Authorization
    stop: Callable[[], object]
    renew_connections: Callable[[], object]


class PushUpService(Service):
    """A server that listens from `startService` on, and drains in `stopService`."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: IReactorTime,
        node: Node[Holder],
        edge: Edge,
        api: Api,
        access: Access,
        asking: Asking | None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._node = node
        self._edge = edge
        self._api = api
        self._access = access
        self._asking = asking
        self.addresses: list[str] = []

    def startService(self) -> None:
        """Raises: JournalError; OSError when an address cannot be listened on, and then nothing listens."""
        self._node.start()
        sockets: list[socket.socket] = []
        try:
            for address in self._settings.server.listen:
                sockets.append(open_socket(address))
        except OSError as error:
            for sock in sockets:
                sock.close()
            raise OSError(error.errno, f"cannot listen on {address}: {error.strerror}") from None
        self._edge.start()
        self.addresses = [self._edge.listen(sock) for sock in sockets]
        self._node.addresses = tuple(self.addresses)
        super().startService()
        _log.info("listening on {addresses}", addresses=", ".join(self.addresses))

    def reload(self, settings: Settings) -> Reloaded:
        """Use what of these settings can change while the server runs. Connections and held polls go on.

        Raises: SettingsError, and then nothing has changed.
        """
        reloaded = reload_settings(self._settings, settings)
        self._settings = reloaded.settings
        self._access.use_publish_keys(reloaded.settings.server.publish_keys)
        self._edge.use_application(_application(self._api, self._clock, reloaded.settings))
        if self._asking is not None:
            if "ticket_key" in reloaded.applied:
                self._asking.authorization.use_tickets(_make_tickets(reloaded.settings.authorization))
            self._asking.renew_connections()
        return reloaded

    def why_not_ready(self) -> str | None:
        """Why no new clients should be sent here, if so, as exactly as an operator wants to know."""
        error = self._node.why_not_ready()
        return None if error is None else error.operator_detail or error.detail

    async def _stop(self) -> None:
        """Not ready; held polls answered over the drain window; nothing acknowledged is lost."""
        held = self._node.polls.count
        _log.info("draining {held} held polls", held=held)
        self._edge.drain()
        await self._node.drain(self._settings.drain.drain_seconds if held else 0.0)
        self._edge.stop_listening()
        deadline = self._clock.seconds() + FLUSH_SECONDS
        while self._edge.connection_count and self._clock.seconds() < deadline:
            await deferLater(self._clock, 0.05, lambda: None)
        self._edge.close()
        await self._node.stop()
        if self._asking is not None:
            await maybeDeferred(self._asking.stop)
        _log.info("stopped")

    def stopService(self) -> Deferred[None]:
        super().stopService()
        return Deferred.fromCoroutine(self._stop())


def make_service(settings: Settings, reactor: Any) -> PushUpService:
    """A server by these settings, on this reactor (an IReactorFDSet, IReactorTime, IReactorTCP, IReactorFromThreads).

    Raises: SettingsError.
    """
    metrics = Metrics()
    demultiplexer = STRATEGIES[settings.server.wait_strategy](reactor)
    broadcast = _make_broadcast(settings, reactor, metrics, demultiplexer)
    node: Node[Holder] = Node(
        limits=settings.queue,
        hold_limits=settings.hold,
        broadcast=broadcast,
        clock=reactor,
        soon=demultiplexer.soon,
        random=random,
        metrics=metrics,
        name=settings.server.node_name or socket.gethostname(),
    )
    asking = _make_authorization(settings.authorization, reactor, metrics)
    page = MetricsPage(
        metrics,
        {
            "held_polls": ("Polls held", lambda: node.polls.count),
            "ready": ("1 when new clients may be sent here, else 0", lambda: node.why_not_ready() is None),
            "nodes": ("Nodes that live, as far as this one knows", lambda: len(node.members())),
            "connections": ("Connections open", lambda: edge.connection_count),
            "connections_limit": ("Connections that may be open", lambda: edge.limits.connections_limit),
            "waiting_requests_bytes": (
                "Bytes that count against waiting_requests_limit_bytes",
                lambda: edge.waiting_bytes,
            ),
            "held_bytes": ("Bytes that count against held_limit_bytes", lambda: node.polls.bytes),
            "channels": ("Channels living", lambda: len(node.state.channels)),
            "awaited_channels": ("Channels that do not exist and are waited for", lambda: node.polls.awaited_count),
            "cached_messages": ("Messages cached", lambda: node.state.message_count),
            "cached_bytes": ("Bytes that count against retention_bytes", lambda: node.state.message_bytes),
            "waiting_bytes": ("Bytes that count against waiting_limit_bytes", lambda: broadcast.waiting_bytes),
        },
    )
    cors_origins = frozenset(settings.server.cors_origins)
    origins = Origins(cors_origins)
    access = Access(publish_keys=settings.server.publish_keys, origins=origins, hosts=settings.server.hosts)
    refusals = Refusals(metrics, reactor.seconds)
    api = Api(
        node,
        polls=PollReader(settings.poll),
        publication_limits=settings.publication,
        publication_limit_bytes=settings.request.body_limit_bytes,
        access=access,
        origins=origins,
        refusals=refusals,
        metrics_text=page.text,
        authorized_polls=None
        if asking is None
        else AuthorizedPolls(node, asking.authorization, reactor, settings.authorization.authorize_queue_limit_bytes),
    )
    edge = Edge(
        application=_application(api, reactor, settings),
        demultiplexer=demultiplexer,
        reactor=reactor,
        clock=reactor,
        limits=structs.replace(settings.edge, connections_limit=connections_within(settings)),
        request_limits=settings.request,
        metrics=metrics,
    )
    return PushUpService(settings, clock=reactor, node=node, edge=edge, api=api, access=access, asking=asking)


def _application(api: Api, clock: IReactorTime, settings: Settings) -> Application:
    """What answers requests, and says so in the log at level debug."""
    return RequestLog(api, clock) if settings.server.log_level == "debug" else api


def _make_broadcast(settings: Settings, reactor: Any, metrics: Metrics, demultiplexer: Demultiplexer) -> Broadcast:
    epoch = secrets.token_hex(4)
    kind, _, path = settings.server.broadcast.partition(":")
    if kind == "memory":
        return MemoryBroadcast(epoch=epoch, now=reactor.seconds)
    if kind != "journal":
        return _make_redis_broadcast(settings, reactor, demultiplexer)
    limits = ServiceLimits(at_most=1, queue_limit=1, deadline_seconds=settings.journal.journal_timeout_seconds)
    return Journal(
        partial(open_journal, Path(path), settings.queue, epoch),
        limits=settings.queue,
        waiting_limits=settings.waiting,
        helpers=HelperPool("journal", limits, reactor=reactor, counters=metrics.backend("journal")),
        clock=reactor,
    )


def _make_redis_broadcast(settings: Settings, reactor: Any, demultiplexer: Demultiplexer) -> Broadcast:
    # Imported here, so that a single node does not load what it does not need.
    from pushup.broadcast.redis.address import parse_address
    from pushup.broadcast.redis.broadcast import RedisBroadcast
    from pushup.broadcast.redis.connector import Connector

    connector = Connector(
        parse_address(settings.server.broadcast),
        reactor=reactor,
        timeout=settings.redis.redis_timeout_seconds,
        name="pushup",
        adopt=demultiplexer.adopt,
    )
    return RedisBroadcast(
        connector,
        node_id=secrets.token_hex(4),
        limits=settings.queue,
        redis_limits=settings.redis,
        waiting_limits=settings.waiting,
        clock=reactor,
        random=random,
    )


def _make_authorization(settings: AuthorizationSettings, reactor: Any, metrics: Metrics) -> Asking | None:
    """Who may poll what, unless everybody may everything. Raises: SettingsError."""
    limits = ServiceLimits(
        at_most=settings.authorize_at_most,
        queue_limit=settings.authorize_queue_limit,
        deadline_seconds=settings.authorize_timeout_seconds,
    )
    authorizer: Authorizer
    stop: Callable[[], object]
    renew: Callable[[], object]
    if settings.authorize_url:
        # An HTTP client with TLS takes 12 MB, which others need not have.
        from pushup.backends.service_requestor import ServiceRequestor
        from pushup.backends.url_authorizer import UrlAuthorizer

        counters = metrics.backend("authorization")
        tls = settings.authorize_url.startswith("https:")
        requestor = ServiceRequestor("authorize_url", limits, reactor=reactor, counters=counters, tls=tls)
        authorizer = UrlAuthorizer(settings.authorize_url, requestor)
        stop, renew = requestor.stop, requestor.renew_connections
    elif settings.authorizer:
        try:
            function = load(settings.authorizer)
        except ValueError as error:
            raise SettingsError(f"authorizer: {error}") from None
        pool = HelperPool("the authorizer", limits, reactor=reactor, counters=metrics.backend("authorization"))
        authorizer, stop, renew = FunctionAuthorizer(function, pool), pool.stop, lambda: None
    else:
        return None
    authorization = Authorization(
        authorizer,
        tickets=_make_tickets(settings),
        ticket_seconds=settings.ticket_seconds,
        clock=reactor,
        random=random,
    )
    return Asking(authorization, stop, renew)


def _make_tickets(settings: AuthorizationSettings) -> Tickets:
    return Tickets((settings.ticket_key or secrets.token_hex(32)).encode())


def connections_within(settings: Settings) -> int:
    """How many connections there may be at a time, so that some file descriptors stay free.

    They are for Redis, the journal and the application. If clients had them all, none of these could be opened again:
    each descriptor that becomes free would go to the next client.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    reserve = min(RESERVED_FILES + settings.authorization.authorize_at_most, files // 2)
    connections = min(settings.edge.connections_limit, files - reserve)
    _log.info(
        "at most {connections} connections: connections_limit is {limit}, and of {files} file descriptors {reserve} "
        "are kept for other things",
        connections=connections, limit=settings.edge.connections_limit, files=files, reserve=reserve,
    )  # fmt: skip
    return connections


def raise_file_limit() -> int:
    """Let this process have as many files as it may; returns how many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def tune_garbage_collector() -> None:
    """Look for reference cycles more rarely: a held poll is in none, and 10,000 of them are looked at each time.

    Python looks after every 700 new objects; with a fan-out to 5,000 that was 5 % of the time.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
