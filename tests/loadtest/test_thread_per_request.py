"""The multithreaded server that PushUp is compared with responds exactly like PushUp."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from typing import Any, NamedTuple

import pytest

from loadtest.load.servers import Server, running

THREADS = "loadtest.liu.thread_per_request"


class Call(NamedTuple):
    """A request. `{cursor}` in its target stands for the latest cursor; `held`: it is held until the next call."""

    method: str
    target: str
    body: Any = None
    held: bool = False


CONVERSATION = (
    Call("GET", "/healthz"),
    Call("GET", "/readyz"),
    Call("GET", "/v1/cursor"),
    Call("HEAD", "/v1/cursor"),
    Call("GET", "/v1/poll?channel=a&channel=b&cursor={cursor}&timeout=0"),
    Call("POST", "/v1/messages", {"channels": ["a", "b"], "data": {"n": 1.50}}),
    Call("GET", "/v1/poll?channel=a&channel=b"),
    Call("GET", "/v1/poll?channel=b&cursor={cursor}&timeout=9", held=True),
    Call("POST", "/v1/messages", {"messages": [{"channels": ["b"], "data": 2}, {"channels": ["c"], "data": 3}]}),
    Call("GET", "/v1/poll?channel=c&limit=1"),
    Call("GET", "/v1/poll?channel=c&cursor={cursor}&timeout=0.3"),
    Call("POST", "/v1/poll", {"channels": ["a", "c"], "cursor": ""}),
    Call("POST", "/v1/messages", {"channels": ["b"], "data": 4, "ack": "stable"}),
    Call("GET", "/v1/poll"),
    Call("GET", "/v1/poll?channel=a&timeout=soon"),
    Call("POST", "/v1/messages", {"channels": []}),
    Call("PUT", "/v1/messages", {}),
    Call("GET", "/nowhere"),
    Call("POST", "/v1/channels", {"name": "d"}),
    Call("GET", "/v1/channels/d"),
)


@pytest.fixture(scope="module", params=["connection", "request"])
def threads(request: pytest.FixtureRequest) -> Iterator[Server]:
    """With a thread for each connection, and with one for each request."""
    with running("--thread-for", request.param, module=THREADS) as server:
        yield server


def test_it_answers_as_pushup_does(threads: Server) -> None:
    """The same calls get the same statuses, header fields and JSON, except for ids and times."""
    with running() as pushup:
        expected, found = _converse(pushup), _converse(threads)
    assert len(found) == len(CONVERSATION)
    for call, theirs, ours in zip(CONVERSATION, expected, found, strict=True):
        assert ours == theirs, call
    assert [status for status, _, _ in found].count(200) == 11
    held_status, _, held = found[7]
    assert held_status == 200
    assert held["messages"] == [{"id": "E-2", "time": 0.0, "channels": ["b"], "data": 2}]


def test_each_held_request_has_a_thread() -> None:
    """There is one more thread for each held request, and it ends with its connection."""
    with running(module=THREADS) as server, ExitStack() as stack:  # no thread of another test is just ending
        before = server.usage.thread_count()
        polls = [stack.enter_context(closing(HTTPConnection(*server.address))) for _ in range(20)]
        for poll in polls:
            poll.request("GET", "/v1/poll?channel=a&timeout=30")
        _until(lambda: server.usage.thread_count() == before + 20)
        with closing(HTTPConnection(*server.address)) as publisher:
            assert _call(publisher, Call("POST", "/v1/messages", {"channels": ["a"], "data": 1}), "")[0] == 201
        for poll in polls:
            assert [message["data"] for message in json.loads(poll.getresponse().read())["messages"]] == [1]
            poll.close()
        _until(lambda: server.usage.thread_count() == before)


def test_a_thread_for_a_request_ends_with_it() -> None:
    """A connection that is kept has no thread between two requests; with a thread for each connection, it has one."""
    for thread_for, between in (("connection", 1), ("request", 0)):
        with (
            running("--thread-for", thread_for, module=THREADS) as server,
            closing(HTTPConnection(*server.address)) as kept,
        ):
            before = server.usage.thread_count()
            for _ in range(3):
                assert _call(kept, Call("GET", "/v1/poll?channel=nothing&timeout=0.1"), "")[0] == 200
            _until(lambda server=server, most=before + between: server.usage.thread_count() <= most)
            assert server.usage.thread_count() == before + between


def test_a_malformed_request_is_refused(threads: Server) -> None:
    """It is answered with 400, and its connection is closed; other connections continue."""
    with socket.create_connection(threads.address) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        data = b"".join(iter(lambda: sock.recv(4096), b""))
    assert data.startswith(b"HTTP/1.1 400 ")
    assert b"the Host header is missing" in data
    with closing(HTTPConnection(*threads.address)) as connection:
        assert _call(connection, Call("GET", "/healthz"), "")[0] == 200


def test_a_head_request_has_no_body(threads: Server) -> None:
    """The response has only its length; the connection is closed if the client asks for it."""
    with socket.create_connection(threads.address) as sock:
        sock.sendall(b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        data = b"".join(iter(lambda: sock.recv(4096), b""))
    assert data.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 18\r\n" in data
    assert data.endswith(b"\r\n\r\n")


def _converse(server: Server) -> list[tuple[int, list[str], Any]]:
    """Status, header names and JSON of each response, with the parts of the JSON that vary replaced."""
    found: list[Any] = []
    waiting = None
    cursor = ""
    with (
        ThreadPoolExecutor(1) as pool,
        closing(HTTPConnection(*server.address)) as connection,
        closing(HTTPConnection(*server.address)) as holding,
    ):
        for call in CONVERSATION:
            if call.held:
                waiting = (len(found), pool.submit(_call, holding, call, cursor))
                found.append(None)
                time.sleep(0.3)
                assert not waiting[1].done()
                continue
            status, headers, body = _call(connection, call, cursor)
            if status == 200 and isinstance(body, dict) and "cursor" in body:
                cursor = body["cursor"]
            found.append((status, headers, body))
            if waiting is not None:
                found[waiting[0]] = waiting[1].result(5)
                waiting = None
    return [(status, headers, _alike(body)) for status, headers, body in found]


def _call(connection: HTTPConnection, call: Call, cursor: str) -> tuple[int, list[str], Any]:
    body = None if call.body is None else json.dumps(call.body)
    connection.request(call.method, call.target.replace("{cursor}", cursor), body)
    response = connection.getresponse()
    data = response.read()
    return response.status, sorted(response.headers), json.loads(data) if data else None


def _alike(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _alike(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_alike(item, name) for item in value]
    if name in ("time", "expires") or (name == "id" and isinstance(value, int)):
        return type(value)()
    if name in ("cursor", "id", "ids"):
        return re.sub(r"^[0-9a-f]{8,20}-", "E-", value)
    return value


def _until(condition: Any) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
