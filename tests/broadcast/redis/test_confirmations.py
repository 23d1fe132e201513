"""How sure a publisher can be: told once, in bounded time, and no more than was reached."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.task import Clock

from pushup.broadcast.members import Member
from pushup.broadcast.redis.confirmations import Confirmations
from pushup.broadcast.redis.log import RedisLog
from pushup.core.commands import Ack, Confirmation
from tests.broadcast.redis.fake_redis import FakeRedis

ACCEPTED = Confirmation("accepted")


def member(name: str, sequence: int) -> Member:
    return Member(name, name, (), f"e1-{sequence}", 0, "1")


class Publishers:
    """Who wants to be surer, at a Redis in memory, and what each was told."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.redis = FakeRedis(self.clock)
        self.connected = 0
        self.confirmations = Confirmations(self._connect, self.clock)

    async def _connect(self) -> RedisLog:
        self.connected += 1
        return RedisLog(await self.redis.connect(), "pushup")

    def confirm(self, ack: Ack, sequence: int = 5, seconds: float = 5.0) -> list[Confirmation]:
        told: list[Confirmation] = []
        self.confirmations.confirm(ack, sequence, seconds, told.append)
        return told

    def advance(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.clock.advance(0.1)
            self.redis.settle()

    def asked(self) -> int:
        """How often Redis was asked for its replicas."""
        return self.redis.executed.count(b"HINCRBY")


@pytest.fixture
def publishers() -> Iterator[Publishers]:
    publishers = Publishers()
    yield publishers
    publishers.confirmations.stop()
    publishers.advance(0.2)
    assert publishers.clock.getDelayedCalls() == []


def test_stable_is_reached_when_the_last_node_has_it(publishers: Publishers) -> None:
    """Not before, and with the number of nodes that live."""
    told = publishers.confirm("stable", 5)
    for sequences in ((4, 9), (9, 4), (0, 0)):
        publishers.confirmations.reported([member("a", sequences[0]), member("b", sequences[1])])
        assert told == []
    publishers.confirmations.reported([member("a", 5), member("b", 6), member("c", 5)])
    assert told == [Confirmation("stable", nodes=3)]
    publishers.confirmations.reported([member("a", 9)])
    publishers.advance(10)
    assert len(told) == 1


def test_stable_is_not_reached_where_no_node_is_known(publishers: Publishers) -> None:
    """That nobody is behind says nothing where nobody is."""
    told = publishers.confirm("stable", 5)
    publishers.confirmations.reported([])
    assert told == []
    publishers.advance(5.1)
    assert told == [ACCEPTED]


def test_each_is_told_what_was_reached_when_its_time_is_over(publishers: Publishers) -> None:
    """Not before, and each at its own time."""
    first, second = publishers.confirm("stable", 1, 2.0), publishers.confirm("stable", 2, 1.0)
    publishers.confirmations.reported([member("a", 0)])
    publishers.advance(0.9)
    assert (first, second) == ([], [])
    publishers.advance(0.2)
    assert (first, second) == ([], [ACCEPTED])
    publishers.advance(0.8)
    assert first == []
    publishers.advance(0.2)
    assert first == [ACCEPTED]


def test_only_those_whose_place_was_reached_are_told(publishers: Publishers) -> None:
    """The others wait on."""
    told = {sequence: publishers.confirm("stable", sequence) for sequence in (1, 2, 3)}
    publishers.confirmations.reported([member("a", 2), member("b", 7)])
    assert told == {1: [Confirmation("stable", nodes=2)], 2: [Confirmation("stable", nodes=2)], 3: []}


def test_replicated_is_what_redis_says(publishers: Publishers) -> None:
    """With so many replicas as have it; it is written to first by the connection that asks."""
    publishers.redis.replicas = 2
    told = publishers.confirm("replicated")
    publishers.redis.settle()
    assert told == [Confirmation("replicated", replicas=2)]
    assert publishers.redis.executed[-2:] == [b"HINCRBY", b"WAIT"]


def test_replicated_is_not_reached_without_a_replica(publishers: Publishers) -> None:
    """The publisher is told when its time is over, whatever Redis is slow to say."""
    told = publishers.confirm("replicated", seconds=2.0)
    publishers.advance(1.9)
    assert told == []
    publishers.advance(0.2)
    assert told == [ACCEPTED]


def test_a_replica_that_comes_in_time_counts(publishers: Publishers) -> None:
    """Redis answers as soon as it has it."""
    told = publishers.confirm("replicated", seconds=5.0)
    publishers.advance(2.0)
    publishers.redis.replicas = 1
    publishers.advance(0.2)
    assert told == [Confirmation("replicated", replicas=1)]


def test_who_asks_while_redis_is_asked_gets_an_answer_of_its_own(publishers: Publishers) -> None:
    """The answer that is under way may not speak of its message; the next one is for all who have come meanwhile."""
    first = publishers.confirm("replicated")
    publishers.redis.step()
    later = [publishers.confirm("replicated") for _ in range(3)]
    publishers.redis.replicas = 1
    (link,) = publishers.redis.links
    for _ in range(3):
        link.step()
        if first:
            break
    assert first == [Confirmation("replicated", replicas=1)]
    assert later == [[], [], []]
    publishers.redis.settle()
    assert later == [[Confirmation("replicated", replicas=1)]] * 3
    assert publishers.asked() == 2
    assert publishers.connected == 1


def test_while_redis_cannot_be_asked_nothing_is_claimed(publishers: Publishers) -> None:
    """Refused, cut off, silent: the publisher is told in its time, and the next one has Redis asked again."""
    publishers.redis.refuses = "nobody there"
    refused = publishers.confirm("replicated", seconds=1.0)
    publishers.advance(1.1)
    assert refused == [ACCEPTED]
    publishers.redis.refuses = ""
    cut = publishers.confirm("replicated", seconds=1.0)
    publishers.redis.settle()
    publishers.redis.cut()
    assert cut == []
    publishers.advance(1.1)
    assert cut == [ACCEPTED]
    publishers.redis.replicas = 1
    again = publishers.confirm("replicated", seconds=1.0)
    publishers.redis.settle()
    assert again == [Confirmation("replicated", replicas=1)]
    publishers.redis.cut()
    again = publishers.confirm("replicated", seconds=1.0)  # the connection has ended while nobody needed it
    publishers.redis.settle()
    assert again == [Confirmation("replicated", replicas=1)]
    publishers.redis.hangs = True
    silent = publishers.confirm("replicated", seconds=1.0)
    publishers.advance(1.1)
    assert silent == [ACCEPTED]
    publishers.advance(6.0)
    publishers.redis.hangs = False
    publishers.redis.replicas = 1
    told = publishers.confirm("replicated", seconds=1.0)
    publishers.advance(0.3)
    assert told == [Confirmation("replicated", replicas=1)]


def test_when_the_node_stops_all_are_told(publishers: Publishers) -> None:
    """What was reached by then, and nothing rings any more."""
    told: list[Any] = [publishers.confirm("stable"), publishers.confirm("replicated")]
    publishers.redis.settle()
    publishers.confirmations.stop()
    assert told == [[ACCEPTED], [ACCEPTED]]
