"""`DELETE /v1/messages`: what may be deleted by whom, and what readers are told."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from pushup.core.answer import Answer
from pushup.core.commands import Continue, Entry
from pushup.core.cursor import Cursor, sequence_in
from pushup.net.api.channel_rules import ChannelRule, ChannelRules
from pushup.tokens.verifier import Verifier
from tests.net.in_memory_node import InMemoryNode, events_of
from tests.tokens.evil_tokens import issuer, key, token

ALL = {"Authorization": "Bearer key-of-this-test-for-all"}
CHAT = {"Authorization": "Bearer key-of-this-test-for-chat"}
OPERATOR = {"Authorization": "Bearer key-of-this-test-to-operate"}
PUBLISHER = {"Authorization": "Bearer key-of-this-test-to-publish"}
KEYS = (
    "all key-of-this-test-for-all",
    "chat key-of-this-test-for-chat publish=chat:* channels=chat:*",
    "ops key-of-this-test-to-operate operate",
    "app key-of-this-test-to-publish publish",
)


@pytest.fixture
def node() -> InMemoryNode:
    return InMemoryNode()


@pytest.fixture
def keyed() -> InMemoryNode:
    return InMemoryNode(publish_keys=KEYS)


def say(node: InMemoryNode, *channels: str, **headers: str) -> str:
    """Publish; returns the id."""
    return str(node.publish(*channels, data=1, **headers).json["id"])


def delete(node: InMemoryNode, what: str, **headers: str) -> tuple[int, Any]:
    """The status, and how many messages were deleted, or the type of the problem."""
    exchange = node.begin("DELETE", f"/v1/messages{what}", **headers)
    node.run()
    (response,) = exchange.responses
    result = InMemoryNode.read(response)
    return result.status, result.json.get("deleted", result.json.get("type"))


FORBIDDEN = (403, "urn:pushup:forbidden")
UNKNOWN = (404, "urn:pushup:unknown-message")


def test_one_message(node: InMemoryNode) -> None:
    """A second time there is nothing to delete."""
    first, second = say(node, "a", "b"), say(node, "a")
    assert delete(node, f"/{first}") == (200, 1)
    assert delete(node, f"/{first}") == UNKNOWN
    answer = node.poll("channel=a&channel=b&cursor=e-0")
    assert [message.id for message in answer.messages] == [second]
    assert [(gap.channel, gap.reason, gap.until) for gap in answer.gaps] == [
        ("a", "deleted", first), ("b", "deleted", first),
    ]  # fmt: skip
    assert b'pushup_messages_dropped_total{reason="deleted"} 1' in node.call("GET", "/metrics").body


def test_all_of_a_channel(node: InMemoryNode) -> None:
    """By its name or its id, up to a cursor or up to now."""
    say(node, "a/ b")
    until = say(node, "a/ b")
    say(node, "a/ b")
    assert delete(node, f"?channel=a%2F+b&until={until}") == (200, 2)
    number = node.node.channel("a/ b").id
    assert delete(node, f"?channel={number}&until=") == (200, 1)
    assert delete(node, "?channel=never") == (200, 0)


def test_more_than_one_entry_removes(node: InMemoryNode) -> None:
    """The call goes on, in other turns, up to where its first entry was."""
    bodies = [{"channels": [f"c{n}" for n in range(100)], "data": 1} for _ in range(10)]
    for _ in range(3):
        node.call("POST", "/v1/messages", {"messages": bodies})
    exchange = node.begin("DELETE", "/v1/messages?channel=c0")
    assert exchange.responses == []
    later = say(node, "c0")
    node.run()
    assert InMemoryNode.read(exchange.responses[0]).json == {"deleted": 30}
    assert [message.id for message in node.poll("channel=c0").messages] == [later]


def test_the_channels_of_ids_from_former_names_of_the_order(node: InMemoryNode) -> None:
    """What may be deleted is found by the id that the publisher was told."""
    old = say(node, "a")
    cursor = node.state.cursor
    node.node.apply(Entry(cursor.epoch, cursor.sequence + 1, node.state.time, Continue("f")))
    assert node.node.channels_of(Cursor("e", sequence_in(old))) == ("a",)
    assert node.node.channels_of(Cursor("e", 2)) == ()
    assert node.node.channels_of(Cursor("g", 1)) == ()


@pytest.mark.parametrize(
    ("what", "field"),
    [
        ("", "channel"),
        ("?until=e-1", "channel"),
        ("?channel=a&owner=b", "channel"),
        ("?channel=a&channel=b", "channel"),
        ("?channel=", "channel"),
        ("?owner=", "owner"),
        ("?owner=%00", "owner"),
        ("?channel=a&until=now", "until"),
        ("?channel=a&until=-", "until"),
        ("?channel=a&until=other-1", "until"),
        ("?channle=a", "channle"),
        ("/now", "id"),
        ("/%FF", "id"),
        ("/" + "x" * 300, "id"),
    ],
)
def test_what_is_wrong_is_named(node: InMemoryNode, what: str, field: str) -> None:
    """Nothing is deleted then."""
    say(node, "a")
    result = node.call("DELETE", f"/v1/messages{what}")
    assert (result.status, result.json["field"]) == (400, field)
    assert node.state.message_count == 1


def test_other_methods_get_405(node: InMemoryNode) -> None:
    result = node.call("PUT", "/v1/messages/e-1")
    assert (result.status, result.headers[b"Allow"]) == (405, b"GET, HEAD, DELETE, OPTIONS")
    assert node.call("OPTIONS", "/v1/messages").headers[b"Allow"] == b"POST, DELETE, OPTIONS"


def test_a_key_deletes_where_it_may_change_channels(keyed: InMemoryNode) -> None:
    """The right must include all channels of one message, or the channel whose messages all go, from their others too.

    Who may not delete a message is not told whether it exists.
    """
    mine, shared, other = say(keyed, "chat:1", **ALL), say(keyed, "chat:1", "x", **ALL), say(keyed, "x", **ALL)
    details = set()
    for id_ in (shared, other, "e-99", "zzz-1"):
        result = keyed.call("DELETE", f"/v1/messages/{id_}", **CHAT)
        assert result.status == 403
        details.add(result.body)
    assert len(details) == 1
    assert delete(keyed, f"/{mine}", **CHAT) == (200, 1)
    assert delete(keyed, "?channel=x", **CHAT) == FORBIDDEN
    assert delete(keyed, "?channel=chat:1", **CHAT) == (200, 1)
    assert [message.id for message in keyed.poll("channel=x").messages] == [other]
    assert delete(keyed, f"/{other}", **PUBLISHER) == FORBIDDEN
    assert delete(keyed, f"/{other}", **OPERATOR) == FORBIDDEN
    assert delete(keyed, f"/{other}") == (401, "urn:pushup:unauthorized")
    assert delete(keyed, "?channel=x") == (401, "urn:pushup:unauthorized")
    assert delete(keyed, f"/{other}", **ALL) == (200, 1)
    assert delete(keyed, f"/{other}", **ALL) == UNKNOWN


def test_an_operator_deletes_what_a_key_has_published(keyed: InMemoryNode) -> None:
    """The name of the key is the owner."""
    say(keyed, "a", **PUBLISHER)
    until = say(keyed, "b", **PUBLISHER)
    kept = [say(keyed, "a", **ALL), say(keyed, "a", **PUBLISHER)]
    assert delete(keyed, "?owner=app", **CHAT) == FORBIDDEN
    assert delete(keyed, "?owner=app", **PUBLISHER) == FORBIDDEN
    assert delete(keyed, "?owner=app") == (401, "urn:pushup:unauthorized")
    assert delete(keyed, f"?owner=app&until={until}", **OPERATOR) == (200, 2)
    assert [message.id for message in keyed.poll("channel=a&channel=b").messages] == kept
    assert delete(keyed, "?owner=app", **ALL) == (200, 1)


@pytest.mark.parametrize("what", ["/e-1", "?channel=a", "?owner=app"])
def test_without_keys_pages_of_other_origins_may_not(node: InMemoryNode, what: str) -> None:
    """They could make their visitors' browsers delete everything."""
    say(node, "a")
    assert delete(node, what, Origin="https://evil.example", Host="localhost") == FORBIDDEN
    assert node.state.message_count == 1


