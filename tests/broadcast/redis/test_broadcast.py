"""A node at the log: whom it tells what, when it is ready, and what it does when the log is not what it was."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec
import pytest

from pushup.broadcast.redis.connection import RedisConnection
from pushup.broadcast.redis.epochs import order_of
from pushup.broadcast.redis.errors import CannotConnect
from pushup.broadcast.redis.log import SCRIPTS
from pushup.broadcast.waiting import size_of
from pushup.core.commands import Confirmation, Create, Entry, Outcome, Published
from pushup.core.errors import ChannelExists, Overloaded, Unavailable
from pushup.core.limits import Limits
from tests.broadcast.redis.fake_redis import FakeRedis, Link, Refusal
from tests.broadcast.redis.following_nodes import START, Cluster, FollowingNode
from tests.core.builders import gaps, ids, poll, publish
from tests.core.random_entries import sorted_snapshot

UNKNOWN = "this may or may not have been published; retry with the same Idempotency-Key"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three nodes; nothing of them is left in the end."""
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


@pytest.fixture
def log(logged_failures: list[str]) -> Iterator[list[str]]:
    """What was logged as an error, which the test means to cause."""
    yield logged_failures
    logged_failures.clear()


def links_of(cluster: Cluster, node: FollowingNode) -> tuple[Link, Link]:
    """The connection by which a node reads, and the one by which it appends."""
    assert node.follows
    links = [link for link in cluster.redis.links if link.connection in node.connector.made]
    (at,) = [at for at, link in enumerate(links) if link.requests and link.requests[0][1][0] == b"XREAD"]
    return links[at], links[at + 1]


def reason(outcomes: list[Outcome]) -> str:
    """Why a command was refused: what its publisher is told, and in brackets what only the operator is."""
    (outcome,) = outcomes
    return shown(outcome)


def shown(outcome: object) -> str:
    assert isinstance(outcome, Unavailable)
    assert outcome.retry_after == 1
    assert not any(secret in outcome.detail for secret in ("Redis", "127.0.0.1", "Error")), outcome.detail
    return f"{outcome.detail} ({outcome.operator_detail})"


def is_one(cluster: Cluster) -> bool:
    """Whether all nodes follow, and are at the same entry with the same state."""
    snapshots = [sorted_snapshot(node.state) for node in cluster.nodes]
    return all(node.follows for node in cluster.nodes) and all(snapshot == snapshots[0] for snapshot in snapshots)


# Publishing.


def test_a_publisher_is_told_when_its_node_has_read_the_entry(cluster: Cluster, node: FollowingNode) -> None:
    """Not when Redis has taken it: the answer's cursor is one that this node can serve."""
    outcomes = node.append(publish("a"))
    reading, appending = links_of(cluster, node)
    assert appending.step()
    assert outcomes == []
    assert reading.step()
    (outcome,) = outcomes
    assert isinstance(outcome, Published)
    assert node.cursor == f"{outcome.epoch}-{outcome.sequence}"
    cluster.settle()
    assert is_one(cluster)


def test_all_nodes_do_what_any_is_asked_to(cluster: Cluster) -> None:
    """Outcomes go to who asked, errors too; the states are equal."""
    for n, asked in enumerate(cluster.nodes * 2):
        published = cluster.publish(asked, "a", "b", data=str(n))
        assert published.sequence == n + 1
    assert not isinstance(cluster.do(cluster.nodes[0], Create("c")), Exception)
    outcome = cluster.do(cluster.nodes[1], Create("c"))
    assert isinstance(outcome, ChannelExists)
    assert is_one(cluster)
    assert [ids(each.poll(poll("a"))) for each in cluster.nodes] == [[1, 2, 3, 4, 5, 6]] * 3


def test_a_publisher_whose_entry_is_not_read_back_is_told_that_it_is_not_known(
    cluster: Cluster, node: FollowingNode
) -> None:
    """At its deadline, once; it may be published all the same, and then all get it."""
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
    assert is_one(cluster)
    assert ids(node.poll(poll("a"))) == [1, 2]


