"""Who publishes how much: the counts by key, and the lines of the log."""

from __future__ import annotations

import pytest

from pushup.net.api.publishers import SHOWN_CHANNELS
from pushup.net.application_interface import Client
from tests.net.api.publishing_node import TRACE, PublishingNode, of
from tests.net.observed_log import logged_at


def test_counts_by_key() -> None:
    """By the names of keys; of tokens together; and of everybody where no key is needed."""
    node = PublishingNode()
    node.say("a-key-of-sixteen-letters", 3)
    node.say("another-key-of-sixteen")
    node.say(of("7"), 2)
    node.say(of("8"))
    node.say("no-key-of-this-server")
    assert node.metrics.messages_by_key == {"chat": 3, "publish_keys": 1, "(token)": 3}
    assert b'pushup_messages_by_key_total{key="(token)"} 3.0' in node.call("GET", "/metrics").body
    open_to_all = PublishingNode(keys=())
    open_to_all.say()
    assert open_to_all.metrics.messages_by_key == {"(none)": 1}


@pytest.mark.parametrize("audited", [("chat",), ("ch*",), ("news", "chat*")])
def test_a_line_for_each_publication(audited: tuple[str, ...]) -> None:
    """Who has published what, where; not the data, and nothing of other channels or of what was refused."""
    node = PublishingNode(audited=audited)
    with logged_at("info") as lines:
        node.say(of("7"), 2)
        node.say("a-key-of-sixteen-letters", channel="other")
        node.say("a-key-of-sixteen-letters")
        node.say(of("7"), channel="staff")
    assert [line for line in lines if line.startswith("published")] == [
        "published 2 from e-1 on ['chat'] by key (token), user '7', client 127.0.0.1:50000",
        "published 1 from e-4 on ['chat'] by key chat, user '', client 127.0.0.1:50000",
    ]


def test_a_long_line() -> None:
    """Many channels, and names that would forge a line, are shown so that they do not."""
    node = PublishingNode(keys=(), audited=("*",))
    names = [f"{number}\u2028x" for number in range(SHOWN_CHANNELS + 5)]
    with logged_at("info") as lines:
        node.call("POST", "/v1/messages", {"channels": names, "data": 1})
    (line,) = [line for line in lines if line.startswith("published")]
    assert "and 5 more by key (none)" in line
    assert "\u2028" not in line


def test_where_it_came_from() -> None:
    """The line names the client, and the trace that its request belongs to, if it is one."""
    node = PublishingNode(keys=(), audited=("*",))
    node.client = Client("192.0.2.7")
    with logged_at("info") as lines:
        for traceparent in (TRACE, "nonsense"):
            node.call("POST", "/v1/messages", {"channels": ["a"], "data": 1}, Traceparent=traceparent)
    assert [line.partition("user '', ")[2] for line in lines] == [
        f"client 192.0.2.7, traceparent {TRACE}", "client 192.0.2.7",
    ]  # fmt: skip
