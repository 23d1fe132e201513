"""Answers requests with errors. Those that were refused access are counted by kind, and logged once in a while."""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from pushup.core.errors import PushUpError
from pushup.core.grant import NOTHING, Grant
from pushup.metrics import Metrics
from pushup.net.application_interface import Client, Exchange
from pushup.net.http_errors import problem, problem_type
from pushup.net.log_throttle import LogThrottle

_log = Logger()


class ErrorResponder:
    """Tells clients what went wrong, and the operator who was refused access."""

    def __init__(self, metrics: Metrics, seconds: Callable[[], float]) -> None:
        """`seconds` of a monotonic clock."""
        self._metrics = metrics
        self._rarely = LogThrottle(seconds)

    def answer(self, error: PushUpError, exchange: Exchange, grant: Grant = NOTHING) -> None:
        """Answer a request with an error, and with its details if the grant allows that."""
        client = exchange.client
        self.note(error, client)
        for_operator = bool(error.operator_detail) and grant.shows_details(is_local=client.is_local)
        exchange.respond(problem(error, for_operator=for_operator))

    def note(self, error: PushUpError, client: Client) -> None:
        """Count and log an error, if it is of a kind that refuses access."""
        kind = problem_type(type(error)).refusal
        if not kind:
            return
        self._metrics.refusals[kind] += 1
        if count := self._rarely.passes(kind):
            text = "refused a request from {client}: {detail}" + " ({more} more since last logged)" * (count > 1)
            detail = f"{error.detail}: {error.operator_detail}" if error.operator_detail else error.detail
            _log.info(text, client=client, kind=kind, detail=detail, more=count - 1)
