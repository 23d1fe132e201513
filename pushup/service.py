"""The whole server on one page: makes the parts and joins them."""

from __future__ import annotations

import gc
import resource
import secrets
import socket
from random import random
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from pushup.broadcast.memory import MemoryBroadcast
from pushup.core.message_queue import MessageQueue
from pushup.metrics import Metrics, MetricsPage
from pushup.net.api import Api, Exchange
from pushup.net.demultiplexer import STRATEGIES
from pushup.net.edge import Edge
from pushup.net.listener import open_socket
from pushup.net.poll_parameters import PollReader
from pushup.node import Node
from pushup.settings import Settings

FLUSH_SECONDS = 3.0
"""How long the last responses may take to reach their clients when the server stops."""

_log = Logger()


class PushUpService(Service):
    """A server that listens from `startService` on, and drains in `stopService`."""

    def __init__(self, settings: Settings, *, clock: IReactorTime, node: Node[Exchange], edge: Edge) -> None:
        self._settings = settings
        self._clock = clock
        self._node = node
        self._edge = edge
        self.addresses: list[str] = []

    def startService(self) -> None:
        """Raises: OSError when an address cannot be listened on; then nothing listens."""
        sockets: list[socket.socket] = []
        try:
            for address in self._settings.server.listen:
                sockets.append(open_socket(address))
        except OSError as error:
            for sock in sockets:
                sock.close()
            raise OSError(error.errno, f"cannot listen on {address}: {error.strerror}") from None
        self.addresses = [self._edge.listen(sock) for sock in sockets]
        super().startService()
        _log.info("listening on {addresses}", addresses=", ".join(self.addresses))

    async def _stop(self) -> None:
        """Not ready; held polls answered over the drain window; nothing acknowledged is lost."""
        held = self._node.queue.held
        _log.info("draining {held} held polls", held=held)
        self._edge.drain()
        await self._node.drain(self._settings.drain.drain_seconds if held else 0.0)
        self._edge.stop_listening()
        deadline = self._clock.seconds() + FLUSH_SECONDS
        while self._edge.connection_count and self._clock.seconds() < deadline:
            await deferLater(self._clock, 0.05, lambda: None)
        self._edge.close()
        self._node.stop()
        _log.info("stopped")

    def stopService(self) -> Deferred[None]:
        super().stopService()
        return Deferred.fromCoroutine(self._stop())


def make_service(settings: Settings, reactor: Any) -> PushUpService:
    """A server by these settings, on this reactor (an IReactorFDSet and IReactorTime)."""
    metrics = Metrics()
    broadcast = MemoryBroadcast(epoch=secrets.token_hex(4), now=reactor.seconds)
    queue: MessageQueue[Exchange] = MessageQueue(settings.queue, epoch=broadcast.epoch)
    demultiplexer = STRATEGIES[settings.server.wait_strategy](reactor)
    node = Node(
        queue=queue, broadcast=broadcast, clock=reactor, soon=demultiplexer.soon, random=random, metrics=metrics
    )
    page = MetricsPage(
        metrics,
        {
            "held_polls": ("Polls held", lambda: queue.held),
            "connections": ("Connections open", lambda: edge.connection_count),
            "channels": ("Channels living", lambda: queue.channel_count),
            "cached_messages": ("Messages cached", lambda: queue.message_count),
            "cached_bytes": ("Bytes that count against retention_bytes", lambda: queue.message_bytes),
        },
    )
    api = Api(
        node,
        polls=PollReader(settings.poll),
        publication_limits=settings.publication,
        publish_keys=settings.server.publish_keys,
        metrics_text=page.text,
    )
    edge = Edge(
        application=api,
        abandon=node.abandon,
        demultiplexer=demultiplexer,
        reactor=reactor,
        clock=reactor,
        limits=settings.edge,
        request_limits=settings.request,
        cors_origins=frozenset(settings.server.cors_origins),
        metrics=metrics,
    )
    return PushUpService(settings, clock=reactor, node=node, edge=edge)


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
