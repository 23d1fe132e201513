"""One request, from its head to its response. A new call is a line in the table here, and its handler.

All calls are documented, with examples that tests run, in docs/guide/.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from twisted.internet.defer import CancelledError
from twisted.logger import Logger
from twisted.python.failure import Failure

from pushup.core.errors import PushUpError, QuotaExceeded
from pushup.core.grant import NOTHING, Grant, Right
from pushup.core.subscription import Subscription
from pushup.net.api.access import Access
from pushup.net.api.backing_up import send_backup
from pushup.net.api.browser_client import NAMES, Script
from pushup.net.api.channel_routes import Channels
from pushup.net.api.cors import Origins
from pushup.net.api.dashboard import FILES, Dashboard
from pushup.net.api.erasing import Erasing
from pushup.net.api.error_responses import ErrorResponder
from pushup.net.api.health import Operations
from pushup.net.api.node_interface import Node, ServerView
from pushup.net.api.poll_access import PollAccess
from pushup.net.api.poll_parameters import PollReader
from pushup.net.api.polling import Polling
from pushup.net.api.presence import PresenceCalls
from pushup.net.api.publishers import Publishers
from pushup.net.api.publishing import Publishing
from pushup.net.api.request_log import shown_target
from pushup.net.api.revoking import revoke
from pushup.net.api.router import Call, Router
from pushup.net.api.schemas import PublicationLimits
from pushup.net.api.streaming import Streaming
from pushup.net.api.tracing import show_trace
from pushup.net.api.turns import PublisherTurns
from pushup.net.application_interface import NO_ROUTE, Application, Exchange, Held
from pushup.net.http_errors import InternalError, UnknownResource, problem
from pushup.net.requests_and_responses import Header, Request

OPERATOR_RIGHTS: tuple[Right, ...] = ("operate", "revoke", "drain", "backup")
"""Their calls are answered at `operator_listen`, too."""

OF_DASHBOARD = ("/v1/poll", "/v1/events", "/v1/messages", "/v1/pushup.js")
"""What else the dashboard asks for there."""

_log = Logger(__name__)


_Admitted = tuple[Request, Call, Any, Grant]
"""A request, the call that it is for, the argument of its handler, and what it may do."""


class Api:
    """The application behind the edge."""

    def __init__(
        self,
        node: Node,
        *,
        polls: PollReader,
        publication_limits: PublicationLimits,
        publication_limit_bytes: int,
        access: Access,
        origins: Origins,
        error_responder: ErrorResponder,
        publishers: Publishers,
        machine: ServerView,
        poll_access: PollAccess,
        streaming: Streaming | None = None,
        turns: PublisherTurns | None = None,
        shows_metrics: bool = True,
        shows_dashboard: bool = True,
        only_for_operators: bool = False,
    ) -> None:
        """`publication_limit_bytes` is the limit of a publication's body; without `streaming` there are no event
        streams; without `turns` publications are carried out as they arrive. `only_for_operators`: it has no other
        calls than theirs, and those of the dashboard.
        """
        self._node = node
        self._access = access
        self._quotas = access.quotas
        self._origins = origins
        self._error_responder = error_responder
        self._body_limit_bytes = polls.body_limit_bytes
        self._admitted: _Admitted | None = None  # most requests are complete when they are admitted, and called next
        self._changes = access.changes  # of the keys, when it was admitted
        polling = Polling(node, polls, poll_access)
        presence = PresenceCalls(node, polls, poll_access)
        publishing = Publishing(node, publication_limits, error_responder, access, publishers, turns)
        channels = Channels(node, machine, error_responder, access)
        operations = Operations(node, access, machine)
        erasing = Erasing(node, error_responder, access)
        streams: tuple[Call, ...] = ()
        if streaming is not None:
            streams = (
                Call("GET", "/v1/events", streaming.stream_by_query, "read"),
                Call("POST", "/v1/events", streaming.stream_by_body, "read"),
                Call("POST", "/v1/url-tickets", streaming.url_tickets.issue, "read"),
            )
        metrics = operations.metrics if shows_metrics else operations.no_metrics
        calls = (
            Call("GET", "/v1/poll", polling.poll_by_query, "read"),
            Call("POST", "/v1/poll", polling.poll_by_body, "read"),
            *streams,
            Call("GET", "/v1/cursor", polling.cursor),
            Call("GET", "/v1/presence", presence.show, "read"),
            Call("POST", "/v1/presence", presence.close, "read"),
            *(Call("GET", f"/v1/{name}", Script(name, origins).show) for name in NAMES),
            Call("POST", "/v1/messages", publishing.publish, "publish", publication_limit_bytes),
            Call("DELETE", "/v1/messages", erasing.erase_all),
            Call("GET", "/v1/messages/{id}", partial(show_trace, node), "operate"),
            Call("DELETE", "/v1/messages/{id}", erasing.erase_one, "channels"),
            Call("GET", "/v1/channels", channels.list_page, "operate"),
            Call("POST", "/v1/channels", channels.create, "channels"),
            Call("GET", "/v1/channels/{channel}", channels.show, "operate"),
            Call("DELETE", "/v1/channels/{channel}", channels.close, "channels"),
            Call("POST", "/v1/channels/{channel}/renew", channels.renew, "channels"),
            Call("POST", "/v1/revoke", partial(revoke, node, error_responder), "revoke"),
            Call("GET", "/v1/nodes", operations.nodes, "operate"),
            Call("POST", "/v1/drain", operations.drain, "drain"),
            Call("DELETE", "/v1/drain", operations.drain, "drain"),
            Call("GET", "/v1/backup", partial(send_backup, node), "backup"),
            Call("GET", "/healthz", operations.health),
            Call("GET", "/readyz", operations.readiness),
            Call("GET", "/metrics", metrics),
            Call("GET", "/dashboard", Dashboard(is_shown=shows_dashboard).show),
            *(Call("GET", f"/dashboard/{name}", Dashboard(name, is_shown=shows_dashboard).show) for name in FILES),
        )
        self._router = Router(_for_operators(calls) if only_for_operators else calls)

    def admit(self, request: Request) -> int:
        """The limit of the body in bytes, once the head has been read.

        Raises: PushUpError, when the head is enough to refuse the request.
        """
        self._admitted, self._changes = self._find(request), self._access.changes
        limit = self._admitted[1].body_limit_bytes
        return self._body_limit_bytes if limit is None else limit

    def headers_for(self, request: Request) -> tuple[Header, ...]:
        """The header fields of every response to this request (CORS)."""
        return self._origins.response_headers(request)

    def __call__(self, request: Request, exchange: Exchange) -> None:
        """Answer a request, now or later."""
        admitted, self._admitted = self._admitted, None
        try:
            if admitted is None or admitted[0] is not request:
                admitted = self._find(request)
            elif admitted[3].is_of_token or self._changes != self._access.changes:
                admitted = self._find(request)  # meanwhile a token may have ended, or a key gone
        except PushUpError as error:
            self.refuse(error, request, exchange)
            return
        _, call, argument, grant = admitted
        exchange.route = call.path
        try:
            if self._quotas.counts_requests and call.is_counted:
                self._quotas.count(request, grant, exchange)
            later = call.handler(request, argument, exchange, grant)
            if later is not None:
                later.addErrback(self._failed_later, request, exchange)
        except PushUpError as error:
            if call.requires == "read":  # else it has been counted, or never is
                error = self._counted(error, request, exchange)
            self._answer_error(error, request, exchange)
        except Exception:
            _internal_error(request, exchange)

    def _find(self, request: Request) -> _Admitted:
        """Raises: PushUpError."""
        self._access.check_host(request)
        call, argument = self._router.find(request)
        if call.requires is None:
            grant = NOTHING
        elif call.requires == "read":
            grant = self._access.grant_for_poll(request)
        else:
            grant = self._access.require(call.requires, request)
        return request, call, argument, grant

    def refuse(self, error: PushUpError, request: Request | None, exchange: Exchange) -> None:
        """Answer with an error; `request` is None when not even its head could be read."""
        exchange.route = NO_ROUTE if isinstance(error, UnknownResource) else self._router.route(request)
        self._answer_error(self._counted(error, request, exchange), request, exchange)

    def _counted(self, error: PushUpError, request: Request | None, exchange: Exchange) -> PushUpError:
        """Count a request that is refused for its address, unless it was counted; returns what to answer."""
        try:
            self._quotas.count(request, NOTHING, exchange)
        except QuotaExceeded as too_many:
            return too_many
        return error

    def _answer_error(self, error: PushUpError, request: Request | None, exchange: Exchange) -> None:
        grant = NOTHING
        if request is not None and error.operator_detail:
            with suppress(PushUpError):
                grant = self._access.grant(request)
        self._error_responder.answer(error, exchange, grant)

    def abandon(self, held: Held) -> None:
        """The client of an open request has disconnected."""
        if isinstance(held, Subscription):
            self._node.abandon(held)
        else:
            held.cancel()

    def _failed_later(self, failure: Failure, request: Request, exchange: Exchange) -> None:
        if isinstance(failure.value, PushUpError):
            self._answer_error(failure.value, request, exchange)
        elif not isinstance(failure.value, CancelledError):  # that is: its client has disconnected
            _internal_error(request, exchange, failure)


def _for_operators(calls: Iterable[Call]) -> Iterator[Call]:
    """Those at `operator_listen`. Its addresses may be reached by others than the usual ones: polls need a right."""
    for call in calls:
        if call.requires in OPERATOR_RIGHTS or not call.path.startswith("/v1/"):
            yield call
        elif call.path in OF_DASHBOARD and call.method != "DELETE":
            yield call._replace(requires="operate") if call.requires == "read" else call


def _internal_error(request: Request, exchange: Exchange, failure: Failure | None = None) -> None:
    """`failure` is None in an `except` clause."""
    _log.failure(
        "{method} {target} failed unexpectedly, and its client got status 500; please report this as a bug",
        failure,
        method=request.method.decode("latin-1"),
        target=shown_target(request.target),
    )
    exchange.respond(problem(InternalError("an unexpected error; the server's log has the details")))


_check: type[Application] = Api
