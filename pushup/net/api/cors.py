"""Origins of web pages: which may use this server, and what is sent so that browsers let them (CORS, Fetch standard).

A browser writes an origin in one way only: `https://example.org`, `http://localhost:3000` (RFC 6454, and the URL
standard). Origins are compared as text, so one that is written in another way would never match; `canonical_origin`
turns what people write into what browsers send.
"""

from __future__ import annotations

import re
import socket
from difflib import get_close_matches
from ipaddress import IPv6Address, ip_address

from pushup.net.requests_and_responses import Header, Request

REQUEST_HEADERS = b"authorization, content-type, idempotency-key, last-event-id, pushup-ticket, traceparent, tracestate"
"""Header fields that pages of other origins may send."""

EXPOSED = (b"Access-Control-Expose-Headers", b"Retry-After")
"""Header fields of responses that pages of other origins may read, beside those that any page may."""

PREFLIGHT_SECONDS = b"86400"
"""How long a browser may remember a preflight response."""

DEFAULT_PORTS = {"http": 80, "https": 443}
"""Left out of an origin."""

NOT_OF_PAGES = ("ws", "wss", "ftp", "file", "data", "blob", "about", "javascript")
"""Schemes of URLs whose scripts have another origin, or none."""

_ORIGIN = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]*)://(?:[^/?#\\]*@)?(\[[^]/?#\\]*\]|[^:/?#\\\[\]]*)(?::([0-9]*))?([/?#\\].*)?"
)
_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?").fullmatch
_NUMERIC = re.compile(r"(.*\.)?([0-9]+|0[xX][0-9A-Fa-f]*)\.?").fullmatch


class Origins:
    """The pages that may use this server: those of the origins in `cors_origins`, and its own."""

    def __init__(self, allowed: frozenset[str] = frozenset()) -> None:
        """`allowed` holds origins as browsers write them; `*` allows all."""
        self._allowed = allowed

    def may_publish(self, request: Request) -> bool:
        """Whether the request comes from an allowed page, from a page of this server, or from no page at all."""
        if b"origin" not in request.headers:
            return True
        origin, host = request.header(b"origin"), request.header(b"host").lower()
        if "*" in self._allowed or origin in self._allowed:
            return True
        return bool(host) and origin.lower() in (f"http://{host}", f"https://{host}")

    def is_named(self, request: Request) -> bool:
        """The same, but for pages that only `*` allows: their requests may not use what a browser sends by itself."""
        return self.may_publish(request) and ("*" not in self._allowed or Origins().may_publish(request))

    def may_read(self, request: Request) -> bool:
        """Whether pages of the request's origin may read responses."""
        return "*" in self._allowed or request.header(b"origin") in self._allowed

    def response_headers(self, request: Request) -> tuple[Header, ...]:
        """The header fields of every response to this request, which tell its browser whether the page may read it."""
        origin = request.headers.get(b"origin")
        if origin is None or not self._allowed:
            return ()
        if "*" in self._allowed:
            return ((b"Access-Control-Allow-Origin", b"*"), EXPOSED)
        if self.may_read(request):
            return (
                (b"Access-Control-Allow-Origin", origin),
                (b"Access-Control-Allow-Credentials", b"true"),
                EXPOSED,
                (b"Vary", b"Origin"),
            )
        return ((b"Vary", b"Origin"),)


def preflight_headers(request: Request, methods: bytes) -> tuple[Header, ...]:
    """The header fields for a browser that asks, by OPTIONS, which requests a page may send; `methods` as in Allow."""
    if b"access-control-request-method" not in request.headers:
        return ()
    return (
        (b"Access-Control-Allow-Methods", methods),
        (b"Access-Control-Allow-Headers", REQUEST_HEADERS),
        (b"Access-Control-Max-Age", PREFLIGHT_SECONDS),
    )


def canonical_origin(text: str) -> str:
    """The origin that a browser sends for pages under this URL.

    Raises: ValueError, which says what to write instead, when the text has no such origin.
    """
    text = text.strip()
    if text.lower() == "null":
        raise ValueError(
            "any page can hide its origin and send 'null'; write the origin of your page, such as https://example.org"
        )
    if not text.isascii():
        raise ValueError(f"{text!r} is not ASCII; write what location.origin shows in the browser's console")
    if not text.isprintable() or " " in text:
        raise ValueError(f"{text!r} is not one origin; write several as a list, or separated by commas")
    if "*" in text:
        raise ValueError(f"{text!r}: use * alone to allow all origins, or write each origin in full")
    if "://" not in text and re.match(r"https?[:/]", text, re.IGNORECASE):
        raise _not_an_origin(text)
    if "://" not in text:
        raise ValueError(f"{text!r} has no scheme; write {_with_scheme(text)!r}")
    match = _ORIGIN.fullmatch(text)
    if match is None:
        raise _not_an_origin(text)
    scheme = match[1].lower()
    if scheme in NOT_OF_PAGES or (scheme not in DEFAULT_PORTS and get_close_matches(scheme, DEFAULT_PORTS)):
        raise ValueError(f"{text!r}: no page has an origin with {scheme}://; write http:// or https://")
    try:
        host = _canonical_host(match[2].lower())
    except (ValueError, OSError):
        raise _not_an_origin(text) from None
    port = int(match[3]) if match[3] else None
    if port is not None and port > 65535:
        raise _not_an_origin(text)
    return f"{scheme}://{host}" if port in (None, DEFAULT_PORTS.get(scheme)) else f"{scheme}://{host}:{port}"


def _canonical_host(host: str) -> str:
    """Raises: ValueError, OSError."""
    if host.startswith("["):
        address = IPv6Address(host[1:-1])
        return host if address.ipv4_mapped else f"[{address.compressed}]"
    if _NUMERIC(host):
        return socket.inet_ntoa(socket.inet_aton(host.rstrip(".")))
    if not _HOST(host):
        raise ValueError
    return host


def _with_scheme(text: str) -> str:
    """The text with the scheme that is probably meant."""
    text = text.lstrip("/")
    host = re.split(r"/|:[0-9]*(?:/|$)", text)[0].lower()
    try:
        local = ip_address(host.strip("[]")).is_private
    except ValueError:
        local = host == "localhost"
    try:
        return canonical_origin(f"{'http' if local else 'https'}://{text}")
    except ValueError:
        return "https://example.org"


def _not_an_origin(text: str) -> ValueError:
    return ValueError(f"{text!r} is not an origin; write scheme://host or scheme://host:port, as https://example.org")
