"""`GET /v1/pushup.js`, and the modules for answers: the browser client, as it is in this release.

Pages of any origin may load it: where it may read nothing else, it at least runs, and the page can say so.
"""

from __future__ import annotations

from pushup.core.grant import Grant
from pushup.net.api.cors import Origins
from pushup.net.api.static_files import StaticFile
from pushup.net.application_interface import Exchange
from pushup.net.requests_and_responses import Request

ANY_ORIGIN = (b"Access-Control-Allow-Origin", b"*")


NAMES = ("pushup.js", "answers.js", "ai-sdk.js")
"""Modules that import none but each other."""


class Script:
    """One of them."""

    def __init__(self, name: str, origins: Origins) -> None:
        self._file = StaticFile("pushup.browser", name)
        self._origins = origins

    def show(self, request: Request, query: bytes, exchange: Exchange, grant: Grant) -> None:
        is_foreign = b"origin" in request.headers and not self._origins.may_read(request)
        exchange.respond(self._file.response(request, (ANY_ORIGIN,) if is_foreign else ()))
