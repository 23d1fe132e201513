"""Erasure: `DELETE /v1/messages`.

/v1/messages/k3f9-41                            this message
/v1/messages?channel=user:7&until=k3f9-41       all messages of this channel up to this cursor, or up to now
/v1/messages?owner=app&until=k3f9-41            all that were published with the key of this name
"""

from __future__ import annotations

from typing import cast

from msgspec.structs import replace

from pushup.core.commands import Erase, Erased, ErasedBy, Outcome
from pushup.core.cursor import Cursor, parse_cursor
from pushup.core.errors import BadRequest, Forbidden, PushUpError, UnknownChannel
from pushup.core.grant import EVERYTHING, Grant, is_subject
from pushup.net.api.access import Access, check_channels
from pushup.net.api.bodies import check_name, json_response
from pushup.net.api.error_responses import ErrorResponder
from pushup.net.api.node_interface import Node
from pushup.net.api.poll_parameters import read_parameters
from pushup.net.application_interface import Exchange
from pushup.net.http_errors import UnknownMessage
from pushup.net.requests_and_responses import Request


class Erasing:
    """Deletes messages before they expire."""

    def __init__(self, node: Node, error_responder: ErrorResponder, access: Access) -> None:
        self._node = node
        self._error_responder = error_responder
        self._access = access

    def erase_one(self, request: Request, id_: str, exchange: Exchange, grant: Grant) -> None:
        command = Erase("message", cursor=read_cursor(id_, "id"))
        self._check_message(command, grant)
        self._erase(command, exchange, grant)

    def erase_all(self, request: Request, query: bytes, exchange: Exchange, grant: Grant) -> None:
        command = read_erase(query)
        grant = self._access.require("channels" if command.by == "channel" else "operate", request)
        if command.by == "channel":
            check_channels(grant, "channels", (command.name,), self._node, self._access.rules)
        else:
            self._access.require("revoke", request)  # which pages of other origins may not, although they may look
        self._erase(command, exchange, grant)

    def _check_message(self, command: Erase, grant: Grant) -> None:
        """Check that a grant includes the message's channels. Who may not delete it is not told whether it exists.

        Raises: Forbidden; Revoked.
        """
        if grant.rights.get("channels") is EVERYTHING and not grant.is_of_token:
            return
        channels = self._node.channels_of(command.cursor or Cursor("", 0))
        try:
            check_channels(grant, "channels", channels, self._node, self._access.rules)
            allowed = bool(channels)
        except (Forbidden, UnknownChannel):
            allowed = False
        if not allowed:
            raise Forbidden("no message that you may delete has this id: you need the right to all of its channels")

    def _erase(self, command: Erase, exchange: Exchange, grant: Grant, before: int = 0) -> None:
        """`before`: how many messages earlier entries have removed for the same request."""

        def on_outcome(outcome: Outcome) -> None:
            if isinstance(outcome, PushUpError):
                self._error_responder.answer(outcome, exchange, grant)
                return
            assert isinstance(outcome, Erased)
            count = before + outcome.count
            if outcome.more:  # in another turn: some broadcasts apply it at once
                rest = replace(command, cursor=outcome.cursor)
                self._node.soon(lambda: self._erase(rest, exchange, grant, count))
            elif command.by == "message" and not count:
                text = "no message with this id is kept: it has expired, was deleted before, or never existed"
                self._error_responder.answer(UnknownMessage(text, field="id"), exchange, grant)
            else:
                exchange.respond(json_response({"deleted": count}))

        self._node.submit(command, on_outcome)


def read_erase(query: bytes) -> Erase:
    """Raises: BadRequest naming the parameter."""
    given = read_parameters(query, ("channel", "owner", "until"))
    until = given.pop("until", "")
    if len(given) != 1:
        text = "name what to delete: channel=NAME, owner=NAME, or the id of a message in the path"
        raise BadRequest(text, field="channel")
    ((by, value),) = given.items()
    if by == "channel":
        check_name(value, by)
    elif not value or not is_subject(value):
        raise BadRequest("owner must be the name of a publish key", field="owner")
    return Erase(cast(ErasedBy, by), value, read_cursor(until, "until") if until else None)


def read_cursor(text: str, field: str) -> Cursor:
    """Raises: BadRequest."""
    try:
        cursor = parse_cursor(text)
    except BadRequest:
        cursor = None
    if not isinstance(cursor, Cursor):
        what = "the id of a message, as a publication or a poll shows it" if field == "id" else "a cursor"
        raise BadRequest(f"{field} is not {what}, such as k3f9-41", field=field)
    return cursor
