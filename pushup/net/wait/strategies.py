"""The wait strategies of this system, by the name that the setting `wait_strategy` gives them."""

from __future__ import annotations

import select
from collections.abc import Callable

from pushup.net.wait.demultiplexer import Demultiplexer, Reactor
from pushup.net.wait.epoll import EpollDemultiplexer
from pushup.net.wait.reactor import ReactorDemultiplexer

STRATEGIES: dict[str, Callable[[Reactor], Demultiplexer]] = {"reactor": ReactorDemultiplexer}

if hasattr(select, "epoll"):
    STRATEGIES["epoll"] = EpollDemultiplexer
