"""The kinds of echo server, in Python and in C, and one measurement of one of them."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import psutil

from loadtest.kit.edge import STRATEGIES as OURS
from loadtest.libman.client import Measured, Stream, StreamFailed
from loadtest.libman.engines.ring import missing
from loadtest.libman.wait.strategies import STRATEGIES
from loadtest.libman.wait.with_select import DESCRIPTORS
from loadtest.load.programs import program
from loadtest.load.servers import running

SERVER = "loadtest.libman.server"
PUSHUP_SERVER = "loadtest.libman.pushup_server"
NATIVE = Path(__file__).with_name("native")
WARM_UP_SECONDS = 20.0
"""At most; it ends when each connection has received something."""

CLIENT_AT_ITS_LIMIT = 0.9
"""Share of its processor from which on the client, not the server, decides the rate."""

OWN_DESCRIPTORS = 24
"""What a server with `select` has open beside its connections, at most."""

OTHERS_AT_MOST = 0.1
"""Processors that other work may use before a measurement counts as disturbed."""

POOL_THREADS = 4


class Kind(NamedTuple):
    """A server: an engine, its wait strategy ("-" for io_uring), its threads for handlers (0: it calls them itself)."""

    engine: str
    wait: str
    threads: int = 0

    @property
    def name(self) -> str:
        wait = "" if self.wait == "-" else f", {self.wait}"
        return f"{self.engine}{wait}{f', {self.threads} threads' if self.threads else ''}"

    def can_have(self, connections: int) -> bool:
        return self.wait != "select" or connections + OWN_DESCRIPTORS <= DESCRIPTORS


PUSHUP = "pushup"
"""The engine's name of a server that is PushUp's demultiplexer, with a wait strategy of its own."""

URING = Kind("uring", "-")
SYNCH = Kind("reactor", "select")
"""The paper's `Synch`: what ACE's reactor did."""

BEST = Kind("emulated", "epoll" if "epoll" in STRATEGIES else "poll")
"""The emulated proactor with the strategy that the paper would choose for this system."""

AIO = "posix-aio"
AIO_WAYS = ("suspend", "signal", "callback")
"""How the engine with POSIX AIO learns that an operation is completed (Appendix I)."""

SIGNALS = "rt-signals"
"""The wait strategy that is in C only."""


def kinds() -> list[Kind]:
    """All kinds in Python that this system has."""
    return [*_kinds([*STRATEGIES]), *[Kind(PUSHUP, wait) for wait in OURS]]


def native_kinds() -> list[Kind]:
    """All kinds in C, which need Linux."""
    return [*_kinds([*STRATEGIES, SIGNALS]), *[Kind(AIO, way) for way in AIO_WAYS]]


def _kinds(strategies: Sequence[str]) -> list[Kind]:
    found = [Kind(engine, wait) for engine in ("reactor", "emulated") for wait in strategies]
    return [*found, BEST._replace(threads=POOL_THREADS), *([] if missing() else [URING])]


class Run(NamedTuple):
    """One measurement. `measured` is None if it failed, and `problem` says why.

    `cpu_seconds`: the server's processor time; `kernel_seconds`: the part of it that its system calls took. `others`:
    how many processors were busy with neither the server nor the client.
    """

    kind: Kind
    connections: int
    message_bytes: int
    measured: Measured | None
    cpu_seconds: float
    kernel_seconds: float
    others: float
    problem: str

    @property
    def bits_per_second(self) -> float:
        return self.measured.bits_per_second if self.measured else 0.0

    @property
    def served_all(self) -> bool:
        """Whether every connection got something, and none was ended."""
        return self.measured is not None and not self.measured.stalled and not self.measured.ended

    @property
    def cost(self) -> float:
        """Seconds of the server's processor for a message; 0 if none was echoed."""
        return self.cpu_seconds / self.measured.messages if self.measured and self.measured.messages else 0.0

    @property
    def kernel_cost(self) -> float:
        """The kernel's part of `cost`."""
        return self.kernel_seconds / self.measured.messages if self.measured and self.measured.messages else 0.0

    @property
    def trip(self) -> float:
        """Median response time in seconds."""
        return self.measured.trip(0.5) if self.measured else 0.0


Runs = Mapping[tuple[Kind, int], Sequence[Run]]
"""The runs of each kind with each number of connections, one for each round."""


def measure_kind(
    kind: Kind, connections: int, message_bytes: int, seconds: float, *, native: bool = False, idle: int = 0
) -> Run:
    """Start a server, stream, and end it. A failure is a result.

    `native`: the server in C. `idle`: further connections, on which nothing is sent.
    """
    flags = ["--buffer-bytes", str(message_bytes)]
    if kind.wait != "-":
        flags += ["--wait", kind.wait]
    if kind.engine != PUSHUP:
        flags += ["--engine", kind.engine, "--threads", str(kind.threads)]
    try:
        with ExitStack() as stack:
            server = stack.enter_context(
                running(
                    *flags,
                    module=PUSHUP_SERVER if kind.engine == PUSHUP else SERVER,
                    program=program(*sorted(NATIVE.glob("*.c"))) if native else "",
                )
            )
            for _ in range(idle):
                stack.enter_context(socket.create_connection(server.address))
            stream = stack.enter_context(Stream(server.address, connections=connections, message_bytes=message_bytes))
            stream.begin(patience=WARM_UP_SECONDS)
            process = psutil.Process(server.pid)
            before, all_before = process.cpu_times(), psutil.cpu_times()
            measured = stream.measure(seconds)
            after, all_after = process.cpu_times(), psutil.cpu_times()
    except (OSError, RuntimeError, StreamFailed, psutil.Error) as error:
        return Run(kind, connections, message_bytes, None, 0.0, 0.0, 0.0, f"failed: {error}")
    kernel = after.system - before.system
    cpu = after.user - before.user + kernel
    busy = sum(all_after[:3]) - sum(all_before[:3])  # user, nice, system
    others = max(0.0, (busy - cpu) / measured.seconds - sum(measured.shares))
    return Run(kind, connections, message_bytes, measured, cpu, kernel, others, _seen(measured, others))


def _seen(measured: Measured, others: float) -> str:
    seen = []
    if others > OTHERS_AT_MOST:
        seen.append("disturbed by other work")
    if measured.stalled:
        seen.append(f"{measured.stalled} connections got nothing")
    if measured.ended:
        seen.append(f"{measured.ended} connections were ended")
    if max(measured.shares) > CLIENT_AT_ITS_LIMIT:
        seen.append("the client is at its limit")
    return ", ".join(seen)
