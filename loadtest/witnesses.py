"""Publishers and readers that witness what a server, or a cluster, loses while it is harmed.

Publishers publish as fast as they are acknowledged, each message with an idempotency key, and again with the same key
when they are not. Readers follow with their cursors, from before the first message to after the last fault. They take
the servers in turn, except those that stay at one server whatever happens to it. In the end everything is read once
more from the beginning, and compared.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from itertools import cycle, pairwise
from typing import Any, NamedTuple

from pushup.client import Client, ClientError

CHANNELS = ("a", "b", "c")

AGAIN_SECONDS = 0.05
"""After so long a client that was not served tries again, at the next server."""

HOLD_SECONDS = 1.0
"""How long readers let themselves be held."""

Message = dict[str, Any]


class Found(NamedTuple):
    """What became of what was acknowledged."""

    acknowledged: int
    found: int
    lost: int
    repeated: int
    out_of_order: int
    gaps: int
    chains_alike: str


class Longest(NamedTuple):
    """The longest waits of those who take the servers in turn, in seconds."""

    publication: float
    """From the first attempt to publish until it was acknowledged."""

    delivery: float
    """From a message's place in the order until a reader had it."""


LONGEST_COLUMNS = ("longest publication s", "longest delivery s")
"""The fields of `Longest`, for people."""

COLUMNS = ("acknowledged", "found", "lost", "repeated", "out of order", "gaps told", "cursor chains alike")
"""The fields of `Found`, for people."""


class Witnesses:
    """Load on servers at these URLs; publishers pause for so many seconds between publications.

    stay_at: servers that get one more publisher and one more reader each, who go nowhere else
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        key: str | None = None,
        publishers: int = 6,
        readers: int = 3,
        pause: float = 0.0,
        stay_at: Sequence[str] = (),
    ) -> None:
        self._urls = urls
        self._key = key
        self._over = threading.Event()
        with closing(Client(urls[0], key)) as client:
            self._start = str(client.call("GET", "/v1/cursor")["cursor"])
        each = [self._servers(number) for number in range(publishers)]
        each += [_Servers([url], key) for url in stay_at]
        self._publishers = [_Publisher(number, servers, self._over, pause) for number, servers in enumerate(each)]
        each = [self._servers(number) for number in range(readers)]
        each += [_Servers([url], key) for url in stay_at]
        self._readers = [_Reader(servers, self._over, self._start) for servers in each]
        self._moving = publishers, readers

    def begin(self) -> None:
        for thread in (*self._publishers, *self._readers):
            thread.start()

    def end(self) -> None:
        """Let everybody come to an end; the servers are well again."""
        self._over.set()
        for thread in (*self._publishers, *self._readers):
            thread.join()

    def compare(self) -> Found:
        """Read everything again, and see what is there of what was acknowledged."""
        with closing(Client(self._urls[0], self._key)) as client:
            everything = _read_all(client, self._start)
            for reader in self._readers:
                reader.messages += _read_all(client, reader.cursor)
        found = {message["id"]: message["data"] for message in everything}
        told = {id_: data for publisher in self._publishers for id_, data in publisher.acknowledged.items()}
        chains = [everything, *(reader.messages for reader in self._readers)]
        return Found(
            len(told),
            len(found),
            sum(found.get(id_) != data for id_, data in told.items()),
            sum(map(_repeated, chains)),
            sum(map(_out_of_order, chains)),
            sum(reader.gaps for reader in self._readers),
            f"{sum(reader.messages == everything for reader in self._readers)} of {len(self._readers)}",
        )

    def longest(self) -> Longest:
        """How long those who take the servers in turn have waited at most."""
        publishers, readers = self._moving
        return Longest(
            max(publisher.longest for publisher in self._publishers[:publishers]),
            max(reader.longest for reader in self._readers[:readers]),
        )

    def _servers(self, number: int) -> _Servers:
        first = number % len(self._urls)
        return _Servers([*self._urls[first:], *self._urls[:first]], self._key)


def _repeated(chain: list[Message]) -> int:
    return len(chain) - len({json.dumps(message["data"]) for message in chain})


def _out_of_order(chain: list[Message]) -> int:
    """How often a place does not follow the one before; and, for each publisher, a number."""
    count = sum(_place(a) >= _place(b) for a, b in pairwise(chain))
    for publisher in {message["data"][0] for message in chain}:
        numbers = [message["data"][1] for message in chain if message["data"][0] == publisher]
        count += sum(a >= b for a, b in pairwise(numbers))
    return count


def _place(message: Message) -> tuple[str, int]:
    epoch, _, sequence = message["id"].rpartition("-")
    return epoch, int(sequence)


def _read_all(client: Client, cursor: str) -> list[Message]:
    """All messages after a cursor."""
    messages: list[Message] = []
    more = True
    while more:
        answer = client.poll(list(CHANNELS), cursor, timeout=0)
        cursor, more = answer["cursor"], answer["more"]
        messages += answer["messages"]
    return messages


class _Servers:
    """Clients of all servers, taken in turn."""

    def __init__(self, urls: Sequence[str], key: str | None) -> None:
        self._clients = [Client(url, key) for url in urls]
        self._turn = cycle(self._clients)

    def next(self) -> Client:
        return next(self._turn)

    def close(self) -> None:
        for client in self._clients:
            client.close()


class _Publisher(threading.Thread):
    """Publishes one message after the other, each until it is acknowledged."""

    def __init__(self, number: int, servers: _Servers, over: threading.Event, pause: float) -> None:
        super().__init__(daemon=True)
        self.acknowledged: dict[str, list[int]] = {}
        self.longest = 0.0
        self._number = number
        self._servers = servers
        self._over = over
        self._pause = pause

    def run(self) -> None:
        count = 0
        with ExitStack() as stack:
            stack.callback(self._servers.close)
            while not self._over.is_set():
                self._publish([self._number, count])
                count += 1
                time.sleep(self._pause)

    def _publish(self, data: list[int]) -> None:
        channels = random.sample(CHANNELS, random.randint(1, len(CHANNELS)))  # noqa: S311  # no secret
        began = time.monotonic()
        while not self._over.is_set():
            try:
                told = self._servers.next().publish(channels, data, idempotency_key="-".join(map(str, data)))
            except ClientError as error:
                if not error.may_pass:
                    raise
                time.sleep(AGAIN_SECONDS)
            else:
                self.longest = max(self.longest, time.monotonic() - began)
                self.acknowledged[told["id"]] = data
                return


class _Reader(threading.Thread):
    """Follows all channels with its cursor."""

    def __init__(self, servers: _Servers, over: threading.Event, cursor: str) -> None:
        super().__init__(daemon=True)
        self.messages: list[Message] = []
        self.gaps = 0
        self.longest = 0.0
        self.cursor = cursor
        self._servers = servers
        self._over = over

    def run(self) -> None:
        with ExitStack() as stack:
            stack.callback(self._servers.close)
            while not self._over.is_set():
                try:
                    answer = self._servers.next().poll(list(CHANNELS), self.cursor, timeout=HOLD_SECONDS)
                except ClientError as error:
                    if not error.may_pass:
                        raise
                    time.sleep(AGAIN_SECONDS)
                else:
                    now = time.time()
                    self.longest = max(self.longest, *(now - message["time"] for message in answer["messages"]), 0.0)
                    self.cursor = answer["cursor"]
                    self.messages += answer["messages"]
                    self.gaps += len(answer["gaps"])
