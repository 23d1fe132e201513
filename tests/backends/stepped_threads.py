"""Threads controlled by the test: a call waits until the test lets it return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from twisted.internet.task import Clock
from twisted.python.failure import Failure

from pushup.backends.helper_pool import Threads


class ThreadClock(Clock):
    """A `Clock` that threads can call."""

    def callFromThread(self, function: Callable[..., object], *args: Any, **kw: Any) -> None:
        function(*args, **kw)


class _Call(NamedTuple):
    result: Callable[[bool, Any], object] | None
    function: Callable[[], Any]


class SteppedThreads:
    """Like Twisted's thread pool: workers are started when they are needed, and stop when they are idle."""

    def __init__(self, most: int = 1_000) -> None:
        self.started = False
        self.running: list[_Call] = []
        self.made = 0
        self._most = most
        self._idle = 0
        self._to_stop = 0

    @property
    def workers(self) -> int:
        return self._idle + len(self.running)

    def start(self) -> None:
        assert not self.started
        self.started = True

    def stopAWorker(self) -> None:
        assert self._to_stop < self.workers, "more workers to stop than there are"
        if self._idle:
            self._idle -= 1
        else:
            self._to_stop += 1

    def callInThreadWithCallback(
        self, result: Callable[[bool, Any], object] | None, function: Callable[..., Any], /, *args: Any, **kw: Any
    ) -> None:
        assert self.started
        if self._idle:
            self._idle -= 1
        else:
            self.made += 1
        self.running.append(_Call(result, lambda: function(*args, **kw)))
        assert self.workers <= self._most, "a call had to wait for a thread"

    def step(self, number: int = 0) -> None:
        """Let the call with this number return, counted from the oldest one."""
        call = self.running.pop(number)
        if self._to_stop:
            self._to_stop -= 1
        else:
            self._idle += 1
        try:
            value, succeeded = call.function(), True
        except BaseException:
            value, succeeded = Failure(), False  # type: ignore[no-untyped-call]
        if call.result is not None:
            call.result(succeeded, value)

    def step_all(self) -> None:
        """Let all calls return, including those made meanwhile."""
        while self.running:
            self.step()


_check: type[Threads] = SteppedThreads
