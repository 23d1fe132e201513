"""A client that follows a chain of cursors in a thread, and loses its connection repeatedly."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

from tests.server.caller import poll_path
from tests.server.raw_client import RawClient, get

LAST = "last"
"""The data of the message at which a follower stops."""

GIVE_UP_SECONDS = 60.0


class Follower(threading.Thread):
    """Polls from a cursor until it receives `LAST`; `messages` and `gaps` collect what its answers contained."""

    def __init__(self, address: str, channels: tuple[str, ...], cursor: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.channels = channels
        self.messages: list[dict[str, Any]] = []
        self.gaps: list[dict[str, Any]] = []
        self.errors: list[BaseException] = []
        self._address = address
        self._cursor = cursor
        self._random = random.Random(seed)
        self._give_up = time.monotonic() + GIVE_UP_SECONDS

    def run(self) -> None:
        try:
            while not self._done() and time.monotonic() < self._give_up:
                with RawClient(self._address) as client:
                    self._poll_for_a_while(client)
        except BaseException as error:  # the test raises it
            self.errors.append(error)

    def _poll_for_a_while(self, client: RawClient) -> None:
        """Make some polls over one connection, and close it without reading the last answer."""
        draw = self._random
        for _ in range(draw.randint(1, 8)):
            client.send(get(self._path()))
            response = client.read_response()
            assert response.status == 200, response
            answer = response.value
            self._cursor = answer["cursor"]
            self.messages += answer["messages"]
            self.gaps += answer["gaps"]
            if self._done():
                return
        client.send(get(self._path()))
        time.sleep(draw.uniform(0, 0.02))
        if draw.random() < 0.3:
            client.reset()

    def _path(self) -> str:
        return poll_path(*self.channels, cursor=self._cursor, timeout=5, limit=self._random.choice((1, 3, 100)))

    def _done(self) -> bool:
        return bool(self.messages) and self.messages[-1]["data"] == LAST
