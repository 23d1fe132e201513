"""Waits with `epoll`, level-triggered: the kernel keeps the descriptors, and reports one as long as it is ready."""

from __future__ import annotations

import select

from loadtest.libman.wait.strategy import EVENTS, Event, WaitStrategy


class WithEpoll:
    edge_triggered = False

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: set[int] = set()

    def watch(self, fd: int, mask: int) -> None:
        if not mask:
            self._watched.remove(fd)
            self._epoll.unregister(fd)
        elif fd in self._watched:
            self._epoll.modify(fd, mask)
        else:
            self._epoll.register(fd, mask)
            self._watched.add(fd)

    def wait(self, timeout: float | None) -> list[Event]:
        return self._epoll.poll(timeout, EVENTS)

    def close(self) -> None:
        self._epoll.close()


_check: type[WaitStrategy] = WithEpoll
