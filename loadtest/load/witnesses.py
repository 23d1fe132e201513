"""Publishers and readers that detect what a server, or a cluster, loses while faults are injected.

Publishers publish as fast as they are acknowledged; each message has an idempotency key, and is retried with the same
key until it is acknowledged. Readers follow with their cursors from before the first message until after the last
fault. Both use the servers in turn, except those that are tied to one server. At the end, everything is read again from
the start and compared.
"""

from __future__ import annotations

import json
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import cycle, pairwise
from typing import NamedTuple

from pushup.client import Client, ClientError, Message

CHANNELS = ("a", "b", "c")

RETRY_SECONDS = 0.05
"""Delay before a client retries a failed request at the next server."""

HOLD_SECONDS = 1.0
"""Timeout of the readers' polls."""


class Found(NamedTuple):
    """The fate of the acknowledged messages.

    `complete_chains`: how many readers saw every message in order, of how many.
    """

    acknowledged: int
    found: int
    lost: int
    repeated: int
    out_of_order: int
    gaps: int
    complete_chains: str

    @property
    def failed(self) -> str:
        """What was broken; empty if nothing was."""
        whole, _, all_ = self.complete_chains.partition(" of ")
        is_whole = self.acknowledged > 0 and whole == all_ and not any(self[2:6])
        return "" if is_whole else ", ".join(f"{name}: {value}" for name, value in zip(COLUMNS, self, strict=True))


class Longest(NamedTuple):
    """The longest waits of the clients that use the servers in turn, in seconds."""

    publication: float
    """From the first attempt to publish until it was acknowledged."""

    delivery: float
    """From when a message was ordered until a reader received it."""


LONGEST_COLUMNS = ("longest publication s", "longest delivery s")
"""Table headings for the fields of `Longest`."""

COLUMNS = ("acknowledged", "found", "lost", "repeated", "out of order", "gaps reported", "complete cursor chains")
"""Table headings for the fields of `Found`."""


