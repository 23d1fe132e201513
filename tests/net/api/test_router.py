"""Routing: path and method to handler."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from pushup.core.errors import BadRequest
from pushup.core.grant import NOTHING, Grant
from pushup.net.api.router import Call, Router
from pushup.net.application_interface import Exchange
from pushup.net.http_errors import MethodNotAllowed, UnknownResource
from pushup.net.requests_and_responses import Request
from tests.net.in_memory_node import RecordingExchange


def _handler(name: object, request: Request, argument: Any, exchange: Exchange, grant: Grant) -> None:
    raise LookupError(name)


TABLE = (
    Call("GET", "/things", partial(_handler, "list")),
    Call("POST", "/things", partial(_handler, "add"), "publish", 1000),
    Call("DELETE", "/things/{channel}", partial(_handler, "remove"), "publish"),
    Call("GET", "/things/{channel}/parts", partial(_handler, "parts")),
)


@pytest.fixture
def router() -> Router:
    return Router(TABLE)


def _found(router: Router, method: bytes, target: bytes) -> tuple[object, Any, int | None]:
    """The name of the handler, its argument, and the limit of the body."""
    request = Request(method, target, {}, keep_alive=True)
    call, argument = router.find(request)
    with pytest.raises(LookupError) as raised:
        call.handler(request, argument, RecordingExchange(), NOTHING)
    return raised.value.args[0], argument, call.body_limit_bytes


@pytest.mark.parametrize(
    ("method", "target", "found"),
    [
        (b"GET", b"/things", ("list", b"", None)),
        (b"HEAD", b"/things?a=b?c", ("list", b"a=b?c", None)),
        (b"POST", b"/things", ("add", b"", 1000)),
        (b"DELETE", b"/things/a%2Fb?q", ("remove", "a/b", None)),
        (b"DELETE", b"/things/parts", ("remove", "parts", None)),
        (b"HEAD", b"/things/caf%C3%A9/parts", ("parts", "café", None)),
    ],
)
def test_calls_are_found(router: Router, method: bytes, target: bytes, found: tuple[object, Any, int | None]) -> None:
    """By path and method, with the channel from the path or the query; HEAD is routed like GET."""
    assert _found(router, method, target) == found


@pytest.mark.parametrize(
    ("target", "allowed"),
    [
        (b"/things", b"GET, HEAD, POST, OPTIONS"),
        (b"/things/a", b"DELETE, OPTIONS"),
        (b"*", b"OPTIONS"),
    ],
)
def test_options_are_answered_everywhere(router: Router, target: bytes, allowed: bytes) -> None:
    """With the methods that the path takes."""
    request, exchange = Request(b"OPTIONS", target, {}, keep_alive=True), RecordingExchange()
    call, argument = router.find(request)
    call.handler(request, argument, exchange, NOTHING)
    (response,) = exchange.responses
    assert (response.status, response.headers) == (204, ((b"Allow", allowed),))


@pytest.mark.parametrize(
    ("method", "target", "error"),
    [
        (b"GET", b"/thing", UnknownResource),
        (b"GET", b"/things/a/parts/b", UnknownResource),
        (b"GET", b"/things//parts", BadRequest),
        (b"GET", b"/things/%FF/parts", BadRequest),
        (b"GET", b"things", BadRequest),
        (b"GET", b"*", BadRequest),
        (b"PUT", b"/things", MethodNotAllowed),
        (b"GET", b"/things/a", MethodNotAllowed),
    ],
)
def test_unknown_paths_and_methods(router: Router, method: bytes, target: bytes, error: type[Exception]) -> None:
    """A path or method that is not in the table, or an invalid channel name."""
    with pytest.raises(error):
        router.find(Request(method, target, {}, keep_alive=True))


def test_the_methods_of_a_path_are_listed(router: Router) -> None:
    """In the error and for the Allow header field."""
    with pytest.raises(MethodNotAllowed, match="/things takes GET or POST, not PUT") as raised:
        router.find(Request(b"PUT", b"/things", {}, keep_alive=True))
    assert raised.value.allow == "GET, HEAD, POST, OPTIONS"
