"""A client, and what was published since a moment: for assertions, with a real server or one in the process."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from pushup.client import Client, Message
from pushup.frameworks.publisher import flush_all

PAUSE_SECONDS = 0.02
"""Between two looks at a server, while a publication of another thread or process is expected."""

FLUSH_SECONDS = 5.0
"""How long a look waits for what this process publishes in the background (`pushup.frameworks`)."""

SETTINGS: dict[str, object] = {"poll_channels_limit": 10_000}
"""Of a server for tests: a look polls all of its channels at once."""


class Recorder:
    """What is published from now on, in order, except for what is ephemeral or deleted, or whose channel is closed."""

    def __init__(self, client: Client, url: str = "") -> None:
        """The client needs the right to poll and to list channels. Raises: ClientError."""
        self.client = client
        self.url = url
        """Where the server is, for your application."""
        self._began = client.cursor()

    def published(self, *channels: str) -> list[Message]:
        """The messages of these channels, or of all. A message on several channels is there once, with all it was asked
        for. Raises: ClientError; AssertionError if the server has dropped some."""
        flush_all(FLUSH_SECONDS)
        names = list(channels) or [channel.name for channel in self.client.channels()]
        found: list[Message] = []
        cursor, more = self._began, bool(names)
        while more:
            answer = self.client.poll(names, cursor, timeout=0)
            dropped = [gap for gap in answer.gaps if gap.reason not in ("closed", "deleted")]
            assert not dropped, f"the server has dropped messages: {dropped}"
            found += [message for message in answer.messages if not message.ephemeral]
            cursor, more = answer.cursor, answer.more
        return found

    def assert_published(self, channels: str | Sequence[str], data: Any, *, within: float = 0.0) -> Message:
        """The first message with this data on just these channels; wait up to `within` seconds for it.

        Raises: AssertionError, with what was published; ClientError.
        """
        wanted = {channels} if isinstance(channels, str) else set(channels)
        data = json.loads(json.dumps(data, default=repr))  # as it arrives
        until = time.monotonic() + within
        while True:
            messages = self.published()
            for message in messages:
                if set(message.channels) == wanted and message.data == data:
                    return message
            if time.monotonic() >= until:
                found = [f"    {_line(message.channels, message.data)}" for message in messages]
                but = "but" if found else "nor anything else"
                raise AssertionError("\n".join([f"{_line(wanted, data)} was not published, {but}", *found]))
            time.sleep(PAUSE_SECONDS)


def _line(channels: Sequence[str] | set[str], data: Any) -> str:
    return f"{json.dumps(data)} on {', '.join(sorted(channels))}"
