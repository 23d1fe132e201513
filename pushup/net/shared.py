"""What all connections of an edge share."""

from __future__ import annotations

from collections.abc import Callable

from pushup.metrics import Metrics
from pushup.net.application_interface import Application
from pushup.net.edge_limits import EdgeLimits
from pushup.net.input_budget import InputBudget
from pushup.net.output_buffer import OutputBudget
from pushup.net.parser_pool import ParserPool
from pushup.net.responses import ResponseWriter
from pushup.net.wait.demultiplexer import Demultiplexer, Watched


class Shared:
    """The surroundings of a connection."""

    __slots__ = (
        "application",
        "demultiplexer",
        "draining",
        "forget",
        "input_budget",
        "limits",
        "metrics",
        "now",
        "output_budget",
        "parsers",
        "writer",
    )

    def __init__(
        self,
        *,
        application: Application,
        demultiplexer: Demultiplexer,
        limits: EdgeLimits,
        metrics: Metrics,
        writer: ResponseWriter,
        parsers: ParserPool,
        input_budget: InputBudget,
        output_budget: OutputBudget,
        forget: Callable[[Watched], None],
    ) -> None:
        """`forget` removes a connection from its edge and from the demultiplexer; its socket must still be open."""
        self.application = application
        self.demultiplexer = demultiplexer
        self.limits = limits
        self.metrics = metrics
        self.writer = writer
        self.parsers = parsers
        self.input_budget = input_budget
        self.output_budget = output_budget
        self.forget = forget
        self.draining = False
        """Whether every response is the last of its connection, because the node is stopping."""
        self.now = 0.0
        """The monotonic time at the last sweep."""
