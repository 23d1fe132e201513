"""Asks the web backend who may poll what: `GET <url>?channel=a&channel=b`, with the client's cookies.

| reply | verdict |
|---|---|
| 204, 200 `{"allow": true}` | yes |
| 200 `{"allow": true, "seconds": 60}` | yes, for so long |
| 200 `{"allow": false}`, 403 | no |
| 401 | no, not before the client has logged in |
| anything else: a redirection to a log-in form, the form itself, a fault | none |
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct
from twisted.internet.defer import Deferred, fail

from pushup import __version__
from pushup.backends.authorization import Ask
from pushup.backends.service_requestor import Reply, ServiceRequestor
from pushup.backends.verdict import for_seconds, no_verdict, nonsense, not_allowed, not_logged_in
from pushup.core.errors import BadRequest

URL_LIMIT_BYTES = 8 * 1024
"""What web servers take for a request target."""

PASSED_ON = (b"authorization", b"cookie", b"origin", b"x-forwarded-for")
"""Header fields of the client that the verdict may depend on."""


class WebBackend:
    """Asks at a URL."""

    def __init__(self, url: str, requestor: ServiceRequestor) -> None:
        parts = urlsplit(url)
        query = parts.query + "&" if parts.query else ""
        self._url = f"{parts.scheme}://{parts.netloc}{parts.path or '/'}?{query}"
        self._requestor = requestor

    def __call__(self, channels: tuple[str, ...], headers: Mapping[bytes, bytes]) -> Deferred[float | None]:
        url = self._url + "&".join("channel=" + quote(channel, safe="") for channel in channels)
        if len(url) > URL_LIMIT_BYTES:
            return fail(BadRequest(f"the channels make a URL of over {URL_LIMIT_BYTES} bytes", field="channels"))
        passed_on = {name: headers[name] for name in PASSED_ON if name in headers}
        passed_on[b"accept"] = b"application/json"
        passed_on[b"user-agent"] = b"PushUp/" + __version__.encode()
        return self._requestor.get(url.encode(), passed_on).addCallback(_verdict)


class _Verdict(Struct, forbid_unknown_fields=True):
    allow: bool
    seconds: float | None = None


_decoder = msgspec.json.Decoder(_Verdict)


def _verdict(reply: Reply) -> float | None:
    match reply.status:
        case 401:
            raise not_logged_in()
        case 403:
            raise not_allowed()
        case 204:
            return None
        case 200:
            pass
        case status:
            raise nonsense(f"with status {status}")
    try:
        verdict = _decoder.decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        cause = ValueError(f"it answered with a body that is no verdict: {error}")
        raise no_verdict(cause) from cause
    if not verdict.allow:
        raise not_allowed()
    return None if verdict.seconds is None else for_seconds(verdict.seconds)


_check: type[Ask] = WebBackend
