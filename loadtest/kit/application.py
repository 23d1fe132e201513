"""The state, the HTTP interface, and the parser: for a server that shares all of these and waits in another way."""

from __future__ import annotations

from pushup.broadcast import HoldsState, OnConfirmation, OnOutcome
from pushup.broadcast.memory import MemoryBroadcast
from pushup.core.answer import Answer
from pushup.core.commands import Ack, Command, Entry, Outcome
from pushup.core.cursor import Cursor
from pushup.core.errors import PushUpError
from pushup.core.held_on_grants import HeldOnGrants
from pushup.core.held_polls import HeldPolls
from pushup.core.limits import HoldLimits, Limits
from pushup.core.poll import Poll
from pushup.core.state import ReplicatedState
from pushup.core.subscription import Holder, Subscription
from pushup.core.time_tree import TimeTree
from pushup.host.process_limits import tune_garbage_collector
from pushup.metrics import Metrics
from pushup.net.api.access import Access
from pushup.net.api.application import Api
from pushup.net.api.cors import Origins
from pushup.net.api.error_responses import ErrorResponder
from pushup.net.api.node_interface import Node, OneProcess
from pushup.net.api.poll_access import PollAccess
from pushup.net.api.poll_parameters import PollReader
from pushup.net.api.publishers import Publishers
from pushup.net.api.schemas import PollLimits, PublicationLimits
from pushup.net.application_interface import Client, Held, Streamed
from pushup.net.edge_limits import RequestLimits
from pushup.net.http1 import RequestParser
from pushup.net.http_errors import problem
from pushup.net.listener import open_socket
from pushup.net.requests_and_responses import Request, Response, ResponseOptions, ResponseWriter

__all__ = [
    "Access",
    "Ack",
    "Answer",
    "Api",
    "Client",
    "Command",
    "Cursor",
    "Entry",
    "ErrorResponder",
    "Held",
    "HeldOnGrants",
    "HeldPolls",
    "HoldLimits",
    "Holder",
    "HoldsState",
    "Limits",
    "MemoryBroadcast",
    "Metrics",
    "Node",
    "OnConfirmation",
    "OnOutcome",
    "OneProcess",
    "Origins",
    "Outcome",
    "Poll",
    "PollAccess",
    "PollLimits",
    "PollReader",
    "PublicationLimits",
    "Publishers",
    "PushUpError",
    "ReplicatedState",
    "Request",
    "RequestLimits",
    "RequestParser",
    "Response",
    "ResponseOptions",
    "ResponseWriter",
    "Streamed",
    "Subscription",
    "TimeTree",
    "open_socket",
    "problem",
    "tune_garbage_collector",
]
