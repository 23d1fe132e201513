"""Why a message did not arrive: `GET /v1/messages/{id}`.

/v1/messages/k3f9-41                     what became of this message, and which nodes have applied it
/v1/messages/k3f9-41?cursor=k3f9-40      and what a client with this cursor gets of it
"""

from __future__ import annotations

from pushup.core.grant import Grant
from pushup.net.api.bodies import json_response
from pushup.net.api.erasing import read_cursor
from pushup.net.api.node_interface import Node
from pushup.net.api.poll_parameters import read_parameters
from pushup.net.application_interface import Exchange
from pushup.net.http_errors import UnknownMessage
from pushup.net.requests_and_responses import Request


def show_trace(node: Node, request: Request, id_: str, exchange: Exchange, grant: Grant) -> None:
    """Say what this node knows of a message."""
    message = read_cursor(id_, "id")
    given = read_parameters(request.target.partition(b"?")[2], ("cursor",))
    reader = read_cursor(given["cursor"], "cursor") if given else None
    found = node.trace(message, reader)
    if found is None:
        text = (
            "no message has this id: it is of another order, or of an entry that published nothing, or the message "
            "was ephemeral and is gone"
        )
        raise UnknownMessage(text, field="id")
    exchange.respond(json_response(found))
