"""The wait strategies of this system, by name."""

from __future__ import annotations

import select

from loadtest.libman.wait.strategy import WaitStrategy
from loadtest.libman.wait.with_epoll import WithEpoll
from loadtest.libman.wait.with_epoll_edge import WithEpollEdge
from loadtest.libman.wait.with_poll import WithPoll
from loadtest.libman.wait.with_select import WithSelect

STRATEGIES: dict[str, type[WaitStrategy]] = {"select": WithSelect, "poll": WithPoll}

if hasattr(select, "epoll"):
    STRATEGIES |= {"epoll": WithEpoll, "epoll-edge": WithEpollEdge}
