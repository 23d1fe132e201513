"""The load: publishers, pollers and streams in threads, which write histories (docs/internals/histories.md).

Each uses the present addresses in turn, so that a chain of cursors goes through servers of both releases. What is
published has a key, and is tried until it is acknowledged.
"""

from __future__ import annotations

import http.client
import itertools
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from loadtest.beyond.cluster_kills.clients import Record
from loadtest.history import events
from loadtest.history.file import read_history
from loadtest.history.verdict import check
from pushup.core.limits import Limits
from tests.server.caller import Caller, Reply, poll_path
from tests.server.server_process import wait_until

CHANNELS = ("a", "b", "c", "d")

LIMITS: dict[str, Any] = {"retention_messages": 100_000, "retention_seconds": 3600.0}
"""Settings of all servers, with which nothing is dropped."""

PUBLISHERS = 3
PAUSE_SECONDS = 0.1
"""Longest pause between two publications of one publisher, and after a request that was not answered."""

HOLD_SECONDS = 1.0

PATIENCE_SECONDS = 60.0
"""How long anything may take on a machine that is busy with something else."""


class Client(threading.Thread):
    """Takes steps until it is done. A failure in one ends it, and the test."""

    def __init__(self, load: Load, name: str) -> None:
        super().__init__(daemon=True)
        self.name = name
        self.steps = 0
        """How often it was told something: acknowledgements, answers, events."""
        self.failure: Exception | None = None
        self.load = load
        self.random = random.Random(name)
        self._turn = itertools.count(self.random.randrange(10))

    def run(self) -> None:
        try:
            while not (self.is_done() or self.load.is_broken_off.is_set()):
                self.step()
        except Exception as error:
            self.failure = error

    def is_done(self) -> bool:
        raise NotImplementedError

    def step(self) -> None:
        raise NotImplementedError

    def address(self) -> str:
        """The next one; waits while there is none."""
        while not (addresses := self.load.addresses):
            assert not self.load.is_broken_off.is_set()
            time.sleep(0.01)
        return addresses[next(self._turn) % len(addresses)]

    def pause(self) -> None:
        time.sleep(PAUSE_SECONDS * self.random.random())

    def call(self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> Reply | str:
        """The reply; or why there is none: no answer, as the server stops, or a 503, which sends clients elsewhere."""
        try:
            with Caller(self.address()) as caller:
                reply = caller.call(method, path, body, headers)
        except (OSError, http.client.HTTPException) as error:
            return repr(error)
        assert reply.status in (200, 201, 503), reply
        return f"503 {reply.text}" if reply.status == 503 else reply


class Publisher(Client):
    """Publishes until the load is over."""

    def is_done(self) -> bool:
        return self.load.is_over.is_set()

    def step(self) -> None:
        draw = self.random
        self.publish([tuple(draw.sample(CHANNELS, draw.choice((1, 1, 2)))) for _ in range(draw.choice((1, 1, 3)))])
        self.pause()

    def publish(self, groups: list[tuple[str, ...]]) -> str:
        """Publish a message for each group of channels; returns the id of the last one."""
        load, key = self.load, f"{self.name}.{self.steps}"
        drafts = tuple(events.Draft(group, f"{key}/{number}") for number, group in enumerate(groups))
        load.record.write(events.Publish, publication=key, messages=drafts, key=key)
        body = {"messages": [{"channels": draft.channels, "data": draft.data} for draft in drafts]}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while isinstance(reply := self.call("POST", "/v1/messages", body, {"Idempotency-Key": key}), str):
            assert time.monotonic() < deadline, f"nobody acknowledges {key}: {reply}"
            load.note_refusal(reply)
            self.pause()
        load.record.acknowledged(key, reply.value)
        load.acknowledged.extend(zip(map(sequence, reply.value["ids"]), [draft.data for draft in drafts], strict=True))
        self.steps += 1
        return str(reply.value["ids"][-1])


class Follower(Client):
    """Follows some channels with its cursor, until it has read to the end of the load."""

    def __init__(self, load: Load, name: str, channels: Sequence[str]) -> None:
        super().__init__(load, name)
        self.cursor = "now"
        self.channels = tuple(channels)

    def is_done(self) -> bool:
        return bool(self.load.end) and self.has_read(self.load.end)

    def has_read(self, end: str) -> bool:
        return "-" in self.cursor and sequence(self.cursor) >= sequence(end)

    def polls(self) -> None:
        self.load.record.write(
            events.Poll, subscriber=self.name, channels=self.channels, cursor=self.cursor, timeout=HOLD_SECONDS
        )

    def is_told(self, answer: dict[str, Any]) -> None:
        self.load.record.answered(self.name, answer)
        self.cursor = answer["cursor"]
        self.steps += 1

    def is_not_told(self, why: str) -> None:
        self.load.record.write(events.Failed, subscriber=self.name, why=why)
        self.load.note_refusal(why)
        self.pause()

    def interrupt(self) -> None:
        """End what it waits for: it may have read the last message before that was known to be the last."""


class Poller(Follower):
    def step(self) -> None:
        self.polls()
        limit = self.random.choice((2, 100))
        reply = self.call("GET", poll_path(*self.channels, cursor=self.cursor, timeout=HOLD_SECONDS, limit=limit))
        if isinstance(reply, str):
            self.is_not_told(reply)
        else:
            self.is_told(reply.value)


class Stream(Follower):
    """Each event that moves the cursor is written down as the answer to a poll, and followed by another poll."""

    def __init__(self, load: Load, name: str, channels: Sequence[str]) -> None:
        super().__init__(load, name, channels)
        self._socket: socket.socket | None = None
        self._gaps: list[Any] = []
        self._closed: list[str] = []

    def step(self) -> None:
        self.polls()
        why = "the stream has ended"
        query = urlencode([*[("channel", channel) for channel in self.channels], ("cursor", self.cursor)])
        with closing(http.client.HTTPConnection(self.address(), timeout=PATIENCE_SECONDS)) as connection:
            try:
                connection.request("GET", f"/v1/events?{query}", headers={"Accept": "application/x-ndjson"})
                self._socket = connection.sock
                with connection.getresponse() as response:
                    assert response.status in (200, 503), response.status
                    why = f"{response.status} {why}"
                    for line in response if response.status == 200 else ():
                        self._take(json.loads(line))
                        if self.is_done():
                            return
            except (OSError, http.client.HTTPException) as error:
                why = repr(error)
            finally:
                self._socket = None
        self.is_not_told(why)

    def _take(self, event: dict[str, Any]) -> None:
        kind, data = event.get("event"), event.get("data")
        if kind == "gap":
            self._gaps.append(data)
        elif kind == "closed":
            self._closed.append(event["data"]["channel"])
        elif "id" in event:
            answer = {
                "cursor": event["id"], "messages": [] if data is None else [data],
                "gaps": self._gaps, "closed": self._closed,
            }  # fmt: skip
            self._gaps, self._closed = [], []
            self.is_told(answer)
            if not self.is_done():
                self.polls()
        else:
            assert event.keys() == {"retry"}, event

    def interrupt(self) -> None:
        if (sock := self._socket) is not None:
            with suppress(OSError):  # it has just ended
                sock.shutdown(socket.SHUT_RDWR)


class Load:
    """All clients, and what they were told."""

    def __init__(self, history: Path, record: Record) -> None:
        self.addresses: tuple[str, ...] = ()
        """Of the servers that are in use now."""
        self.record = record
        self.is_over = threading.Event()
        """Whether publishers stop."""
        self.is_broken_off = threading.Event()
        """Whether all clients stop, as the test has failed."""
        self.end = ""
        """The cursor to which followers read."""
        self.acknowledged: list[tuple[int, str]] = []
        """The sequence and the data of each message so far, in the order of their acknowledgements."""
        self.refusals: list[str] = []
        """What was not answered, or with 503; it was tried again."""
        self._history = history
        self._publishers = [Publisher(self, f"p{number}") for number in range(PUBLISHERS)]
        self._followers = [
            Poller(self, "all", CHANNELS),
            Poller(self, "two", ("c", "b")),
            Poller(self, "one", ("d",)),
            Stream(self, "stream", CHANNELS[:3]),
        ]

    def note_refusal(self, why: str) -> None:
        self.refusals.append(why)

    @property
    def _clients(self) -> list[Client]:
        return [*self._publishers, *self._followers]

    def begin(self) -> None:
        """Start the followers, and when each has a cursor, the publishers."""
        for follower in self._followers:
            follower.start()
        self._wait_until(lambda: all(follower.steps for follower in self._followers), "the followers to begin")
        for publisher in self._publishers:
            publisher.start()
        self.go_on()

    def go_on(self, steps: int = 6) -> None:
        """Wait until each client has been told something so many times by servers that are in use now."""
        goals = [(client, client.steps + steps) for client in self._clients]
        self._wait_until(lambda: all(client.steps >= goal for client, goal in goals), "the clients to go on")

    def _wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait while all clients run."""

        def is_met() -> bool:
            self.check_that_all_run()
            return condition()

        wait_until(is_met, f"{what}; what was refused last: {self.refusals[-3:]}", PATIENCE_SECONDS)

    def check_that_all_run(self) -> None:
        for client in self._clients:
            assert client.failure is None, f"{client.name}: {client.failure!r}"

    def check_everything_at(self, address: str) -> None:
        """Read from the beginning at one server: each message that is acknowledged by now comes once, in order."""
        wanted = self.acknowledged.copy()
        found: list[tuple[int, str]] = []
        cursor, last = "earliest", max(wanted)[0]
        deadline = time.monotonic() + PATIENCE_SECONDS
        with Caller(address) as caller:
            while not found or found[-1][0] < last:
                assert time.monotonic() < deadline, f"{address} has no message after {cursor}"
                reply = caller.call("GET", poll_path(*CHANNELS, cursor=cursor, timeout=HOLD_SECONDS, limit=1000))
                if reply.status == 503:  # it has just started
                    time.sleep(0.05)
                    continue
                assert (reply.status, reply.value["gaps"]) == (200, []), reply
                found += [(sequence(message["id"]), message["data"]) for message in reply.value["messages"]]
                cursor = reply.value["cursor"]
        assert found == sorted(set(found)), f"{address} has messages twice, or not in order"
        assert len({data for _, data in found}) == len(found), f"{address} has messages twice"
        assert set(wanted) <= set(found), f"{address} lacks {sorted(set(wanted) - set(found))[:5]}"

    def finish(self) -> None:
        """Publish a last message on all channels, and wait until everybody has read to there."""
        self.is_over.set()
        for publisher in self._publishers:
            publisher.join(PATIENCE_SECONDS)
        self.check_that_all_run()
        end = Publisher(self, "last").publish([CHANNELS])
        self.end = end
        self._wait_until(lambda: all(follower.has_read(end) for follower in self._followers), f"all to read to {end}")
        self._join()
        self.check_that_all_run()
        self.record.write(events.End, cursor=end)

    def _join(self) -> None:
        for client in self._clients:
            while client.is_alive():
                if isinstance(client, Follower):
                    client.interrupt()
                client.join(0.05)

    def judge(self) -> None:
        """Nothing was lost, nothing was repeated, everything came in order, and nobody was told of a gap."""
        verdict = check(read_history(self._history))
        assert not verdict.broken, f"{self._history}, line {verdict.line}: {verdict.broken}"
        assert verdict.without_loss == {}
        counts = self.record.counts
        assert counts["gaps"] == 0
        assert counts["publish"] == counts["acknowledged"] > 0

    def break_off(self) -> None:
        """Have all threads end."""
        self.is_broken_off.set()
        self._join()


@contextmanager
def loaded(directory: Path) -> Iterator[Load]:
    """Clients that have yet to begin; in the end they finish, and what they were told is judged."""
    history = directory / "history.jsonl"
    with history.open("wb", buffering=0) as file:
        load = Load(history, Record(file, Limits(**LIMITS)))
        try:
            yield load
            load.finish()
        finally:
            load.break_off()
    load.judge()


def sequence(cursor: str) -> int:
    """The sequence in an id or a cursor."""
    return int(cursor.rpartition("-")[2])
