"""A subscriber that follows its channels along a chain of cursors, and notices what comes twice."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from conformance.adapter import Answer
from conformance.registry import Failed
from conformance.trial import Client, Trial


class Follower:
    """One chain. The data of all messages of a check differ, and can be compared."""

    def __init__(self, trial: Trial, channels: str | tuple[str, ...], cursor: str = "") -> None:
        self._trial = trial
        self.channels = (channels,) if isinstance(channels, str) else channels
        self.cursor = cursor
        self.data: list[Any] = []

    def take(self, answer: Answer) -> None:
        """Take an answer. Raises: Failed if it has a message again, or a gap."""
        twice = [data for n, data in enumerate(answer.data) if data in self.data or data in answer.data[:n]]
        if twice:
            raise Failed(f"expected each message once, and {twice[0]!r} came again")
        if answer.gaps:
            raise Failed(f"expected no gap, because nothing was dropped, and {answer.gaps} came")
        self.data += answer.data
        self.cursor = answer.cursor

    def poll(self, client: Client, timeout: float = 0.0) -> Answer:
        answer = client.poll(self.channels, self.cursor, timeout)
        self.take(answer)
        return answer

    def read(self, client: Client, count: int, timeout: float = 1.0) -> None:
        """Poll until this many messages have come. Raises: Failed if that takes too long."""
        deadline = time.monotonic() + self._trial.patience
        while len(self.data) < count:
            before = len(self.data)
            self.poll(client, timeout)
            if len(self.data) > before:
                deadline = time.monotonic() + self._trial.patience
            elif time.monotonic() > deadline:
                raise Failed(f"expected {count} messages, and {len(self.data)} came, the last one {self.data[-1:]}")

    def expect(self, data: Iterable[Any]) -> None:
        """Expect just these messages, in this order."""
        expected = list(data)
        missing = [d for d in expected if d not in self.data]
        if missing:
            raise Failed(f"expected {len(expected)} messages, and {len(missing)} of them are missing: {missing[:3]}")
        extra = [d for d in self.data if d not in expected]
        if extra:
            raise Failed(f"expected {len(expected)} messages, and others came: {extra[:3]}")
        for came, wanted in zip(self.data, expected, strict=True):
            if came != wanted:
                raise Failed(f"expected {wanted!r} next, and {came!r} came before it")