def test_publications_under_way_when_the_connection_ends_are_not_known(
    cluster: Cluster, node: FollowingNode, log: list[str]
) -> None:
    """Carried out or not: their publishers are told so at once, and the others' publications go on."""
    done, not_done = node.append(publish("a")), node.append(publish("b"))
    _, appending = links_of(cluster, node)
    assert appending.carry_out()
    cluster.redis.cut()
    for outcomes in (done, not_done):
        assert reason(outcomes) == f"{UNKNOWN} (Redis closed the connection)"
    told = reason(node.append(publish("a")))
    assert told == "the message log cannot be reached (Redis closed the connection)"
    cluster.advance(1.0)
    assert is_one(cluster)
    assert ids(node.poll(poll("a", "b"))) == [1]


def test_what_redis_refuses_is_told_with_its_reason(cluster: Cluster, node: FollowingNode, log: list[str]) -> None:
    """To each publisher, and once in the log; the next publication goes through once it is over."""
    cluster.redis.denies = "OOM command not allowed"
    for _ in range(5):
        refused = node.append(publish("a"))
        cluster.settle()
        assert reason(refused) == "the message log refused this request (Redis: OOM command not allowed)"
    assert node.follows
    assert log == ["Redis: OOM command not allowed; publishing is refused until it is back"]
    cluster.redis.denies = ""
    cluster.publish(node, "a")


def test_a_log_that_fails_again_and_again_does_not_fill_the_other_log(cluster: Cluster, log: list[str]) -> None:
    """Nodes connect, follow, fail at the same entry, and again: each says so once, with one traceback."""
    cluster.advance(1.0)
    cluster.nodes[0].append(publish("a"))
    links_of(cluster, cluster.nodes[0])[1].carry_out()
    cluster.redis.data[b"{pushup}:log"].rows[-1][1][7] = b'{"type": "strange"}'
    cluster.advance(20.0)
    assert sum("following the log in Redis failed" in line for line in log) == len(cluster.nodes)
    assert len(log) <= 3 * len(cluster.nodes)


@pytest.mark.parametrize("how", ["NOSCRIPT", "READONLY"])
def test_what_goes_away_with_a_new_connection_has_one_made(
    cluster: Cluster, node: FollowingNode, log: list[str], how: str
) -> None:
    """Scripts that Redis has forgotten, a master that became a replica: refused once, and then it goes."""
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


def test_only_so_many_bytes_wait_for_redis(cluster: Cluster, narrow: FollowingNode) -> None:
    """The next are told to come again, and nothing is sent; when Redis has answered there is room for as many."""
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
def test_however_a_publication_ends_there_is_room_again(
    cluster: Cluster, narrow: FollowingNode, log: list[str], how: str
) -> None:
    """Redis refuses it, the connection ends, the epoch is over, or it is read back before its reply comes."""
    waiting = [narrow.append(LARGE) for _ in range(10)]
    if how == "refused":
        cluster.redis.denies = "OOM"
    elif how == "lost":
        cluster.redis.cut()
    elif how == "new epoch":
        cluster.redis.data[b"{pushup}:state"][b"epoch"] = b"another"
    else:
        reading, appending = links_of(cluster, narrow)
        for _ in range(10):
            appending.carry_out()
        reading.step()
        assert all(waiting)
        assert narrow.broadcast.waiting_bytes == 10 * size_of(LARGE)  # their replies are not there yet
    cluster.settle()
    assert [len(outcomes) for outcomes in waiting] == [1] * 10
    assert narrow.broadcast.waiting_bytes == 0
    cluster.redis.denies = ""
    cluster.advance(5.0)
    assert isinstance(cluster.do(narrow, LARGE), Published)


def test_a_publication_that_was_given_up_counts_while_it_may_lie_in_a_buffer(
    cluster: Cluster, narrow: FollowingNode, log: list[str]
) -> None:
    """Its publisher has been told that it is not known, but Redis has not answered, and the connection lives."""
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
    assert is_one(cluster)


def test_a_publisher_that_fails_when_it_is_told_harms_nobody(
    cluster: Cluster, node: FollowingNode, log: list[str]
) -> None:
    """It is logged, and those after it are told."""

    def fail(outcome: Outcome) -> None:
        raise RuntimeError("gone")

    node.node.submit(publish("a"), fail)
    assert isinstance(cluster.do(node, publish("a")), Published)
    assert any("could not answer a publisher" in line for line in log)
    assert node.follows


# Being there, and not.


