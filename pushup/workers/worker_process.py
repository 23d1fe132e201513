"""One worker's process, as the parent sees it: how it is started, sent signals, and found to have ended."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Protocol

from pushup.net.wait.demultiplexer import Demultiplexer
from pushup.transport.framed_link import Link
from pushup.workers.socket_transport import SocketTransport

MODULE = "pushup.cli.worker_command"
"""What a worker runs."""

HELD_BACK = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that a new worker gets only when it can handle them. Ctrl-C goes to all processes of a terminal."""


class Child(Protocol):
    """A process: `subprocess.Popen`, or the stand-in of a test."""

    def send_signal(self, number: int, /) -> None:
        """Nothing happens if it has ended."""

    def poll(self) -> int | None:
        """Its exit status, or minus the signal that ended it; None while it runs."""


StartWorker = Callable[[int, Link, Link | None], Child]
"""Starts the worker with this number, which has these links to the parent: for control and, perhaps, for the order."""


def start_process(
    demultiplexer: Demultiplexer, listening: list[socket.socket], number: int, control: Link, order: Link | None
) -> Child:
    """Start a worker's process, on these listening sockets. Raises: OSError."""
    links = [link for link in (control, order) if link is not None]
    sockets = [socket.socketpair() for _ in links]
    theirs = [their.fileno() for _, their in sockets]
    shared = [sock.fileno() for sock in listening]
    arguments = [number, *[",".join(map(str, files)) for files in (theirs, shared)]]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)  # inherited
    try:
        process = subprocess.Popen(  # noqa: S603  # ourselves
            [sys.executable, *path_flags(), "-m", MODULE, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            pass_fds=[*theirs, *shared],
        )
        for (our, _), link in zip(sockets, links, strict=True):
            SocketTransport(our, link, demultiplexer)
    except BaseException:
        for our, _ in sockets:
            our.close()
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for _, their in sockets:
            their.close()
    return process


def path_flags() -> list[str]:
    """Flags with which other processes of PushUp import from where this one does.

    `-m` puts the current directory before the standard library. That is right only if this process was started by
    `python -m pushup`, perhaps in a checkout, and wrong for the program `pushup`.
    """
    was_started_as_module = getattr(sys.modules["__main__"], "__spec__", None) is not None
    return [] if was_started_as_module and not sys.flags.safe_path else ["-P"]


def told(status: int) -> str:
    """What a process ended with, in words."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
