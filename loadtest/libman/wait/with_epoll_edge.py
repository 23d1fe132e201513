"""Waits with `epoll`, edge-triggered: a descriptor is reported when it becomes ready, once."""

from __future__ import annotations

import select

from loadtest.libman.wait.strategy import WaitStrategy
from loadtest.libman.wait.with_epoll import WithEpoll


class WithEpollEdge(WithEpoll):
    edge_triggered = True

    def watch(self, fd: int, mask: int) -> None:
        super().watch(fd, mask | select.EPOLLET if mask else 0)


_check: type[WaitStrategy] = WithEpollEdge
