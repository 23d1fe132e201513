"""The whole server on one page: its parts, how they are joined, and in which order they start and stop.

    clients <-> edge <-> api <-> node <-> broadcast
                          |
                     authorization

A server is a tree of services. They start from top to bottom, and stop from bottom to top, each when the one below it
has stopped:

| service | when it starts | when it stops |
|---|---|---|
| host | the clock is watched; sockets are waited for (epoll) | sockets are no longer waited for |
| what a worker has besides | the link to the parent, heartbeats | heartbeats end |
| state lock | the `state_directory` belongs to this server | it is free |
| authorization | keys of tokens are fetched | the application is not asked any more, nor called, nor for keys |
| node | the broadcast gives it the state; expiry | commands that were accepted are finished; files are closed |
| edge | connections are checked for progress | what is left is sent for FLUSH_SECONDS; connections end |
| listening | clients are accepted | no more are |
| draining | | held polls are answered over the drain window |

Nothing runs before `startService`: making a part starts no timer, opens no file and connects to nothing.

Servers that are built of these parts: one alone (`make_service`), a worker (`workers.worker`), the parent process of
workers, without node and edge (`workers.parent`), and those of tests (`pushup.testing`, `tests/simulation/server.py`).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec import structs
from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from pushup.broadcast import Broadcast
from pushup.core.subscription import Holder
from pushup.host.host import Host
from pushup.listening import Listening
from pushup.net.api.access import Access
from pushup.net.api.application import Api
from pushup.net.api.channel_rules import ChannelRules
from pushup.net.api.cors import Origins
from pushup.net.api.error_responses import ErrorResponder
from pushup.net.api.node_interface import OneProcess, ServerView
from pushup.net.api.poll_access import PollAccess
from pushup.net.api.poll_parameters import PollReader
from pushup.net.api.publishers import Publishers
from pushup.net.api.quotas import Quotas
from pushup.net.api.streaming import Streaming
from pushup.net.api.turns import PublisherTurns
from pushup.net.edge import Edge
from pushup.net.listener import is_public, open_sockets
from pushup.net.wait import STRATEGIES
from pushup.node.node import Node
from pushup.node.node_metrics import node_metrics
from pushup.parts import (
    StateLock,
    channel_rules,
    logged,
    make_authorization,
    make_broadcast,
    make_node,
    make_proxies,
    make_tickets,
    make_tokens,
    make_url_tickets,
    make_webhook_sender,
    other_connections,
)
from pushup.service_tree import InOrder, Part
from pushup.settings.digests import digests
from pushup.settings.settings import Reloaded, Settings, SettingsError, reload_settings

FLUSH_SECONDS = 3.0
"""How long the last responses may take to reach their clients when the server stops."""

_log = Logger()


class PushUpService(InOrder):
    """A server: it listens from `startService` on, and drains in `stopService`."""

    def __init__(
        self,
        settings: Settings,
        host: Host,
        broadcast: Broadcast,
        node: Node[Holder],
        *,
        machine: ServerView | None = None,
        open_sockets: Callable[[Sequence[str]], list[socket.socket]],
        shared_sockets: Sequence[socket.socket] = (),
        listens_later: bool = False,
        besides: Sequence[Service] = (),
        number: int = 1,
    ) -> None:
        """`node` follows the `broadcast`; `machine` answers for all workers, and is not needed without any.

        `open_sockets` opens those of addresses; `shared_sockets` listen already, and other processes accept on them as
        well. `listens_later`: clients are accepted when `listening.listen` is called. `besides`: services that start
        after the host. `number`: of the worker.

        Raises: SettingsError.
        """
        super().__init__()
        self.on_ready: Callable[[], None] = lambda: None
        """Called when clients are served."""
        self._settings = settings
        self._host = host
        self._clock: IReactorTime = host.reactor
        self.node = node
        lifetime = settings.queue.token_lifetime_limit_seconds
        self._authorization = make_authorization(settings.authorization, host, lifetime)
        self._webhook_sender = make_webhook_sender(settings.webhook, host)
        if self._webhook_sender is not None:
            node.webhook_caller.use(self._webhook_sender, settings.webhook.webhook_at_most)
        self._tokens = make_tokens(settings, host)
        origins = Origins(frozenset(settings.server.cors_origins))
        self._access = Access(
            publish_keys=settings.server.publish_keys,
            origins=origins,
            hosts=settings.server.hosts,
            tokens=self._tokens,
            cookie=settings.tokens.token_cookie,
            rules=ChannelRules(*channel_rules(settings)),
            quotas=Quotas(settings.quotas.tables, host.reactor.seconds),
        )
        limit = settings.authorization.authorize_queue_limit_bytes
        self._poll_access = PollAccess(node, self._access, host.wall, self._authorization, limit)
        streaming = Streaming(
            node,
            PollReader(settings.poll, for_streams=True),
            self._poll_access,
            settings.stream,
            seconds=host.reactor.seconds,
            soon=host.demultiplexer.soon,
            random=host.random,
        )
        self._poll_access.url_tickets = make_url_tickets(settings)
        turn_limit = settings.publication.turn_limit_seconds
        turns = PublisherTurns(host.demultiplexer, host.metrics, host.reactor.seconds, turn_limit)
        make_api = partial(
            Api,
            node,
            polls=PollReader(settings.poll),
            publication_limits=settings.publication,
            publication_limit_bytes=settings.request.body_limit_bytes,
            access=self._access,
            origins=origins,
            error_responder=ErrorResponder(host.metrics, host.reactor.seconds),
            publishers=Publishers(host.metrics, host.reactor.seconds, settings.server.audit_channels),
            turns=turns,
            machine=machine or OneProcess(host.page.text, node.polls.subscribers, node.draining.set_out),
            poll_access=self._poll_access,
            streaming=streaming,
        )
        shows_metrics = not settings.server.operator_listen
        shows_dashboard = not any(map(is_public, settings.server.listen))
        self._apis = [
            make_api(shows_metrics=shows_metrics, shows_dashboard=shows_dashboard),
            make_api(only_for_operators=True),
        ]
        connections, reserved = host.connection_limit(settings.edge.connections_limit, *other_connections(settings))
        application, operators = logged(self._apis, self._clock, settings)
        self.edge = Edge(
            application=application,
            operators=operators,
            demultiplexer=host.demultiplexer,
            reactor=host.reactor,
            clock=host.reactor,
            wall=host.wall,
            limits=structs.replace(settings.edge, connections_limit=connections),
            request_limits=settings.request,
            metrics=host.metrics,
            reserved_connections=reserved // (2 if settings.server.operator_listen else 1),
            proxies=make_proxies(settings),
        )
        node.draining.on_out = self.edge.begin_drain
        host.page.include(
            partial(node_metrics, node, broadcast), self.edge.metrics, streaming.metrics, broadcast.metrics
        )
        self.listening = Listening(self.edge, node, settings.server, open_sockets, shared_sockets, waits=listens_later)

        self.add(
            host,
            *besides,
            StateLock(settings, host, number),
            Part(self._start_asking, self._stop_asking),
            Part(node.start, node.stop),
            Part(self.edge.start, self._flush),
            self.listening,
            Part(stop=self._drain),
        )

    @property
    def addresses(self) -> Sequence[str]:
        """Those that it listens on; empty until it does."""
        return self.node.addresses

    def startService(self) -> None:
        """Raises: JournalError, NotUnderstood, SettingsError, OSError."""
        super().startService()
        self.on_ready()

    # How it stops, in this order.

    async def _drain(self) -> None:
        """Answer the held polls over the drain window."""
        _log.info("draining {held} held polls, then stopping", held=self.node.polls.count)
        if self.node.draining.balancers():
            self.edge.begin_drain()  # it may be sending a request on an idle connection, and cannot repeat each
        else:
            self.edge.drain()
        await self.node.drain(self._settings.drain.drain_seconds)
        self.edge.drain()

    async def _flush(self) -> None:
        """Send what is left, and end all connections."""
        deadline = self._clock.seconds() + FLUSH_SECONDS
        while self.edge.connection_count and self._clock.seconds() < deadline:
            await deferLater(self._clock, 0.05, lambda: None)
        self.edge.close()

    def _start_asking(self) -> None:
        if self._tokens is not None:
            self._tokens.on_change = self._poll_access.end_withdrawn
            self._tokens.start()

    async def _stop_asking(self) -> None:
        if self._tokens is not None:
            self._tokens.stop()
        if self._authorization is not None:
            await self._authorization.stop()
        if self._webhook_sender is not None:
            await self._webhook_sender.stop()

    async def _stop_children(self) -> None:
        await super()._stop_children()
        _log.info("stopped")

    # While it runs.

    def reload(self, settings: Settings) -> Reloaded:
        """Apply those of these settings that can change in a running server. Connections and held polls stay.

        Raises: SettingsError, and then nothing has changed.
        """
        reloaded = reload_settings(self._settings, settings)
        self._use_tokens(reloaded.settings)
        self._settings = reloaded.settings
        self.node.settings = digests(reloaded.settings)
        self._access.use_publish_keys(reloaded.settings.server.publish_keys)
        self._access.quotas.use(reloaded.settings.quotas.tables)
        self.edge.use_application(*logged(self._apis, self._clock, reloaded.settings))
        if self._authorization is not None:
            if "ticket_key" in reloaded.applied:
                self._authorization.use_tickets(make_tickets(reloaded.settings.authorization, self._host))
            self._authorization.renew_connections()
        if self._webhook_sender is not None:
            self._webhook_sender.use_key(reloaded.settings.webhook.webhook_key)
        self._poll_access.end_withdrawn()
        return reloaded

    def _use_tokens(self, settings: Settings) -> None:
        """Raises: SettingsError."""
        if self._tokens is not None:
            try:
                self._tokens.use(settings.tokens)
            except ValueError as error:
                raise SettingsError(f"the keys of tokens: {error}") from None
        elif (tokens := make_tokens(settings, self._host)) is not None:
            self._tokens = tokens
            self._start_asking()
        self._access.rules.use(*channel_rules(settings))
        self._poll_access.url_tickets = make_url_tickets(settings)
        self._access.use_tokens(self._tokens if settings.tokens.issuers else None, settings.tokens.token_cookie)

    def why_not_ready(self) -> str | None:
        """Why load balancers should send no new clients here, with the details for an operator; None if they may."""
        error = self.node.why_not_ready()
        return None if error is None else error.operator_detail or error.detail


def make_service(settings: Settings, reactor: Any) -> PushUpService:
    """A server, not started, alone on its reactor (IReactorFDSet, -Time, -TCP, -FromThreads). Raises: SettingsError."""
    host = Host(reactor, STRATEGIES[settings.server.wait_strategy](reactor))
    broadcast = make_broadcast(settings, host)
    node = make_node(settings, host, broadcast)
    return PushUpService(settings, host, broadcast, node, open_sockets=open_sockets)
