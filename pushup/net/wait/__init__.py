"""Waiting for sockets: the demultiplexer, and its strategies, which are interchangeable.

| file | what it holds |
|---|---|
| `demultiplexer` | the interface; reading a connection and calling back, with the errors of one connection contained |
| `epoll` | the strategy for Linux: one epoll of our own, drained in batches |
| `reactor` | the strategy for every other system: each connection is a reader of the Twisted reactor |

A new strategy is a file here and a line in `STRATEGIES`.
"""

from __future__ import annotations

import select
from collections.abc import Callable

from pushup.net.wait.demultiplexer import Demultiplexer, Reactor
from pushup.net.wait.epoll import EpollDemultiplexer
from pushup.net.wait.reactor import ReactorDemultiplexer

STRATEGIES: dict[str, Callable[[Reactor], Demultiplexer]] = {"reactor": ReactorDemultiplexer}
"""The strategies of this system, by the name that the setting `wait_strategy` gives them."""

if hasattr(select, "epoll"):
    STRATEGIES["epoll"] = EpollDemultiplexer
