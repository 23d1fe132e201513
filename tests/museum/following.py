"""A client of an in-memory node that polls, and continues with the cursor of each answer."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from pushup.core.answer import Answer
from tests.net.in_memory_node import InMemoryNode


class Follower:
    """Polls these channels; `answers` are all it has been told, `requests` how often it has polled."""

    def __init__(self, node: InMemoryNode, *channels: str, cursor: str = "", timeout: float = 25.0) -> None:
        self.node = node
        self.cursor = cursor
        self.timeout = timeout
        self.answers: list[Answer] = []
        self._channels = "&".join(f"channel={quote(channel, safe='')}" for channel in channels)

    def poll(self, limit: int = 100) -> Answer | None:
        """Poll once; None if the poll is held."""
        target = f"/v1/poll?{self._channels}&cursor={self.cursor}&timeout={self.timeout:g}&limit={limit}"
        exchange = self.node.begin("GET", target)
        assert not exchange.responses, exchange.responses
        self._held = None if exchange.answers else exchange
        return self._take(exchange.answers)

    def waited(self) -> Answer | None:
        """What the held poll was answered; None while it is held."""
        assert self._held is not None
        return self._take(self._held.answers)

    def _take(self, answers: list[Answer]) -> Answer | None:
        if not answers:
            return None
        (answer,) = answers
        self.answers.append(answer)
        self.cursor = answer.cursor
        return answer

    @property
    def received(self) -> list[Any]:
        """The data of all messages, in order; parsed."""
        return [json.loads(bytes(message.data)) for answer in self.answers for message in answer.messages]

    @property
    def gaps(self) -> list[tuple[str, str]]:
        """All gaps: channel and reason."""
        return [(gap.channel, gap.reason) for answer in self.answers for gap in answer.gaps]
