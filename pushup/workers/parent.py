"""The parent process: it holds the addresses and the order, serves no clients, and supervises the workers."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from typing import Any

from msgspec import structs
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import Logger

from pushup.broadcast.hub.hub import Hub
from pushup.clock import WATCH_SECONDS, SteadyTime, uptime
from pushup.host.process_limits import spare_garbage_collector
from pushup.metrics import Metrics, MetricsPage
from pushup.net.listener import address_of, bind_socket, open_socket, open_sockets
from pushup.net.wait.strategies import STRATEGIES
from pushup.parts import make_local_broadcast
from pushup.service import FLUSH_SECONDS
from pushup.settings.settings import Reloaded, Settings, reload_settings
from pushup.workers.machine_metrics import families
from pushup.workers.supervisor import Supervisor
from pushup.workers.worker_process import ProcessStarter

GRACE_SECONDS = 4.0
"""How much longer than the drain window workers may take to stop."""

_log = Logger()


class Parent(Service):
    """Many workers as one server. It is used like a `PushUpService`."""

    def __init__(self, settings: Settings, workers: int, reactor: Any) -> None:
        self._reactor = reactor
        self._workers = workers
        self._demultiplexer = STRATEGIES[settings.server.wait_strategy](reactor)
        self._ticket_key = secrets.token_hex(32)
        self._settings = self._with_ticket_key(settings)
        self._steady_time = SteadyTime()
        metrics = Metrics()
        self._page = MetricsPage(metrics)
        self._hub = _make_hub(settings, reactor, metrics, self._steady_time)
        self._sockets: list[socket.socket] = []
        self._crew: Supervisor | None = None
        self._watching = LoopingCall(self._steady_time.watch)
        self._watching.clock = reactor
        self.addresses: list[str] = []
        self.on_ready: Callable[[], None] = lambda: None
        """Called when all workers serve clients for the first time."""

    def startService(self) -> None:
        """Read the state, listen, and start the workers. Raises: JournalError, NotUnderstood, OSError."""
        if self._hub is not None:
            self._hub.start()
        self._demultiplexer.start()
        self._sockets = open_sockets(self._settings.server.listen, reserve)
        self.addresses = [address_of(sock) for sock in self._sockets]
        shared = [sock for sock in self._sockets if sock.family == socket.AF_UNIX]
        self._crew = Supervisor(
            self._workers,
            self._for_workers(self._settings),
            ProcessStarter(self._demultiplexer, shared),
            on_ready=self.on_ready,
            own_metrics=lambda: families(self._page.collect()),
            attach=None if self._hub is None else self._hub.attach,
            clock=self._reactor,
        )
        self._crew.begin()
        self._watching.start(WATCH_SECONDS).addErrback(
            lambda failure: _log.failure("clock monitoring failed; restart the server", failure)
        )
        super().startService()  # type: ignore[no-untyped-call]
        _log.info("{count} workers on {addresses}", count=self._workers, addresses=", ".join(self.addresses))

    def stopService(self) -> Deferred[None]:
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        """Let the workers answer their held polls and exit, and then end the order."""
        _log.info("stopping {count} workers", count=self._workers)
        for sock, address in zip(self._sockets, self.addresses, strict=True):
            sock.close()  # the workers listen until they have drained
            if address.startswith("unix:"):
                os.unlink(address.removeprefix("unix:"))
        if self._crew is not None:
            await self._crew.stop(self._settings.drain.drain_seconds + FLUSH_SECONDS + GRACE_SECONDS)
        if self._watching.running:
            self._watching.stop()
        if self._hub is not None:
            await self._hub.stop()
        await deferLater(self._reactor, 0, lambda: None)  # what has led here may be in a turn of the demultiplexer
        self._demultiplexer.close()
        _log.info("stopped")

    def reload(self, settings: Settings) -> Reloaded:
        """Have all workers apply those of these settings that can change. Raises: SettingsError."""
        reloaded = reload_settings(self._settings, self._with_ticket_key(settings))
        self._settings = reloaded.settings
        if self._crew is not None:
            self._crew.reload(self._for_workers(reloaded.settings))
        return reloaded

    def why_not_ready(self) -> str | None:
        """Why load balancers should send no new clients here, with the details for an operator; None if they may."""
        error = None if self._hub is None else self._hub.why_not_ready()
        if error is not None:
            return error.operator_detail or error.detail
        return "it is starting" if self._crew is None else self._crew.why_not_ready()

    def _for_workers(self, settings: Settings) -> Settings:
        """With the ports that the system has chosen."""
        return structs.replace(settings, server=structs.replace(settings.server, listen=tuple(self.addresses)))

    def _with_ticket_key(self, settings: Settings) -> Settings:
        """One key for all workers, so that each can read the tickets of the others."""
        key = settings.authorization.ticket_key or self._ticket_key
        return structs.replace(settings, authorization=structs.replace(settings.authorization, ticket_key=key))


def reserve(address: str) -> socket.socket:
    """Keep an address for the workers: a Unix socket that they share, or a TCP socket that does not listen.

    Until it is closed, no other server gets the port: only programs of this user that use SO_REUSEPORT could, and
    PushUp asks without it first. Raises: OSError, also if another server has the address.
    """
    if address.startswith("unix:"):
        return open_socket(address)
    with open_socket(address) as alone:  # the kernel lets one server do this
        alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved = bind_socket(address_of(alone), share_port=True)
        # Without SO_REUSEADDR a bound socket keeps others out although it does not listen. Binding needs it, because
        # connections of the last server may be left.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        return reserved


def _make_hub(settings: Settings, reactor: Any, metrics: Metrics, steady_time: SteadyTime) -> Hub | None:
    """What has the order of this machine; None if that is in Redis. Raises: SettingsError."""
    broadcast = make_local_broadcast(settings, reactor, metrics, steady_time)
    return None if broadcast is None else Hub(broadcast, clock=reactor, uptime=uptime, on_large=spare_garbage_collector)
