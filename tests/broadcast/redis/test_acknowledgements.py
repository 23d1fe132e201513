"""Confirmations: each is given once, in bounded time, and never claims too much, in whatever epoch."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.task import Clock

from pushup.broadcast import Member
from pushup.broadcast.redis.acknowledgements import Confirmations
from pushup.broadcast.redis.log import LEASE_SECONDS, RedisLog
from pushup.core.commands import Ack, Confirmation
from pushup.core.cursor import Cursor
from tests.broadcast.redis.fake_redis import FakeRedis

ACCEPTED = Confirmation("accepted")
STATE = b"{pushup}:5:state"


def member(name: str, sequence: int, epoch: str = "e1") -> Member:
    return Member(name, name, (), f"{epoch}-{sequence}", 0, "1")


class Publishers:
    """Publishers that want more than acceptance, on an in-memory Redis whose log is at `e1-9`."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.redis = FakeRedis(self.clock)
        self.redis.data[STATE] = {b"epoch": b"e1", b"sequence": b"9", b"tag": b"t"}
        self.connected = 0
        self.confirmations = Confirmations(self._connect, self.clock)
        self.confirmations.follows(self.redis.whole_run)
        self.advance(LEASE_SECONDS)

    async def _connect(self) -> RedisLog:
        self.connected += 1
        log = RedisLog(await self.redis.connect(), "pushup")
        await log.prepare()
        return log

    def confirm(self, ack: Ack, sequence: int = 5, seconds: float = 5.0, epoch: str = "e1") -> list[Confirmation]:
        received: list[Confirmation] = []
        self.confirmations.confirm(ack, Cursor(epoch, sequence), seconds, received.append)
        return received

    def report(self, *members: Member, complete: bool = True) -> None:
        self.confirmations.reported(list(members), complete=complete)

    def advance(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.clock.advance(0.1)
            self.redis.settle()

    def wait_count(self) -> int:
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
    """Not before, and with the number of nodes."""
    received = publishers.confirm("stable", 5)
    for sequences in ((4, 9), (9, 4), (0, 0)):
        publishers.report(member("a", sequences[0]), member("b", sequences[1]))
        assert received == []
    publishers.report(member("a", 5), member("b", 6), member("c", 5))
    assert received == [Confirmation("stable", nodes=3)]
    publishers.report(member("a", 9))
    publishers.advance(10)
    assert len(received) == 1


@pytest.mark.parametrize("epoch", ["e0", "e2", "e", "e1-1"])
def test_a_node_in_another_epoch_has_not_applied_the_entry(publishers: Publishers, epoch: str) -> None:
    """However far it is in an earlier or later epoch; at its deadline the publisher gets what was reached."""
    received = publishers.confirm("stable", 5)
    for _ in range(4):
        publishers.report(member("a", 5), member("b", 1_000, epoch))
        publishers.advance(1.2)
    assert received == []
    publishers.advance(0.3)
    assert received == [ACCEPTED]


def test_a_change_of_epoch_confirms_nothing(publishers: Publishers) -> None:
    """All nodes are far ahead in the new epoch, but none has the entry of the old one."""
    old, new = publishers.confirm("stable", 5), publishers.confirm("stable", 5, epoch="e2")
    publishers.report(member("a", 77, "e2"), member("b", 77, "e2"))
    assert (old, new) == ([], [Confirmation("stable", nodes=2)])
    publishers.advance(5.1)
    assert old == [ACCEPTED]


def test_nodes_that_are_all_in_an_earlier_epoch_confirm_nothing(publishers: Publishers) -> None:
    """They were there, and the entry is of the epoch that follows."""
    received = publishers.confirm("stable", 5, epoch="e2")
    publishers.report(member("a", 77, "e1"), member("b", 77, "e1"))
    assert received == []


def test_stable_needs_no_replica(publishers: Publishers) -> None:
    """Redis is asked for its replicas only if a publisher waits for one."""
    received = publishers.confirm("stable", 5)
    publishers.report(member("a", 4))
    publishers.advance(1.0)
    assert (received, publishers.wait_count(), publishers.connected) == ([], 0, 0)
    publishers.confirm("replicated", 5)
    publishers.report(member("a", 4))
    publishers.advance(1.0)
    assert publishers.wait_count() > 0
    publishers.redis.replicas = 1
    publishers.advance(1.0)
    assert received == []


def test_an_aborted_node_answers_nobody(publishers: Publishers) -> None:
    """Neither at once nor later, and it asks Redis for nothing more."""
    received = [publishers.confirm("replicated"), publishers.confirm("stable")]
    publishers.advance(0.5)
    publishers.confirmations.abort()
    publishers.redis.replicas = 1
    publishers.report(member("a", 9))
    publishers.advance(10.0)
    assert received == [[], []]
    assert publishers.redis.links == []


def test_a_node_that_stops_while_it_asks_logs_nothing(logged_failures: list[str]) -> None:
    """Nobody waits for the reply any more."""
    publishers = Publishers()
    received = publishers.confirm("replicated")
    publishers.advance(0.5)
    publishers.confirmations.stop()
    publishers.advance(0.2)
    assert received == [ACCEPTED]
    del publishers
    gc.collect()  # what is lost in a Deferred is logged when that is freed
    assert logged_failures == []


def test_an_unexpected_reply_about_replicas_is_logged(publishers: Publishers, logged_failures: list[str]) -> None:
    """The publisher is told what was reached, and the next one is answered again."""
    publishers.redis.replicas = b"odd"  # type: ignore[assignment]
    received = publishers.confirm("replicated", seconds=1.0)
    publishers.advance(1.2)
    assert received == [ACCEPTED]
    assert ["asking Redis about its replicas failed" in line for line in logged_failures] == [True]
    logged_failures.clear()
    assert publishers.redis.links == []
    publishers.redis.replicas = 1
    again = publishers.confirm("replicated")
    publishers.advance(0.1)
    assert again == [Confirmation("replicated", replicas=1)]


@pytest.mark.parametrize("run", ["a", "z"])
def test_a_redis_in_another_run_is_not_asked(publishers: Publishers, run: str) -> None:
    """Not even if it is reached before the node follows the log there; the connection to it is given up."""
    publishers.confirmations.follows(run)
    publishers.redis.replicas = 1
    received = publishers.confirm("replicated")
    publishers.advance(0.2)
    assert (received, publishers.wait_count(), publishers.redis.links) == ([], 0, [])
    publishers.confirmations.follows(publishers.redis.whole_run)
    publishers.report(member("a", 9))
    publishers.advance(0.2)
    assert received == [Confirmation("replicated", replicas=1)]


def test_each_publisher_is_waited_for_until_its_own_deadline(publishers: Publishers) -> None:
    """One WAIT ends with the earliest; the others share the next one."""
    first, second = publishers.confirm("replicated", seconds=1.0), publishers.confirm("replicated", seconds=3.0)
    publishers.advance(2.0)
    assert (first, second) == ([ACCEPTED], [])
    publishers.redis.replicas = 1
    publishers.advance(0.2)
    assert second == [Confirmation("replicated", replicas=1)]


def test_a_wait_that_ends_without_a_replica_confirms_nobody(publishers: Publishers) -> None:
    """It ends at the deadline of one publisher; another who shares it waits on."""
    first = publishers.confirm("replicated", seconds=1.0)
    second, third = publishers.confirm("replicated", seconds=2.0), publishers.confirm("replicated", seconds=4.0)
    publishers.advance(3.0)
    assert (first, second, third) == ([ACCEPTED], [ACCEPTED], [])


def test_a_reply_that_comes_after_the_deadline_is_too_late(publishers: Publishers) -> None:
    """The publisher has been answered then."""
    received = publishers.confirm("replicated", seconds=1.0)
    publishers.advance(0.5)
    publishers.redis.hangs = True
    publishers.advance(1.0)
    assert received == [ACCEPTED]
    publishers.redis.hangs = False
    publishers.redis.replicas = 1
    publishers.advance(1.0)
    assert received == [ACCEPTED]


def test_a_round_begins_again_although_others_wait_for_more(publishers: Publishers) -> None:
    """A connection that ends costs a publisher no more than the time until the next report."""
    publishers.confirm("stable", 99)
    received = publishers.confirm("replicated")
    publishers.advance(0.5)
    publishers.redis.cut()
    publishers.redis.replicas = 1
    publishers.advance(0.5)
    assert received == []
    publishers.report(member("a", 9))
    publishers.advance(0.2)
    assert received == [Confirmation("replicated", replicas=1)]


def test_nothing_is_stable_while_a_node_may_be_missing_from_the_list(publishers: Publishers) -> None:
    """If the list is incomplete; in a new run of Redis until every earlier lease would have ended."""
    publishers.confirmations.follows("another run")
    received = publishers.confirm("stable", 5)
    publishers.report(member("a", 9))
    publishers.advance(LEASE_SECONDS - 0.2)
    publishers.report(member("a", 9))
    assert received == []
    publishers.advance(0.3)
    publishers.report(member("a", 9), complete=False)
    assert received == []
    publishers.report(member("a", 9), member("b", 9))
    assert received == [Confirmation("stable", nodes=2)]


def test_reconnecting_to_the_same_redis_delays_nothing(publishers: Publishers) -> None:
    """The leases are still there."""
    publishers.confirmations.follows("")
    publishers.confirmations.follows(publishers.redis.whole_run)
    received = publishers.confirm("stable", 5)
    publishers.report(member("a", 9))
    assert received == [Confirmation("stable", nodes=1)]


def test_nothing_is_stable_without_a_known_node(publishers: Publishers) -> None:
    """An empty list does not mean that all nodes have the entry."""
    received = publishers.confirm("stable", 5)
    publishers.report()
    assert received == []
    publishers.advance(5.1)
    assert received == [ACCEPTED]


def test_each_publisher_is_answered_at_its_own_deadline(publishers: Publishers) -> None:
    deadlines, began = (3.0, 1.0, 2.0), publishers.clock.seconds()
    received = [publishers.confirm("stable", seconds=seconds) for seconds in deadlines]
    publishers.report(member("a", 0))
    for now in (0.9, 1.1, 1.9, 2.1, 2.9, 3.1):
        publishers.advance(began + now - publishers.clock.seconds())
        assert received == [[ACCEPTED] if deadline < now else [] for deadline in deadlines], now


def test_only_applied_entries_are_confirmed(publishers: Publishers) -> None:
    """Publishers of later entries keep waiting."""
    received = {sequence: publishers.confirm("stable", sequence) for sequence in (1, 2, 3)}
    publishers.report(member("a", 2), member("b", 7))
    assert received == {1: [Confirmation("stable", nodes=2)], 2: [Confirmation("stable", nodes=2)], 3: []}


def test_a_callback_that_fails_does_not_affect_others(publishers: Publishers, log: list[str]) -> None:
    """The error is logged, and later publishers are answered."""

    def fail(confirmation: Confirmation) -> None:
        raise RuntimeError("gone")

    publishers.confirmations.confirm("stable", Cursor("e1", 5), 5.0, fail)
    received = publishers.confirm("stable", 5)
    publishers.report(member("a", 5))
    assert received == [Confirmation("stable", nodes=1)]
    assert ["could not answer a publisher" in line for line in log] == [True]


def test_replicated_is_what_redis_reports(publishers: Publishers) -> None:
    """It has the number of replicas; the connection that asks writes first, so that WAIT covers the entry."""
    publishers.redis.replicas = 2
    received = publishers.confirm("replicated")
    publishers.redis.settle()
    assert received == [Confirmation("replicated", replicas=2)]
    assert publishers.redis.executed[-2:] == [b"EVAL", b"WAIT"]
    assert publishers.redis.data[STATE][b"waits"] == b"1"


def test_replicated_is_not_reached_without_a_replica(publishers: Publishers) -> None:
    """The publisher is answered at its deadline, however slow Redis is."""
    received = publishers.confirm("replicated", seconds=2.0)
    publishers.advance(1.9)
    assert received == []
    publishers.advance(0.2)
    assert received == [ACCEPTED]


@pytest.mark.parametrize("lost", ["the entry", "the epoch", "everything"])
def test_replicas_of_a_log_without_the_entry_do_not_count(publishers: Publishers, lost: str) -> None:
    """If the log lost the entry or is in another epoch, Redis is not asked forever, and others are answered."""
    state = {"the entry": (b"e1", b"4"), "the epoch": (b"e2", b"900"), "everything": None}[lost]
    publishers.redis.data[STATE] = {} if state is None else dict(zip((b"epoch", b"sequence"), state, strict=True))
    publishers.redis.replicas = 1
    received = publishers.confirm("replicated", 5)
    other = publishers.confirm("replicated", 4) if lost == "the entry" else []
    publishers.advance(1.0)
    assert publishers.wait_count() <= 2
    assert other == ([Confirmation("replicated", replicas=1)] if lost == "the entry" else [])
    for _ in range(3):
        publishers.report(member("a", 9))
        publishers.advance(0.3)
    assert received == []
    publishers.advance(4.0)
    assert received == [ACCEPTED]


def test_replicas_of_another_run_of_redis_do_not_count(publishers: Publishers) -> None:
    """A server that took over may have another entry at that sequence, until this node has found its own there."""
    publishers.redis.restart()
    publishers.redis.replicas = 1
    received = publishers.confirm("replicated")
    publishers.advance(1.0)
    assert (received, publishers.wait_count()) == ([], 0)
    publishers.confirmations.follows("")
    publishers.report(member("a", 9))
    publishers.advance(1.0)
    assert (received, publishers.wait_count()) == ([], 0)
    publishers.confirmations.follows(publishers.redis.whole_run)
    publishers.report(member("a", 9))
    publishers.redis.settle()
    assert received == [Confirmation("replicated", replicas=1)]
    assert len(publishers.redis.links) == 1


def test_a_redis_that_took_over_does_not_confirm_earlier_entries(publishers: Publishers) -> None:
    """It never had the entry; confirmations of later publications are only about themselves."""
    old = publishers.confirm("replicated", 9, 5.0)
    publishers.redis.settle()
    assert publishers.wait_count() == 1
    publishers.redis.restart({STATE: {b"epoch": b"e2", b"sequence": b"20", b"tag": b"t"}})
    publishers.redis.replicas = 1
    publishers.confirmations.follows("")
    publishers.confirmations.follows(publishers.redis.whole_run)
    new = publishers.confirm("replicated", 20, epoch="e2")
    publishers.redis.settle()
    assert new == [Confirmation("replicated", replicas=1)]
    assert old == []
    publishers.advance(5.1)
    assert old == [ACCEPTED]


def test_a_redis_that_refuses_writes_is_not_asked(publishers: Publishers) -> None:
    """WAIT would refer to what the connection wrote before."""
    publishers.redis.replicas = 1
    publishers.redis.denies = "OOM full"
    received = publishers.confirm("replicated", seconds=3.0)
    publishers.advance(1.0)
    assert (received, publishers.wait_count()) == ([], 0)
    publishers.redis.denies = ""
    publishers.report(member("a", 0))
    publishers.redis.settle()
    assert received == [Confirmation("replicated", replicas=1)]


def test_a_request_during_a_wait_gets_its_own_answer(publishers: Publishers) -> None:
    """The pending reply may not cover its message; the next one is for all requests made meanwhile."""
    publishers.redis.replicas = 1
    publishers.confirm("replicated")
    publishers.redis.settle()  # now there is a connection
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
    assert publishers.wait_count() == 3
    assert publishers.connected == 1


def test_nothing_is_confirmed_while_redis_cannot_be_asked(publishers: Publishers) -> None:
    """Refused, cut off or silent: the publisher is answered in time, and Redis is asked again for the next one."""
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
    again = publishers.confirm("replicated", seconds=1.0)  # the connection ended while it was not needed
    publishers.redis.settle()
    assert again == [Confirmation("replicated", replicas=1)]
    publishers.redis.hangs = True
    silent = publishers.confirm("replicated", seconds=1.0)
    publishers.advance(1.1)
    assert silent == [ACCEPTED]
    publishers.advance(6.0)
    publishers.redis.hangs = False
    publishers.redis.replicas = 1
    received = publishers.confirm("replicated", seconds=1.0)
    publishers.advance(0.3)
    assert received == [Confirmation("replicated", replicas=1)]


def test_all_publishers_are_answered_when_the_node_stops(publishers: Publishers) -> None:
    """They get what was reached by then, and no timer is left."""
    received: list[Any] = [publishers.confirm("stable"), publishers.confirm("replicated")]
    publishers.redis.settle()
    publishers.confirmations.stop()
    assert received == [[ACCEPTED], [ACCEPTED]]
