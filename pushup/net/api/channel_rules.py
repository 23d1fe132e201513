"""Who may poll channels, and who may publish there, by how their names begin (`[[channels]]` in the settings)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

PollRule = Literal["anyone", "token", "application"]
"""Who may poll: everybody; who has a token (or a key) that allows it; or those besides whom the application allows."""

PublishRule = Literal["token", "key"]
"""Who may publish: who has a token or a key that allows it; or who has such a key."""


class ChannelRule(Struct, frozen=True):
    """The rule for channels whose names begin with `prefix`."""

    prefix: str
    poll: PollRule
    publish: PublishRule = "token"


class ChannelRules:
    """The rules of all channels: of several, the one with the longest prefix."""

    def __init__(self, default: PollRule = "anyone", rules: Sequence[ChannelRule] = ()) -> None:
        self.use(default, rules)

    def use(self, default: PollRule, rules: Sequence[ChannelRule]) -> None:
        """Have these from now on."""
        self._rules = (*sorted(rules, key=lambda rule: len(rule.prefix), reverse=True), ChannelRule("", default))
        self.everybody_polls = all(rule.poll == "anyone" for rule in self._rules)
        """Whether nothing is needed to poll any channel."""

    def of(self, name: str) -> ChannelRule:
        """That of the channel with this name. O(rules)."""
        for rule in self._rules:
            if name.startswith(rule.prefix):
                break
        return rule  # the last one's prefix is empty

    def only_for_keys(self, channels: Sequence[str]) -> str:
        """The first name of these channels on which tokens may not publish; empty if there is none."""
        return next((name for name in channels if self.of(name).publish == "key"), "")
