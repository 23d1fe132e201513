"""What a server tells systemd, or another supervisor that speaks sd_notify(3): ready, alive, stopping, and a status.

| sent | when |
|---|---|
| `READY=1` | once, when it listens and new clients may be sent here: with Redis, when the log is followed |
| `WATCHDOG=1` | from then on, by the reactor, twice in each `WATCHDOG_USEC`: a reactor that is stuck sends none |
| `EXTEND_TIMEOUT_USEC` | while it starts or stops: that may take as long as it takes, but not without a sign of life |
| `STOPPING=1` | when it begins to drain |
| `STATUS=` | a sentence for `systemctl status`, whenever it changes |

Each is a line of a datagram to the socket that `NOTIFY_SOCKET` names. Without one, nothing is done.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable, Mapping
from typing import Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from pushup.timer import Timer

STARTING_STEP_SECONDS = 0.25
"""How often it is looked whether the server is ready, until it is."""

STEP_SECONDS = 5.0
"""How often from then on, where no watchdog asks for more."""

EXTEND_SECONDS = 20.0
"""So long a server that starts or stops may be silent, once it takes longer than the supervisor had expected."""

_log = Logger()


class Recipient(Protocol):
    """Takes one line after the other."""

    def send(self, line: str) -> None: ...
    def close(self) -> None: ...


class Supervisor:
    """Tells a recipient how a server is, at least twice in `watchdog_seconds`; `why_not_ready` says None if it is.

    Without a recipient it does nothing.
    """

    def __init__(
        self,
        recipient: Recipient | None,
        *,
        watchdog_seconds: float,
        clock: IReactorTime,
        why_not_ready: Callable[[], str | None],
    ) -> None:
        self._recipient = recipient
        self._step_seconds = min(STEP_SECONDS, watchdog_seconds / 2)
        self._clock = clock
        self._why_not_ready = why_not_ready
        self._timer = Timer(clock, self._step)
        self._was_ready = False
        self._is_stopping = False
        self._status = ""

    def begin(self) -> None:
        """The server listens."""
        self._step()

    def stopping(self) -> None:
        """The server begins to stop."""
        self._is_stopping = True
        if self._recipient is not None:
            self._recipient.send("STOPPING=1")
        self._step()

    def end(self) -> None:
        """The server has stopped."""
        self._timer.stop()
        if self._recipient is not None:
            self._recipient.close()

    def _step(self) -> None:
        """Tell what has changed, and that the reactor turns."""
        if self._recipient is None:
            return
        reason = self._why_not_ready()
        if self._is_stopping:
            status = "Stopping: answering held polls"
        elif reason is not None:
            status = f"{'Not ready' if self._was_ready else 'Starting'}: {reason}"
        else:
            status = "Ready"
            if not self._was_ready:
                self._was_ready = True
                self._recipient.send("READY=1")
        if self._was_ready and not self._is_stopping:
            self._recipient.send("WATCHDOG=1")
        else:
            self._recipient.send(f"EXTEND_TIMEOUT_USEC={EXTEND_SECONDS * 1e6:.0f}")
        if status != self._status:
            self._status = status
            self._recipient.send(f"STATUS={' '.join(status.split())}")  # a second line would be another command
        pause = self._step_seconds if self._was_ready else min(STARTING_STEP_SECONDS, self._step_seconds)
        self._timer.not_after(self._clock.seconds() + pause)


class NotifySocket:
    """A supervisor's datagram socket; an address that begins with `@` is an abstract name. It is never waited for."""

    def __init__(self, address: str) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._is_unheard = False

    def send(self, line: str) -> None:
        try:
            self._socket.sendto(line.encode(), self._address)
        except OSError as error:
            if not self._is_unheard:
                _log.warn("cannot notify the supervisor at NOTIFY_SOCKET: {error}", error=error)
            self._is_unheard = True
        else:
            self._is_unheard = False

    def close(self) -> None:
        self._socket.close()


def make_supervisor(
    environment: Mapping[str, str], *, clock: IReactorTime, why_not_ready: Callable[[], str | None]
) -> Supervisor:
    """What tells the supervisor that started this process, if it has one that wants to know."""
    address = environment.get("NOTIFY_SOCKET", "")
    return Supervisor(
        NotifySocket(address) if address else None,
        watchdog_seconds=watchdog_seconds(environment, os.getpid()),
        clock=clock,
        why_not_ready=why_not_ready,
    )


def watchdog_seconds(environment: Mapping[str, str], pid: int) -> float:
    """Within how long the supervisor wants a sign of life from this process; infinity if it does not."""
    usec = environment.get("WATCHDOG_USEC", "")
    is_meant = environment.get("WATCHDOG_PID", str(pid)) == str(pid)
    return int(usec) / 1e6 if is_meant and usec.isdecimal() and int(usec) else math.inf
