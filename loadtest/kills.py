"""kill -9 of a server with a journal, at random moments under load: is anything lost that was acknowledged?

Publishers publish as fast as they are acknowledged, each message with an idempotency key, and again with the same key
when they are not. Readers follow with their cursors, from before the first message to after the last kill. In the end
everything is read once more from the beginning, and compared.
"""

from __future__ import annotations

import json
import random
import socket
import tempfile
import threading
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

from loadtest.results import Figure, Progress, Table
from loadtest.servers import running
from pushup.client import Client, ClientError

KILLS = 200
QUICK_KILLS = 20
PUBLISHERS = 6
READERS = 3
CHANNELS = ("a", "b", "c")
LONGEST_SECONDS = 1.5
"""A server lives between no time and so long."""

SEED = 9

Message = dict[str, Any]


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    return measure(QUICK_KILLS if quick else KILLS)


def measure(kills: int) -> tuple[list[Table], list[Figure]]:
    """What was acknowledged, and what became of it."""
    chance = random.Random(SEED)  # noqa: S311  # the same kills each time
    port = _free_port()
    progress = Progress(kills)
    over = threading.Event()
    publishers = [_Publisher(number, port, over) for number in range(PUBLISHERS)]
    readers = [_Reader(port, over) for _ in range(READERS)]
    with tempfile.TemporaryDirectory(dir=".") as folder:
        flags = ["--broadcast", f"journal:{Path(folder) / 'journal.db'}", "--set", "retention_messages=10000000"]
        flags += ["--set", "retention_seconds=1h", "--set", "retention_bytes=4GiB"]
        with running(*flags, port=port), closing(Client(f"http://127.0.0.1:{port}")) as client:
            start = str(client.call("GET", "/v1/cursor")["cursor"])
        for reader in readers:
            reader.cursor = start
        threads: list[threading.Thread] = [*publishers, *readers]
        for thread in threads:
            thread.start()
        for number in range(kills):
            progress.step(f"kill {number + 1}")
            with running(*flags, port=port):
                time.sleep(LONGEST_SECONDS * chance.random())
        with running(*flags, port=port):
            time.sleep(2.0)
            over.set()
            for thread in threads:
                thread.join()
            with closing(Client(f"http://127.0.0.1:{port}")) as client:
                everything = _read_all(client, start, [])
                for reader in readers:
                    _read_all(client, reader.cursor, reader.messages)
    progress.end()
    row = (kills, sum(len(p.acknowledged) for p in publishers), *_compare(publishers, readers, everything))
    columns = ("kills", "acknowledged", "found", "lost", "repeated", "out of order", "gaps told", "cursor chains alike")
    return [Table("kills", "kill -9 of a server with a journal, under load", columns, [row])], []


def _compare(publishers: list[_Publisher], readers: list[_Reader], everything: list[Message]) -> tuple[int | str, ...]:
    found = {message["id"]: message["data"] for message in everything}
    told = {id_: data for publisher in publishers for id_, data in publisher.acknowledged.items()}
    said = [json.dumps(message["data"]) for message in everything]
    places = [int(message["id"].rpartition("-")[2]) for message in everything]
    out_of_order = sum(a >= b for a, b in pairwise(places))
    for publisher in publishers:
        numbers = [data[1] for data in found.values() if data[0] == publisher.number]
        out_of_order += sum(a >= b for a, b in pairwise(numbers))
    return (
        len(everything),
        sum(found.get(id_) != data for id_, data in told.items()),
        len(said) - len(set(said)),
        out_of_order,
        sum(reader.gaps for reader in readers),
        f"{sum(reader.messages == everything for reader in readers)} of {len(readers)}",
    )


class _Publisher(threading.Thread):
    """Publishes one message after the other, each until it is acknowledged."""

    def __init__(self, number: int, port: int, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.acknowledged: dict[str, list[int]] = {}
        self._client = Client(f"http://127.0.0.1:{port}")
        self._over = over

    def run(self) -> None:
        with closing(self._client):
            self._publish()

    def _publish(self) -> None:
        count = 0
        while not self._over.is_set():
            data = [self.number, count]
            channels = random.sample(CHANNELS, random.randint(1, len(CHANNELS)))  # noqa: S311  # no secret
            while not self._over.is_set():
                try:
                    told = self._client.publish(channels, data, idempotency_key=f"{self.number}-{count}")
                except ClientError as error:
                    if not error.may_pass:
                        raise
                    time.sleep(0.05)
                else:
                    self.acknowledged[told["id"]] = data
                    break
            count += 1


class _Reader(threading.Thread):
    """Follows all channels with its cursor."""

    def __init__(self, port: int, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.messages: list[Message] = []
        self.gaps = 0
        self.cursor = ""
        self._client = Client(f"http://127.0.0.1:{port}")
        self._over = over

    def run(self) -> None:
        with closing(self._client):
            self._follow()

    def _follow(self) -> None:
        while not self._over.is_set():
            try:
                answer = self._client.poll(list(CHANNELS), self.cursor, timeout=1.0)
            except ClientError as error:
                if not error.may_pass:
                    raise
                time.sleep(0.05)
            else:
                self.cursor = answer["cursor"]
                self.messages += answer["messages"]
                self.gaps += len(answer["gaps"])


def _read_all(client: Client, cursor: str, messages: list[Message]) -> list[Message]:
    """All messages after a cursor, added to these."""
    more = True
    while more:
        answer = client.poll(list(CHANNELS), cursor, timeout=0)
        cursor, more = answer["cursor"], answer["more"]
        messages += answer["messages"]
    return messages


def _free_port() -> int:
    """A port that is free, so that the server can come back to it."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
