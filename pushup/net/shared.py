"""What all connections of an edge share."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from pushup.metrics import Metrics
from pushup.net.exchange import Application
from pushup.net.input_budget import InputBudget
from pushup.net.limits import EdgeLimits
from pushup.net.parser_pool import ParserPool
from pushup.net.responses import ResponseWriter
from pushup.net.wait.demultiplexer import Demultiplexer, Watched


class Shared(Struct, kw_only=True, eq=False):
    """The surroundings of a connection."""

    application: Application
    demultiplexer: Demultiplexer
    limits: EdgeLimits
    metrics: Metrics
    writer: ResponseWriter
    parsers: ParserPool
    input_budget: InputBudget
    forget: Callable[[Watched], None]
    """Removes a connection from its edge and from the demultiplexer; its socket must still be open."""
    draining: bool = False
    """Whether every response is the last of its connection, because the node is stopping."""
    now: float = 0.0
    """The monotonic time at the last sweep."""
