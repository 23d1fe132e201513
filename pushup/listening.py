"""Accepting clients, as a service of a server: where it listens, and from when on."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from twisted.application.service import Service
from twisted.logger import Logger

from pushup.core.subscription import Holder
from pushup.net.edge import Edge
from pushup.node.node import Node

_log = Logger()


class Listening(Service):
    """Accepts clients from start to stop. Those that are here stay when it stops."""

    def __init__(
        self,
        edge: Edge,
        node: Node[Holder],
        open_sockets: Callable[[], list[socket.socket]],
        shared_sockets: Sequence[socket.socket],
        *,
        waits: bool,
    ) -> None:
        """`waits`: not before `listen` is called. The others: see `PushUpService`."""
        self._edge = edge
        self._node = node
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
        if self.running:
            own = [self._edge.listen(sock) for sock in self._open_sockets()]
            shared = [self._edge.listen(sock, is_shared=True) for sock in self._shared_sockets]
            self._node.addresses = (*own, *shared)
            _log.info("listening on {addresses}", addresses=", ".join(self._node.addresses))

    def stopService(self) -> None:
        super().stopService()
        self._edge.stop_listening()
