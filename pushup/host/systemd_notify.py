"""Notifies systemd, or another supervisor with the sd_notify(3) protocol: ready, alive, stopping, and a status.

| sent | when |
|---|---|
| `READY=1` | once, when the server listens and is ready for clients: with Redis, when it follows the log |
| `WATCHDOG=1` | from then on, twice in each `WATCHDOG_USEC`, by the reactor: a stuck reactor sends none |
| `EXTEND_TIMEOUT_USEC` | while it starts or stops: this may take long, but not without a sign of life |
| `STOPPING=1` | when it starts to drain |
| `STATUS=` | a line for `systemctl status`, whenever it changes |

Each is sent as a datagram to the socket named by `NOTIFY_SOCKET`. Without this variable nothing is sent.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable, Mapping
from typing import Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from pushup.clock import Timer
from pushup.service_tree import InOrder

STARTING_STEP_SECONDS = 0.25
"""How often readiness is checked until the server is ready."""

STEP_SECONDS = 5.0
"""How often it is checked from then on, unless the watchdog needs a shorter interval."""

EXTEND_SECONDS = 20.0
"""Extra time requested for starting or stopping: how long the server may then be silent."""

_log = Logger()


class Recipient(Protocol):
    """Receives the notifications between `open` and `close`, a line each; `send` returns whether it was accepted."""

    def open(self) -> None: ...
    def send(self, line: str) -> bool: ...
    def close(self) -> None: ...


class SystemdNotifier(InOrder):
    """Starts and stops its child, the server, and notifies a recipient of its state, at least twice in
    `watchdog_seconds`: from when it has started until it has stopped. Without a recipient it notifies nobody.

    A change that the recipient did not accept is sent again: a supervisor that misses `READY=1` ends the server.
    `why_not_ready` returns the reason why the server is not ready, or None if it is.
    """

    def __init__(
        self,
        recipient: Recipient | None,
        *,
        watchdog_seconds: float,
        clock: IReactorTime,
        why_not_ready: Callable[[], str | None],
    ) -> None:
        super().__init__()
        self._recipient = recipient
        self._step_seconds = min(STEP_SECONDS, watchdog_seconds / 2)
        self._clock = clock
        self._why_not_ready = why_not_ready
        self._timer = Timer(clock, self._step)
        self._was_ready = False
        self._is_stopping = False
        self._said_stopping = False
        self._status = ""

    def startService(self) -> None:
        """Raises: what the start of the server does."""
        super().startService()
        if self._recipient is not None:
            self._recipient.open()
        self._step()

    async def _stop_children(self) -> None:
        self._is_stopping = True
        self._step()
        await super()._stop_children()
        self._timer.stop()
        if self._recipient is not None:
            self._recipient.close()

    def _step(self) -> None:
        """Send what has changed, and a sign of life."""
        if self._recipient is None:
            return
        reason = self._why_not_ready()
        if self._is_stopping:
            status = "Stopping: answering held polls"
            self._said_stopping = self._said_stopping or self._recipient.send("STOPPING=1")
        elif reason is not None:
            status = f"{'Not ready' if self._was_ready else 'Starting'}: {reason}"
        else:
            status = "Ready"
            self._was_ready = self._was_ready or self._recipient.send("READY=1")
        if self._was_ready and not self._is_stopping:
            self._recipient.send("WATCHDOG=1")
        else:
            self._recipient.send(f"EXTEND_TIMEOUT_USEC={EXTEND_SECONDS * 1e6:.0f}")
        # A second line would be another notification.
        if status != self._status and self._recipient.send(f"STATUS={' '.join(status.split())}"):
            self._status = status
        pause = self._step_seconds if self._was_ready else min(STARTING_STEP_SECONDS, self._step_seconds)
        self._timer.not_after(self._clock.seconds() + pause)


class NotifySocket:
    """A supervisor's datagram socket. Sending never blocks. An address that starts with `@` is an abstract name."""

    def __init__(self, address: str) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._is_failing = False

    def open(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def send(self, line: str) -> bool:
        try:
            self._socket.sendto(line.encode(), self._address)
        except OSError as error:
            if not self._is_failing:
                _log.warn(
                    "cannot notify the supervisor at NOTIFY_SOCKET, so it may restart this server: {error}", error=error
                )
            self._is_failing = True
        else:
            self._is_failing = False
        return not self._is_failing

    def close(self) -> None:
        self._socket.close()


def make_systemd_notifier(
    environment: Mapping[str, str], *, clock: IReactorTime, why_not_ready: Callable[[], str | None]
) -> SystemdNotifier:
    """A `SystemdNotifier` for the process that started this one, if it wants notifications."""
    address = environment.get("NOTIFY_SOCKET", "")
    return SystemdNotifier(
        NotifySocket(address) if address else None,
        watchdog_seconds=watchdog_seconds(environment, os.getpid()),
        clock=clock,
        why_not_ready=why_not_ready,
    )


def watchdog_seconds(environment: Mapping[str, str], pid: int) -> float:
    """The longest time without a sign of life that the supervisor accepts; infinity if it expects none."""
    usec = environment.get("WATCHDOG_USEC", "")
    is_for_us = environment.get("WATCHDOG_PID", str(pid)) == str(pid)
    return int(usec) / 1e6 if is_for_us and usec.isdecimal() and int(usec) else math.inf
