"""Sockets, and what waits for them: for servers that have other connections than PushUp's."""

from __future__ import annotations

from pushup.net.listener import Listener, open_socket
from pushup.net.output_buffer import OutputBudget, OutputBuffer
from pushup.net.wait import STRATEGIES
from pushup.net.wait.demultiplexer import Demultiplexer, Watched
from pushup.net.wait.epoll import EpollDemultiplexer

__all__ = [
    "STRATEGIES",
    "Demultiplexer",
    "EpollDemultiplexer",
    "Listener",
    "OutputBudget",
    "OutputBuffer",
    "Watched",
    "open_socket",
]
