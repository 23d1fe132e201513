"""What all connections of an edge have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pushup.metrics import Metrics
from pushup.net.application_interface import Application
from pushup.net.edge_limits import EdgeLimits
from pushup.net.input_budget import InputBudget
from pushup.net.output_buffer import OutputBudget
from pushup.net.parser_pool import ParserPool
from pushup.net.responses import ResponseWriter
from pushup.net.wait.demultiplexer import Demultiplexer, Watched


@dataclass(kw_only=True, eq=False)
class EdgeContext:
    """The surroundings of a connection."""

    application: Application
    demultiplexer: Demultiplexer
    limits: EdgeLimits
    metrics: Metrics
    writer: ResponseWriter
    parsers: ParserPool
    input_budget: InputBudget
    output_budget: OutputBudget
    forget: Callable[[Watched], None]
    """Removes a connection from its edge and from the demultiplexer; its socket must still be open."""
    draining: bool = False
    """Whether every response is the last of its connection, because the node is stopping."""
    now: float = 0.0
    """The monotonic time at the last sweep."""
