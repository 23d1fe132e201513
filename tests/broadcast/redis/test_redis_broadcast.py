"""A node on the message log: the outcomes it reports, when it is ready, and how it recovers when the log was lost."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock

from pushup.broadcast.admission import WaitingLimits, size_of
from pushup.broadcast.redis.catch_up import VOUCH_SECONDS, EpochStarter
from pushup.broadcast.redis.heartbeat import REPORT_SECONDS
from pushup.broadcast.redis.leader import LOG_SECONDS, SAVE_CHANGES, CheckpointSaver
from pushup.broadcast.redis.lease import MARGIN_SECONDS
from pushup.broadcast.redis.log import LEASE_SECONDS, RedisLog
from pushup.broadcast.redis.records import Tail
from pushup.broadcast.redis.redis_broadcast import RedisBroadcast
from pushup.broadcast.redis.redis_connection import RedisConnection
from pushup.broadcast.redis.redis_errors import CannotConnect, ErrorReply
from pushup.broadcast.redis.redis_settings import RedisLimits
from pushup.broadcast.redis.replica import Replica
from pushup.broadcast.redis.scripts import SCRIPTS
from pushup.core.commands import Confirmation, Create, Erase, Erased, Outcome, Published
from pushup.core.cursor import order_of
from pushup.core.errors import ChannelExists, Overloaded, Unavailable
from pushup.core.limits import Limits
from tests.broadcast.redis.fake_redis import FakeRedis, Link, ReplyError
from tests.broadcast.redis.following_nodes import START, Cluster, FollowingNode, NodeConnector
from tests.core.builders import batch, draft, gaps, ids, poll, publish
from tests.net.observed_log import logged_at

UNKNOWN = "this may or may not have been published; retry with the same Idempotency-Key"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three nodes, stopped in the end."""
    cluster = Cluster(3)
    yield cluster
    cluster.end()
    cluster.settle()
    cluster.redis.hangs = False
    assert cluster.clock.getDelayedCalls() == []
    assert cluster.redis.links == []


@pytest.fixture
def node(cluster: Cluster) -> FollowingNode:
    return cluster.nodes[0]


def links_of(cluster: Cluster, node: FollowingNode) -> tuple[Link, Link]:
    """The connection with which a node reads, and the one with which it appends."""
    assert node.follows
    links = cluster.links_of(node)
    (at,) = [at for at, link in enumerate(links) if link.requests and link.requests[0][1][0] == b"XREAD"]
    return links[at], links[at + 1]


def reason(outcomes: list[Outcome]) -> str:
    """Why a command was refused: the text for the publisher, with the text for the operator in brackets."""
    (outcome,) = outcomes
    return shown(outcome)


def shown(outcome: object) -> str:
    assert isinstance(outcome, Unavailable)
    assert outcome.retry_after == 1
    assert not any(secret in outcome.detail for secret in ("Redis", "127.0.0.1", "Error")), outcome.detail
    return f"{outcome.detail} ({outcome.operator_detail})"


# Publishing.


def test_a_publication_is_acknowledged_when_its_node_has_read_it(cluster: Cluster, node: FollowingNode) -> None:
    """Not when Redis has accepted it: the node must be able to serve the cursor in the response."""
    outcomes = node.append(publish("a"))
    reading, appending = links_of(cluster, node)
    assert appending.step()
    assert outcomes == []
    assert reading.step()
    (outcome,) = outcomes
    assert isinstance(outcome, Published)
    assert node.cursor == f"{outcome.epoch}-{outcome.sequence}"
    cluster.settle()
    assert cluster.is_one()


def test_all_nodes_apply_the_commands_of_each(cluster: Cluster) -> None:
    """The publisher gets the outcome, whether success or error, and the states are equal."""
    for n, asked in enumerate(cluster.nodes * 2):
        published = cluster.publish(asked, "a", "b", data=str(n))
        assert published.sequence == n + 1
    assert not isinstance(cluster.do(cluster.nodes[0], Create("c")), Exception)
    outcome = cluster.do(cluster.nodes[1], Create("c"))
    assert isinstance(outcome, ChannelExists)
    assert cluster.is_one()
    assert [ids(each.poll(poll("a"))) for each in cluster.nodes] == [[1, 2, 3, 4, 5, 6]] * 3


def test_a_poll_beyond_the_end_of_the_log_is_answered_lost(cluster: Cluster, node: FollowingNode) -> None:
    """After the next report, which knows where the log ends; one that is ahead of this node only is still held."""
    epoch = cluster.publish(node, "a").epoch
    reading, _ = links_of(cluster, node)
    reading.blind = True
    cluster.publish(cluster.nodes[1], "a")
    beyond, ahead = node.hold(poll("b", cursor=f"{epoch}-3")), node.hold(poll("b", cursor=f"{epoch}-2", timeout=9.0))
    assert beyond.answers == []
    cluster.advance(2 * REPORT_SECONDS)
    assert [gaps(answer) for answer in beyond.answers] == [[("b", "lost")]]
    assert ahead.answers == []


def test_the_outcome_of_an_entry_that_is_not_read_back_is_unknown(cluster: Cluster, node: FollowingNode) -> None:
    """The publisher is told so once, at its deadline; if the message was published after all, every node gets it."""
    reading, _ = links_of(cluster, node)
    reading.blind = True
    first = node.append(publish("a"))
    cluster.advance(0.9)
    second = node.append(publish("a"))
    cluster.advance(4.0)
    assert first == []
    cluster.advance(0.2)
    assert reason(first) == f"{UNKNOWN} (the entry was not read back from Redis within 5 s)"
    assert second == []
    cluster.advance(0.9)
    assert UNKNOWN in reason(second)
    reading.blind = False
    cluster.advance(1.0)
    assert cluster.is_one()
    assert ids(node.poll(poll("a"))) == [1, 2]


def test_the_outcome_is_unknown_when_the_connection_ends(cluster: Cluster, node: FollowingNode, log: list[str]) -> None:
    """Publishers are told so at once, whether Redis has executed the request or not; other publications continue."""
    done, not_done = node.append(publish("a")), node.append(publish("b"))
    _, appending = links_of(cluster, node)
    assert appending.execute_next()
    cluster.redis.cut()
    for outcomes in (done, not_done):
        assert reason(outcomes) == f"{UNKNOWN} (Redis closed the connection)"
    received = reason(node.append(publish("a")))
    assert received == "the message log cannot be reached (Redis closed the connection)"
    cluster.advance(1.0)
    assert cluster.is_one()
    assert ids(node.poll(poll("a", "b"))) == [1]


def test_nothing_is_unknown_when_the_connection_has_ended_before(
    cluster: Cluster, node: FollowingNode, log: list[str]
) -> None:
    """The one that appends ends first: what was not sent is refused, until the other one ends as well."""
    _, appending = links_of(cluster, node)
    appending.end(ConnectionDone())
    for _ in range(2):
        received = reason(node.append(publish("a")))
        assert received == "the message log cannot be reached (a connection to Redis has ended)"
    cluster.advance(1.0)
    assert cluster.is_one()
    assert cluster.publish(node, "a").sequence == 1