def test_before_redis_was_reached_nothing_is_known(log: list[str]) -> None:
    """Polls, cursors and publications are refused with a reason; when Redis comes, all is as it should be."""
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


@pytest.mark.parametrize(("chance", "most"), [(0.0, 2.5), (0.999, 5.0)])
def test_redis_is_tried_again_ever_more_rarely(log: list[str], chance: float, most: float) -> None:
    """Doubled each time up to 5 s, of which a random half is left out; soon again once it was there."""
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
    wanted = [0.1 * half, 0.2 * half, 0.4 * half, 0.8 * half, 1.6 * half, 3.2 * half, most, most]
    assert pauses[:8] == pytest.approx(wanted, abs=0.02)
    assert max(pauses) <= most + 0.02
    cluster.redis.refuses = ""
    cluster.advance(6.0)
    assert node.follows
    times.clear()
    began = cluster.clock.seconds()
    cluster.redis.cut()
    cluster.advance(0.5, 0.01)
    assert times[0] - began <= 0.1 + 0.02
    assert log == ["Redis: no; publishing is refused until it is back",
                   "Redis: Redis closed the connection; publishing is refused until it is back"]  # fmt: skip
    cluster.end()


def test_ready_is_who_has_heard_from_redis_lately(cluster: Cluster, node: FollowingNode, log: list[str]) -> None:
    """A read is answered each second; without it a node is not ready after six, though its sockets are open."""
    for _ in range(8):
        cluster.advance(1.0)
        assert node.broadcast.why_not_ready() is None
    cluster.redis.hangs = True
    cluster.advance(4.5)
    assert node.broadcast.why_not_ready() is None
    cluster.advance(1.7)
    assert node.broadcast.why_not_ready() is not None
    cluster.redis.hangs = False
    cluster.advance(6.0)
    assert node.broadcast.why_not_ready() is None
    assert is_one(cluster)


@pytest.mark.parametrize("which", [0, 1])
def test_one_connection_that_is_stuck_is_given_up_with_the_other(
    cluster: Cluster, node: FollowingNode, log: list[str], which: int
) -> None:
    """Reading or appending: the node is back within the timeout and what a read may take."""
    links_of(cluster, node)[which].stuck = True
    cluster.publish(cluster.nodes[1], "a")
    cluster.advance(8.0)
    assert is_one(cluster)
    assert ids(node.poll(poll("a"))) == [1]


def test_a_node_that_reads_nothing_though_there_is_something_connects_anew(
    cluster: Cluster, node: FollowingNode, log: list[str]
) -> None:
    """It reads from a server that gets no entries any more, while it reports to one that does."""
    cluster.advance(1.0)
    reading, _ = links_of(cluster, node)
    reading.blind = True
    cluster.publish(cluster.nodes[1], "a")
    cluster.advance(9.0)
    assert is_one(cluster)
    assert any("reading is stuck" in line for line in log)
    assert not reading.open


def test_a_node_that_has_much_to_read_is_left_to_it(cluster: Cluster, node: FollowingNode) -> None:
    """As long as it goes on, however far it is behind the end of the log; and after it was away, too."""
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


def test_a_node_loads_what_takes_longer_than_the_timeout(log: list[str]) -> None:
    """A checkpoint of 3 MB at 100 KB a second: half a minute, and no word is missing for five seconds."""
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
    assert is_one(cluster)
    assert len(node.state.snapshot().messages) == 50
    cluster.end()


def test_a_node_that_reads_much_by_a_slow_link_is_left_to_it(log: list[str]) -> None:
    """One reply to a read takes half a minute; the connection is given up neither for its length nor for standing."""
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
    assert is_one(cluster)
    cluster.end()


@pytest.mark.parametrize("which", ["the first", "the second", "what it is like"])
def test_no_connection_is_left_where_not_both_can_be_used(log: list[str], which: str) -> None:
    """However often it is tried."""

    class Odd(FakeRedis):
        connected = 0

        async def connect(self) -> RedisConnection:
            self.connected += 1
            if which != "what it is like" and self.connected % 2 == (which == "the first"):
                raise CannotConnect("too many clients")
            return await super().connect()

        def _info(self) -> bytes:
            if which == "what it is like":
                raise Refusal("NOPERM this user has no permissions to run the 'info' command")
            return super()._info()

    cluster = Cluster()
    redis = cluster.redis = Odd(cluster.clock)
    node = cluster.start()
    cluster.advance(20.0)
    assert redis.connected > 4
    assert len(redis.links) <= 1
    assert not node.follows
    cluster.end()


