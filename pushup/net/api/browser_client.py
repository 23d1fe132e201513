"""`GET /v1/pushup.js`, and the modules for answers: the browser client, as it is in this release.

Pages of any origin may load it: where it may read nothing else, it at least runs, and the page can say so.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import cached_property
from importlib.resources import files

from pushup.core.grant import Grant
from pushup.net.api.cors import Origins
from pushup.net.application_interface import Exchange
from pushup.net.requests_and_responses import Header, Request, Response

CONTENT_TYPE = b"text/javascript; charset=utf-8"

CACHE_CONTROL = b"no-cache"
"""A browser may keep it, and asks each time whether it is still the same."""

CODINGS_LIMIT = 16
"""Codings of an `Accept-Encoding` that are read; browsers send four."""

ANY_ORIGIN = (b"Access-Control-Allow-Origin", b"*")


NAMES = ("pushup.js", "answers.js", "ai-sdk.js")
"""Modules that import none but each other."""


class Script:
    """One file, read when it is first asked for."""

    def __init__(self, name: str, origins: Origins) -> None:
        self._name = name
        self._origins = origins

    def show(self, request: Request, query: bytes, exchange: Exchange, grant: Grant) -> None:
        headers: tuple[Header, ...] = ((b"ETag", self._tag), (b"Vary", b"Accept-Encoding, Origin"))
        if b"origin" in request.headers and not self._origins.may_read(request):
            headers = (*headers, ANY_ORIGIN)
        known = request.headers.get(b"if-none-match", b"")
        if self._tag in known or known == b"*":  # a tag has its quotation marks, and can be part of no other
            exchange.respond(Response(304, headers=headers, cache_control=CACHE_CONTROL))
            return
        body = self._plain
        if _takes_gzip(request.header(b"accept-encoding")):
            body, headers = self._zipped, (*headers, (b"Content-Encoding", b"gzip"))
        exchange.respond(Response(200, body, CONTENT_TYPE, headers, CACHE_CONTROL))

    @cached_property
    def _plain(self) -> bytes:
        return files("pushup.browser").joinpath(self._name).read_bytes()

    @cached_property
    def _zipped(self) -> bytes:
        return gzip.compress(self._plain, mtime=0)

    @cached_property
    def _tag(self) -> bytes:
        """Weak, because both encodings have the same."""
        return b'W/"%b"' % hashlib.sha256(self._plain).hexdigest()[:16].encode()


def _takes_gzip(accept_encoding: str) -> bool:
    parts = [part.replace(" ", "").lower() for part in accept_encoding.split(",", CODINGS_LIMIT)[:CODINGS_LIMIT]]
    return any(part.partition(";")[0] in ("gzip", "*") and not part.endswith(";q=0") for part in parts)
