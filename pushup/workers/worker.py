"""What runs in a worker's process: a whole server, on the parent's sockets, with the order from the parent."""

from __future__ import annotations

import faulthandler
import signal
import socket
from typing import Any

from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from pushup.clock import use_monotonic_clock
from pushup.host.logs import start_logging
from pushup.host.process_limits import raise_file_limit, tune_garbage_collector
from pushup.metrics import MetricsPage
from pushup.net.api.server_view import ServerView
from pushup.net.wait.demultiplexer import Demultiplexer
from pushup.node.node import Node
from pushup.parts import WorkerParts
from pushup.service import PushUpService, make_service
from pushup.settings.settings import Settings, SettingsError
from pushup.transport.framed_link import Link
from pushup.workers import control_protocol
from pushup.workers.server_queries import ServerQueries
from pushup.workers.socket_transport import SocketTransport

_log = Logger()


class Worker:
    """One worker: it follows the parent's orders, and stops when the parent has ended."""

    _siblings: ServerQueries
    _demultiplexer: Demultiplexer
    _service: PushUpService

    def __init__(self, number: int, links: list[socket.socket], listening: list[socket.socket], reactor: Any) -> None:
        """`links`: sockets to the parent, for control and, unless the order is in Redis, for the order."""
        self._number = number
        self._control, *self._order = links
        self._listening = listening
        self._reactor = reactor
        self._link = Link(self._received, self._parent_ended)
        self._signing = LoopingCall(self._sign)
        self._signing.clock = reactor
        self._is_stopping = False

    def run(self) -> None:
        """Serve until the parent says so, or has ended, or a signal comes."""
        settings = control_protocol.read_begin(self._control).settings
        use_monotonic_clock(self._reactor)
        faulthandler.enable()
        tune_garbage_collector()
        name = f"worker {self._number}"
        self._set_log_level = start_logging(settings.server.log_level, settings.server.log_format, process=name)
        raise_file_limit()
        parts = WorkerParts(
            number=self._number,
            addresses=tuple([a for a in settings.server.listen if not a.startswith("unix:")]),
            sockets=self._listening,
            use=self._use,
            connect=self._connect_order if self._order else None,
            on_state=self._listen,
            on_lost=self._parent_ended,
            make_machine=self._make_machine,
        )
        self._service = make_service(settings, self._reactor, worker=parts)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the parent says when to reload
        self._reactor.addSystemEventTrigger("before", "shutdown", self._service.stopService)
        self._service.startService()
        self._signing.start(control_protocol.SIGN_SECONDS)
        self._reactor.run(installSignalHandlers=False)

    def _listen(self) -> None:
        try:
            self._service.listen()
        except OSError as error:
            _log.error("{error}; this worker stops", error=error.strerror or error)
            self._stop()

    def _use(self, demultiplexer: Demultiplexer) -> None:
        self._demultiplexer = demultiplexer
        SocketTransport(self._control, self._link, demultiplexer)

    def _connect_order(self, link: Link) -> None:
        SocketTransport(self._order[0], link, self._demultiplexer)

    def _make_machine(self, page: MetricsPage, node: Node[Any]) -> ServerView:
        name, subscribers = str(self._number), node.polls.subscribers
        self._siblings = ServerQueries(self._link.send, name, page, subscribers, self._reactor)
        return self._siblings

    def _signalled(self, number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if number == signal.SIGTERM:  # only this worker is to stop; the others accept the clients
            self._reactor.callFromThread(self._service.stop_listening)
        self._reactor.callFromThread(self._stop)

    def _stop(self) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            self._reactor.stop()

    def _parent_ended(self, reason: str) -> None:
        """One of the links has ended. Held polls are answered, and their clients find the next server."""
        self._siblings.be_alone()
        if not self._is_stopping:
            _log.error("the parent process has ended ({reason}); this worker stops", reason=reason)
            self._service.stop_listening()  # at once, so that the next server can listen
            self._stop()

    def _sign(self) -> None:
        self._link.send(control_protocol.frame(control_protocol.Sign(self._service.why_not_ready())))

    def _received(self, body: bytes) -> None:
        match control_protocol.read_by_worker(body):
            case control_protocol.Stop():
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
