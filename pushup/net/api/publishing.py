"""Publications: `POST /v1/messages`."""

from __future__ import annotations

from pushup.core.commands import Ack, Confirmation, Outcome, Published
from pushup.core.cursor import Cursor
from pushup.core.errors import BadRequest, PushUpError
from pushup.core.grant import Grant
from pushup.net.api.access import check_channels
from pushup.net.api.api_limits import PublicationLimits
from pushup.net.api.bodies import read_publication, write_published
from pushup.net.api.error_responses import Refusals
from pushup.net.api.node_interface import Node
from pushup.net.application_interface import Exchange
from pushup.net.requests_and_responses import Request, Response

KEY_LIMIT = 255
"""Characters of an idempotency key; a UUID has 36."""


class Publishing:
    """Publishes messages, and tells publishers what became of them."""

    def __init__(self, node: Node, limits: PublicationLimits, refusals: Refusals) -> None:
        self._node = node
        self._limits = limits
        self._refusals = refusals

    def publish(self, request: Request, query: bytes, exchange: Exchange, grant: Grant) -> None:
        key = request.header(b"idempotency-key")
        if len(key) > KEY_LIMIT:
            raise BadRequest(f"Idempotency-Key can have at most {KEY_LIMIT} characters", field="Idempotency-Key")
        command, as_list, ack, seconds = read_publication(request.body, key or None, self._limits, grant.key_name)
        for draft in command.messages:
            check_channels(grant, "publish", draft.channels, self._node)

        # The callback may be kept for a long time: it must not keep the request and the command alive.
        def on_outcome(outcome: Outcome) -> None:
            if isinstance(outcome, PushUpError):
                self._refusals.answer(outcome, exchange, grant)
                return
            assert isinstance(outcome, Published)
            if ack == "accepted":
                exchange.respond(Response(201, write_published(outcome, as_list)))
            else:
                self._confirm(outcome, as_list, ack, seconds, exchange)

        self._node.submit(command, on_outcome)

    def _confirm(self, published: Published, as_list: bool, ack: Ack, seconds: float, exchange: Exchange) -> None:
        """Answer a publisher that waits for a stronger acknowledgement than `accepted`."""

        def on_confirmation(confirmation: Confirmation) -> None:
            exchange.respond(Response(201, write_published(published, as_list, confirmation)))

        last = Cursor(published.epoch, published.sequence + published.count - 1)
        self._node.confirm(ack, last, seconds, on_confirmation)
