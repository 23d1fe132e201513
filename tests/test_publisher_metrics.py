"""What each publisher takes: the metrics by class and key, and the line in the log when messages are evicted."""

from __future__ import annotations

import pytest

from pushup.core.channel import MESSAGE_OVERHEAD_BYTES
from pushup.core.commands import Publish, Published
from pushup.core.limits import ChannelPolicy, Limits
from pushup.core.state_transfer import restore
from pushup.net.log_throttle import LOG_SECONDS
from tests.core.builders import draft
from tests.net.in_memory_node import InMemoryNode
from tests.net.observed_log import logged_at

SIZE = MESSAGE_OVERHEAD_BYTES + 1
"""Of a message with one byte of data."""


class Node(InMemoryNode):
    """One that keeps ten messages, those of chats for longer."""

    def __init__(self, *policies: ChannelPolicy) -> None:
        chats = ChannelPolicy(prefix="chat:", retention_seconds=1000.0)
        super().__init__(limits=Limits(retention_bytes=10 * SIZE, retention_messages=50, channels=policies or (chats,)))

    def say(self, *channels: str, by: str = "", count: int = 1, ephemeral: bool = False) -> None:
        """Publish messages with the key of this name."""
        for _ in range(count):
            outcomes: list[object] = []
            self.node.submit(Publish((draft(*channels, ephemeral=ephemeral),), owner=by), outcomes.append)
            assert isinstance(outcomes[0], Published)

    def of(self, name: str, prefix: str = "(none)", key: str = "(none)", **labels: str) -> float:
        return self.metric(f"publisher_{name}", prefix=prefix, key=key, **labels)


def test_by_prefix_and_key() -> None:
    """A class without a policy, ephemeral messages and keys without a name are called something, too."""
    node = Node()
    node.say("chat:1", by="app", count=2)
    node.advance(1.0)
    node.say("news", by="app")
    node.say("chat:1", "news")
    node.say("news", ephemeral=True)
    assert [node.of("messages_total", *of) for of in (("chat:", "app"), ("(none)", "app"), ("chat:",))] == [2, 1, 1]
    assert node.of("messages_total", "(ephemeral)") == 1
    assert node.of("bytes_total", "chat:", "app") == node.of("cached_bytes", "chat:", "app") == 2 * SIZE
    assert node.of("oldest_message_age_seconds", "chat:", "app") == 1
    assert node.of("oldest_message_age_seconds", "(none)", "app") == 0
    seconds = [node.of("retention_seconds", prefix) for prefix in ("chat:", "(ephemeral)")]
    assert [*seconds, node.of("retention_seconds", key="app")] == [1000, 5, 300]


def test_what_was_evicted() -> None:
    """By the limit: that of all, of a class, or of a channel; and nothing that was kept for its time."""
    node = Node(ChannelPolicy(prefix="c", retention_bytes=2 * SIZE), ChannelPolicy(prefix="few", retention_messages=1))
    node.say("few", by="app", count=3)
    assert node.of("evicted_messages_total", "few", "app", limit="retention_messages") == 2
    assert node.of("evicted_messages_total", "few", "app", limit="retention_bytes") == 0
    node.say("c", by="app", count=3)
    assert node.of("evicted_messages_total", "c", "app", limit="retention_bytes") == 1
    node.say("x", by="flood", count=9)
    assert node.of("evicted_messages_total", key="flood", limit="retention_bytes") == 2
    node.advance(310.0)
    assert not node.state.message_count
    assert node.of("evicted_messages_total", key="flood", limit="retention_bytes") == 2


def test_a_publisher_of_whom_nothing_is_left() -> None:
    """It keeps its series, so that an alert that has begun to wait does not begin again."""
    node = Node()
    node.say("x", by="small")
    node.say("x", by="flood", count=20)
    assert node.of("evicted_messages_total", key="small", limit="retention_bytes") == 1
    assert node.of("cached_bytes", key="small") == node.of("oldest_message_age_seconds", key="small") == 0
    assert node.of("cached_bytes", key="flood") == 10 * SIZE


def test_another_state() -> None:
    """The node goes on from what it has counted; a publisher of whom it has counted nothing has no such series."""
    node = Node()
    node.say("x", by="app", count=12)
    node.node.start_from(restore(node.state.snapshot()))
    node.say("x", by="app")
    assert node.of("messages_total", key="app") == 13
    assert node.of("evicted_messages_total", key="app", limit="retention_bytes") == 3
    other = Node()
    other.node.start_from(restore(node.state.snapshot()))
    assert other.of("cached_bytes", key="app") == 10 * SIZE
    with pytest.raises(KeyError):
        other.of("messages_total", key="app")


def test_the_log_says_who_takes_the_memory() -> None:
    """Once a minute, how much was evicted since the last line, and of whom."""
    node = Node()
    with logged_at("warn") as lines:
        node.say("chat:1", by="small")
        node.say("chat:1", by="flood", count=14)
        node.advance(1.0)
        assert lines == [
            "retention_bytes is used up: messages on chat: were evicted before their retention time, by key: "
            f"{{'flood': 4, 'small': 1}}. Key flood takes 100 % of the {10 * SIZE} bytes there"
        ]
        node.say("chat:1", by="flood", count=3)
        node.advance(LOG_SECONDS - 1.0)
        assert len(lines) == 1
        node.say("chat:1")
        node.advance(1.0)
        assert "messages on chat: were evicted" in lines[1]
        assert "{'flood': 4}. Key flood takes 90 %" in lines[1]
        node.advance(2 * LOG_SECONDS)
        node.say("chat:1", ephemeral=True)
        node.advance(1.0)
        assert len(lines) == 2


def test_the_worst_class_is_named() -> None:
    """Not those from which less was evicted, nor what they lost."""
    node = Node(*[ChannelPolicy(prefix=prefix, retention_bytes=2 * SIZE) for prefix in ("a", "b", "c")])
    node.say("a", by="app", count=4)
    node.say("b", by="app", count=2)
    node.say("b", count=3)
    node.say("c", by="app", count=4)
    node.say("b", by="app", count=2)
    with logged_at("warn") as lines:
        node.advance(1.0)
    assert len(lines) == 1
    assert "messages on b were evicted before their retention time, by key: {'(none)': 3, 'app': 3}." in lines[0]


def test_a_class_that_has_nothing_left() -> None:
    """Nobody takes anything of it: the next one that evicts something is named."""
    node = Node(ChannelPolicy(prefix="a", retention_seconds=400.0))
    node.say("a", by="app", count=10)
    node.node.submit(Publish((draft("b", data="1" * 10_000),), owner="big"), lambda outcome: None)
    assert node.of("cached_bytes", "a", "app") == 0
    with logged_at("warn") as lines:
        node.advance(1.0)
        assert lines == []
        node.say("b", by="big")
        node.advance(1.0)
    assert "messages on (none) were evicted before their retention time, by key: {'big': 1}" in lines[0]


def test_a_full_channel_is_no_reason_to_log() -> None:
    """To keep some messages of each channel is what `retention_messages` is for."""
    node = Node(ChannelPolicy(prefix="a", retention_messages=2))
    with logged_at("warn") as lines:
        node.say("a", count=8)
        node.advance(1.0)
    assert lines == []
