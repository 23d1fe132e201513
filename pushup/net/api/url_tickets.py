"""URL tickets: what a browser's `EventSource`, which sends no header fields of its own, has instead of a token.

POST /v1/url-tickets {"channels": ["user:7"], "token": "eyJ..."} -> {"ticket": "...", "expires_in": 290}
GET /v1/events?channel=user:7&ticket=...

URLs are logged and copied, so such a ticket is good for little: these channels, pages of this origin, and only for as
long as the token. `Request` takes it out of the target, and nothing keeps it.
"""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from msgspec import structs

from pushup.core.channels import unknown_channel
from pushup.core.errors import BadRequest, Forbidden, InvalidToken, Unauthorized
from pushup.core.grant import NOTHING, Grant
from pushup.net.api.bodies import BodyDecoder, json_response
from pushup.net.api.poll_access import PollAccess
from pushup.net.api.poll_parameters import PollReader, unknown_parameter
from pushup.net.api.schemas import ChannelsBody, PollBody
from pushup.net.application_interface import Exchange
from pushup.net.http_errors import UnknownResource
from pushup.net.requests_and_responses import Request

_body = BodyDecoder(ChannelsBody, '{"channels": ["user:7"]}')


class UrlTickets:
    """Issues and accepts URL tickets, if that is wanted (`token_url_tickets`)."""

    def __init__(self, poll_access: PollAccess, reader: PollReader) -> None:
        self._poll_access = poll_access
        self._reader = reader

    def issue(self, request: Request, query: bytes, exchange: Exchange, grant: Grant) -> None:
        """Answer with a ticket for what the client's token allows.

        Raises: BadRequest, Unauthorized, Forbidden, InvalidToken, TokenExpired, Revoked, UnknownChannel; Unavailable;
        QuotaExceeded; UnknownResource if none are issued.
        """
        access, given = self._poll_access, _body.decode(request.body)
        if access.url_tickets is None:
            raise UnknownResource("no URL tickets are issued here (set token_url_tickets)")
        channels = self._reader.poll(PollBody(given.channels), "channels").selection.channels
        grant = access.with_token(grant, given.token, request)
        access.quotas.count(request, grant, exchange)
        if not grant.is_of_token:
            raise Unauthorized("a URL ticket stands for a token; send one, as Authorization: Bearer <token>")
        for channel in channels:
            if not grant.allows("read", (channel,)):
                raise Forbidden(f"the token does not allow polling {channel!r}: add it to the token's rights")
            if access.node.name_of(channel) != channel:
                raise unknown_channel(channel, "channels")
        origin = request.header(b"origin")
        if origin in ("", "null"):
            raise BadRequest("a URL ticket is for the pages of one origin; send it, as browsers do", field="Origin")
        ticket_grant = structs.replace(grant, valid_until=int(grant.valid_until))
        if access.seconds_to_hold(ticket_grant) <= 0:
            raise access.why_ended(grant)
        ticket = access.url_tickets.seal_for_url(channels, origin, ticket_grant)
        exchange.respond(json_response({"ticket": ticket, "expires_in": int(access.seconds_left(ticket_grant))}))

    def grant(self, url_ticket: bytes, channels: tuple[str, ...], request: Request, grant: Grant) -> Grant | None:
        """What a ticket allows; None if it has expired, or was revoked. `grant`: what header fields allow the request.

        Raises: BadRequest, InvalidToken; Unavailable while the key of its token is looked for.
        """
        access = self._poll_access
        if access.url_tickets is None:
            raise BadRequest(unknown_parameter("ticket"), field="ticket")
        if grant is not NOTHING:
            raise BadRequest("send either a ticket or a token, not both", field="ticket")
        text = unquote_to_bytes(url_ticket).decode("latin-1")
        for origin in _origins(request):
            opened = access.url_tickets.open_of_url(text, channels, origin)
            if opened is not None:
                return None if access.seconds_to_hold(opened) <= 0 or access.is_withdrawn(opened) else opened
        raise InvalidToken(
            "the ticket is not valid here: it is for exactly the channels and the page's origin that it was issued for",
            field="ticket",
        )


def _origins(request: Request) -> tuple[str, ...]:
    """Those that the page with this stream may have. A browser names it, unless it is that of the request itself."""
    if b"origin" in request.headers:
        return (request.header(b"origin"),)
    host = request.header(b"host").lower()
    return (f"https://{host}", f"http://{host}")