def test_tokens_do_not_delete() -> None:
    """They allow polling and publishing only."""
    verifier = Verifier([issuer(key("HS256"))], lambda: tokened.clock.seconds())
    tokened = InMemoryNode(tokens=verifier, rules=ChannelRules("token"), publish_keys=KEYS)
    say(tokened, "user:7", **ALL)
    for what in ("/e-1", "?channel=user:7", "?owner=all"):
        assert delete(tokened, what, Authorization=f"Bearer {token()}") == FORBIDDEN


def test_a_stream_moves_on_past_what_was_deleted(node: InMemoryNode) -> None:
    """The gap comes first, the messages that are left in between, and where it ends an event with that id."""
    for _ in range(4):
        say(node, "a")
    assert delete(node, "/e-3") == (200, 1)
    stream = node.begin("GET", "/v1/events?channel=a&cursor=e-0")
    events = [(event.event, event.id) for event in events_of(stream)]
    assert [id_ for _, id_ in events if id_] == ["e-1", "e-2", "e-3", "e-4", "e-5"]
    assert [event for event, _ in events if event] == ["gap"]


def test_rules_for_tokens_do_not_matter_to_keys() -> None:
    """A key with the right deletes on channels where tokens may not publish."""
    rules = ChannelRules("anyone", [ChannelRule("chat:", "anyone", "key")])
    node = InMemoryNode(publish_keys=KEYS, rules=rules)
    assert delete(node, f"/{say(node, 'chat:1', **ALL)}", **CHAT) == (200, 1)


def test_nothing_of_a_stream_stays_when_it_has_ended(node: InMemoryNode) -> None:
    """What was encoded for it may have been deleted since."""
    stream = node.begin("GET", "/v1/events?channel=a&cursor=e-0")
    node.call("POST", "/v1/messages", {"channels": ["a"], "data": "the text that somebody wants gone"})
    node.run()
    assert b"wants gone" in stream.written
    assert delete(node, "/e-1") == (200, 1)
    assert stream.streamed is not None
    node.api.abandon(stream.streamed)
    del stream
    node.polls.deliver(1)
    gc.collect()
    answers = [each for each in gc.get_objects() if type(each) is Answer]
    assert not any(b"wants gone" in bytes(message.data) for answer in answers for message in answer.messages)
