"""One worker's process, as the parent sees it: how it is started, sent signals, and found to have ended."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from typing import Any, Protocol

from twisted.internet.protocol import Factory

from pushup.link import Link


class Child(Protocol):
    """A process."""

    pid: int

    def send_signal(self, number: int) -> None:
        """Nothing happens if it has ended."""

    def ended_with(self) -> int | None:
        """Its exit status, or minus the signal that ended it; None while it runs."""


class Starts(Protocol):
    """Starts workers."""

    def __call__(self, number: int, control: Link, order: Link | None) -> Child: ...


class WorkerProcess:
    """A process that runs `pushup.cli.worker`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def ended_with(self) -> int | None:
        return self._process.poll()


class ProcessStarter:
    """Starts worker processes, on these listening sockets."""

    def __init__(self, reactor: Any, listening: list[socket.socket]) -> None:
        self._reactor = reactor
        self._listening = listening

    def __call__(self, number: int, control: Link, order: Link | None) -> Child:
        """Raises: OSError."""
        sockets = [socket.socketpair() for link in (control, order) if link is not None]
        theirs = [their.fileno() for _, their in sockets]
        listening = [sock.fileno() for sock in self._listening]
        arguments = [number, *[",".join(map(str, files)) for files in (theirs, listening)]]
        try:
            process = subprocess.Popen(  # noqa: S603  # ourselves
                [sys.executable, "-m", "pushup.cli.worker", *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                pass_fds=[*theirs, *listening],
            )
            for (our, _), link in zip(sockets, (control, order), strict=False):
                assert link is not None
                connect(self._reactor, our, link)
        finally:
            for our, their in sockets:
                our.close()
                their.close()
        return WorkerProcess(process)


def connect(reactor: Any, sock: socket.socket, link: Link) -> None:
    """Let a link use a connected socket, of which it gets a copy."""
    factory = Factory.forProtocol(lambda: link)
    factory.noisy = False
    sock.setblocking(False)
    reactor.adoptStreamConnection(sock.fileno(), socket.AF_UNIX, factory)


def told(status: int) -> str:
    """What a process ended with, in words."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


_check: type[Starts] = ProcessStarter