def test_polls_are_held_and_served_while_redis_is_away(cluster: Cluster, node: FollowingNode, log: list[str]) -> None:
    """What is cached is answered, who waits is answered once there is something, in the same epoch."""
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


def test_an_entry_that_cannot_be_read_is_not_passed_over(cluster: Cluster, log: list[str]) -> None:
    """The nodes stay where they are and say so; nothing after it is answered."""
    cluster.publish(cluster.nodes[0], "a")
    cursors = [node.cursor for node in cluster.nodes]
    outcomes = cluster.nodes[0].append(publish("a"))
    links_of(cluster, cluster.nodes[0])[1].carry_out()
    cluster.redis.data[b"{pushup}:log"].rows[-1][1][7] = b'{"type": "strange"}'
    cluster.advance(3.0)
    assert [node.cursor for node in cluster.nodes] == cursors
    assert UNKNOWN in reason(outcomes) or "Validation" in reason(outcomes)
    assert any("following the log in Redis failed" in line for line in log)


def test_a_node_that_fails_within_an_entry_starts_again(cluster: Cluster, log: list[str]) -> None:
    """What its queue is then, is not known; it begins anew with what is in Redis, and the others go on."""
    node = cluster.nodes[0]
    epoch = node.node.cursor.epoch
    fail_once(node)
    cluster.publish(cluster.nodes[1], "a")
    cluster.publish(cluster.nodes[1], "a")
    cluster.advance(2.0)
    assert is_one(cluster)
    assert node.node.cursor.epoch == epoch
    assert ids(node.poll(poll("a"))) == [1, 2]
    assert any("RuntimeError" in line for line in log)


def fail_once(node: FollowingNode) -> None:
    """Let the node fail with its next entry, once it has applied it."""
    apply = node.node.apply

    def failing(entry: Entry) -> Outcome:
        node.node.apply = apply  # type: ignore[method-assign]
        apply(entry)
        raise RuntimeError("failed within an entry")

    node.node.apply = failing  # type: ignore[method-assign]


# The log is not what it was.


@pytest.mark.parametrize(
    "how", ["flushed", "rolled back", "state", "log and its entries", "forked", "under way", "forked under way"]
)
def test_a_loss_begins_one_new_epoch_for_all(cluster: Cluster, log: list[str], how: str) -> None:
    """Channels live on, messages and keys do not; every cursor of before is told of a gap, once, at every node."""
    node = cluster.nodes[1]
    made = cluster.do(node, Create("named", 500.0))
    dump = cluster.redis.dump()
    cluster.publish(node, "a", key="k")
    before = node.state.cursor
    if how == "flushed":
        cluster.redis.data.clear()
    elif how == "rolled back":
        cluster.redis.restart(dump)
    elif how == "state":
        del cluster.redis.data[b"{pushup}:state"]
    elif how == "log and its entries":
        cluster.redis.restart({**cluster.redis.data, b"{pushup}:log": dump.get(b"{pushup}:log")})
        cluster.redis.data[b"{pushup}:state"].update(dump[b"{pushup}:state"])
    elif how == "forked":
        cluster.redis.restart(dump)
        append_as_a_stranger(cluster.redis, before.epoch)
    else:  # no connection ends
        cluster.redis.data = dump
        for _ in range(2 if how == "forked under way" else 0):
            append_as_a_stranger(cluster.redis, before.epoch)
    cluster.advance(5.0)
    assert is_one(cluster)
    epochs = {each.node.cursor.epoch for each in cluster.nodes}
    assert len(epochs) == 1
    assert before.epoch not in epochs
    for each in cluster.nodes:
        answer = each.poll(poll("a", "named", cursor=str(before)))
        assert gaps(answer) == [("a", "lost"), ("named", "lost")]
        assert each.poll(poll("a", "named", cursor=answer.cursor)).gaps == ()
        assert each.node.channel("named").id == getattr(made, "id", None)
    again = cluster.publish(node, "a", key="k")
    assert (again.epoch, again.sequence) == (epochs.pop(), 1)