def test_a_refusal_by_redis_is_reported_with_its_reason(cluster: Cluster, node: FollowingNode, log: list[str]) -> None:
    """Each publisher gets it, and the log once; the next publication succeeds when the cause is gone."""
    cluster.redis.denies = "OOM command not allowed"
    for _ in range(5):
        refused = node.append(publish("a"))
        cluster.settle()
        assert reason(refused) == "the message log refused this request (Redis: OOM command not allowed)"
    assert node.follows
    assert log == ["Redis: OOM command not allowed; publishing is refused until it is back"]
    cluster.redis.denies = ""
    cluster.publish(node, "a")


def test_a_permanent_failure_does_not_fill_the_log(cluster: Cluster, log: list[str]) -> None:
    """Nodes connect, follow and fail at the same entry repeatedly; each logs this once."""
    cluster.advance(1.0)
    cluster.nodes[0].append(publish("a"))
    links_of(cluster, cluster.nodes[0])[1].execute_next()
    cluster.redis.data[b"{pushup}:5:log"].rows[-1][1][7] = b'{"type":'
    cluster.advance(20.0)
    assert ["cannot read the entry" in line for line in log] == [True] * len(cluster.nodes)


def test_each_outage_is_logged_once(cluster: Cluster, log: list[str]) -> None:
    """It ends with a publication that succeeds; the same reason is logged again then."""
    node = cluster.nodes[0]
    with logged_at("info") as lines:
        for _ in range(2):
            cluster.redis.denies = "OOM full"
            for _ in range(3):
                assert "OOM full" in reason([cluster.do(node, publish("a"))])
            cluster.redis.denies = ""
            cluster.publish(node, "a")
            cluster.advance(100.0, 1.0)
    assert ["OOM full" in line for line in log] == [True] * 2
    assert len([line for line in lines if "works again" in line]) == 2


@pytest.mark.parametrize("how", ["NOSCRIPT", "READONLY"])
def test_errors_that_a_new_connection_solves(cluster: Cluster, node: FollowingNode, log: list[str], how: str) -> None:
    """Scripts that Redis forgot, or a master that became a replica, cost one refused publication and a reconnect."""
    if how == "NOSCRIPT":
        cluster.redis.scripts.clear()
    else:
        cluster.redis.denies = "READONLY You can't write against a read only replica."
    _, appending = links_of(cluster, node)
    refused = node.append(publish("a"))
    cluster.settle()
    assert how in reason(refused)
    assert not appending.open
    cluster.redis.denies = ""
    cluster.advance(0.5)
    cluster.publish(node, "a")


LARGE = publish("a", data="7" * 100_000)


def overloaded(outcomes: list[Outcome]) -> bool:
    return bool(outcomes) and isinstance(outcomes[0], Overloaded)


@pytest.fixture
def narrow(cluster: Cluster) -> FollowingNode:
    """A node where ten large publications may wait."""
    return cluster.start(waiting_limit_bytes=10 * size_of(LARGE))


def test_the_bytes_that_wait_for_redis_are_limited(cluster: Cluster, narrow: FollowingNode) -> None:
    """Beyond the limit nothing is sent, and publishers are told when to retry; each reply from Redis frees room."""
    for _ in range(3):
        cluster.redis.hangs = True
        waiting = [narrow.append(LARGE) for _ in range(10)]
        assert waiting == [[]] * 10
        assert narrow.broadcast.waiting_bytes == 10 * size_of(LARGE)
        assert overloaded(narrow.append(LARGE))
        assert overloaded(narrow.append(publish("a")))
        cluster.redis.hangs = False
        cluster.settle()
        assert all(isinstance(outcomes[0], Published) for outcomes in waiting)
        assert narrow.broadcast.waiting_bytes == 0


@pytest.mark.parametrize("how", ["refused", "lost", "new epoch", "read first"])
def test_room_is_freed_however_a_publication_ends(
    cluster: Cluster, narrow: FollowingNode, log: list[str], how: str
) -> None:
    """Redis refuses it, the connection ends, the epoch ends, or it is read back before its reply arrives."""
    waiting = [narrow.append(LARGE) for _ in range(10)]
    if how == "refused":
        cluster.redis.denies = "OOM"
    elif how == "lost":
        cluster.redis.cut()
    elif how == "new epoch":
        cluster.redis.data[b"{pushup}:5:state"].update({b"epoch": b"another", b"tag": b"another"})
    else:
        reading, appending = links_of(cluster, narrow)
        for _ in range(10):
            appending.execute_next()
        reading.step()
        assert all(waiting)
        assert narrow.broadcast.waiting_bytes == 10 * size_of(LARGE)  # their replies have not arrived yet
    cluster.settle()
    assert [len(outcomes) for outcomes in waiting] == [1] * 10
    if how == "new epoch":
        assert reason(waiting[0]) == "the message log has started a new epoch; retry ()"
    assert narrow.broadcast.waiting_bytes == 0
    cluster.redis.denies = ""
    cluster.advance(5.0)
    assert isinstance(cluster.do(narrow, LARGE), Published)


def test_a_timed_out_publication_counts_until_its_reply(
    cluster: Cluster, narrow: FollowingNode, log: list[str]
) -> None:
    """Its publisher got an unknown outcome, but the request may still be in a buffer of the open connection."""
    cluster.advance(1.0)
    reading, appending = links_of(cluster, narrow)
    reading.blind = True
    appending.rate = 1
    waiting = [narrow.append(LARGE) for _ in range(10)]
    cluster.advance(5.1)
    assert all(UNKNOWN in reason(outcomes) for outcomes in waiting)
    assert appending.open
    assert 7 * size_of(LARGE) <= narrow.broadcast.waiting_bytes <= 9 * size_of(LARGE)
    accepted = 0
    while not overloaded(narrow.append(LARGE)):
        accepted += 1
    assert 1 <= accepted <= 3
    appending.rate = 0
    reading.blind = False
    cluster.advance(1.0)
    assert narrow.broadcast.waiting_bytes == 0
    assert cluster.is_one()


def test_a_callback_that_fails_does_not_affect_others(cluster: Cluster, node: FollowingNode, log: list[str]) -> None:
    """The error is logged, and later publishers get their outcomes."""

    def fail(outcome: Outcome) -> None:
        raise RuntimeError("gone")

    node.node.submit(publish("a"), fail)
    assert isinstance(cluster.do(node, publish("a")), Published)
    assert any("could not answer a publisher" in line for line in log)
    assert node.follows


# Connected or not.


def test_before_redis_was_reached_everything_is_refused(log: list[str]) -> None:
    """Polls, cursors and publications are refused with a reason; once Redis is there, everything works."""
    cluster = Cluster()
    cluster.redis.refuses = "127.0.0.1:6379: refused"
    node = cluster.start()
    assert (node.node.cursor.epoch, node.node.members()[0].cursor) == ("", "-0")
    assert shown(node.broadcast.why_not_ready()) == "the message log cannot be reached (127.0.0.1:6379: refused)"
    for asked in (poll("a"), poll("a", cursor="now", timeout=9.0), poll("a", cursor="e1-5")):
        with pytest.raises(Unavailable):
            node.poll(asked)
    with pytest.raises(Unavailable):
        _ = node.node.here
    assert reason(node.append(publish("a"))) == "the message log cannot be reached (127.0.0.1:6379: refused)"
    cluster.redis.refuses = ""
    cluster.advance(1.0)
    assert node.broadcast.why_not_ready() is None
    cluster.publish(node, "a")
    cluster.end()


