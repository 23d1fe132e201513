"""Writes an answer as a producer does, by its format: pieces, beats and an end. As a program, it can be killed.

python -m tests.browser.answer_writer ADDRESS CHANNEL COUNT SECONDS
"""

from __future__ import annotations

import sys
import time
from http.client import HTTPException

from tests.server.caller import Caller, Reply

RETRY_SECONDS = 0.05
"""Until a publication is repeated, while PushUp does not run."""


def text_of(count: int) -> str:
    """What the first pieces say together."""
    return "".join(map(word, range(count)))


def word(number: int) -> str:
    return f"{number} é\U0001f600\n" if number % 10 == 0 else f"{number} "


class Writer:
    """Of one answer."""

    def __init__(self, address: str, channel: str) -> None:
        self._address = address
        self._channel = channel
        self._pieces = 0

    def write(self, count: int, seconds: float = 0.0) -> None:
        """So many more pieces, with a pause after each; stops early if it is asked to."""
        for _ in range(count):
            if self._is_asked_to_stop():
                self.end("stopped")
                return
            self._piece({"parts": [word(self._pieces)]})
            time.sleep(seconds)

    def beat(self) -> None:
        self._publish({"beat": self._pieces}, ephemeral=True)

    def end(self, end: str = "done", **more: str) -> None:
        self._piece({"parts": [], "end": end, **more})

    def _piece(self, data: dict[str, object]) -> None:
        reply = self._publish({"piece": self._pieces, **data}, key=f"{self._channel}#{self._pieces}")
        assert reply.status == 201, reply
        self._pieces += 1

    def _is_asked_to_stop(self) -> bool:
        with Caller(self._address) as caller:
            try:
                return bool(caller.poll(f"{self._channel}:stop", cursor="earliest", timeout=0)["messages"])
            except (OSError, HTTPException):
                return False

    def _publish(self, data: object, *, key: str = "", ephemeral: bool = False) -> Reply:
        body = {"channels": [self._channel], "data": data, "event": "answer", "ephemeral": ephemeral}
        while True:
            try:
                with Caller(self._address) as caller:
                    return caller.call("POST", "/v1/messages", body, {"Idempotency-Key": key} if key else {})
            except (OSError, HTTPException):
                time.sleep(RETRY_SECONDS)


if __name__ == "__main__":
    to, on, pieces, pause = sys.argv[1:]
    writer = Writer(to, on)
    writer.beat()
    writer.write(int(pieces), float(pause))
    writer.end()
