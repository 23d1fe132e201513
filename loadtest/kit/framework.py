"""The edge, helper pools and service requestors: for servers with another application than PushUp's (Hsu §5.1)."""

from __future__ import annotations

from pushup.backends.helper_pool import HelperPool
from pushup.backends.limited_service import ServiceLimits
from pushup.backends.service_requestor import ServiceRequestor
from pushup.core.errors import BadRequest, Forbidden, Overloaded, PushUpError, Unavailable
from pushup.metrics import BackendCounters, Metrics
from pushup.net.application_interface import Application, Exchange, Held
from pushup.net.edge import Edge
from pushup.net.edge_limits import EdgeLimits, RequestLimits
from pushup.net.http_errors import InternalError, UnknownResource, problem
from pushup.net.requests_and_responses import Header, Request, Response

__all__ = [
    "Application",
    "BackendCounters",
    "BadRequest",
    "Edge",
    "EdgeLimits",
    "Exchange",
    "Forbidden",
    "Header",
    "Held",
    "HelperPool",
    "InternalError",
    "Metrics",
    "Overloaded",
    "PushUpError",
    "Request",
    "RequestLimits",
    "Response",
    "ServiceLimits",
    "ServiceRequestor",
    "Unavailable",
    "UnknownResource",
    "problem",
]