def test_before_redis_has_answered_everything_is_refused() -> None:
    """The connection is made, and nothing comes back."""
    cluster = Cluster()
    cluster.redis.hangs = True
    node = cluster.start()
    expected = "the message log cannot be reached (Redis has not been reached yet)"
    assert shown(node.broadcast.why_not_ready()) == reason(node.append(publish("a"))) == expected
    cluster.redis.hangs = False
    cluster.settle()
    assert node.broadcast.why_not_ready() is None
    cluster.end()


@pytest.mark.parametrize(("chance", "most"), [(0.0, 1.0), (0.999, 2.0)])
def test_reconnecting_backs_off(log: list[str], chance: float, most: float) -> None:
    """The pause doubles up to 2 s, minus a random part of up to half, and starts again once it worked for a while."""
    times: list[float] = []

    class Refusing(FakeRedis):
        async def connect(self) -> RedisConnection:
            times.append(self.clock.seconds())
            return await super().connect()

    cluster = Cluster()
    cluster.redis = Refusing(cluster.clock)
    cluster.redis.refuses = "no"
    node = cluster.start(random=lambda: chance)
    cluster.advance(40.0, 0.01)
    pauses = [after - before for before, after in pairwise(times)]
    half = 0.5 + chance / 2
    wanted = [0.1 * half, 0.2 * half, 0.4 * half, 0.8 * half, 1.6 * half, most, most, most]
    assert pauses[:8] == pytest.approx(wanted, abs=0.02)
    assert max(pauses) <= most + 0.02
    cluster.redis.refuses = ""
    while not node.follows:
        cluster.advance(0.1, 0.01)
    cluster.advance(1.0)
    times.clear()
    began = cluster.clock.seconds()
    cluster.redis.cut()
    cluster.advance(11.0, 0.01)
    assert times[0] - began >= most - 0.02  # it had not worked for long
    assert node.follows
    times.clear()
    began = cluster.clock.seconds()
    cluster.redis.cut()
    cluster.advance(0.5, 0.01)
    assert times[0] - began <= 0.1 + 0.02
    assert log == ["Redis: no; publishing is refused until it is back",
                   "Redis: Redis closed the connection; publishing is refused until it is back"]  # fmt: skip
    cluster.end()


def test_a_node_is_ready_while_redis_replies(cluster: Cluster, node: FollowingNode, log: list[str]) -> None:
    """It is not when its lease may have ended, though it is connected."""
    for _ in range(8):
        cluster.advance(1.0)
        assert node.broadcast.why_not_ready() is None
    cluster.redis.hangs = True
    cluster.advance(LEASE_SECONDS - MARGIN_SECONDS - 0.3)
    assert node.broadcast.why_not_ready() is None
    cluster.advance(0.3)
    assert node.broadcast.why_not_ready() is not None
    cluster.redis.hangs = False
    cluster.advance(1.5)
    assert node.broadcast.why_not_ready() is None
    assert cluster.is_one()


@pytest.mark.parametrize("which", [0, 1])
def test_one_stuck_connection_ends_both(cluster: Cluster, node: FollowingNode, log: list[str], which: int) -> None:
    """Whichever it is, the node is back within the timeout plus the duration of a read."""
    links_of(cluster, node)[which].stuck = True
    cluster.publish(cluster.nodes[1], "a")
    cluster.advance(8.0)
    assert cluster.is_one()
    assert ids(node.poll(poll("a"))) == [1]


def test_a_node_that_misses_entries_reconnects(cluster: Cluster, node: FollowingNode, log: list[str]) -> None:
    """It reads from a server that gets no more entries, while it reports to one that does."""
    cluster.advance(1.0)
    reading, _ = links_of(cluster, node)
    reading.blind = True
    cluster.publish(cluster.nodes[1], "a")
    cluster.advance(9.0)
    assert cluster.is_one()
    assert any("reading is stuck" in line for line in log)
    assert not reading.open


def test_a_node_that_catches_up_is_not_interrupted(cluster: Cluster, node: FollowingNode) -> None:
    """As long as it makes progress, however far it is behind the end of the log."""
    cluster.advance(1.0)
    reading, _ = links_of(cluster, node)
    for _ in range(10):
        reading.blind = True
        cluster.publish(cluster.nodes[1], "a")
        cluster.publish(cluster.nodes[1], "a")
        cluster.advance(1.5)
        reading.blind = False
        cluster.advance(0.05)
    assert reading.open


def test_loading_may_take_longer_than_the_timeout(log: list[str]) -> None:
    """A checkpoint of 3 MB at 100 KB a second takes half a minute, but bytes keep arriving."""
    cluster = Cluster(1)
    for n in range(50):
        cluster.publish(cluster.nodes[0], "a", data=f'"{n:060000}"')
    cluster.advance(2.0)
    cluster.redis.rate = 100_000
    node = cluster.start()
    cluster.advance(25.0)
    assert not node.follows
    assert shown(node.broadcast.why_not_ready()) == "this node is still loading the message log ()"
    assert log == []
    cluster.advance(15.0)
    assert cluster.is_one()
    assert len(node.state.snapshot().messages) == 50
    cluster.end()


def test_reading_over_a_slow_link_is_not_interrupted(log: list[str]) -> None:
    """One reply takes half a minute; the connection is kept, because bytes keep arriving."""
    cluster = Cluster(1)
    cluster.redis.rate = 100_000
    node = cluster.start()
    cluster.advance(2.0)
    reading, _ = links_of(cluster, node)
    reading.blind = True
    for n in range(50):
        cluster.publish(cluster.nodes[0], "a", data=f'"{n:060000}"')
    reading.blind = False
    cluster.advance(40.0)
    assert reading.open
    assert log == []
    assert cluster.is_one()
    cluster.end()


@pytest.mark.parametrize("which", ["the first", "the second", "what it is like"])
def test_a_failed_attempt_leaves_no_connection(log: list[str], which: str) -> None:
    """However often a node tries, if one of its two connections cannot be used the other is closed."""

    class Odd(FakeRedis):
        connected = 0

        async def connect(self) -> RedisConnection:
            self.connected += 1
            if which != "what it is like" and self.connected % 2 == (which == "the first"):
                raise CannotConnect("too many clients")
            return await super().connect()

        def _info(self, section: bytes = b"") -> bytes:
            if which == "what it is like":
                raise ReplyError("NOPERM this user has no permissions to run the 'info' command")
            return super()._info(section)

    cluster = Cluster()
    redis = cluster.redis = Odd(cluster.clock)
    node = cluster.start()
    cluster.advance(20.0)
    assert redis.connected > 4
    assert len(redis.links) <= 1
    assert not node.follows
    cluster.end()


def test_polls_are_served_while_redis_is_unreachable(cluster: Cluster, node: FollowingNode, log: list[str]) -> None:
    """Cached messages are answered, and held polls are answered by the next message, in the same epoch."""
    cluster.publish(node, "a", data='"before"')
    cursor = node.cursor
    cluster.redis.refuses = "no"
    cluster.redis.cut()
    held = node.hold(poll("a", cursor=cursor, timeout=60.0))
    assert ids(node.poll(poll("a"))) == [1]
    cluster.advance(5.0)
    cluster.redis.refuses = ""
    cluster.advance(6.0)
    assert held.answers == []
    cluster.publish(cluster.nodes[1], "a")
    assert [ids(answer) for answer in held.answers] == [[2]]


