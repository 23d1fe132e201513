"""What a node says of the settings of the others."""

from __future__ import annotations

from pushup.broadcast import Member
from pushup.broadcast.redis.differences import SettingsDifferences
from tests.net.observed_log import logged_at


def node(name: str, settings: dict[str, str] | None) -> Member:
    return Member(name, name, (), "e-1", 0, "1", settings)


def test_each_difference_is_said_once() -> None:
    """Again when it changes, or when the node has been gone; nothing of nodes that do not tell."""
    own = node("a", {"publish_keys": "1", "poll_limit": "2"})
    differences = SettingsDifferences()
    with logged_at("warn") as lines:
        differences.look(own, [own, node("b", dict(own.settings or {})), node("old", None)])
        assert lines == []
        other = node("b", {"publish_keys": "3"})
        differences.look(own, [own, other])
        differences.look(own, [own, other])
        assert lines == ["node b has other settings than this node: poll_limit, publish_keys"]
        differences.look(own, [own, node("b", {"poll_limit": "2"})])
        assert lines[1:] == ["node b has other settings than this node: publish_keys"]
        differences.look(own, [own])
        differences.look(own, [own, node("b", {})])
        assert len(lines) == 3
