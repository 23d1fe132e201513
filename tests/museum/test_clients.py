"""The MCP SDK and Atmosphere: what a client and a server must remember when a connection breaks."""

from __future__ import annotations

import json

import pytest

from pushup.client import Client
from tests.client.simulated_driver import RESET, Reply, SimulatedDriver, answer
from tests.net.in_memory_node import InMemoryNode
from tests.net.in_memory_server import InMemoryServer


def polled(cursor: str, *numbers: int) -> Reply:
    messages = [{"id": f"e-{n}", "time": 1.0, "channels": ["a"], "data": n} for n in numbers]
    return answer(200, {"cursor": cursor, "messages": messages, "more": False, "gaps": [], "closed": []}, after=1.0)


def test_a_connection_that_breaks_before_anything_arrives() -> None:
    """Again and again: the client polls with the last cursor that it was told, also by an empty answer."""
    replies = [polled("e-5", 5), RESET, RESET, RESET, RESET, polled("e-8"), RESET, RESET, polled("e-9", 9)]
    driver = SimulatedDriver(a=replies)
    items = Client("unix:a", driver=driver).follow("a", transport="poll")
    assert [next(items).cursor for _ in range(2)] == ["e-5", "e-9"]
    assert [sent.body["cursor"] for sent in driver.sent] == ["", *["e-5"] * 5, *["e-8"] * 3]


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
