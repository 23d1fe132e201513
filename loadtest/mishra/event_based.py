"""The event-based implementation (§4): one thread, one loop, `select`.

Six kinds of events: a client's request, another member's message, and four timeouts. Timeouts that are due go before
datagrams that are ready, and the clock's goes before the others. In the paper's outline timeouts are only processed
when `select` finds nothing ready, so that a busy member would process none; here they are processed in every turn,
which is what its text says.
"""

from __future__ import annotations

import os
import select
import time
from bisect import insort

from loadtest.mishra.core.settings import Timeout
from loadtest.mishra.service import DATAGRAM, Service


class TimeoutQueue:
    """The paper's `to_ev_queue` and `clk_sync_to`: registered timeouts by their time, and the clock's by itself."""

    def __init__(self) -> None:
        self._clock: float | None = None
        self._others: list[tuple[float, str, Timeout]] = []

    def register(self, deadlines: dict[Timeout, float]) -> None:
        """These are the timeouts now, and no others."""
        self._clock = deadlines.get(Timeout.CLOCK)
        self._others = []
        for timeout, at in deadlines.items():
            if timeout is not Timeout.CLOCK:
                insort(self._others, (at, timeout.value, timeout))

    def wait_seconds(self, now: float) -> float | None:
        """Until the first is due; None if there is none."""
        times = [at for at in (self._clock, self._others[0][0] if self._others else None) if at is not None]
        return max(0.0, min(times) - now) if times else None

    def take(self, now: float) -> Timeout | None:
        """The next that is due, and is not registered any more; the clock's first."""
        if self._clock is not None and self._clock <= now:
            self._clock = None
            return Timeout.CLOCK
        if self._others and self._others[0][0] <= now:
            return self._others.pop(0)[2]
        return None


def run(service: Service, *, priority: bool = False) -> None:
    """The paper's `mainloop`; it never ends.

    `priority`: before other programs, first in, first out. The paper has that for threads only. Here the loop gets it
    when threads do, or the difference would be that they are preempted less. Raises: PermissionError.
    """
    if priority:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    queue = TimeoutQueue()
    sockets = [service.messages, service.clients]
    for sock in sockets:
        sock.setblocking(False)
    while True:
        queue.register(service.core.deadlines)
        ready, _, _ = select.select(sockets, [], [], queue.wait_seconds(time.monotonic()))
        process_timeouts(service, queue)
        for sock in ready:
            try:
                data, address = sock.recvfrom(DATAGRAM)
            except OSError:  # the kernel found it damaged, or reports that nobody listens at a peer
                continue
            if sock is service.messages:
                service.message(data)
            else:
                service.client_request(data, address)


def process_timeouts(service: Service, queue: TimeoutQueue) -> None:
    """The paper's `process_to`: every timeout that is due, and those that become due meanwhile."""
    while (timeout := queue.take(time.monotonic())) is not None:
        service.timeout(timeout)
        queue.register(service.core.deadlines)
