"""The MCP SDK and Atmosphere: what a client and a server must remember when a connection breaks."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from pushup.client.client import Client
from pushup.client.http_connection import ClientError
from tests.net.in_memory_node import InMemoryNode
from tests.net.in_memory_server import InMemoryServer


class ScriptedClient(Client):
    """A client whose server does what the script says; it records the cursors that it sends."""

    def __init__(self, *script: dict[str, Any] | ClientError) -> None:
        super().__init__("http://127.0.0.1:1", retry_seconds=(0.0, 0.0))
        self._script = list(script)
        self.cursors: list[str] = []

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        self.cursors += parse_qs(urlsplit(path).query, keep_blank_values=True)["cursor"]
        reply = self._script.pop(0)
        if isinstance(reply, ClientError):
            raise reply
        return reply


def answer(cursor: str, *data: int) -> dict[str, Any]:
    return {"cursor": cursor, "messages": [{"data": n} for n in data], "more": False, "gaps": [], "closed": []}


def test_a_connection_that_breaks_before_anything_arrives() -> None:
    """Again and again: the client polls with the last cursor that it was told, also by an empty answer."""
    broken = ClientError("broken off")
    client = ScriptedClient(answer("e-5", 5), broken, broken, answer("e-8"), broken, answer("e-9", 9))
    follow = client.follow(["a"], on_trouble=lambda error, pause: None)
    assert [told["cursor"] for told in (next(follow), next(follow), next(follow))] == ["e-5", "e-8", "e-9"]
    assert client.cursors == ["", "e-5", "e-5", "e-5", "e-8", "e-8"]


def test_an_empty_answer_has_a_cursor_that_misses_nothing() -> None:
    """A poll that ends without a message; what is published before the next one arrives with that."""
    node = InMemoryNode()
    exchange = node.begin("GET", "/v1/poll?channel=a&cursor=now&timeout=5")
    node.publish("b")
    node.advance(5)
    (empty,) = exchange.answers
    assert (empty.messages, empty.cursor) == ((), "e-1")
    node.publish("a", data=2)
    assert [bytes(message.data) for message in node.poll(f"channel=a&cursor={empty.cursor}").messages] == [b"2"]


@pytest.mark.parametrize("how", ["reset", "gone without a word"])
def test_a_message_that_is_sent_to_a_client_that_has_gone(how: str) -> None:
    """It is there when the client comes back with its cursor, as are the messages after it."""
    node = InMemoryNode()
    server = InMemoryServer(node.api, clock=node.clock)
    lost = server.connect(capacity=0 if how == "gone without a word" else None)
    lost.send(b"GET /v1/poll?channel=a&cursor=e-0 HTTP/1.1\r\nHost: a\r\n\r\n")
    assert node.polls.count == 1
    if how == "reset":
        lost.reset()
    for number in (1, 2):
        node.publish("a", data=number)
        server.demultiplexer.run()
    assert lost.take() == b""
    again = server.connect()
    again.send(b"GET /v1/poll?channel=a&cursor=e-0 HTTP/1.1\r\nHost: a\r\n\r\n")
    assert [message["data"] for message in json.loads(again.reply().body)["messages"]] == [1, 2]