def test_entries_are_applied_while_the_first_report_is_under_way(cluster: Cluster) -> None:
    """However long Redis takes to answer it."""
    settle, cluster.settle = cluster.settle, lambda: None  # type: ignore[method-assign]
    node = cluster.start()
    cluster.settle = settle  # type: ignore[method-assign]
    cluster.redis.executed.clear()
    while b"HSCAN" not in cluster.redis.executed:
        cluster.redis.step()
    _, reports = cluster.links_of(node)
    reports.stuck = True
    cluster.settle()
    assert node.follows
    for _ in range(3):
        cluster.publish(cluster.nodes[0], "a")
    assert node.state.cursor.sequence == 3
    reports.stuck = False
    cluster.advance(2 * REPORT_SECONDS)
    assert cluster.is_one()


def test_much_may_change_while_a_report_is_under_way(cluster: Cluster, node: FollowingNode) -> None:
    """So much that the next one is due at once."""
    links_of(cluster, node)[1].stuck = True
    cluster.advance(2 * REPORT_SECONDS)
    for _ in range(2):
        cluster.do(cluster.nodes[1], batch(*[draft("a") for _ in range(SAVE_CHANGES)]))
    assert node.state.cursor.sequence == 2 * SAVE_CHANGES
    assert node.follows


def test_an_entry_that_cannot_be_read_is_not_skipped(cluster: Cluster, log: list[str]) -> None:
    """The nodes stay at the entry before it, take nothing more, and log the error; its publisher cannot know."""
    cluster.publish(cluster.nodes[0], "a")
    cursors = [node.cursor for node in cluster.nodes]
    outcomes = cluster.nodes[0].append(publish("a"))
    links_of(cluster, cluster.nodes[0])[1].execute_next()
    cluster.redis.data[b"{pushup}:5:log"].rows[-1][1][7] = b'{"type":'
    cluster.advance(0.1)
    assert not any(node.follows for node in cluster.nodes)
    assert all("cannot read the entry" in shown(node.broadcast.why_not_ready()) for node in cluster.nodes)
    assert "cannot read the entry" in reason(cluster.nodes[1].append(publish("a")))
    cluster.advance(5.0)
    assert [node.cursor for node in cluster.nodes] == cursors
    assert UNKNOWN in reason(outcomes)
    assert all("cannot read the entry" in line for line in log)


def test_a_node_that_fails_while_applying_an_entry_reloads(cluster: Cluster, log: list[str]) -> None:
    """Its state is unknown, so it loads the one in Redis, and tries again; the other nodes continue."""
    node = cluster.nodes[0]
    epoch = node.node.cursor.epoch
    node.fail_once()
    cluster.publish(cluster.nodes[1], "a")
    assert [each.follows for each in cluster.nodes] == [False, True, True]
    assert node.broadcast.why_not_ready() is not None
    cluster.publish(cluster.nodes[1], "a")
    cluster.advance(2.0)
    assert cluster.is_one()
    assert node.node.cursor.epoch == epoch
    assert ids(node.poll(poll("a"))) == [1, 2]
    assert ["RuntimeError" in line for line in log] == [True, True]


def test_the_publisher_of_an_entry_that_fails_is_answered_when_it_was_applied(cluster: Cluster, log: list[str]) -> None:
    """Its node has appended the entry, fails while applying it, and loads everything again."""
    node = cluster.nodes[0]
    node.fail_once()
    outcomes = node.append(publish("a"))
    cluster.settle()
    assert (outcomes, node.follows) == ([], False)
    cluster.advance(2.0)
    assert [type(outcome) for outcome in outcomes] == [Published]


