"""What operators and their tools ask: `/healthz`, `/readyz`, `/metrics`, `/v1/nodes`, `/v1/drain`."""

from __future__ import annotations

from twisted.logger import Logger

from pushup.core.errors import PushUpError
from pushup.core.grant import Grant
from pushup.net.api.access import Access
from pushup.net.api.bodies import json_response
from pushup.net.api.node_interface import Node, ServerView
from pushup.net.application_interface import Exchange
from pushup.net.http_errors import UnknownResource, problem
from pushup.net.requests_and_responses import Request, Response

_log = Logger()


class Operations:
    """Reports the state of the server."""

    def __init__(self, node: Node, access: Access, machine: ServerView) -> None:
        self._node = node
        self._access = access
        self._machine = machine

    def health(self, request: Request, query: bytes, exchange: Exchange, grant: Grant) -> None:
        exchange.respond(json_response({"status": "alive"}))

    def readiness(self, request: Request, query: bytes, exchange: Exchange, grant: Grant) -> None:
        error = self._node.answer_balancer(exchange.client.host)
        if error is None:
            exchange.respond(json_response({"status": "ready"}))
            return
        reason = error.detail
        if error.operator_detail and self._access.grant(request).shows_details(is_local=exchange.client.is_local):
            reason = f"{reason}: {error.operator_detail}"
        exchange.respond(json_response({"status": "not ready", "reason": reason}, 503))

    def metrics(self, request: Request, query: bytes, exchange: Exchange, grant: Grant) -> None:
        def respond(text: bytes) -> None:
            exchange.respond(Response(200, text, b"text/plain; version=0.0.4; charset=utf-8"))

        self._machine.metrics(respond)

    def no_metrics(self, request: Request, query: bytes, exchange: Exchange, grant: Grant) -> None:
        raise UnknownResource("metrics are not public here; ask the address in the setting operator_listen")

    def nodes(self, request: Request, query: bytes, exchange: Exchange, grant: Grant) -> None:
        exchange.respond(json_response({"nodes": self._node.members()}))

    def drain(self, request: Request, query: bytes, exchange: Exchange, grant: Grant) -> None:
        """Take the server out of rotation, or back (DELETE)."""
        is_out = request.method == b"POST"
        done = "taken out of rotation: not ready, held polls are being answered" if is_out else "back in rotation"

        def respond(error: PushUpError | None) -> None:
            if error is None:
                _log.info(done + " (key {key}, {client})", key=grant.key_name or "none", client=exchange.client)
            exchange.respond(json_response({"draining": is_out}) if error is None else problem(error))

        self._machine.set_out(is_out, respond)
