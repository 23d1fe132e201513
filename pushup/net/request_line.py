"""What llhttp leaves open in a request line: targets in absolute form, and two spaces in a row.

It accepts both, and tells us neither. Another server may take what is before the second space for the target.
"""

from __future__ import annotations

import re

from pushup.core.errors import BadRequest

is_host = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+;=%-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?").fullmatch
"""Whether this is a host and port; may be empty (RFC 9112 §3.2, RFC 3986 §3.2.2). Never a comma, which joins repeated
fields."""

_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?#]*)(.*)").fullmatch

_LINE_ENDS = re.compile(rb"[\r\n]+").match

_EMPTY_LINE = re.compile(rb"\n[\r\n]*\n").search
"""One or more empty lines, with the end of the line before them."""


def path_of(target: bytes, headers: dict[bytes, bytes]) -> bytes:
    """The path and query of a target in absolute form (RFC 9112 §3.2.2).

    The target's authority counts; a client must send the same as Host, so another one is refused. HTTP/1.0 may send
    none; then it is added to `headers`. Raises: BadRequest.
    """
    match = _ABSOLUTE(target)
    if match is None:
        raise BadRequest("the request target is not a path; it must begin with /, such as /v1/poll")
    host, path = match.groups()
    if not host or not is_host(host):
        raise BadRequest("malformed host in the request target; send only the path, such as /v1/poll")
    if headers.setdefault(b"host", host).lower() != host.lower():
        raise BadRequest("the request target names another host than the Host header; send only the path")
    return path if path.startswith(b"/") else b"/" + path


def is_usual(data: bytes) -> bool:
    """Whether there are no two spaces in a row, and the last line end is that of an empty line. O(bytes).

    Then llhttp may have all of it: a request whose head is incomplete afterwards is in its first line.
    """
    return b"  " not in data and data.endswith(b"\r\n\r\n", 0, data.rfind(b"\n") + 1)


def piece_end(data: bytes, begin: int, left: int, *, is_idle: bool) -> int:
    """How far llhttp may read from `begin` on, so that a request line is always a piece of its own. O(bytes).

    `left`: how many bytes are certainly of a body. `is_idle`: a request line comes next, perhaps behind empty lines.
    Else the next one can only come behind an empty line, with which a head ends, and a chunked body.
    """
    if left:
        return min(begin + left, len(data))
    if is_idle and (skipped := _LINE_ENDS(data, begin)):
        return skipped.end()
    if is_idle or not begin:  # the line before may have ended with the last read
        return data.find(b"\n", begin) + 1 or len(data)
    found = _EMPTY_LINE(data, begin - 1)  # from the end of the line before, which is a piece
    return found.end() if found else len(data)
