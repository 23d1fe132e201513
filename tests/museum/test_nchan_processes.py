"""Nchan: polls that sleep although there are messages, with as many channels as in the report."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from loadtest.load.epoll_client import Connection, Loop
from pushup.host.process_limits import raise_file_limit
from tests.server.server_process import Server, running, wait_until

CHANNELS = 40_000
POLLS = 10_000
"""Each waits on four channels, because a process may often not open more than 20,000 sockets."""

EACH = CHANNELS // POLLS
BATCH = 100
HANG_SECONDS = 120.0


class Pollers:
    """Polls on all channels, each again as soon as it is answered."""

    def __init__(self, server: Server) -> None:
        self.loop = Loop()
        self.received: list[list[int]] = [[] for _ in range(POLLS)]
        self._left = 0
        host, _, port = server.address.rpartition(":")
        self._numbers = {Connection(self.loop, (host, int(port)), self._answered): n for n in range(POLLS)}
        for connection in self._numbers:
            self._poll(connection, "now")

    def _poll(self, connection: Connection, cursor: str) -> None:
        first = EACH * self._numbers[connection]
        channels = "&".join(f"channel=c{first + n}" for n in range(EACH))
        connection.get(f"/v1/poll?{channels}&cursor={cursor}&timeout=600")

    def _answered(self, connection: Connection, status: int, body: bytes) -> None:
        answer = json.loads(body)
        assert status == 200, answer
        assert answer["messages"], "it waited in vain"
        self.received[self._numbers[connection]] += [message["data"] for message in answer["messages"]]
        self._poll(connection, answer["cursor"])
        self._left -= 1
        if not self._left:
            self.loop.stop()

    def wait(self) -> None:
        """Wait until each poll has been answered once."""
        self._left = POLLS
        self.loop.run_until(time.time() + HANG_SECONDS)
        assert not self._left, f"{self._left} of {POLLS} polls sleep"


@pytest.mark.processes
@pytest.mark.long
def test_polls_on_as_many_channels_as_in_the_report(tmp_path: Path) -> None:
    """A message on each of 40,000 channels on which polls are held: every poll is answered with it, and none waits."""
    raise_file_limit()
    with running(tmp_path / "log", ("--set", "poll_timeout_limit_seconds=10m")) as server, server.caller() as caller:
        pollers = Pollers(server)
        for turn in range(EACH):
            wait_until(lambda: server.metric("held_polls") == POLLS, "all polls to be held", HANG_SECONDS)
            for first in range(0, POLLS, BATCH):
                numbers = [EACH * (first + n) + turn for n in range(BATCH)]
                messages = [{"channels": [f"c{number}"], "data": number} for number in numbers]
                assert caller.call("POST", "/v1/messages", {"messages": messages}).status == 201
            pollers.wait()
        assert pollers.received == [[EACH * n + turn for turn in range(EACH)] for n in range(POLLS)]
        pollers.loop.close()
        assert server.trouble() == []
