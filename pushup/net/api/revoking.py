"""Revocation: `POST /v1/revoke`.

{"sub": "7"}                                    all tokens and tickets that were issued to this user until now
{"sub": "7", "issued_before": 1700000000}       those that were issued before this time
{"jti": "d3a1"}                                 the token with this name
"""

from __future__ import annotations

from msgspec import Struct

from pushup.core.commands import Outcome, Revoke, RevokedBefore
from pushup.core.errors import BadRequest, PushUpError
from pushup.core.grant import Grant, is_subject
from pushup.net.api.bodies import BodyDecoder, json_response
from pushup.net.api.error_responses import ErrorResponder
from pushup.net.api.node_interface import Node
from pushup.net.application_interface import Exchange
from pushup.net.requests_and_responses import Request


class RevokeBody(Struct, forbid_unknown_fields=True):
    sub: str | None = None
    jti: str | None = None
    issued_before: float | None = None


_body = BodyDecoder(RevokeBody, '{"sub": "7"}')


def revoke(
    node: Node, error_responder: ErrorResponder, request: Request, query: bytes, exchange: Exchange, grant: Grant
) -> None:
    """Revoke tokens and tickets."""
    command = read_revoke(request.body)

    def on_outcome(outcome: Outcome) -> None:
        if isinstance(outcome, PushUpError):
            error_responder.answer(outcome, exchange, grant)
            return
        assert isinstance(outcome, RevokedBefore)
        shown: dict[str, object] = {command.by: command.name}
        if command.by == "sub":
            shown["issued_before"] = outcome.issued_before
        exchange.respond(json_response(shown))

    node.submit(command, on_outcome)


def read_revoke(body: bytes) -> Revoke:
    """Raises: BadRequest."""
    given = _body.decode(body)
    if (given.sub is None) == (given.jti is None):
        raise BadRequest("give either `sub`, a user, or `jti`, the name of one token", field="sub")
    if given.jti is not None:
        if given.issued_before is not None:
            raise BadRequest("`issued_before` goes with `sub`; a token is revoked by its `jti`", field="issued_before")
        return Revoke("jti", _checked(given.jti, "jti"))
    return Revoke("sub", _checked(given.sub or "", "sub"), given.issued_before)


def _checked(name: str, field: str) -> str:
    if not name or not is_subject(name):
        raise BadRequest(f"{field} is text of 1 to 255 bytes without control characters", field=field)
    return name
