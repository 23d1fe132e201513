"""The load: publishers and subscribers in threads, which write histories (docs/internals/histories.md).

They use the addresses in turn, one request at a time. What is repeated, is repeated here.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from threading import Event as Flag
from threading import Lock, Thread
from typing import IO, Any
from urllib.parse import urlencode

from loadtest.beyond.cluster_kills.requests import Target
from loadtest.history import events
from loadtest.history.events import Event
from loadtest.history.file import HistoryFile
from loadtest.kit.values import Limits, order_of

CHANNELS = tuple(f"load-{number}" for number in range(24))
"""The channels that subscribers follow."""

PUBLISHERS = 6
SUBSCRIBERS = 8
PAUSE_SECONDS = 0.08
"""Longest pause of a publisher between two publications; they are random."""

KEYED = 0.7
"""Share of the publications that have an idempotency key, and are repeated until they are acknowledged."""

PUBLISH_SECONDS = 3.0
"""How long a publisher waits for an answer."""

HOLD_SECONDS = 2.0
GRACE_SECONDS = 3.0
"""For how long subscribers have their polls held, and how much longer they wait for the answer."""

RETRY_SECONDS = 0.1

LAST_SECONDS = 60.0
"""How long the last publications, after all faults, may take; and then, how long subscribers may get nowhere."""

SURPRISES = 20
"""How many answers that no client should get are kept."""


class Record:
    """A history under construction; all clients share it."""

    def __init__(self, file: IO[bytes], limits: Limits) -> None:
        self._history = HistoryFile(file)
        self._began = time.monotonic()
        self._lock = Lock()
        self.counts: Counter[str] = Counter()
        self.write(events.Begin, format=events.FORMAT, limits=limits)

    def write(self, kind: Any, **fields: Any) -> None:
        """The next event."""
        with self._lock:
            self._write(kind(at=self._now, **fields))

    def acknowledged(self, publication: str, body: Any) -> None:
        with self._lock:
            self._write(events.acknowledged(self._now, publication, body))

    def answered(self, subscriber: str, body: Any) -> None:
        with self._lock:
            self._write(events.answered(self._now, subscriber, body))

    @property
    def _now(self) -> float:
        return round(time.monotonic() - self._began, 6)

    def _write(self, event: Event) -> None:
        self.counts[str(event.__struct_config__.tag)] += 1
        if isinstance(event, events.Answered):
            self.counts["gaps"] += len(event.gaps)
        if isinstance(event, events.Acknowledged):
            self.counts["messages"] += len(event.ids)
        self._history.write(event)


class _Publisher(Thread):
    def __init__(self, number: int, load: Load) -> None:
        super().__init__(daemon=True)
        self._name = f"p{number}"
        self._random = random.Random(f"{load.seed} publisher {number}")  # noqa: S311  # no secret
        self._http = load.target.http(number)
        self._load = load
        self._count = 0
        self.is_idle = False

    def run(self) -> None:
        load = self._load
        while not load.is_over.is_set():
            if load.is_paused.is_set():
                self.is_idle = True
                time.sleep(0.01)
                continue
            self.is_idle = False
            self._publish(self._messages(), keyed=self._random.random() < KEYED)
            time.sleep(PAUSE_SECONDS * self._random.random())
        self._http.close()

    def last(self) -> list[str]:
        """Publish on every channel once more; returns the ids, none if nobody acknowledges it."""
        groups: list[tuple[str, ...]] = [(channel,) for channel in CHANNELS]
        try:
            return self._publish(groups, keyed=True, until=time.monotonic() + LAST_SECONDS)
        finally:
            self._http.close()

    def _messages(self) -> list[tuple[str, ...]]:
        """The channels of the messages of one publication."""
        draw = self._random
        groups = [tuple(draw.sample(CHANNELS, draw.randint(1, 3))) for _ in range(draw.choice((1, 1, 1, 2, 5)))]
        if draw.random() < 0.1:
            groups.append((f"new-{self._name}-{self._count}",))
        if draw.random() < 0.2:
            groups.append((f"state-{draw.randrange(1000)}", draw.choice(CHANNELS)))
        return groups

    def _publish(self, groups: list[tuple[str, ...]], *, keyed: bool, until: float = 0.0) -> list[str]:
        """Until it is acknowledged, if it has a key, and until the load is over or this time has come."""
        record = self._load.record
        self._count += 1
        name = f"{self._name}.{self._count}"
        drafts = tuple(events.Draft(group, f"{name}/{number}") for number, group in enumerate(groups))
        key = name if keyed else None
        record.write(events.Publish, publication=name, messages=drafts, key=key)
        body = {"messages": [{"channels": draft.channels, "data": draft.data} for draft in drafts]}
        headers = {} if key is None else {"Idempotency-Key": name}
        while True:
            status, value, why = self._http.ask("POST", "/v1/messages", body, headers, timeout=PUBLISH_SECONDS)
            if status == 201:
                record.acknowledged(name, value)
                ids: list[str] = value["ids"]
                return ids
            if 400 <= status < 500:
                self._load.surprise(f"{name} was refused: {why}")
            is_over = time.monotonic() > until if until else self._load.is_over.is_set()
            if key is None or 400 <= status < 500 or is_over:
                record.write(events.GivenUp, publication=name, why=why)
                return []
            time.sleep(RETRY_SECONDS * (0.5 + self._random.random()))


class _Subscriber(Thread):
    def __init__(self, number: int, load: Load) -> None:
        super().__init__(daemon=True)
        self._name = f"s{number}"
        self._random = draw = random.Random(f"{load.seed} subscriber {number}")  # noqa: S311  # no secret
        self._channels = tuple(draw.sample(CHANNELS, draw.choice((1, 3, 6, 12))))
        self._limit = draw.choice((5, 100, 1000))
        self._sleeps = draw.choice((0.0, 0.0, 0.3, 3.0))
        self._load = load
        self._http = load.target.http(number)
        self.cursor = "now"
        self._progress_at = 0.0  # when it last got anywhere
        self.has_begun = Flag()
        """Whether it has a cursor of a server."""

    def run(self) -> None:
        load, record = self._load, self._load.record
        while not load.is_read(self.cursor, self._progress_at):
            record.write(
                events.Poll, subscriber=self._name, channels=self._channels, cursor=self.cursor, timeout=HOLD_SECONDS
            )
            query = [("channel", channel) for channel in self._channels]
            query += [("cursor", self.cursor), ("timeout", f"{HOLD_SECONDS:g}"), ("limit", str(self._limit))]
            target = f"/v1/poll?{urlencode(query)}"
            status, value, why = self._http.ask("GET", target, timeout=HOLD_SECONDS + GRACE_SECONDS)
            if status == 200:
                record.answered(self._name, value)
                if value["cursor"] != self.cursor:
                    self.cursor, self._progress_at = value["cursor"], time.monotonic()
                self.has_begun.set()
                if not load.end:
                    time.sleep(self._sleeps * self._random.random() ** 2)
            else:
                record.write(events.Failed, subscriber=self._name, why=why)
                if 400 <= status < 500:
                    load.surprise(f"{self._name} was refused: {why}")
                time.sleep(RETRY_SECONDS * (0.5 + self._random.random()))
        self._http.close()


class Load:
    """Clients of the servers at these addresses, from `begin` to `end_after_last`."""

    def __init__(self, target: Target, record: Record, seed: str) -> None:
        self.target = target
        self.record = record
        self.seed = seed
        self.is_over = Flag()
        """Whether publishers stop."""
        self.is_paused = Flag()
        self.end = ""
        """The cursor up to which subscribers read."""
        self.surprises: list[str] = []
        """Answers that no client should get."""
        self._deadline = float("inf")
        self._publishers = [_Publisher(number, self) for number in range(PUBLISHERS)]
        self._subscribers = [_Subscriber(number, self) for number in range(SUBSCRIBERS)]

    def begin(self) -> None:
        """Start the subscribers, and when each has a cursor, the publishers."""
        for subscriber in self._subscribers:
            subscriber.start()
        for subscriber in self._subscribers:
            subscriber.has_begun.wait(LAST_SECONDS)
        for publisher in self._publishers:
            publisher.start()

    def pause(self) -> None:
        """Have no more published, until `resume`; returns when all publications have come to their end."""
        self.is_paused.set()
        deadline = time.monotonic() + LAST_SECONDS
        while not all(publisher.is_idle for publisher in self._publishers) and time.monotonic() < deadline:
            time.sleep(0.01)

    def resume(self) -> None:
        self.is_paused.clear()

    def finish(self) -> None:
        """Publish a last message on every channel, and wait until all subscribers have read up to there.

        Call it when there are no more faults. Whoever has got nowhere for LAST_SECONDS has broken off there.
        """
        self.is_over.set()
        for publisher in self._publishers:
            publisher.join()
        ids = _Publisher(PUBLISHERS, self).last()
        self._deadline = time.monotonic() + LAST_SECONDS
        if not ids:
            self.surprise("live again: nobody acknowledges the last publications")
            self._deadline = 0.0
        self.end = ids[-1] if ids else "none"
        for subscriber in self._subscribers:
            subscriber.join()
        self.record.write(events.End, cursor=ids[-1] if ids else "")

    def is_read(self, cursor: str, progress_at: float) -> bool:
        """Whether a subscriber at this cursor, since this time, has everything, or has had time enough."""
        if not self.end:
            return False
        is_late = time.monotonic() > max(self._deadline, progress_at + LAST_SECONDS)
        return is_late or ("-" in cursor and _place(cursor) >= _place(self.end))

    def surprise(self, what: str) -> None:
        if len(self.surprises) < SURPRISES:
            self.surprises.append(what)


def _place(cursor: str) -> tuple[Any, int]:
    epoch, _, sequence = cursor.rpartition("-")
    return order_of(epoch), int(sequence)
