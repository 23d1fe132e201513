"""What the request parser reads from bytes, however they are split."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from pushup.core.errors import BadRequest, PushUpError
from pushup.net.edge_limits import RequestLimits
from pushup.net.http1 import RequestParser
from pushup.net.http_errors import SpokeTls
from pushup.net.known_heads import KnownHeads
from pushup.net.request_line import piece_end
from pushup.net.requests_and_responses import Request

SMALL = RequestLimits(target_limit_bytes=30, header_limit_bytes=120, body_limit_bytes=40)
AMPLE = RequestLimits()
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


class Reading(NamedTuple):
    """The requests read from bytes, and the error; `late` counts the bytes between the last request and the error."""

    requests: list[tuple[bytes, bytes, Mapping[bytes, bytes], bool, bytes]]
    error: type[PushUpError] | None
    late: int


def read(parts: list[bytes], limits: RequestLimits, known: KnownHeads | None = None) -> Reading:
    """Feed all the parts to one parser, up to the first error or the last request. `known`: what came before."""
    parser = RequestParser(limits, known=known)
    requests: list[Request] = []
    failed: type[PushUpError] | None = None
    late = 0
    for part in parts:
        late += len(part)
        try:
            found = parser.feed(part)
        except PushUpError as error:
            found = parser.requests
            # SpokeTls is a more specific BadRequest, raised when a read begins with a TLS handshake.
            failed = BadRequest if isinstance(error, SpokeTls) else type(error)
        if found:
            late = len(part)
        requests += found
        if failed or parser.ended:
            break
    return Reading([(r.method, r.target, r.headers, r.keep_alive, r.body) for r in requests], failed, late)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The data, split at these offsets."""
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(ends)]


def pieces(data: bytes, *, is_idle: bool = False) -> list[bytes]:
    """What llhttp reads at a time of bytes that are of no body with a length; if `is_idle`, of request lines."""
    found, begin = [], 0
    while begin < len(data):
        end = piece_end(data, begin, 0, is_idle=is_idle)
        found.append(data[begin:end])
        begin = end
    return found


def knowing(data: bytes, limits: RequestLimits) -> KnownHeads:
    """What is remembered after this has come whole, and each of its line ends as the end of a head."""
    known = KnownHeads(limits)
    read([data], limits, known)
    for end in line_ends(data):
        read([data[:end] + b"\r\n\r\n"], limits, known)
        read([data[:end] + b"\r\n"], limits, known)
    return known


def line_ends(data: bytes) -> list[int]:
    """The offsets before and behind each line end."""
    return sorted({place for match in re.finditer(rb"\r?\n|\r", data) for place in match.span()})