class Witnesses:
    """Load on the servers at these URLs.

    pause: seconds that a publisher waits between publications
    stay_at: servers that each get an additional publisher and reader, which use no other server
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
            self._start = client.cursor()
        each = [self._servers(number) for number in range(publishers)]
        each += [_Servers([url], key) for url in stay_at]
        self._publishers = [_Publisher(number, servers, self._over, pause) for number, servers in enumerate(each)]
        each = [self._servers(number) for number in range(readers)]
        each += [_Servers([url], key) for url in stay_at]
        self._readers = [_Reader(servers, self._over, self._start) for servers in each]
        self._moving = publishers, readers

    def begin(self) -> None:
        for witness in (*self._publishers, *self._readers):
            witness.start()

    def end(self) -> None:
        """Stop all clients. Call it when the servers work again. Raises: ClientError if a server refused one."""
        self._over.set()
        for witness in (*self._publishers, *self._readers):
            witness.end()

    def compare(self) -> Found:
        """Read everything again, and compare it with what was acknowledged, and with what readers received."""
        with closing(Client(self._urls[0], self._key)) as client:
            everything = _read_all(client, self._start)
            for reader in self._readers:
                reader.messages += _read_all(client, reader.cursor)
        found = {message.id: message.data for message in everything}
        expected = _without_cursors(everything)
        acknowledged = {id_: data for publisher in self._publishers for id_, data in publisher.acknowledged.items()}
        chains = [everything, *(reader.messages for reader in self._readers)]
        return Found(
            len(acknowledged),
            len(found),
            sum(found.get(id_) != data for id_, data in acknowledged.items()),
            sum(map(_repeated, chains)),
            sum(map(_out_of_order, chains)),
            sum(reader.gaps for reader in self._readers),
            f"{sum(_without_cursors(reader.messages) == expected for reader in self._readers)} of {len(self._readers)}",
        )

    def longest(self) -> Longest:
        """The longest waits of the clients that use the servers in turn."""
        publishers, readers = self._moving
        return Longest(
            max(publisher.longest for publisher in self._publishers[:publishers]),
            max(reader.longest for reader in self._readers[:readers]),
        )

    def _servers(self, number: int) -> _Servers:
        first = number % len(self._urls)
        return _Servers([*self._urls[first:], *self._urls[:first]], self._key)


def _without_cursors(chain: list[Message]) -> list[Message]:
    """The same messages, however they were divided into answers."""
    return [replace(message, cursor="") for message in chain]


def _repeated(chain: list[Message]) -> int:
    return len(chain) - len({json.dumps(message.data) for message in chain})


def _out_of_order(chain: list[Message]) -> int:
    """How many messages have an id, or a number of their publisher, that is not higher than the one before."""
    count = sum(_place(a) >= _place(b) for a, b in pairwise(chain))
    for publisher in {message.data[0] for message in chain}:
        numbers = [message.data[1] for message in chain if message.data[0] == publisher]
        count += sum(a >= b for a, b in pairwise(numbers))
    return count


def _place(message: Message) -> tuple[str, int]:
    epoch, _, sequence = message.id.rpartition("-")
    return epoch, int(sequence)


def _read_all(client: Client, cursor: str) -> list[Message]:
    """All messages after a cursor."""
    messages: list[Message] = []
    more = True
    while more:
        answer = client.poll(list(CHANNELS), cursor, timeout=0)
        cursor, more = answer.cursor, answer.more
        messages += answer.messages
    return messages


class _Servers:
    """Clients of several servers, used in turn."""

    def __init__(self, urls: Sequence[str], key: str | None) -> None:
        self._clients = [Client(url, key, patience=0) for url in urls]
        self._turn = cycle(self._clients)

    def next(self) -> Client:
        return next(self._turn)

    def close(self) -> None:
        for client in self._clients:
            client.close()


class _Witness(threading.Thread, ABC):
    """A client in a thread of its own, which works until all is over."""

    def __init__(self, servers: _Servers, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.longest = 0.0
        self._servers = servers
        self._over = over
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            with closing(self._servers):
                self._work()
        except Exception as error:  # `end` raises it
            self._error = error

    def end(self) -> None:
        """Wait until it has ended. Raises whatever ended it too early: it has seen less than it should."""
        self.join()
        if self._error is not None:
            raise self._error

    @abstractmethod
    def _work(self) -> None:
        """Send requests until all is over."""


class _Publisher(_Witness):
    """Publishes one message after another, retrying each until it is acknowledged."""

    def __init__(self, number: int, servers: _Servers, over: threading.Event, pause: float) -> None:
        super().__init__(servers, over)
        self.acknowledged: dict[str, list[int]] = {}
        self._number = number
        self._pause = pause

    def _work(self) -> None:
        count = 0
        while not self._over.is_set():
            self._publish([self._number, count])
            count += 1
            time.sleep(self._pause)

    def _publish(self, data: list[int]) -> None:
        channels = random.sample(CHANNELS, random.randint(1, len(CHANNELS)))  # noqa: S311  # no secret
        began = time.monotonic()
        while not self._over.is_set():
            try:
                published = self._servers.next().publish(channels, data, idempotency_key="-".join(map(str, data)))
            except ClientError as error:
                if not error.may_pass:
                    raise
                time.sleep(RETRY_SECONDS)
            else:
                self.longest = max(self.longest, time.monotonic() - began)
                self.acknowledged[published.id] = data
                return


class _Reader(_Witness):
    """Reads all channels with its cursor."""

    def __init__(self, servers: _Servers, over: threading.Event, cursor: str) -> None:
        super().__init__(servers, over)
        self.messages: list[Message] = []
        self.gaps = 0
        self.cursor = cursor

    def _work(self) -> None:
        while not self._over.is_set():
            try:
                answer = self._servers.next().poll(list(CHANNELS), self.cursor, timeout=HOLD_SECONDS)
            except ClientError as error:
                if not error.may_pass:
                    raise
                time.sleep(RETRY_SECONDS)
            else:
                now = time.time()
                self.longest = max(self.longest, *(now - message.time for message in answer.messages), 0.0)
                self.cursor = answer.cursor
                self.messages += answer.messages
                self.gaps += len(answer.gaps)
