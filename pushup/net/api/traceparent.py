"""`traceparent`: the trace that a request belongs to, as its sender says (W3C Trace Context, §3.2)."""

from __future__ import annotations

import re

from pushup.net.requests_and_responses import Request

_VALID = re.compile(rb"(?!ff)([0-9a-f]{2})-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?").fullmatch

_LENGTH = 55
"""Of version 00. Later versions may have more behind that, whose meaning is not known here."""


def traceparent_of(request: Request) -> str:
    """The request's `traceparent`; empty if it has none, or one that is not valid, which counts as none."""
    value = request.headers.get(b"traceparent")
    found = None if value is None else _VALID(value)
    if value is None or found is None or (found[1] == b"00" and found[2]):
        return ""
    return value[:_LENGTH].decode()
