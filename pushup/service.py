"""The whole server on one page: its parts, in which order they start and stop, and how they are joined.

    clients <-> edge <-> api <-> node <-> broadcast
                          |
                     authorization

Nothing runs before `startService`: making a part starts no timer, opens no file and connects to nothing.
"""

from __future__ import annotations

import socket
import time
from functools import partial
from random import random
from typing import Any

from msgspec import structs
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import Logger

from pushup.backends.authorization import Authorization
from pushup.broadcast import Broadcast
from pushup.clock import WATCH_SECONDS, SteadyTime
from pushup.core.subscription import Holder
from pushup.host.process_limits import connection_limit
from pushup.metrics import Metrics, MetricsPage
from pushup.net.api.access import Access
from pushup.net.api.application import Api
from pushup.net.api.authorized_polls import AuthorizedPolls
from pushup.net.api.cors import Origins
from pushup.net.api.error_responses import Refusals
from pushup.net.api.poll_parameters import PollReader
from pushup.net.api.request_log import RequestLog
from pushup.net.api.server_view import OneProcess
from pushup.net.api.streaming import Streaming
from pushup.net.application_interface import Application
from pushup.net.edge import Edge
from pushup.net.listener import open_socket, open_sockets
from pushup.net.reserve import RESERVED_CONNECTIONS
from pushup.net.wait.strategies import STRATEGIES
from pushup.node.node import Node
from pushup.parts import WorkerParts, make_authorization, make_broadcast, make_tickets
from pushup.settings.settings import Reloaded, Settings, reload_settings

FLUSH_SECONDS = 3.0
"""How long the last responses may take to reach their clients when the server stops."""

_log = Logger()


