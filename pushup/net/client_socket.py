"""The socket of a client: its phase, its input, and what is sent (Hsu §3.2). Its requests: `connection`."""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod

from pushup.net.output_buffer import OutputBuffer
from pushup.net.phases import INPUTS, PHASES, Input, Phase
from pushup.net.shared import Shared

_READ = frozenset((Input.READING, Input.IGNORED))


class ClientSocket(ABC):
    """A connection without its requests."""

    __slots__ = ("_output", "_shared", "input", "phase", "read_bytes", "since", "socket")

    def __init__(self, shared: Shared, sock: socket.socket, read_bytes: int) -> None:
        self._shared = shared
        self.socket = sock
        self.phase = Phase.IDLE
        self.input = Input.READING
        self.read_bytes = read_bytes
        self.since = shared.now
        """When it last made progress, monotonic."""
        self._output: OutputBuffer | None = None

    # What the demultiplexer reports.

    @abstractmethod
    def received(self, data: bytes) -> None:
        """Bytes have arrived."""

    @abstractmethod
    def ended(self) -> None:
        """The client sends no more."""

    @abstractmethod
    def writable(self) -> None:
        """The kernel accepts bytes again."""

    def lost(self) -> None:
        """The connection broke, or is given up: close it."""
        self._enter(Phase.CLOSED)
        self._shared.forget(self)
        self.socket.close()
        output, self._output = self._output, None
        if output is not None:
            output.discard()

    # Transitions. On the path of a poll the usual one is made without checking it against the table.

    def _enter(self, phase: Phase) -> None:
        assert phase in PHASES[self.phase], f"{self.phase.name} -> {phase.name}"
        self.phase = phase

    def set_input(self, state: Input) -> None:
        """Change what happens to the client's bytes, and what the demultiplexer watches for."""
        was = self.input
        if state is was:
            return
        assert state in INPUTS[was], f"{was.name} -> {state.name}"
        self.input = state
        if (was in _READ) != (state in _READ):
            self._want()

    def _want(self) -> None:
        self._shared.demultiplexer.want(self, reading=self.input in _READ, writing=self._output is not None)

    # Sending.

    @property
    def has_unsent(self) -> bool:
        """Whether the output buffer has bytes that the kernel has not accepted."""
        return self._output is not None

    def _put(self, data: bytes) -> bool:
        """Send, or add to what is unsent; returns whether nothing is. The connection is lost if it is too much."""
        shared, output, sent = self._shared, self._output, 0
        if output is None:
            try:
                sent = self.socket.send(data)
            except BlockingIOError:
                pass
            except OSError:
                self.lost()
                return False
            shared.metrics.sent_bytes += sent
            if sent == len(data):
                return True
            self.since = shared.now
            output = self._output = OutputBuffer(self, shared.limits.output_limit_bytes, shared.output_budget)
            self._want()
        if not output.append(data, sent):
            shared.metrics.failed_outputs += 1
            self.lost()
        return False

    def _flush(self) -> bool:
        """Send what the kernel accepts now; returns whether that was the last of what was unsent."""
        output, shared = self._output, self._shared
        if output is None:
            return False
        try:
            shared.metrics.sent_bytes += output.write(self.socket.send)
        except OSError:
            self.lost()
            return False
        self.since = shared.now
        if output.size:
            return False
        self._output = None
        output.discard()
        self._want()
        return True
