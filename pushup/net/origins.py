"""Origins as browsers send them: `https://example.org`, `http://localhost:3000` (RFC 6454, and the URL standard).

A browser writes an origin in one way only, and origins are compared as text. So an origin that is written in another
way never matches, and is refused where it is set.
"""

from __future__ import annotations

import re
import socket
from difflib import get_close_matches
from ipaddress import IPv6Address, ip_address

DEFAULT_PORTS = {"http": 80, "https": 443}
"""Left out of an origin."""

NOT_OF_PAGES = ("ws", "wss", "ftp", "file", "data", "blob", "about", "javascript")
"""Schemes of URLs whose scripts have another origin, or none."""

_ORIGIN = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]*)://(?:[^/?#\\]*@)?(\[[^]/?#\\]*\]|[^:/?#\\\[\]]*)(?::([0-9]*))?([/?#\\].*)?"
)
_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?").fullmatch
_NUMERIC = re.compile(r"(.*\.)?([0-9]+|0[xX][0-9A-Fa-f]*)\.?").fullmatch


def canonical_origin(text: str) -> str:
    """The origin that a browser sends for pages under this URL.

    Raises: ValueError, which says what to write instead, where no such origin can be found in the text.
    """
    text = text.strip()
    if text.lower() == "null":
        raise ValueError(
            "'null' is what any page can send that hides its origin; write the origin of your page, "
            "such as https://example.org"
        )
    if not text.isascii():
        raise ValueError(f"{text!r} is not ASCII; write what location.origin says in the console of a browser")
    if not text.isprintable() or " " in text:
        raise ValueError(f"{text!r} is not one origin; write several as a list, or separated by commas")
    if "*" in text:
        raise ValueError(f"{text!r}: a * stands alone, for all origins; write each origin in full otherwise")
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
