"""Requests that are refused for who sent them, or where: counted by kind, and logged now and then."""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from pushup.core.errors import (
    Forbidden,
    ForbiddenOrigin,
    MisdirectedRequest,
    PushUpError,
    SpokeTls,
    Unauthorized,
)
from pushup.metrics import Metrics
from pushup.net.exchange import Client
from pushup.net.rarely import Rarely

_KINDS: dict[type[PushUpError], str] = {
    Unauthorized: "unauthorized",
    Forbidden: "forbidden",
    ForbiddenOrigin: "origin",
    MisdirectedRequest: "host",
    SpokeTls: "tls",
}

_log = Logger()


class Refusals:
    """Takes note of errors that clients are answered; those that are not of these kinds are passed over."""

    def __init__(self, metrics: Metrics, now: Callable[[], float]) -> None:
        self._metrics = metrics
        self._rarely = Rarely(now)

    def note(self, error: PushUpError, client: Client) -> None:
        kind = _KINDS.get(type(error))
        if kind is None:
            return
        self._metrics.refused(kind)
        if count := self._rarely.passes(kind):
            more = f" ({count - 1} more since this was last logged)" if count > 1 else ""
            _log.info("refused a request from {client}: {detail}{more}", client=client, detail=error.detail, more=more)
