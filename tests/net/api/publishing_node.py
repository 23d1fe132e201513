"""A node for tests of those who publish."""

from __future__ import annotations

from typing import Any

from pushup.tokens.verifier import Verifier
from tests.net.in_memory_node import CallResult, InMemoryNode
from tests.tokens.evil_tokens import NOW, issuer, key, token

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
"""A `traceparent`."""

KEYS = ("chat a-key-of-sixteen-letters", "another-key-of-sixteen")


class PublishingNode(InMemoryNode):
    """A node with two publish keys and users, who may publish on `chat`."""

    def __init__(self, *, keys: tuple[str, ...] = KEYS, **others: Any) -> None:
        verifier = Verifier([issuer(key("HS256"))], lambda: self.clock.seconds())
        super().__init__(tokens=verifier if keys else None, publish_keys=keys, **others)
        self.advance(NOW - self.clock.seconds())

    def say(self, text: str = "", count: int = 1, channel: str = "chat") -> CallResult:
        message = {"channels": [channel], "data": 1}
        head = {"Authorization": f"Bearer {text}"} if text else {}
        return self.call("POST", "/v1/messages", {"messages": [message] * count}, **head)

    def is_allowed(self, text: str, count: int = 1) -> bool:
        result = self.say(text, count)
        assert result.status in (201, 429)
        return result.status == 201


def of(sub: str | None, **others: Any) -> str:
    """A token of this user."""
    return token(sub=sub, pushup={"publish": ["chat"]}, **others)
