"""A slow link: forwards connections to a port on this machine, with limited bytes per second in each direction."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

PIECE_BYTES = 16 * 1024
BUFFER_BYTES = 64 * 1024
"""Buffer size of each socket: what the link holds in transit."""


class SlowProxy:
    """Listens at `port` until the `with` block ends."""

    def __init__(self, to_port: int, bytes_per_second: float) -> None:
        self._to_port = to_port
        self._rate = bytes_per_second
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._sockets: list[socket.socket] = [self._listening]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._to_port))
                self._sockets += [near, far]
                for sock in (near, far):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        """Forward data, delaying each piece as the rate demands; when one side closes, so does the other."""
        free_at = time.monotonic()
        with suppress(OSError):
            while data := source.recv(PIECE_BYTES):
                free_at = max(free_at, time.monotonic()) + len(data) / self._rate
                time.sleep(max(0.0, free_at - time.monotonic()))
                target.sendall(data)
        for sock in (source, target):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for sock in self._sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