def append_as_a_stranger(redis: FakeRedis, epoch: str) -> None:
    """Append as a node would that nobody else knows."""
    keys = (b"{pushup}:state", b"{pushup}:log")
    redis._append(keys, (epoch.encode(), b"stranger.%d" % len(redis.executed), b"1", msgspec.json.encode(publish("b"))))
    redis.executed.append(b"APPEND")


def test_who_has_seen_a_loss_and_comes_late_follows_the_epoch_that_others_have_begun(
    cluster: Cluster, log: list[str]
) -> None:
    """It does not begin another: clients would be told of two gaps."""
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
    begun = cluster.redis.data[b"{pushup}:state"][b"epoch"].decode()
    assert sum(node.node.cursor.epoch == begun for node in cluster.nodes) == 2
    late.stuck = False
    cluster.advance(3.0)
    assert [node.node.cursor.epoch for node in cluster.nodes] == [begun] * 3


def test_held_polls_are_told_when_their_epoch_ends(cluster: Cluster, log: list[str]) -> None:
    """The answer is a gap and a cursor of the new epoch; whoever polls later with the old cursor is told the same."""
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


def test_a_log_of_an_epoch_that_was_over_begins_another(cluster: Cluster, log: list[str]) -> None:
    """Redis comes back with an epoch of before: nobody goes on in it."""
    first = cluster.nodes[0].node.cursor.epoch
    dump = cluster.redis.dump()
    cluster.redis.data.clear()
    cluster.advance(3.0)
    second = cluster.nodes[0].node.cursor.epoch
    cluster.redis.restart(dump)
    cluster.advance(3.0)
    third = cluster.nodes[0].node.cursor.epoch
    assert len({first, second, third}) == 3
    assert is_one(cluster)


def test_epochs_go_on_where_the_clock_was_set_back(log: list[str]) -> None:
    """A new one is later than the one that is over, whatever the time is by now."""
    ahead = Cluster()
    ahead.clock.advance(5000.0)
    ahead.start()
    ahead.end()
    cluster = Cluster()
    cluster.redis.data = ahead.redis.dump()
    node = cluster.start()
    before = node.node.cursor.epoch
    assert before == ahead.redis.data[b"{pushup}:state"][b"epoch"].decode()
    cluster.redis.data.clear()
    cluster.advance(2.0)
    assert node.follows
    assert order_of(node.node.cursor.epoch) > order_of(before)
    cluster.end()


def test_cursors_of_an_epoch_to_come_wait(cluster: Cluster, node: FollowingNode, log: list[str]) -> None:
    """A node that has not noticed refuses them, rather than repeat what was; others get what they always got."""
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
    for stranger in ("e1-5", "zz-1", "1-1", "fffffffffffff-1"):
        assert gaps(node.poll(poll("a", cursor=stranger))) == [("a", "lost")]
    cluster.advance(8.0)
    assert node.poll(poll("a", cursor=new)).gaps == ()


def test_a_cursor_of_an_epoch_that_never_comes_does_not_wait_for_ever(
    cluster: Cluster, node: FollowingNode, log: list[str]
) -> None:
    """When the log has been in another one for a minute after, it is told as lost."""
    began = int((START + 1) * 1000)
    stray = f"{began:x}00-7"
    with pytest.raises(Unavailable):
        node.poll(poll("a", cursor=stray))
    cluster.advance(59.0, 0.25)
    with pytest.raises(Unavailable):
        node.poll(poll("a", cursor=stray))
    cluster.advance(3.0, 0.25)
    assert gaps(node.poll(poll("a", cursor=stray))) == [("a", "lost")]


def test_a_redis_that_comes_back_with_everything_costs_nothing(cluster: Cluster, log: list[str]) -> None:
    """Another run, the same log: cursors are good, and a node that is new then trusts those that know."""
    cluster.publish(cluster.nodes[0], "a")
    epoch = cluster.nodes[0].node.cursor.epoch
    cluster.redis.restart()
    new = cluster.start()
    cluster.advance(3.0)
    assert is_one(cluster)
    assert new.node.cursor.epoch == epoch
    assert ids(new.poll(poll("a"))) == [1]


