"""What runs in a worker's process: a whole server, on the parent's sockets, with the order from the parent."""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
from collections.abc import Sequence
from functools import partial
from typing import Any

from twisted.logger import Logger

from pushup.broadcast import Broadcast
from pushup.broadcast.hub.worker_broadcast import HubBroadcast
from pushup.clock import use_monotonic_clock
from pushup.host.host import Host
from pushup.host.logs import start_logging
from pushup.host.process_limits import raise_file_limit, tune_garbage_collector, tune_malloc
from pushup.net.listener import open_socket, open_sockets
from pushup.net.wait import STRATEGIES
from pushup.parts import make_broadcast, make_node
from pushup.service import PushUpService
from pushup.service_tree import Part, Periodic
from pushup.settings.settings import Settings, SettingsError
from pushup.transport.framed_link import Link
from pushup.workers import control_protocol
from pushup.workers.machine_queries import ServerQueries
from pushup.workers.socket_transport import SocketTransport
from pushup.workers.worker_process import HELD_BACK

_log = Logger()


class Worker:
    """One worker: it follows the parent's orders, and stops when the parent has ended."""

    _siblings: ServerQueries
    _service: PushUpService

    def __init__(self, number: int, links: list[socket.socket], listening: list[socket.socket], reactor: Any) -> None:
        """`links`: sockets to the parent, for control and, unless the order is in Redis, for the order."""
        self._number, self._name = number, f"worker {number}"
        self._control, *self._order = links
        self._listening = listening
        self._reactor = reactor
        self._link = Link(self._received, self._parent_ended)
        self._is_stopping = False
        self._was_told_to_stop = False

    def run(self) -> None:
        """Serve until the parent says so, or has ended, or a signal comes. Raises: SystemExit if this cannot start."""
        try:
            begin = control_protocol.read_begin(self._control)
        except EOFError:
            return  # the parent has ended before it wanted anything
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the parent says when to reload
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_BACK)  # now: programs that the authorizer starts inherit it
        use_monotonic_clock(self._reactor)
        faulthandler.enable()
        tune_garbage_collector()
        tune_malloc()
        server = begin.settings.server
        self._set_log_level = start_logging(server.log_level, server.log_format, process=self._name)
        raise_file_limit()
        try:
            self._service = self._make_service(begin)
            self._service.startService()
        except (SettingsError, OSError) as error:
            _log.error("this worker cannot start: {error}", error=error)
            raise SystemExit(1) from None
        self._reactor.addSystemEventTrigger("before", "shutdown", self._service.stopService)
        self._reactor.run(installSignalHandlers=False)

    def _make_service(self, begin: control_protocol.Begin) -> PushUpService:
        """A server as any other, with the parent's sockets, its order and its questions. Raises: SettingsError."""
        settings = begin.settings
        host = Host(self._reactor, STRATEGIES[settings.server.wait_strategy](self._reactor))
        host.ticket_key = begin.ticket_key
        broadcast = self._make_broadcast(settings, host)
        node = make_node(settings, host, broadcast, self._number)
        self._siblings = ServerQueries(
            self._link.send, str(self._number), host.page, node.polls.subscribers, node.draining.set_out, self._reactor
        )
        sign = Periodic(
            self._sign,
            control_protocol.SIGN_SECONDS,
            self._reactor,
            if_it_fails="heartbeats to the parent process failed: it will replace this worker",
        )
        service = PushUpService(
            settings,
            host,
            broadcast,
            node,
            machine=self._siblings,
            open_sockets=_open_sockets,
            shared_sockets=self._listening,
            listens_later=bool(self._order),
            besides=(Part(lambda: SocketTransport(self._control, self._link, host.demultiplexer)), sign),
            number=self._number,
        )
        service.add(Part(stop=self._expect_balancers))
        return service

    def _make_broadcast(self, settings: Settings, host: Host) -> Broadcast:
        if not self._order:
            return make_broadcast(settings, host, self._number)
        return HubBroadcast(
            lambda link: SocketTransport(self._order[0], link, host.demultiplexer),
            worker_id=str(self._number),
            waiting_limits=settings.waiting,
            clock=host.reactor,
            uptime=host.uptime,
            on_state=self._listen,
            on_lost=self._parent_ended,
            on_large=host.much_was_made,
        )

    def _listen(self) -> None:
        try:
            self._service.listening.listen()
        except OSError as error:
            _log.error("{error}; this worker is stopping", error=error.strerror or error)
            self._stop()

    def _expect_balancers(self) -> None:
        """Before it drains: the checks of load balancers may have reached other workers."""
        if self._service.edge.connection_count:
            self._service.node.answer_balancer("")  # stands for those; it never notices

    def _signalled(self, number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        # It may still be starting: what this calls comes when the reactor runs.
        self._reactor.callFromThread(self._stop_alone if number == signal.SIGTERM else self._stop)

    def _stop_alone(self) -> None:
        """Only this worker is to stop; the others accept the clients who come from now on."""
        self._service.listening.stopService()
        self._stop()

    def _stop(self) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            self._reactor.stop()

    def _parent_ended(self, reason: str) -> None:
        """One of the links has ended. Held polls are answered, and their clients find the next server.

        A parent that is stopping waits for its workers. If it does not, it was killed, such as by a second signal: then
        they end at once, too.
        """
        if self._was_told_to_stop:
            text = "the link to the parent process has ended ({reason}) while it was stopping: this worker ends"
            _log.info(text, reason=reason)
            os._exit(1)
        self._siblings.be_alone()
        self._service.listening.stopService()  # at once, so that the next server can listen
        if not self._is_stopping:
            _log.error(
                "the link to the parent process has ended ({reason}): this worker is stopping, its clients reconnect",
                reason=reason,
            )
            self._stop()

    def _sign(self) -> None:
        self._link.send(control_protocol.frame(control_protocol.Sign(self._service.why_not_ready())))

    def _received(self, body: bytes) -> None:
        match control_protocol.read_by_worker(body):
            case control_protocol.Stop():
                self._was_told_to_stop = True
                self._stop()
            case control_protocol.Reload(settings):
                self._reload(settings)
            case control_protocol.Question() as question:
                self._siblings.answer(question)
            case control_protocol.Answers() as answers:
                self._siblings.answered(answers)

    def _reload(self, settings: Settings) -> None:
        try:
            reloaded = self._service.reload(settings)
        except SettingsError as error:
            _log.error("cannot reload, keeping the current settings: {error}", error=error)
            return
        self._set_log_level(reloaded.settings.server.log_level)


def _open_sockets(addresses: Sequence[str]) -> list[socket.socket]:
    """For those of these addresses that are not Unix sockets, which the parent has opened. Raises: OSError."""
    tcp = [address for address in addresses if not address.startswith("unix:")]
    return open_sockets(tcp, partial(open_socket, share_port=True))
