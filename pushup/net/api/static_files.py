"""Files of this release that are served as they are: read once, compressed for who takes that, with a tag."""

from __future__ import annotations

import gzip
import hashlib
from functools import cached_property
from importlib.resources import files

from pushup.net.requests_and_responses import Header, Request, Response

CONTENT_TYPES = {
    "html": b"text/html; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "css": b"text/css; charset=utf-8",
}

CACHE_CONTROL = b"no-cache"
"""A browser may keep it, and asks each time whether it is still the same."""

CODINGS_LIMIT = 16
"""Codings of an `Accept-Encoding` that are read; browsers send four."""


class StaticFile:
    """One file, read when it is first asked for."""

    def __init__(self, package: str, name: str) -> None:
        self._path = files(package).joinpath(name)
        self._content_type = CONTENT_TYPES[name.rpartition(".")[2]]

    def response(self, request: Request, headers: tuple[Header, ...] = ()) -> Response:
        """The file, or that the browser has it already; with these header fields."""
        headers = ((b"ETag", self._tag), (b"Vary", b"Accept-Encoding, Origin"), *headers)
        known = request.headers.get(b"if-none-match", b"")
        if self._tag in known or known == b"*":  # a tag has its quotation marks, and can be part of no other
            return Response(304, headers=headers, cache_control=CACHE_CONTROL)
        body = self._plain
        if _takes_gzip(request.header(b"accept-encoding")):
            body, headers = self._zipped, (*headers, (b"Content-Encoding", b"gzip"))
        return Response(200, body, self._content_type, headers, CACHE_CONTROL)

    @cached_property
    def _plain(self) -> bytes:
        return self._path.read_bytes()

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