@pytest.mark.parametrize(("appendfsync", "kept"), [(b"always", True), (b"everysec", False)])
def test_when_nobody_is_left_who_knows_it_is_redis_word_that_counts(
    log: list[str], appendfsync: bytes, kept: bool
) -> None:
    """All nodes and Redis were restarted: the log is good if each write was synced; else a new epoch, after a while."""
    cluster = Cluster(2)
    cluster.redis.info["aof_enabled"] = "1"
    cluster.redis.appendfsync = appendfsync
    cluster.publish(cluster.nodes[0], "a")
    cursor = cluster.nodes[0].cursor
    cluster.end()
    cluster.redis.restart()
    for _ in range(2):
        cluster.start()
    if not kept:
        cluster.advance(1.5)
        assert not any(node.follows for node in cluster.nodes)
    cluster.advance(3.0)
    assert is_one(cluster)
    for node in cluster.nodes:
        assert gaps(node.poll(poll("a", cursor=cursor))) == ([] if kept else [("a", "lost")])
        assert ids(node.poll(poll("a"))) == ([1] if kept else [])
    cluster.end()


def test_all_nodes_are_restarted_and_redis_is_not(cluster: Cluster) -> None:
    """The run is the one in which the log was found whole: no witness is needed."""
    cluster.publish(cluster.nodes[0], "a")
    cursor = cluster.nodes[0].cursor
    cluster.end()
    node = cluster.start()
    assert node.follows
    assert node.cursor == cursor


# Checkpoints.


def test_one_node_saves_for_all_each_second(cluster: Cluster) -> None:
    """The one with the lowest id; nothing is saved where nothing was new."""
    cluster.advance(1.5)
    for n in range(5):
        cluster.publish(cluster.nodes[2], "a", data=str(n))
        cluster.advance(1.5)
        saved = int(cluster.redis.data[b"{pushup}:state"][b"saved"])
        assert saved == n + 1
    save = SCRIPTS[2].sha.encode()
    saved_by = [save in links_of(cluster, node)[1].scripts for node in cluster.nodes]
    assert saved_by == [True, False, False]
    before = cluster.redis.dump()
    cluster.advance(3.0)
    assert cluster.redis.data[b"{pushup}:state"] == before[b"{pushup}:state"]
    cluster.crash(cluster.nodes[0])
    cluster.publish(cluster.nodes[0], "a")
    cluster.advance(5.0)
    assert int(cluster.redis.data[b"{pushup}:state"][b"saved"]) == 6


def test_a_busy_log_is_saved_each_second_and_not_more_often(cluster: Cluster) -> None:
    """However often nodes report."""
    cluster.advance(1.5)
    saved = set()
    for _ in range(50):
        cluster.publish(cluster.nodes[1], "a")
        cluster.advance(0.1)
        saved.add(cluster.redis.data[b"{pushup}:state"][b"saved"])
    assert 4 <= len(saved) <= 6


def test_the_log_reaches_back_for_a_minute(cluster: Cluster, log: list[str]) -> None:
    """A node that was away for less reads on; for longer, it starts from the checkpoint; nobody is told of a gap."""
    node = cluster.nodes[2]
    cursor = node.cursor
    for seconds, read_on in ((50.0, True), (130.0, False)):
        for link in links_of(cluster, node):
            link.stuck = True
        node.connector.is_cut_off = True
        for n in range(int(seconds / 5)):
            cluster.publish(cluster.nodes[0], "a", data=str(n))
            cluster.advance(5.0, 0.25)
        rows = cluster.redis.data[b"{pushup}:log"].rows
        assert (rows[0][0] <= node.state.cursor.sequence + 1) is read_on
        node.connector.is_cut_off = False
        cluster.advance(8.0, 0.25)
        assert is_one(cluster)
        answer = node.poll(poll("a", cursor=cursor, limit=1000))
        assert answer.gaps == ()
        assert len(answer.messages) == int(seconds / 5)
        cursor = answer.cursor


def test_a_new_node_is_as_those_that_were_there(cluster: Cluster) -> None:
    """From checkpoint and log, whatever part of it is in which."""
    for n in range(4):
        cluster.publish(cluster.nodes[n % 3], "a", f"b{n}", data=str(n), key=f"k{n}")
        cluster.advance(0.6)
        cluster.start()
        assert is_one(cluster)
    assert len(cluster.nodes) == 7