def test_a_log_that_cannot_be_followed_for_an_unknown_reason(
    cluster: Cluster, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes are not ready, say why, log it once, and go on when it has passed."""

    async def tail(self: RedisLog) -> Tail:
        raise ValueError("odd")

    monkeypatch.setattr(RedisLog, "tail", tail)
    cluster.redis.cut()
    cluster.advance(5.0)
    for node in cluster.nodes:
        assert not node.follows
        assert "ValueError: odd" in shown(node.broadcast.why_not_ready())
    assert len(log) == 3 * len(cluster.nodes)  # that the connection has ended, the reason, and where it was found
    monkeypatch.undo()
    cluster.advance(3.0)
    assert cluster.is_one()


# The log was lost or changed.


@pytest.mark.parametrize(
    "how",
    [
        *("flushed", "rolled back", "state", "log and its entries"),
        *("forked", "under way", "forked under way", "forked by a"),
    ],
)
def test_a_loss_starts_one_new_epoch_for_all_nodes(cluster: Cluster, log: list[str], how: str) -> None:
    """Channels and keys survive, messages do not; at every node each older cursor gets a gap, once."""
    node = cluster.nodes[1]
    made = cluster.do(node, Create("named", 500.0))
    dump = cluster.redis.dump()
    first = cluster.publish(node, "a", key="k")
    before = node.state.cursor
    if how == "flushed":
        cluster.redis.data.clear()
    elif how == "rolled back":
        cluster.redis.restart(dump)
    elif how == "state":
        del cluster.redis.data[b"{pushup}:5:state"]
    elif how == "log and its entries":
        cluster.redis.restart({**cluster.redis.data, b"{pushup}:5:log": dump.get(b"{pushup}:5:log")})
        cluster.redis.data[b"{pushup}:5:state"].update(dump[b"{pushup}:5:state"])
    elif how == "forked":
        cluster.redis.restart(dump)
        append_as_a_stranger(cluster.redis, before.epoch)
    else:  # connections stay open
        cluster.redis.data = dump
        for _ in range(0 if how == "under way" else 2):
            append_as_a_stranger(cluster.redis, before.epoch, "a" if how == "forked by a" else "stranger")
    cluster.advance(5.0)
    assert cluster.is_one()
    epochs = {each.node.cursor.epoch for each in cluster.nodes}
    assert len(epochs) == 1
    assert before.epoch not in epochs
    for each in cluster.nodes:
        answer = each.poll(poll("a", "named", cursor=str(before)))
        assert gaps(answer) == [("a", "lost"), ("named", "lost")]
        assert each.poll(poll("a", "named", cursor=answer.cursor)).gaps == ()
        assert each.node.channel("named").id == getattr(made, "id", None)
    assert cluster.publish(node, "a", key="k") == first, "it is published once"
    again = cluster.publish(node, "a")
    assert again.epoch == epochs.pop()
    assert again.sequence > before.sequence


def append_as_a_stranger(redis: FakeRedis, epoch: str, name: str = "stranger") -> None:
    """Append as a node that the others do not know."""
    redis.append(epoch.encode(), b"%s.%d" % (name.encode(), len(redis.executed)), publish("b"))
    redis.executed.append(b"APPEND")


def test_a_node_that_reacts_late_to_a_loss_follows_the_epoch_of_the_others(cluster: Cluster, log: list[str]) -> None:
    """If it started another epoch, clients would get two gaps."""
    dump = cluster.redis.dump()
    cluster.publish(cluster.nodes[0], "a")
    cluster.redis.restart(dump)
    cluster.clock.advance(0.06)
    load = SCRIPTS[3].sha.encode()
    late: Link | None = None
    while late is None:
        for link in list(cluster.redis.links):
            if late is None and link.requests and link.requests[0][1][:2] == [b"EVALSHA", load]:
                late, link.stuck = link, True
            link.step()
    cluster.advance(2.0)
    begun = cluster.redis.data[b"{pushup}:5:state"][b"epoch"].decode()
    assert sum(node.node.cursor.epoch == begun for node in cluster.nodes) == 2
    late.stuck = False
    cluster.advance(3.0)
    assert [node.node.cursor.epoch for node in cluster.nodes] == [begun] * 3


def test_held_polls_end_with_their_epoch(cluster: Cluster, log: list[str]) -> None:
    """They get a gap and a cursor of the new epoch, like later polls with the old cursor."""
    node = cluster.nodes[0]
    cluster.publish(node, "a")
    cursor = node.cursor
    held = [node.hold(poll("a", cursor=cursor, timeout=60.0)) for _ in range(300)]
    cluster.redis.data.clear()
    cluster.advance(3.0)
    for poller in held:
        (answer,) = poller.answers
        assert (answer.cursor, answer.messages, gaps(answer)) == (node.cursor, (), [("a", "lost")])
    assert gaps(node.poll(poll("a", cursor=cursor))) == [("a", "lost")]


def test_a_log_of_an_earlier_epoch_starts_a_new_one(cluster: Cluster, log: list[str]) -> None:
    """If Redis comes back with data of an earlier epoch, no node continues that epoch."""
    first = cluster.nodes[0].node.cursor.epoch
    dump = cluster.redis.dump()
    cluster.redis.data.clear()
    cluster.advance(3.0)
    second = cluster.nodes[0].node.cursor.epoch
    cluster.redis.restart(dump)
    cluster.advance(3.0)
    third = cluster.nodes[0].node.cursor.epoch
    assert len({first, second, third}) == 3
    assert cluster.is_one()


def test_cursors_of_an_unknown_epoch_are_refused(cluster: Cluster, node: FollowingNode, log: list[str]) -> None:
    """A node that has not noticed the epoch refuses them rather than repeat messages; other cursors are answered."""
    cluster.publish(node, "a")
    links = links_of(cluster, node)
    for link in links:
        link.stuck = True
    cluster.redis.data.clear()
    cluster.advance(2.0)
    new = cluster.nodes[1].cursor
    old = node.cursor
    assert new.partition("-")[0] != old.partition("-")[0]
    with pytest.raises(Unavailable, match="not yet loaded the epoch"):
        node.poll(poll("a", cursor=new))
    assert ids(node.poll(poll("a"))) == [1]
    assert node.poll(poll("a", cursor=old)).messages == ()
    strangers = ("fffffffffffff-1", "e1-5", "zz-1", "1-1")
    for stranger in strangers:
        with pytest.raises(Unavailable, match="not yet loaded the epoch"):
            node.poll(poll("a", cursor=stranger))
    cluster.advance(8.0)
    assert node.poll(poll("a", cursor=new)).gaps == ()
    for lost in (old, *strangers):
        assert gaps(node.poll(poll("a", cursor=lost))) == [("a", "lost")]


def test_a_report_says_nothing_of_what_came_after_it_was_sent(
    cluster: Cluster, node: FollowingNode, log: list[str]
) -> None:
    """Clients come with cursors of later epochs while the reply to a report, from before these, is on its way.

    One is of this cluster, the other of a cluster that was founded in the same Redis.
    """
    reading, commands = links_of(cluster, node)
    reading.stuck = True
    while not commands.execute_next():
        cluster.clock.advance(0.05)
    commands.stuck = True
    cluster.redis.data.clear()
    cluster.advance(1.0)
    founded = int((START + 1000) * 1000)
    cursors = (cluster.nodes[1].cursor, f"{founded:x}abcd00-7")
    for cursor in cursors:
        with pytest.raises(Unavailable, match="not yet loaded the epoch"):
            node.poll(poll("a", cursor=cursor, timeout=5.0))
    cluster.advance(0.1)
    commands.stuck = False
    assert commands.deliver()
    for cursor in cursors:
        with pytest.raises(Unavailable, match="not yet loaded the epoch"):
            node.poll(poll("a", cursor=cursor, timeout=5.0))


def test_a_cursor_of_an_epoch_that_never_arrives_is_lost(cluster: Cluster, node: FollowingNode, log: list[str]) -> None:
    """It gets a gap once the log was seen to be in another epoch after the cursor came."""
    began = int((START + 1) * 1000)
    stray = f"{began:x}abcd00-7"  # of no cluster that is here
    with pytest.raises(Unavailable):
        node.poll(poll("a", cursor=stray))
    cluster.redis.hangs = True
    cluster.advance(3.0, 0.25)
    with pytest.raises(Unavailable):
        node.poll(poll("a", cursor=stray))
    cluster.redis.hangs = False
    cluster.advance(3 * REPORT_SECONDS)
    assert gaps(node.poll(poll("a", cursor=stray))) == [("a", "lost")]


def test_a_redis_that_restarts_with_all_its_data_costs_nothing(cluster: Cluster, log: list[str]) -> None:
    """The epoch goes on under a later name; cursors stay valid, and a new node relies on those that know the log."""
    cluster.advance(0.5)
    cluster.publish(cluster.nodes[0], "a")
    before = cluster.nodes[0].state.cursor
    held = [node.hold(poll("a", cursor=str(before), timeout=60.0)) for node in cluster.nodes]
    cluster.redis.restart()
    new = cluster.start()
    cluster.advance(3.0)
    assert cluster.is_one()
    assert order_of(new.node.cursor.epoch) > order_of(before.epoch)
    assert [poller.answers for poller in held] == [[]] * 3
    cluster.publish(new, "a")
    for node in cluster.nodes:
        answer = node.poll(poll("a", cursor=str(before)))
        assert (ids(answer), answer.gaps) == ([3], ())
        assert gaps(node.poll(poll("a", cursor=f"{before.epoch}-2"))) == [("a", "lost")]
    assert [[ids(answer) for answer in poller.answers] for poller in held] == [[[3]]] * 3
    assert len({node.state.cursor.epoch for node in cluster.nodes}) == 1


@pytest.mark.parametrize(("appendfsync", "kept"), [(b"always", True), (b"everysec", False)])
def test_after_a_complete_restart_the_durability_of_redis_decides(
    log: list[str], appendfsync: bytes, kept: bool
) -> None:
    """With all nodes restarted too, the log is used only if every write was synced; otherwise a new epoch starts."""
    cluster = Cluster(2)
    cluster.redis.info["aof_enabled"] = "1"
    cluster.redis.appendfsync = appendfsync
    cluster.publish(cluster.nodes[0], "a")
    cursor = cluster.nodes[0].cursor
    cluster.end()
    cluster.redis.restart()
    for _ in range(2):
        cluster.start()
    cluster.advance(VOUCH_SECONDS - 0.5)
    assert not any(node.follows for node in cluster.nodes)
    cluster.advance(3.0)
    assert cluster.is_one()
    for node in cluster.nodes:
        assert gaps(node.poll(poll("a", cursor=cursor))) == ([] if kept else [("a", "lost")])
        assert ids(node.poll(poll("a"))) == ([1] if kept else [])
    cluster.end()


def test_all_nodes_are_restarted_and_redis_is_not(cluster: Cluster) -> None:
    """Redis is still the run in which the log was known to be complete, so no other node is needed."""
    cluster.publish(cluster.nodes[0], "a")
    cursor = cluster.nodes[0].cursor
    cluster.end()
    node = cluster.start()
    assert node.follows
    assert node.cursor == cursor


# Checkpoints.


def test_one_node_saves_for_all_each_second(cluster: Cluster) -> None:
    """It is the node with the lowest id; nothing is saved unless there are new entries."""
    cluster.advance(1.5)
    for n in range(5):
        cluster.publish(cluster.nodes[2], "a", data=str(n))
        cluster.advance(1.5)
        saved = int(cluster.redis.data[b"{pushup}:5:state"][b"saved"])
        assert saved == n + 1
    save = SCRIPTS[2].sha.encode()
    saved_by = [save in links_of(cluster, node)[1].scripts for node in cluster.nodes]
    assert saved_by == [True, False, False]
    scripts, carry_out = cluster.redis.scripts, cluster.redis.scripts[save]
    saves: list[object] = []

    def noted(*arguments: Any) -> Any:
        saves.append(arguments)
        return carry_out(*arguments)

    scripts[save] = noted
    cluster.advance(3.0)
    assert saves == []
    cluster.crash(cluster.nodes[0])
    cluster.publish(cluster.nodes[0], "a")
    cluster.advance(5.0)
    assert int(cluster.redis.data[b"{pushup}:5:state"][b"saved"]) == 6


def test_a_busy_log_is_saved_each_second_and_not_more_often(cluster: Cluster) -> None:
    cluster.advance(1.5)
    saved = set()
    for _ in range(50):
        cluster.publish(cluster.nodes[1], "a")
        cluster.advance(0.1)
        saved.add(cluster.redis.data[b"{pushup}:5:state"][b"saved"])
    assert 4 <= len(saved) <= 6


def test_the_log_reaches_back_for_a_minute(cluster: Cluster, log: list[str]) -> None:
    """A node that was away for less continues in the log, for longer it loads the checkpoint; neither causes a gap."""
    node = cluster.nodes[2]
    cursor = node.cursor
    for seconds, read_on in ((50.0, True), (130.0, False)):
        cluster.stick(node)
        node.connector.is_cut_off = True
        for n in range(int(seconds / 5)):
            cluster.publish(cluster.nodes[0], "a", data=str(n))
            cluster.advance(5.0, 0.25)
        rows = cluster.redis.data[b"{pushup}:5:log"].rows
        assert (rows[0][0] <= node.state.cursor.sequence + 1) is read_on
        node.connector.is_cut_off = False
        cluster.advance(8.0, 0.25)
        assert cluster.is_one()
        answer = node.poll(poll("a", cursor=cursor, limit=1000))
        assert answer.gaps == ()
        assert len(answer.messages) == int(seconds / 5)
        cursor = answer.cursor


def test_the_log_of_a_new_epoch_reaches_back_for_a_minute(cluster: Cluster, log: list[str]) -> None:
    """Saves of the epoch before, at higher sequences, have no part in it."""
    for _ in range(50):
        cluster.publish(cluster.nodes[0], "a")
    cluster.advance(2.0)
    cluster.redis.data.clear()
    cluster.advance(5.0)
    for _ in range(20):
        cluster.publish(cluster.nodes[0], "a")
        cluster.advance(3.0, 0.25)
    assert [number for number, _ in cluster.redis.data[b"{pushup}:5:log"].rows] == [*range(51, 71)]


def saver_of(cluster: Cluster, node: FollowingNode) -> CheckpointSaver:
    replica = Replica(node.node, lambda tag, outcome: None)
    epochs = EpochStarter(node_id="n", replica=replica, mark=None, wall=lambda: 1e9, random=lambda: 0.5)
    return CheckpointSaver(replica=replica, epochs=epochs, clock=cluster.clock)


def test_a_checkpoint_that_is_up_to_date_is_not_saved(cluster: Cluster) -> None:
    """Nor one that is ahead of the node: it would go back."""
    node = cluster.nodes[0]
    cluster.publish(node, "a")
    cluster.publish(node, "a")
    cluster.advance(2.0)
    saver = saver_of(cluster, node)
    assert [saver.is_due(saved) for saved in (0, 1, 2, 3)] == [True, True, False, False]


MARKER = "the text that somebody wants gone"


def erase(cluster: Cluster) -> None:
    """Publish a text, and erase it."""
    cluster.publish(cluster.nodes[0], "a", data=f'"{MARKER}"')
    cluster.advance(2.0)
    outcome = cluster.do(cluster.nodes[1], Erase("channel", "a"))
    assert isinstance(outcome, Erased)
    assert outcome.count == 1


def is_somewhere(cluster: Cluster) -> bool:
    """Whether anything in Redis contains the text."""
    return MARKER.encode() in repr(cluster.redis.data).encode()


def test_what_was_erased_leaves_redis_although_nothing_else_happens(cluster: Cluster) -> None:
    """The log is trimmed once more, and everything else stays as it is."""
    cluster.publish(cluster.nodes[0], "b")
    erase(cluster)
    cluster.advance(LOG_SECONDS - 5.0, 0.5)
    assert is_somewhere(cluster)
    cluster.advance(15.0, 0.5)
    assert not is_somewhere(cluster)
    before = cluster.redis.dump()[b"{pushup}:5:state"]
    cluster.advance(3 * LOG_SECONDS, 0.5)
    after = cluster.redis.dump()[b"{pushup}:5:state"]
    assert (before[b"saved"], before[b"sequence"]) == (after[b"saved"], after[b"sequence"])
    assert cluster.is_one()


def test_what_a_failover_has_brought_back_is_erased_again(cluster: Cluster, log: list[str]) -> None:
    """The replica had every entry, but not the last save, which has trimmed the log."""
    cluster.publish(cluster.nodes[0], "b")
    erase(cluster)
    cluster.advance(LOG_SECONDS - 5.0, 0.5)
    dump = cluster.redis.dump()
    cluster.advance(15.0, 0.5)
    assert not is_somewhere(cluster)
    cluster.redis.restart(dump)
    cluster.advance(5.0, 0.5)
    assert is_somewhere(cluster)
    cluster.advance(LOG_SECONDS + 10.0, 0.5)
    assert not is_somewhere(cluster)
    assert [ids(node.poll(poll("b"))) for node in cluster.nodes] == [[1]] * 3


def test_a_node_behind_the_checkpoint_erases_nothing(cluster: Cluster) -> None:
    """It would give the checkpoint of another node a head of its own, which is older than the rows."""
    erase(cluster)
    node = cluster.nodes[0]
    saver = saver_of(cluster, node)
    last = node.node.cursor.sequence
    assert not saver.is_due(last)
    cluster.advance(LOG_SECONDS, 0.5)
    assert [saver.is_due(saved) for saved in (last, last + 1)] == [True, False]


def test_another_node_finishes_what_the_first_began(cluster: Cluster) -> None:
    """The state says that something was erased."""
    erase(cluster)
    cluster.advance(LOG_SECONDS / 2, 0.5)
    cluster.end()
    cluster.start()
    cluster.advance(LOG_SECONDS + 10.0, 0.5)
    assert not is_somewhere(cluster)


def test_a_large_checkpoint_is_announced(cluster: Cluster) -> None:
    """Before the state is replaced, and when it has been: both are the time to give memory back."""
    calls: list[int] = []
    cluster.publish(cluster.nodes[0], "a")
    cluster.start(on_large=lambda: calls.append(1))
    assert len(calls) == 2


def test_a_new_node_has_the_same_state(cluster: Cluster) -> None:
    """It comes from checkpoint and log, whichever contains what."""
    for n in range(4):
        cluster.publish(cluster.nodes[n % 3], "a", f"b{n}", data=str(n), key=f"k{n}")
        cluster.advance(0.6)
        cluster.start()
        assert cluster.is_one()
    assert len(cluster.nodes) == 7


def test_missing_data_is_noticed_when_saving(cluster: Cluster, log: list[str]) -> None:
    """A new epoch starts, with the open channels, before a new node can start without the data."""
    cluster.do(cluster.nodes[0], Create("named", 500.0))
    cluster.advance(1.5)
    epoch = cluster.nodes[0].node.cursor.epoch
    del cluster.redis.data[b"{pushup}:5:rows"]
    cluster.publish(cluster.nodes[0], "a")
    cluster.advance(3.0)
    assert cluster.is_one()
    assert cluster.nodes[0].node.cursor.epoch != epoch
    assert [channel.name for channel in cluster.nodes[1].node.channels(0, 9)] == ["named", "a"]


# Members, limits, shutdown.


def test_running_nodes_know_each_other(cluster: Cluster) -> None:
    """A node that crashed is listed for three more seconds; one that stopped is gone with the next report."""
    cluster.advance(0.5)
    for node in cluster.nodes:
        assert [member.id for member in node.node.members()] == ["node0", "node1", "node2"]
    cluster.crash(cluster.nodes[2])
    cluster.advance(2.5)
    assert len(cluster.nodes[0].node.members()) == 3
    cluster.advance(1.0)
    assert len(cluster.nodes[0].node.members()) == 2
    stopped = cluster.nodes[1].stop()
    cluster.settle()
    assert stopped.called
    del cluster.nodes[1]
    cluster.advance(0.3)
    assert [member.id for member in cluster.nodes[0].node.members()] == ["node0"]


def test_an_invalid_report_is_logged(cluster: Cluster, node: FollowingNode, log: list[str]) -> None:
    """The line has a traceback, and the nodes reconnect until they can read all reports."""
    cluster.advance(1.0)
    cluster.redis.data[b"{pushup}:5:members"][b"node2"] = b"{}"
    cluster.clock.advance(0.2)
    cluster.crash(cluster.nodes[2])
    cluster.advance(1.0)
    cluster.advance(9.0)
    failed = [line for line in log if "reporting to the other nodes failed" in line]
    assert ["Traceback" in line for line in failed] == [True] * 2, "once for each node"
    assert cluster.is_one()
    assert len(node.node.members()) == 2


def test_stable_waits_for_every_node(cluster: Cluster, node: FollowingNode, log: list[str]) -> None:
    """A node that is cut off delays it until its lease ends; then the other nodes suffice."""
    cluster.advance(4.0)
    received = node.confirm("stable", cluster.publish(node, "a"), 5.0)
    cluster.advance(0.6)
    assert received == [Confirmation("stable", nodes=3)]
    cluster.stick(cluster.nodes[2])
    published = cluster.publish(node, "a")
    short, long = node.confirm("stable", published, 1.0), node.confirm("stable", published, 5.0)
    cluster.advance(1.1)
    assert short == [Confirmation("accepted")]
    assert long == []
    cluster.advance(3.0)
    assert long == [Confirmation("stable", nodes=2)]


@pytest.fixture
def saves(monkeypatch: pytest.MonkeyPatch) -> list[Deferred[bool]]:
    """The saves that were begun; each ends when the test says so."""
    begun: list[Deferred[bool]] = []

    def save(*arguments: object, **named: object) -> Deferred[bool]:
        begun.append(Deferred())
        return begun[-1]

    monkeypatch.setattr(RedisLog, "save", save)
    return begun


def test_a_node_that_saves_for_longer_than_a_lease_keeps_its_lease(
    cluster: Cluster, saves: list[Deferred[bool]]
) -> None:
    """It reports meanwhile, or nobody would wait for it before a publication is stable. It begins no second save."""
    cluster.advance(4.0)
    cluster.publish(cluster.nodes[0], "a")
    cluster.advance(LEASE_SECONDS + 1.0)
    assert [member.id for member in cluster.nodes[1].node.members()] == ["node0", "node1", "node2"]
    assert len(saves) == 1
    saves[0].callback(True)
    cluster.advance(1.5)
    assert len(saves) == 2


def test_a_save_ends_with_its_connection(cluster: Cluster, saves: list[Deferred[bool]], log: list[str]) -> None:
    """Another one begins when the node has reconnected."""
    cluster.publish(cluster.nodes[0], "a")
    cluster.advance(1.5)
    assert [save.called for save in saves] == [False]
    cluster.redis.cut()
    assert [save.called for save in saves] == [True]
    cluster.advance(1.5)
    assert [save.called for save in saves] == [True, False]


def test_a_node_that_cannot_save_reconnects(cluster: Cluster, saves: list[Deferred[bool]], log: list[str]) -> None:
    """And logs the reason once, as for publications."""
    reading, _ = links_of(cluster, cluster.nodes[0])
    cluster.publish(cluster.nodes[0], "a")
    for _ in range(3):
        cluster.advance(1.5)
        saves[-1].errback(ErrorReply("OOM full"))
    cluster.advance(1.5)
    assert not reading.open
    assert cluster.nodes[0].follows
    assert log == ["Redis: OOM full; publishing is refused until it is back"]


def test_a_node_in_the_previous_epoch_has_not_applied_the_new_one(
    cluster: Cluster, node: FollowingNode, log: list[str]
) -> None:
    """It is far ahead in the old epoch, and until its lease ends nothing is stable."""
    for _ in range(20):
        cluster.publish(node, "a")
    stopped_node = cluster.nodes[2]
    cluster.advance(4.0)
    old = node.confirm("stable", cluster.publish(node, "a"), 30.0)
    cluster.stick(stopped_node)
    stopped_node.connector.is_cut_off = True
    cluster.redis.data[b"{pushup}:5:state"].clear()  # connections stay open
    cluster.advance(1.0)
    assert node.node.cursor.epoch != stopped_node.node.cursor.epoch
    received = node.confirm("stable", cluster.publish(node, "a"), 30.0)
    cluster.advance(0.5)
    shown = node.node.members()[2]
    assert shown.cursor == f"{stopped_node.node.cursor.epoch}-20"
    assert received == []
    cluster.advance(3.0)
    assert received == [Confirmation("stable", nodes=2)]
    assert old == []
    cluster.advance(30.0)
    assert old == [Confirmation("accepted")]
    assert stopped_node.node.why_not_ready() is not None


@pytest.mark.parametrize("key", [b"leases", b"members"])
def test_nothing_is_stable_while_redis_has_forgotten_the_nodes(
    cluster: Cluster, node: FollowingNode, key: bytes
) -> None:
    """A key was evicted, and a node that is behind has not reported again yet."""
    cluster.advance(4.0)
    behind = cluster.nodes[2]
    reading, appending = links_of(cluster, behind)
    reading.blind = True
    appending.stuck = True
    received = node.confirm("stable", cluster.publish(node, "a"), 30.0)
    cluster.advance(1.0)
    del cluster.redis.data[b"{pushup}:5:" + key]
    cluster.advance(1.0)
    assert [member.id for member in node.node.members()] == ["node0", "node1"]
    assert received == []
    reading.blind = appending.stuck = False
    cluster.advance(3.5)
    assert received == [Confirmation("stable", nodes=3)]


def test_nothing_is_stable_after_redis_was_emptied_until_earlier_leases_have_ended(
    cluster: Cluster, node: FollowingNode, log: list[str]
) -> None:
    """A node that is cut off does not know yet, and still answers polls."""
    cluster.advance(4.0)
    appending = links_of(cluster, cluster.nodes[2])[1]
    appending.stuck = True
    epoch = node.node.cursor.epoch
    cluster.redis.data.clear()
    cluster.advance(1.0)
    assert node.node.cursor.epoch != epoch
    received = node.confirm("stable", cluster.publish(node, "a"), 30.0)
    cluster.advance(1.5)
    assert received == []
    cluster.advance(1.5)
    assert received == [Confirmation("stable", nodes=3)]


def test_a_node_says_why_it_does_not_follow(cluster: Cluster, log: list[str]) -> None:
    """Publishers are told the reason from then on, although it has been connected all the time."""
    node = cluster.nodes[0]
    dump = cluster.redis.dump()
    seen = cluster.publish(node, "a")
    cluster.redis.data = dump
    while node.follows:
        cluster.advance(0.01, 0.01)
    assert f"does not contain {seen.epoch}-1" in reason(node.append(publish("a")))


def test_numbers_that_do_not_follow_are_no_bug_of_the_state(cluster: Cluster, log: list[str]) -> None:
    """The chain fits, and the sequences have a hole: the node does not apply the entry, and what it has is good."""
    node = cluster.nodes[0]
    seen = cluster.publish(node, "a")
    state = cluster.redis.data[b"{pushup}:5:state"]
    state[b"sequence"] = b"2"
    append_as_a_stranger(cluster.redis, seen.epoch)
    with logged_at("critical") as lines:
        cluster.settle()
    assert (lines, node.follows, node.cursor) == ([], False, f"{seen.epoch}-1")
    assert f"entry {seen.epoch}-3" in reason(node.append(publish("a")))


@pytest.mark.parametrize("name", ["a", "stranger"])
def test_a_fork_of_the_same_length_is_noticed_in_reports(cluster: Cluster, log: list[str], name: str) -> None:
    """The sequence now has another entry, in the same epoch and on the same connection: nothing is stable there."""
    cluster.advance(4.0)
    node = cluster.nodes[0]
    cluster.publish(node, "a")
    dump = cluster.redis.dump()
    epoch = node.node.cursor.epoch
    received = node.confirm("stable", cluster.publish(node, "a"), 20.0)
    cluster.redis.data = dump
    append_as_a_stranger(cluster.redis, epoch, name)
    cluster.advance(20.1)
    assert cluster.is_one()
    assert node.node.cursor.epoch != epoch
    assert received == [Confirmation("accepted")]


@pytest.mark.parametrize("second", ["another", "zulu"])
def test_both_connections_of_a_node_lead_to_the_same_run_of_redis(log: list[str], second: str) -> None:
    """If a replica took over between the two, one would read from a server that the other does not write to."""

    class Restarting(FakeRedis):
        connected = 0

        async def connect(self) -> RedisConnection:
            self.connected += 1
            if self.connected == 2:
                self.run = second
            return await super().connect()

    cluster = Cluster()
    cluster.redis = Restarting(cluster.clock)
    node = cluster.start()
    assert not node.follows
    cluster.advance(1.0)
    cluster.publish(node, "a")
    assert ["Redis was restarted or replaced while" in line for line in log] == [True]
    cluster.end()


def test_replication_is_checked_on_a_separate_connection(cluster: Cluster, node: FollowingNode) -> None:
    """Publications continue while Redis waits for its replicas."""
    received = node.confirm("replicated", cluster.publish(node, "a"), 5.0)
    cluster.settle()
    cluster.publish(node, "a")
    assert received == []
    cluster.redis.replicas = 1
    cluster.settle()
    assert received == [Confirmation("replicated", replicas=1)]


@pytest.mark.parametrize("publishing", [False, True])
def test_an_aborted_node_vanishes_without_a_message(cluster: Cluster, log: list[str], publishing: bool) -> None:
    """Its connections end, its publishers get no answer, and other nodes list it until its lease ends."""
    cluster.advance(0.5)
    node = cluster.nodes.pop(0)
    links = links_of(cluster, node)
    waiting = node.append(publish("a")) if publishing else []
    received = node.confirm("stable", Published(node.node.cursor.epoch, 1, 1, START), 60.0)
    node.broadcast.abort()
    cluster.advance(1.0)
    assert not any(link.open for link in links)
    assert not node.broadcast.is_following
    assert (waiting, received) == ([], [])
    assert len(cluster.nodes[0].node.members()) == 3
    assert node.stop().called
    assert (waiting, received) == ([], [])
    cluster.advance(3.0)
    assert [member.id for member in cluster.nodes[0].node.members()] == ["node1", "node2"]


@pytest.mark.parametrize("state", ["well", "away", "hangs", "trying", "unread"])
def test_a_node_stops_whatever_redis_does(cluster: Cluster, log: list[str], state: str) -> None:
    """Waiting publishers are answered within the timeout, and then nothing of the node is left."""
    node = cluster.nodes.pop(0)
    waiting: list[Outcome] = []
    if state == "well":
        waiting = node.append(publish("a"))
    elif state == "unread":
        links_of(cluster, node)[0].blind = True
        waiting = node.append(publish("a"))
    elif state == "hangs":
        cluster.redis.hangs = True
        waiting = node.append(publish("a"))
    else:
        cluster.redis.refuses = "no"
        cluster.redis.cut()
        if state == "trying":
            cluster.advance(0.02)
    stopped = node.stop()
    cluster.advance(0.1)
    if state == "hangs":
        cluster.advance(5.5)
    assert stopped.called
    assert len(waiting) == (state in ("well", "hangs", "unread"))
    cluster.redis.hangs = False
    cluster.redis.refuses = ""
    cluster.end()


def test_a_node_that_has_left_does_not_come_back(cluster: Cluster) -> None:
    """It does not report again while it leaves, however long Redis takes to answer."""
    cluster.advance(0.5)
    node = cluster.nodes.pop(1)
    _, appending = links_of(cluster, node)
    cluster.redis.hangs = True
    stopped = node.stop()
    cluster.advance(4 * REPORT_SECONDS)
    cluster.redis.hangs = False
    while appending.execute_next():
        pass
    cluster.settle()
    assert stopped.called
    cluster.advance(2 * REPORT_SECONDS)
    assert [member.id for member in cluster.nodes[0].node.members()] == ["node0", "node2"]


def test_publishers_that_wait_for_more_are_answered_when_their_node_stops(cluster: Cluster) -> None:
    """No more than acceptance was reached; and nothing is accepted any more."""
    node, other = cluster.nodes[0], cluster.nodes[1]
    links_of(cluster, other)[0].blind = True
    received = node.confirm("stable", cluster.publish(node, "a"), 20.0)
    cluster.advance(1.0)
    assert received == []
    cluster.leave(node)
    assert received == [Confirmation("accepted")]
    assert "stop" in reason(node.append(publish("a")))


def test_a_broadcast_that_never_started_can_be_stopped() -> None:
    """As when another part of the server could not start."""
    clock = Clock()
    broadcast = RedisBroadcast(
        NodeConnector(FakeRedis(clock)),
        node_id="n",
        limits=Limits(),
        redis_limits=RedisLimits(),
        waiting_limits=WaitingLimits(),
        clock=clock,
        wall=clock.seconds,
        uptime=clock.seconds,
        random=lambda: 0.0,
        progress_mark=None,
    )
    assert Deferred.fromCoroutine(broadcast.stop()).called
    broadcast.abort()
    assert clock.getDelayedCalls() == []
