"""Accepting clients, as a service of a server: where it listens, and from when on."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from twisted.application.service import Service
from twisted.logger import Logger

from pushup.core.subscription import Holder
from pushup.net.edge import Edge
from pushup.net.listener import address_of
from pushup.node.node import Node
from pushup.settings.server import ServerSettings

_log = Logger()


class Listening(Service):
    """Accepts clients from start to stop. Those that are here stay when it stops."""

    def __init__(
        self,
        edge: Edge,
        node: Node[Holder],
        settings: ServerSettings,
        open_sockets: Callable[[Sequence[str]], list[socket.socket]],
        shared_sockets: Sequence[socket.socket],
        *,
        waits: bool,
    ) -> None:
        """`waits`: not before `listen` is called. The others: see `PushUpService`."""
        self._edge = edge
        self._node = node
        self._settings = settings
        self._open_sockets = open_sockets
        self._shared_sockets = shared_sockets
        self._waits = waits

    def startService(self) -> None:
        """Raises: OSError when an address cannot be listened on, and then nothing listens."""
        super().startService()
        if not self._waits:
            self.listen()

    def listen(self) -> None:
        """Accept clients, unless this has stopped. Raises: OSError."""
        if not self.running:
            return
        edge, operators = self._edge, self._settings.operator_listen
        own = self._open_sockets(self._settings.listen)
        own_of_operators: list[socket.socket] = []
        if operators:
            try:
                own_of_operators = self._open_sockets(operators)
            except OSError:
                for sock in own:
                    sock.close()
                raise
        shared = {sock: address_of(sock) in operators for sock in self._shared_sockets}
        self._node.addresses = (
            *(edge.listen(sock) for sock in own),
            *(edge.listen(sock, is_shared=True) for sock in shared if not shared[sock]),
        )
        _log.info("listening on {addresses}", addresses=", ".join(self._node.addresses))
        for_operators = [
            *(edge.listen(sock, for_operators=True) for sock in own_of_operators),
            *(edge.listen(sock, for_operators=True, is_shared=True) for sock in shared if shared[sock]),
        ]
        if for_operators:
            _log.info("listening for operators on {addresses}", addresses=", ".join(for_operators))

    def stopService(self) -> None:
        super().stopService()
        self._edge.stop_listening()