def test_what_is_missing_in_redis_is_noticed_by_who_saves(cluster: Cluster, log: list[str]) -> None:
    """Before a new node could start without it: a new epoch, with the channels that live."""
    cluster.do(cluster.nodes[0], Create("named", 500.0))
    cluster.advance(1.5)
    epoch = cluster.nodes[0].node.cursor.epoch
    del cluster.redis.data[b"{pushup}:channels"]
    cluster.publish(cluster.nodes[0], "a")
    cluster.advance(3.0)
    assert is_one(cluster)
    assert cluster.nodes[0].node.cursor.epoch != epoch
    assert [channel.name for channel in cluster.nodes[1].node.channels(0, 9)] == ["named", "a"]


# Members, limits, the end.


def test_the_nodes_that_live_know_each_other(cluster: Cluster) -> None:
    """One that crashed is known for three seconds more; one that stopped is gone with the next report."""
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


def test_a_report_that_makes_no_sense_is_logged_once(cluster: Cluster, node: FollowingNode, log: list[str]) -> None:
    """With its traceback; the nodes reconnect until they can read what the others report."""
    cluster.advance(1.0)
    cluster.redis.data[b"{pushup}:members"][b"node2"] = b"{}"
    cluster.clock.advance(0.2)
    cluster.crash(cluster.nodes[2])
    cluster.advance(1.0)
    assert any("reporting to the other nodes failed" in line and "Traceback" in line for line in log)
    cluster.advance(9.0)
    assert is_one(cluster)
    assert len(node.node.members()) == 2


def test_stable_waits_for_every_node(cluster: Cluster, node: FollowingNode, log: list[str]) -> None:
    """One that is cut off holds it up until its lease ends; then it is stable among those that live."""
    cluster.advance(4.0)
    told = node.confirm("stable", cluster.publish(node, "a"), 5.0)
    cluster.advance(0.6)
    assert told == [Confirmation("stable", nodes=3)]
    for link in links_of(cluster, cluster.nodes[2]):
        link.stuck = True
    published = cluster.publish(node, "a")
    short, long = node.confirm("stable", published, 1.0), node.confirm("stable", published, 5.0)
    cluster.advance(1.1)
    assert short == [Confirmation("accepted")]
    assert long == []
    cluster.advance(3.0)
    assert long == [Confirmation("stable", nodes=2)]


def test_a_node_that_stands_still_in_the_epoch_before_has_not_applied_the_new_one(
    cluster: Cluster, node: FollowingNode, log: list[str]
) -> None:
    """It is far in the old epoch, and lives until its lease ends: until then nothing is stable."""
    for _ in range(20):
        cluster.publish(node, "a")
    still = cluster.nodes[2]
    cluster.advance(4.0)
    old = node.confirm("stable", cluster.publish(node, "a"), 30.0)
    for link in links_of(cluster, still):
        link.stuck = True
    still.connector.is_cut_off = True
    cluster.redis.data[b"{pushup}:state"].clear()  # and no connection ends
    cluster.advance(1.0)
    assert node.node.cursor.epoch != still.node.cursor.epoch
    told = node.confirm("stable", cluster.publish(node, "a"), 30.0)
    cluster.advance(0.5)
    shown = node.node.members()[2]
    assert shown.cursor == f"{still.node.cursor.epoch}-20"
    assert told == []
    cluster.advance(3.0)
    assert told == [Confirmation("stable", nodes=2)]
    assert old == []
    cluster.advance(30.0)
    assert old == [Confirmation("accepted")]
    assert still.node.why_not_ready() is not None


@pytest.mark.parametrize("key", [b"leases", b"members"])
def test_nothing_is_stable_while_redis_has_forgotten_who_lives(
    cluster: Cluster, node: FollowingNode, key: bytes
) -> None:
    """The key was evicted; a node that is behind has not reported again yet."""
    cluster.advance(4.0)
    behind = cluster.nodes[2]
    reading, appending = links_of(cluster, behind)
    reading.blind = True
    appending.stuck = True
    told = node.confirm("stable", cluster.publish(node, "a"), 30.0)
    cluster.advance(1.0)
    del cluster.redis.data[b"{pushup}:" + key]
    cluster.advance(1.0)
    assert [member.id for member in node.node.members()] == ["node0", "node1"]
    assert told == []
    reading.blind = appending.stuck = False
    cluster.advance(3.5)
    assert told == [Confirmation("stable", nodes=3)]