class PushUpService(Service):
    """A server: it listens from `startService` on, and drains in `stopService`."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: IReactorTime,
        node: Node[Holder],
        edge: Edge,
        api: Api,
        access: Access,
        authorization: Authorization | None,
        steady_time: SteadyTime,
        worker: WorkerParts | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._node = node
        self._edge = edge
        self._api = api
        self._access = access
        self._authorization = authorization
        self._worker = worker
        self._watching = LoopingCall(steady_time.watch)
        self._watching.clock = clock
        self.addresses: list[str] = []

    def startService(self) -> None:
        """Start the node, then accept clients; a worker that waits for its state does that later (`listen`).

        Raises: JournalError, NotUnderstood; OSError when an address cannot be listened on, and then nothing listens.
        """
        self._node.start()
        sockets = open_sockets(self._settings.server.listen) if self._worker is None else []
        self._edge.start()
        if self._worker is None:
            self._accept(sockets)
        elif self._worker.connect is None:
            self.listen()
        self._watching.start(WATCH_SECONDS).addErrback(
            lambda failure: _log.failure("clock monitoring failed; restart the server", failure)
        )
        super().startService()

    def listen(self) -> None:
        """Accept clients, as one of several workers. Raises: OSError."""
        assert self._worker is not None
        shared = self._worker.sockets
        own = open_sockets(self._worker.addresses, partial(open_socket, share_port=True))
        self._accept(own, shared)

    def _accept(self, own: list[socket.socket], shared: list[socket.socket] | None = None) -> None:
        self.addresses = [self._edge.listen(sock) for sock in own]
        self.addresses += [self._edge.listen(sock, is_shared=True) for sock in shared or []]
        self._node.addresses = tuple(self.addresses)
        _log.info("listening on {addresses}", addresses=", ".join(self.addresses))

    def stop_listening(self) -> None:
        """Accept no more clients. Those that are here stay."""
        self._edge.stop_listening()

    def stopService(self) -> Deferred[None]:
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        """Answer held polls over the drain window, send what is left, and stop in the reverse order."""
        _log.info("draining {held} held polls, then stopping", held=self._node.polls.count)
        if self._worker is not None and self._edge.connection_count:
            self._node.answer_balancer("")  # stands for those whose checks reached other workers; it never notices
        if self._node.has_balancer:
            self._edge.begin_drain()  # it may be sending a request on an idle connection, and cannot repeat each
        else:
            self._edge.drain()
        await self._node.drain(self._settings.drain.drain_seconds)
        self._edge.drain()
        self._edge.stop_listening()
        deadline = self._clock.seconds() + FLUSH_SECONDS
        while self._edge.connection_count and self._clock.seconds() < deadline:
            await deferLater(self._clock, 0.05, lambda: None)
        self._edge.close()
        if self._watching.running:
            self._watching.stop()
        await self._node.stop()
        if self._authorization is not None:
            await self._authorization.stop()
        _log.info("stopped")

    def reload(self, settings: Settings) -> Reloaded:
        """Apply those of these settings that can change in a running server. Connections and held polls stay.

        Raises: SettingsError, and then nothing has changed.
        """
        reloaded = reload_settings(self._settings, settings)
        self._settings = reloaded.settings
        self._access.use_publish_keys(reloaded.settings.server.publish_keys)
        self._edge.use_application(_application(self._api, self._clock, reloaded.settings))
        if self._authorization is not None:
            if "ticket_key" in reloaded.applied:
                self._authorization.use_tickets(make_tickets(reloaded.settings.authorization))
            self._authorization.renew_connections()
        return reloaded

    def why_not_ready(self) -> str | None:
        """Why load balancers should send no new clients here, with the details for an operator; None if they may."""
        error = self._node.why_not_ready()
        return None if error is None else error.operator_detail or error.detail


def make_service(settings: Settings, reactor: Any, worker: WorkerParts | None = None) -> PushUpService:
    """A server with these settings on this reactor (an IReactorFDSet, -Time, -TCP and -FromThreads); not started.

    `worker`: what it has from its parent, if it is one of several.

    Raises: SettingsError.
    """
    metrics = Metrics()
    page = MetricsPage(metrics)
    demultiplexer = STRATEGIES[settings.server.wait_strategy](reactor)
    if worker is not None:
        worker.use(demultiplexer)
    steady_time = SteadyTime()
    broadcast = make_broadcast(settings, reactor, metrics, demultiplexer, steady_time, worker)
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
    authorization = make_authorization(settings.authorization, reactor, metrics)
    origins = Origins(frozenset(settings.server.cors_origins))
    access = Access(publish_keys=settings.server.publish_keys, origins=origins, hosts=settings.server.hosts)
    authorized_polls: AuthorizedPolls | None = None
    if authorization is not None:
        limit = settings.authorization.authorize_queue_limit_bytes
        authorized_polls = AuthorizedPolls(node, authorization, time.time, limit)
    streaming = Streaming(
        node,
        PollReader(settings.poll, for_streams=True),
        authorized_polls,
        settings.stream,
        seconds=reactor.seconds,
        soon=demultiplexer.soon,
        random=random,
    )
    api = Api(
        node,
        polls=PollReader(settings.poll),
        publication_limits=settings.publication,
        publication_limit_bytes=settings.request.body_limit_bytes,
        access=access,
        origins=origins,
        refusals=Refusals(metrics, reactor.seconds),
        machine=OneProcess(page.text, node.polls.subscribers) if worker is None else worker.make_machine(page, node),
        authorized_polls=authorized_polls,
        streaming=streaming,
    )
    connections, reserved = connection_limit(
        settings.edge.connections_limit, settings.authorization.authorize_at_most, RESERVED_CONNECTIONS
    )
    edge = Edge(
        application=_application(api, reactor, settings),
        demultiplexer=demultiplexer,
        reactor=reactor,
        clock=reactor,
        wall=time.time,
        limits=structs.replace(settings.edge, connections_limit=connections),
        request_limits=settings.request,
        metrics=metrics,
        reserved_connections=reserved,
    )
    _add_gauges(page, node, edge, broadcast, streaming)
    return PushUpService(
        settings,
        clock=reactor,
        node=node,
        edge=edge,
        api=api,
        access=access,
        authorization=authorization,
        steady_time=steady_time,
        worker=worker,
    )


def _application(api: Api, clock: IReactorTime, settings: Settings) -> Application:
    """What answers requests; at log level debug it logs each of them."""
    return RequestLog(api, clock) if settings.server.log_level == "debug" else api


def _add_gauges(page: MetricsPage, node: Node[Holder], edge: Edge, broadcast: Broadcast, streaming: Streaming) -> None:
    polls, limits = node.polls, edge.limits
    page.add("held_polls", "Held polls, and event streams that wait for the next event", lambda: polls.count)
    page.add("streams", "Open event streams", lambda: streaming.count)
    page.add("ready", "1 if load balancers should send new clients here, else 0", lambda: node.why_not_ready() is None)
    page.add("nodes", "Nodes of the cluster that are known to be alive", lambda: len(node.members()))
    page.add("connections", "Open connections", lambda: edge.connection_count)
    page.add("connections_limit", "Maximum number of open connections", lambda: limits.connections_limit)
    page.add(
        "waiting_requests_bytes", "Bytes that count against waiting_requests_limit_bytes", lambda: edge.waiting_bytes
    )
    page.add("unsent_bytes", "Bytes that count against unsent_limit_bytes", lambda: edge.unsent_bytes)
    page.add("held_bytes", "Bytes that count against held_limit_bytes", lambda: polls.bytes)
    page.add("channels", "Open channels", lambda: len(node.state.channels))
    page.add("awaited_channels", "Channels that do not exist and that polls wait for", lambda: polls.awaited_count)
    page.add("cached_messages", "Cached messages", lambda: node.state.message_count)
    page.add("cached_bytes", "Bytes that count against retention_bytes", lambda: node.state.message_bytes)
    page.add("waiting_bytes", "Bytes that count against waiting_limit_bytes", lambda: broadcast.waiting_bytes)
