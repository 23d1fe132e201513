"""The thread-based implementation (§3): six threads, one for each kind of event.

One waits for clients, one for other members. Four are timers, blocked on a condition variable until their time or until
they are signalled; one that is not needed waits without a time. Functions must not run at the same time, so a semaphore
encloses each call; after it a thread yields.

With `priorities` the threads are scheduled first in, first out, and the clock's has the highest priority, as in the
paper. This needs a privilege. Python's global lock knows no priorities: a thread that waits for it gets it when the one
that has it gives it up, and the operating system decides who is next.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from loadtest.mishra.core.settings import Timeout
from loadtest.mishra.service import DATAGRAM, Service

CLOCK_PRIORITY = 2
PRIORITY = 1


class Timer:
    """A timer thread's mutex, condition variable and time."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._condition = threading.Condition(self._mutex)
        self._deadline: float | None = None

    def set(self, deadline: float | None) -> None:
        """Move the time. The thread is only signalled if it would wake too late; too early does no harm."""
        with self._mutex:
            before, self._deadline = self._deadline, deadline
            if deadline is not None and (before is None or deadline < before):
                self._condition.notify()

    def wait(self) -> None:
        """Return when the time has come. It has none then."""
        with self._mutex:
            while self._deadline is None or self._deadline > time.monotonic():
                self._condition.wait(None if self._deadline is None else self._deadline - time.monotonic())
            self._deadline = None


class Threads:
    """The six threads of a member."""

    def __init__(self, service: Service, *, priorities: bool) -> None:
        self._service = service
        self._priorities = priorities
        self._semaphore = threading.Semaphore(1)
        self._timers = {timeout: Timer() for timeout in Timeout}

    def start(self) -> list[threading.Thread]:
        loops: dict[str, Callable[[], None]] = {
            "client": self._wait_for_clients,
            "message": self._wait_for_messages,
            **{timeout.value: self._timer_loop(timeout) for timeout in Timeout},
        }
        threads = [threading.Thread(target=loop, name=name, daemon=True) for name, loop in loops.items()]
        self._set_timers()
        for thread in threads:
            thread.start()
        return threads

    def _wait_for_clients(self) -> None:
        self._prioritize(PRIORITY)
        while True:
            try:
                data, address = self._service.clients.recvfrom(DATAGRAM)
            except OSError:
                continue
            self._invoke(lambda: self._service.client_request(data, address))  # noqa: B023

    def _wait_for_messages(self) -> None:
        self._prioritize(PRIORITY)
        while True:
            try:
                data = self._service.messages.recv(DATAGRAM)
            except OSError:
                continue
            self._invoke(lambda: self._service.message(data))  # noqa: B023

    def _timer_loop(self, timeout: Timeout) -> Callable[[], None]:
        def loop() -> None:
            self._prioritize(CLOCK_PRIORITY if timeout is Timeout.CLOCK else PRIORITY)
            while True:
                self._timers[timeout].wait()
                self._invoke(lambda: self._service.timeout(timeout))

        return loop

    def _invoke(self, function: Callable[[], None]) -> None:
        """Run a function while no other runs, move the timers, and yield."""
        with self._semaphore:
            function()
            self._set_timers()
        os.sched_yield()

    def _set_timers(self) -> None:
        deadlines = self._service.core.deadlines
        for timeout, timer in self._timers.items():
            timer.set(deadlines.get(timeout))

    def _prioritize(self, priority: int) -> None:
        if self._priorities:
            os.sched_setscheduler(threading.get_native_id(), os.SCHED_FIFO, os.sched_param(priority))


def run(service: Service, *, priorities: bool = False) -> None:
    """Start the threads, and wait for them; they never end. Raises: PermissionError if there can be no priorities."""
    if priorities:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    for thread in Threads(service, priorities=priorities).start():
        thread.join()
