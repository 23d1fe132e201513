"""How sure a publisher can be: told once, in bounded time, and no more than was reached, in whatever epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.task import Clock

from pushup.broadcast.members import Member
from pushup.broadcast.redis.confirmations import Confirmations
from pushup.broadcast.redis.log import LEASE_SECONDS, RedisLog
from pushup.core.commands import Ack, Confirmation
from pushup.core.cursor import Cursor
from tests.broadcast.redis.fake_redis import FakeRedis

ACCEPTED = Confirmation("accepted")
STATE = b"{pushup}:state"


def member(name: str, sequence: int, epoch: str = "e1") -> Member:
    return Member(name, name, (), f"{epoch}-{sequence}", 0, "1")


class Publishers:
    """Who wants to be surer, at a Redis in memory whose log is at `e1-9`, and what each was told."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.redis = FakeRedis(self.clock)
        self.redis.data[STATE] = {b"epoch": b"e1", b"sequence": b"9", b"tag": b"t"}
        self.connected = 0
        self.confirmations = Confirmations(self._connect, self.clock)
        self.confirmations.follows(self.redis.run)
        self.advance(LEASE_SECONDS)

    async def _connect(self) -> RedisLog:
        self.connected += 1
        log = RedisLog(await self.redis.connect(), "pushup")
        await log.prepare()
        return log

    def confirm(self, ack: Ack, sequence: int = 5, seconds: float = 5.0, epoch: str = "e1") -> list[Confirmation]:
        told: list[Confirmation] = []
        self.confirmations.confirm(ack, Cursor(epoch, sequence), seconds, told.append)
        return told

    def report(self, *members: Member, complete: bool = True) -> None:
        self.confirmations.reported(list(members), complete=complete)

    def advance(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.clock.advance(0.1)
            self.redis.settle()

    def asked(self) -> int:
        """How often Redis was asked for its replicas."""
        return self.redis.executed.count(b"WAIT")


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
        publishers.report(member("a", sequences[0]), member("b", sequences[1]))
        assert told == []
    publishers.report(member("a", 5), member("b", 6), member("c", 5))
    assert told == [Confirmation("stable", nodes=3)]
    publishers.report(member("a", 9))
    publishers.advance(10)
    assert len(told) == 1


@pytest.mark.parametrize("epoch", ["e0", "e2", "e", "e1-1"])
def test_a_node_in_another_epoch_has_not_applied_the_entry(publishers: Publishers, epoch: str) -> None:
    """However far it is there, before or after; the publisher is told at its deadline what was reached."""
    told = publishers.confirm("stable", 5)
    for _ in range(4):
        publishers.report(member("a", 5), member("b", 1_000, epoch))
        publishers.advance(1.2)
    assert told == []
    publishers.advance(0.3)
    assert told == [ACCEPTED]


def test_who_waits_when_the_epoch_changes_is_not_told_stable(publishers: Publishers) -> None:
    """All nodes are far in the new epoch: none of them has the entry of the one that is over."""
    old, new = publishers.confirm("stable", 5), publishers.confirm("stable", 5, epoch="e2")
    publishers.report(member("a", 77, "e2"), member("b", 77, "e2"))
    assert (old, new) == ([], [Confirmation("stable", nodes=2)])
    publishers.advance(5.1)
    assert old == [ACCEPTED]


def test_nothing_is_stable_while_a_node_may_be_missing_in_the_list(publishers: Publishers) -> None:
    """A list that may be incomplete, or a new run of Redis: only once every lease of before would have ended."""
    for harm in (
        lambda: publishers.report(member("a", 9), complete=False),
        lambda: publishers.confirmations.follows("another run"),
    ):
        harm()
        told = publishers.confirm("stable", 5)
        publishers.report(member("a", 9))
        publishers.advance(LEASE_SECONDS - 0.2)
        publishers.report(member("a", 9))
        assert told == []
        publishers.advance(0.3)
        publishers.report(member("a", 9), member("b", 9))
        assert told == [Confirmation("stable", nodes=2)]


def test_a_connection_that_is_made_again_to_the_same_redis_delays_nothing(publishers: Publishers) -> None:
    """The leases are there still."""
    publishers.confirmations.follows("")
    publishers.confirmations.follows(publishers.redis.run)
    told = publishers.confirm("stable", 5)
    publishers.report(member("a", 9))
    assert told == [Confirmation("stable", nodes=1)]


def test_stable_is_not_reached_where_no_node_is_known(publishers: Publishers) -> None:
    """That nobody is behind says nothing where nobody is."""
    told = publishers.confirm("stable", 5)
    publishers.report()
    assert told == []
    publishers.advance(5.1)
    assert told == [ACCEPTED]


def test_each_is_told_what_was_reached_when_its_time_is_over(publishers: Publishers) -> None:
    """Not before, and each at its own time."""
    first, second = publishers.confirm("stable", 1, 2.0), publishers.confirm("stable", 2, 1.0)
    publishers.report(member("a", 0))
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
    publishers.report(member("a", 2), member("b", 7))
    assert told == {1: [Confirmation("stable", nodes=2)], 2: [Confirmation("stable", nodes=2)], 3: []}


def test_one_publisher_that_cannot_be_told_harms_no_other(publishers: Publishers, logged_failures: list[str]) -> None:
    """It is logged, and those after it are told."""

    def fail(confirmation: Confirmation) -> None:
        raise RuntimeError("gone")

    publishers.confirmations.confirm("stable", Cursor("e1", 5), 5.0, fail)
    told = publishers.confirm("stable", 5)
    publishers.report(member("a", 5))
    assert told == [Confirmation("stable", nodes=1)]
    assert ["could not answer a publisher" in line for line in logged_failures] == [True]
    logged_failures.clear()


def test_replicated_is_what_redis_says(publishers: Publishers) -> None:
    """With so many replicas as have it; it is written to first by the connection that asks."""
    publishers.redis.replicas = 2
    told = publishers.confirm("replicated")
    publishers.redis.settle()
    assert told == [Confirmation("replicated", replicas=2)]
    assert publishers.redis.executed[-2:] == [b"EVAL", b"WAIT"]
    assert publishers.redis.data[STATE][b"waits"] == b"1"


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


@pytest.mark.parametrize("lost", ["the entry", "the epoch", "everything"])
def test_replicas_of_a_log_without_the_entry_do_not_count(publishers: Publishers, lost: str) -> None:
    """It has lost it, or is in another epoch; Redis is not asked without end, and others are told."""
    state = {"the entry": (b"e1", b"4"), "the epoch": (b"e2", b"900"), "everything": None}[lost]
    publishers.redis.data[STATE] = {} if state is None else dict(zip((b"epoch", b"sequence"), state, strict=True))
    publishers.redis.replicas = 1
    told = publishers.confirm("replicated", 5)
    other = publishers.confirm("replicated", 4) if lost == "the entry" else []
    publishers.advance(1.0)
    assert publishers.asked() <= 2
    assert other == ([Confirmation("replicated", replicas=1)] if lost == "the entry" else [])
    for _ in range(3):
        publishers.report(member("a", 9))
        publishers.advance(0.3)
    assert told == []
    publishers.advance(4.0)
    assert told == [ACCEPTED]


def test_replicas_of_another_run_of_redis_do_not_count(publishers: Publishers) -> None:
    """One that took over may have given the place to another entry; until this node has found its own there."""
    publishers.redis.restart()
    publishers.redis.replicas = 1
    told = publishers.confirm("replicated")
    publishers.advance(1.0)
    assert (told, publishers.asked()) == ([], 0)
    publishers.confirmations.follows("")
    publishers.report(member("a", 9))
    publishers.advance(1.0)
    assert (told, publishers.asked()) == ([], 0)
    publishers.confirmations.follows(publishers.redis.run)
    publishers.report(member("a", 9))
    publishers.redis.settle()
    assert told == [Confirmation("replicated", replicas=1)]
    assert len(publishers.redis.links) == 1


def test_who_waited_at_a_redis_that_died_is_not_told_by_the_next(publishers: Publishers) -> None:
    """Its replica, which took over, never had the entry; whoever publishes there then asks for its own only."""
    old = publishers.confirm("replicated", 9, 5.0)
    publishers.redis.settle()
    assert publishers.asked() == 1
    publishers.redis.restart({STATE: {b"epoch": b"e2", b"sequence": b"20", b"tag": b"t"}})
    publishers.redis.replicas = 1
    publishers.confirmations.follows("")
    publishers.confirmations.follows(publishers.redis.run)
    new = publishers.confirm("replicated", 20, epoch="e2")
    publishers.redis.settle()
    assert new == [Confirmation("replicated", replicas=1)]
    assert old == []
    publishers.advance(5.1)
    assert old == [ACCEPTED]


def test_a_redis_that_refuses_to_be_written_to_is_not_asked(publishers: Publishers) -> None:
    """WAIT would speak of what the connection has written before."""
    publishers.redis.replicas = 1
    publishers.redis.denies = "OOM full"
    told = publishers.confirm("replicated", seconds=3.0)
    publishers.advance(1.0)
    assert (told, publishers.asked()) == ([], 0)
    publishers.redis.denies = ""
    publishers.report(member("a", 0))
    publishers.redis.settle()
    assert told == [Confirmation("replicated", replicas=1)]


def test_who_asks_while_redis_is_asked_gets_an_answer_of_its_own(publishers: Publishers) -> None:
    """The answer that is under way may not speak of its message; the next one is for all who have come meanwhile."""
    publishers.redis.replicas = 1
    publishers.confirm("replicated")
    publishers.redis.settle()  # there is a connection now
    first = publishers.confirm("replicated")
    later = [publishers.confirm("replicated") for _ in range(3)]
    (link,) = publishers.redis.links
    for _ in range(3):
        link.step()
        if first:
            break
    assert first == [Confirmation("replicated", replicas=1)]
    assert later == [[], [], []]
    publishers.redis.settle()
    assert later == [[Confirmation("replicated", replicas=1)]] * 3
    assert publishers.asked() == 3
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