def test_a_fork_of_the_same_length_is_seen_when_a_node_reports(cluster: Cluster, log: list[str]) -> None:
    """Its place was given to another entry, in the same epoch and over the same connection: nothing is stable there."""
    cluster.advance(4.0)
    node = cluster.nodes[0]
    cluster.publish(node, "a")
    dump = cluster.redis.dump()
    epoch = node.node.cursor.epoch
    told = node.confirm("stable", cluster.publish(node, "a"), 20.0)
    cluster.redis.data = dump
    append_as_a_stranger(cluster.redis, epoch)
    cluster.advance(20.1)
    assert is_one(cluster)
    assert node.node.cursor.epoch != epoch
    assert told == [Confirmation("accepted")]


def test_both_connections_of_a_node_lead_to_the_same_run_of_redis(log: list[str]) -> None:
    """Between the two a replica took over: what is found by one is not what is written to by the other."""

    class Restarting(FakeRedis):
        connected = 0

        async def connect(self) -> RedisConnection:
            self.connected += 1
            if self.connected == 2:
                self.run = "another"
            return await super().connect()

    cluster = Cluster()
    cluster.redis = Restarting(cluster.clock)
    node = cluster.start()
    assert not node.follows
    cluster.advance(1.0)
    cluster.publish(node, "a")
    assert ["Redis was restarted or replaced while" in line for line in log] == [True]
    cluster.end()


def test_replicated_is_asked_by_a_connection_of_its_own(cluster: Cluster, node: FollowingNode) -> None:
    """Publications go on while Redis waits for its replicas."""
    told = node.confirm("replicated", cluster.publish(node, "a"), 5.0)
    cluster.settle()
    cluster.publish(node, "a")
    assert told == []
    cluster.redis.replicas = 1
    cluster.settle()
    assert told == [Confirmation("replicated", replicas=1)]


def test_a_node_with_other_limits_stays_out_while_others_live(cluster: Cluster, log: list[str]) -> None:
    """It names what differs; when all have stopped they are taken over, and the epoch is the same."""
    cluster.publish(cluster.nodes[0], "a")
    cursor = cluster.nodes[0].cursor
    odd = cluster.start(limits=Limits(retention_messages=5, strict_channels=True))
    cluster.advance(2.0)
    told = reason(odd.append(publish("a")))
    assert told.startswith("this node cannot follow the message log (this node and the running cluster differ in ")
    assert "differ in retention_messages, strict_channels;" in told
    for node in cluster.nodes[:3]:
        cluster.crash(node)
    cluster.advance(10.0)
    assert odd.follows
    assert odd.cursor == cursor
    assert ids(odd.poll(poll("a"))) == [1]
    late = cluster.start()
    cluster.advance(1.0)
    assert "differ in" in reason(late.append(publish("a")))


@pytest.mark.parametrize("publishing", [False, True])
def test_an_aborted_node_vanishes_without_telling_anybody(cluster: Cluster, log: list[str], publishing: bool) -> None:
    """Its connections end, its publishers are not answered, and the others see it until its lease ends."""
    cluster.advance(0.5)
    node = cluster.nodes.pop(0)
    links = links_of(cluster, node)
    waiting = node.append(publish("a")) if publishing else []
    told = node.confirm("stable", Published(node.node.cursor.epoch, 1, 1, START), 60.0)
    node.broadcast.abort()
    cluster.advance(1.0)
    assert not any(link.open for link in links)
    assert not node.broadcast.is_following
    assert (waiting, told) == ([], [])
    assert len(cluster.nodes[0].node.members()) == 3
    assert node.stop().called
    assert (waiting, told) == ([], [])
    cluster.advance(3.0)
    assert [member.id for member in cluster.nodes[0].node.members()] == ["node1", "node2"]


@pytest.mark.parametrize("state", ["well", "away", "hangs", "trying", "unread"])
def test_a_node_stops_whatever_redis_does(cluster: Cluster, log: list[str], state: str) -> None:
    """Whoever waits is told, within the timeout; then nothing of it is left."""
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
