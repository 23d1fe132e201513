"""`GET /v1/pushup.js`: the file, its tag, its encodings, and who may load it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import pushup
from tests.net.in_memory_node import InMemoryNode
from tests.net.in_memory_server import InMemoryServer

FILE = Path(pushup.__file__).parent / "browser" / "pushup.js"


@pytest.fixture
def node() -> InMemoryNode:
    return InMemoryNode()


@pytest.mark.parametrize("name", ["pushup.js", "answers.js", "ai-sdk.js"])
def test_the_file_is_served_as_it_is(node: InMemoryNode, name: str) -> None:
    """As a module, which browsers keep and ask about."""
    (response,) = node.begin("GET", f"/v1/{name}").responses
    assert (response.status, response.content_type) == (200, b"text/javascript; charset=utf-8")
    assert response.body == FILE.with_name(name).read_bytes()
    assert response.cache_control == b"no-cache"
    assert b"Content-Encoding" not in dict(response.headers)


def test_a_browser_that_has_it_gets_nothing(node: InMemoryNode) -> None:
    """It sends the tag that it was given."""
    (first,) = node.begin("GET", "/v1/pushup.js").responses
    tag = dict(first.headers)[b"ETag"].decode()
    for known in (tag, f'"other", {tag}', "*"):
        (response,) = node.begin("GET", "/v1/pushup.js", if_none_match=known).responses
        assert (response.status, response.body) == (304, b"")
        assert dict(response.headers)[b"ETag"].decode() == tag
    (other,) = node.begin("GET", "/v1/pushup.js", if_none_match='"other"').responses
    assert other.status == 200


@pytest.mark.parametrize(
    ("accept", "zipped"),
    [("", False), ("gzip", True), ("br, GZIP ; q=0.5", True), ("*", True), ("gzip;q=0", False), ("br", False)],
)
def test_compression(node: InMemoryNode, accept: str, zipped: bool) -> None:
    """For clients that take it; caches are told that it depends on that."""
    (response,) = node.begin("GET", "/v1/pushup.js", accept_encoding=accept).responses
    headers = dict(response.headers)
    assert headers[b"Vary"] == b"Accept-Encoding, Origin"
    assert (headers.get(b"Content-Encoding") == b"gzip") is zipped
    assert (gzip.decompress(response.body) if zipped else response.body) == FILE.read_bytes()


@pytest.mark.parametrize(
    ("allowed", "origin", "expected"),
    [
        ((), "http://a.example", ["*"]),
        (("http://a.example",), "http://b.example", ["*"]),
        (("http://a.example",), "http://a.example", ["http://a.example"]),
        (("*",), "http://a.example", ["*"]),
        ((), "", []),
    ],
)
def test_pages_of_any_origin_may_load_it(allowed: tuple[str, ...], origin: str, expected: list[str]) -> None:
    """They are told once, whether or not they may read anything else."""
    client = InMemoryServer(InMemoryNode(cors_origins=allowed).api).connect()
    field = f"Origin: {origin}\r\n" if origin else ""
    client.send(f"GET /v1/pushup.js HTTP/1.1\r\nHost: a\r\n{field}\r\n".encode())
    head = client.take().partition(b"\r\n\r\n")[0].decode().lower().splitlines()
    name = "access-control-allow-origin: "
    assert [line.removeprefix(name) for line in head if line.startswith(name)] == expected


def test_over_a_connection(node: InMemoryNode) -> None:
    """Its header fields say what the response object does; HEAD gets the same without the body."""
    server = InMemoryServer(node.api)
    client = server.connect()
    client.send(b"GET /v1/pushup.js HTTP/1.1\r\nHost: a\r\n\r\n")
    reply = client.reply()
    assert (reply.headers["cache-control"], reply.headers["content-type"]) == (
        "no-cache", "text/javascript; charset=utf-8",
    )  # fmt: skip
    client.send(b"HEAD /v1/pushup.js HTTP/1.1\r\nHost: a\r\n\r\n")
    head = client.reply(head=True)
    assert head.headers["content-length"] == str(len(reply.body))
    client.send(b"GET /v1/cursor HTTP/1.1\r\nHost: a\r\n\r\n")
    assert client.reply().headers["cache-control"] == "no-store"
