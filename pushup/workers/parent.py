"""The parent process: it holds the addresses and the order, serves no clients, and supervises the workers."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from msgspec import structs
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from pushup.broadcast.hub.hub import Hub
from pushup.host.host import Host
from pushup.net.listener import SocketFile, address_of, bind_socket, open_socket, open_sockets
from pushup.net.wait import STRATEGIES
from pushup.parts import make_local_broadcast
from pushup.service import FLUSH_SECONDS
from pushup.service_tree import InOrder, Part
from pushup.settings.settings import Reloaded, Settings, reload_settings
from pushup.workers.machine_metrics import families
from pushup.workers.supervisor import Supervisor
from pushup.workers.worker_process import start_process

GRACE_SECONDS = 4.0
"""How much longer than the drain window workers may take to stop."""

_log = Logger()


class Parent(InOrder):
    """Many workers as one server. It is used like a `PushUpService`.

    It starts the host, the hub, the addresses and the crew, in this order.
    """

    def __init__(self, settings: Settings, workers: int, reactor: Any) -> None:
        super().__init__()
        self._workers = workers
        self._settings = settings
        host = Host(reactor, STRATEGIES[settings.server.wait_strategy](reactor))
        self._hub: Hub | None = None  # what has the order of this machine; none if that is in Redis
        if (broadcast := make_local_broadcast(settings, host)) is not None:
            self._hub = Hub(broadcast, clock=reactor, uptime=host.uptime, on_large=host.much_was_made)
            host.page.include(self._hub.metrics)
        self._reserved = ReservedAddresses((*settings.server.listen, *settings.server.operator_listen))
        self.on_ready: Callable[[], None] = lambda: None
        """Called when all workers serve clients for the first time."""
        self._crew = Supervisor(
            workers,
            lambda number, control, order: start_process(
                host.demultiplexer, self._reserved.shared(), number, control, order
            ),
            on_ready=lambda: self.on_ready(),
            own_metrics=lambda: families(host.page.collect()),
            attach=None if self._hub is None else self._hub.attach,
            ticket_key=host.ticket_key,
            clock=reactor,
        )

        self.add(
            host,
            *([] if self._hub is None else [Part(self._hub.start, self._hub.stop)]),
            self._reserved,
            Part(self._begin_crew, self._stop_crew),
        )

    @property
    def addresses(self) -> list[str]:
        """Those that the workers listen on for clients; empty before the start."""
        return self._reserved.addresses[: len(self._settings.server.listen)]

    def startService(self) -> None:
        """Read the state, listen, and start the workers. Raises: JournalError, NotUnderstood, OSError."""
        super().startService()
        _log.info("started {count} workers on {addresses}", count=self._workers, addresses=", ".join(self.addresses))

    def _begin_crew(self) -> None:
        self._crew.begin(self._for_workers(self._settings))

    def _stop_crew(self) -> Deferred[None]:
        """Let the workers answer their held polls and exit. They listen until they have drained."""
        self._reserved.free_ports()
        return self._crew.stop(self._settings.drain.drain_seconds + FLUSH_SECONDS + GRACE_SECONDS)

    async def _stop_children(self) -> None:
        _log.info("stopping {count} workers", count=self._workers)
        await super()._stop_children()
        _log.info("stopped")

    def reload(self, settings: Settings) -> Reloaded:
        """Have all workers apply those of these settings that can change. Raises: SettingsError."""
        reloaded = reload_settings(self._settings, settings)
        self._settings = reloaded.settings
        self._crew.reload(self._for_workers(reloaded.settings))
        return reloaded

    def why_not_ready(self) -> str | None:
        """Why load balancers should send no new clients here, with the details for an operator; None if they may."""
        error = None if self._hub is None else self._hub.why_not_ready()
        if error is not None:
            return error.operator_detail or error.detail
        return self._crew.why_not_ready()

    def _for_workers(self, settings: Settings) -> Settings:
        """With the ports that the system has chosen."""
        operators = tuple(self._reserved.addresses[len(self.addresses) :])
        server = structs.replace(settings.server, listen=tuple(self.addresses), operator_listen=operators)
        return structs.replace(settings, server=server)


class ReservedAddresses(Service):
    """The addresses belong to this server from start to stop."""

    def __init__(self, wanted: tuple[str, ...]) -> None:
        self._wanted = wanted
        self._sockets: list[socket.socket] = []
        self._files: list[SocketFile] = []
        self.addresses: list[str] = []

    def shared(self) -> list[socket.socket]:
        """The sockets on which the workers accept: those that cannot be opened more than once."""
        return [sock for sock in self._sockets if sock.family == socket.AF_UNIX]

    def startService(self) -> None:
        """Raises: OSError."""
        super().startService()
        self._sockets = open_sockets(self._wanted, reserve)
        self.addresses = [address_of(sock) for sock in self._sockets]
        paths = [address.removeprefix("unix:") for address in self.addresses if address.startswith("unix:")]
        self._files = [SocketFile(path) for path in paths]

    def free_ports(self) -> None:
        """Let the next server have each address as soon as the workers have stopped listening there.

        The path of a Unix socket stays: without it, no client would find the workers.
        """
        for sock in self._sockets:
            sock.close()

    def stopService(self) -> None:
        super().stopService()
        for sock in self._sockets:
            sock.close()
        for file in self._files:
            file.remove()


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
