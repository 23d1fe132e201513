"""Asks the web application who may poll what: `GET <url>?channel=a&channel=b`, with the client's cookies.

| reply | decision |
|---|---|
| 204, 200 `{"allow": true}` | allowed |
| 200 `{"allow": true, "seconds": 60}` | allowed, for this many seconds |
| 200 `{"allow": true, "subject": "7"}` | allowed, to this user |
| 200 `{"allow": false}`, 403 | not allowed |
| 401 | not allowed: the client has to log in first |
| anything else, such as a redirect to a login form, the form itself, or an error | none: the client gets 503 |
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlsplit

import msgspec
from twisted.internet.defer import Deferred, fail

from pushup import __version__
from pushup.backends.authorization import Authorizer
from pushup.backends.decision import Decision, call_failed, checked, no_decision
from pushup.backends.service_requestor import Reply, ServiceRequestor
from pushup.core.errors import BadRequest, Unauthorized

URL_LIMIT_BYTES = 8 * 1024
"""The longest request target that common web servers accept."""

FORWARDED_HEADERS = (b"authorization", b"cookie", b"origin", b"x-forwarded-for")
"""Header fields of the client that the decision may depend on."""


class UrlAuthorizer:
    """Asks at a URL."""

    def __init__(self, url: str, requestor: ServiceRequestor) -> None:
        parts = urlsplit(url)
        query = parts.query + "&" if parts.query else ""
        self._url = f"{parts.scheme}://{parts.netloc}{parts.path or '/'}?{query}"
        self._requestor = requestor

    def __call__(self, channels: tuple[str, ...], headers: Mapping[bytes, bytes]) -> Deferred[Decision]:
        url = self._url + "&".join("channel=" + quote(channel, safe="") for channel in channels)
        if len(url) > URL_LIMIT_BYTES:
            detail = f"too many channels to authorize in one poll: their URL is longer than {URL_LIMIT_BYTES} bytes"
            return fail(BadRequest(detail, field="channels"))
        forwarded = {name: headers[name] for name in FORWARDED_HEADERS if name in headers}
        forwarded[b"accept"] = b"application/json"
        forwarded[b"user-agent"] = b"PushUp/" + __version__.encode()
        return self._requestor.get(url.encode(), forwarded).addCallbacks(_decision, call_failed)

    def stop(self) -> Deferred[None]:
        return self._requestor.stop()

    def renew_connections(self) -> None:
        self._requestor.renew_connections()


_decoder = msgspec.json.Decoder(Decision)


def _decision(reply: Reply) -> Decision:
    match reply.status:
        case 401:
            raise Unauthorized("your application returned 401: the user is not logged in")
        case 403:
            decision = Decision(allow=False)
        case 204:
            decision = Decision(allow=True)
        case 200:
            decision = _decoded(reply.body)
        case status:
            raise no_decision(f"authorize_url answered {status}; expected 200, 204, 401 or 403")
    return checked(decision, "authorize_url")


def _decoded(body: bytes) -> Decision:
    """Raises: Unavailable."""
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise no_decision(
            f"authorize_url answered 200 with an unexpected body ({error}); "
            'expected {"allow": false} or {"allow": true}, with "seconds": 60 and "subject": "7" if you like'
        ) from None


_check: type[Authorizer] = UrlAuthorizer
