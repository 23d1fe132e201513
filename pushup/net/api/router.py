"""Path and method -> the call that answers them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from twisted.internet.defer import Deferred

from pushup.core.errors import BadRequest, PushUpError
from pushup.core.grant import Grant, Right
from pushup.net.api.bodies import check_name
from pushup.net.api.cors import preflight_headers
from pushup.net.api.suggestions import shown_name
from pushup.net.application_interface import NO_ROUTE, Exchange
from pushup.net.http_errors import MethodNotAllowed, UnknownResource
from pushup.net.requests_and_responses import Request, Response

Handler = Callable[[Request, Any, Exchange, Grant], Deferred[None] | None]
"""Answers a request, now or later. Its second argument is the name or id in the path, or else the query string. A
Deferred is only of interest when it fails: then the request is answered with its error."""

CHANNEL = b"{channel}"
"""Stands for one percent-encoded segment of a path, as does `{id}`."""

PATH_LIMIT = 100
"""Characters of an unknown path that is compared with the known ones."""

_SYNONYMS = {
    "publish": "/v1/messages",
    "send": "/v1/messages",
    "listen": "/v1/poll",
    "sse": "/v1/events",
    "stream": "/v1/events",
    "subscribe": "/v1/poll",
    "alive": "/healthz",
    "livez": "/healthz",
    "ping": "/healthz",
    "status": "/readyz",
}
"""Last segments of paths that other services have, and what they are called here."""


class Call(NamedTuple):
    """A line in the table of calls; one with `GET` answers HEAD, too."""

    method: str
    path: str
    handler: Handler
    requires: Right | None = None
    """What the request must be allowed to do; None: everybody may call it."""
    body_limit_bytes: int | None = None
    """None: as that of polls."""

    @property
    def is_counted(self) -> bool:
        """Whether it counts as a request before its handler runs. Polls and streams count when they are read or
        refused, and requests for health and metrics never do."""
        return self.path.startswith("/v1/") and self.requires != "read"


class Router:
    """Finds calls. O(1) for a path without a name in it."""

    def __init__(self, calls: Iterable[Call]) -> None:
        paths: dict[str, dict[bytes, Call]] = {"*": {}}
        for call in calls:
            methods = paths.setdefault(call.path, {})
            methods[call.method.encode()] = call
            if call.method == "GET":
                methods[b"HEAD"] = call
        for path, methods in paths.items():
            methods[b"OPTIONS"] = Call("OPTIONS", path, partial(_options, b", ".join((*methods, b"OPTIONS"))))
        self._exact = {path.encode(): methods for path, methods in paths.items() if "{" not in path}
        self._patterns = {tuple(path.encode().split(b"/")): methods for path, methods in paths.items() if "{" in path}
        self._paths = {path: _listed(methods) for path, methods in paths.items() if path != "*"}

    def find(self, request: Request) -> tuple[Call, Any]:
        """The call that a request is for; and the name or id in its path, or else the query string.

        Raises: UnknownResource, MethodNotAllowed, BadRequest.
        """
        target = request.target
        path, _, query = (target if target.startswith(b"/") else _asterisk(request)).partition(b"?")
        argument: Any = query
        methods = self._exact.get(path)
        if methods is None:
            argument, methods = self._find_pattern(path)
        call = methods.get(request.method)
        if call is None:
            raise _not_allowed(request.method, methods)
        return call, argument

    def route(self, request: Request | None) -> str:
        """The path in the table of calls that a request is for, for metrics."""
        try:
            return NO_ROUTE if request is None else self.find(request)[0].path
        except PushUpError:
            return NO_ROUTE

    def _find_pattern(self, path: bytes) -> tuple[str, dict[bytes, Call]]:
        """Raises: UnknownResource, BadRequest."""
        parts = path.split(b"/")
        for pattern, methods in self._patterns.items():
            if len(parts) == len(pattern) and all(_fits(*pair) for pair in zip(pattern, parts, strict=True)):
                place = next(n for n, part in enumerate(pattern) if part.startswith(b"{"))
                return _name(parts[place], pattern[place].decode().strip("{}")), methods
        raise UnknownResource(_not_found(path.decode(errors="replace"), self._paths))


def _options(methods: bytes, request: Request, argument: Any, exchange: Exchange, grant: Grant) -> None:
    """Which methods a path takes; browsers ask before they send a page's request (CORS)."""
    exchange.respond(Response(204, headers=((b"Allow", methods), *preflight_headers(request, methods))))


def _fits(pattern: bytes, segment: bytes) -> bool:
    return pattern in (segment, CHANNEL) or (pattern.startswith(b"{") and segment != b"")


def _name(segment: bytes, field: str) -> str:
    """Raises: BadRequest."""
    try:
        name = unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise BadRequest(f"the {field} in the path is not UTF-8", field=field) from None
    return check_name(name, field) if field == "channel" else name


def _asterisk(request: Request) -> bytes:
    """The target `*` of OPTIONS (RFC 9112 §3.2.4). Raises: BadRequest."""
    if request.target == b"*" and request.method == b"OPTIONS":
        return request.target
    raise BadRequest("the request target is not a path; it must begin with /, such as /v1/poll")


def _listed(methods: Iterable[bytes]) -> str:
    """The methods of a path as an error names them, without HEAD and OPTIONS."""
    return " or ".join(method.decode() for method in methods if method not in (b"HEAD", b"OPTIONS"))


def _not_allowed(method: bytes, methods: dict[bytes, Call]) -> MethodNotAllowed:
    path = next(iter(methods.values())).path
    return MethodNotAllowed(
        f"{path} takes {_listed(methods)}, not {method.decode('latin-1')}", allow=b", ".join(methods).decode()
    )


def _not_found(path: str, known: dict[str, str]) -> str:
    """The detail of a 404, with the call that was probably meant; `known`: paths and their methods."""
    shown = shown_name(path)
    meant = _meant_path(path, tuple(known))
    if meant is None:
        return f"there is nothing at {shown}; publish with POST /v1/messages, and poll with GET /v1/poll?channel=news"
    hint = " In a channel's name, write / as %2F." if meant.endswith(CHANNEL.decode()) and path.count("/") > 3 else ""
    return f"there is nothing at {shown}; did you mean {known[meant]} {meant}?{hint}"


def _meant_path(path: str, known: tuple[str, ...]) -> str | None:
    parts = path.lower().rstrip("/").split("/")
    if len(parts) > 3 and parts[2].startswith("channel"):
        parts[3] = CHANNEL.decode()
    tried = "/".join(parts)
    for whole in known:
        if tried.endswith(whole) or "/v1" + tried == whole:
            return whole
    if parts[-1] in _SYNONYMS and CHANNEL.decode() not in parts:
        return _SYNONYMS[parts[-1]]
    if len(tried) > PATH_LIMIT:
        return None
    return next(iter(get_close_matches(tried, known, 1)), None)  # in 0.3 ms at most
