"""What llhttp leaves open in a request line: targets in absolute form, and two spaces in a row.

It accepts both, and tells us neither. Another server may take what is before the second space for the target.
"""

from __future__ import annotations

import re
from itertools import pairwise

from pushup.core.errors import BadRequest

_HOST = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+;=%-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?").fullmatch
"""A host and port; may be empty (RFC 9112 §3.2, RFC 3986 §3.2.2). Never a comma, which joins repeated fields."""

_LINE = re.compile(rb"[A-Z] +[^ \n]+ +[A-Z]+/[0-9]\.[0-9]\r?\n").finditer
"""Complete request lines, from the last letter of the method on. What is before it may end a body. O(bytes)."""

_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?#]*)(.*)").fullmatch


def is_host(host: bytes) -> bool:
    """Whether this is a valid Host."""
    return _HOST(host) is not None


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


def pieces(data: bytes, left: int) -> list[bytes]:
    """The data, cut so that these are pieces of their own: the first line, an incomplete last line, and each line that
    ends like a request line with two spaces in a row. O(bytes).

    `left`: how many of the first bytes are certainly of a body; these are one piece. Llhttp takes 3 us for a piece, so
    other lines with two spaces are not cut: a body may have a thousand in each read.
    """
    if left >= len(data):
        return [data]
    cuts = [0, left, data.find(b"\n", left) + 1 or len(data)]
    for line in _LINE(data, left):
        if b"  " in line[0]:
            cuts += (_line_before(data, cuts[-1], line.start()), line.end())
    cuts += (_line_before(data, cuts[-1], len(data)), len(data))
    return [data[begin:end] for begin, end in pairwise(cuts) if begin < end]


def has_two_spaces(piece: bytes) -> bool:
    """Whether this piece, which begins with a request line, has two spaces in that line. `pieces` never leaves such a
    line in a piece with others.
    """
    return b"  " in piece and b"\n" not in piece[:-1]


def _line_before(data: bytes, begin: int, end: int) -> int:
    """Where the last line in these bytes begins."""
    return max(begin, data.rfind(b"\n", begin, end) + 1)
