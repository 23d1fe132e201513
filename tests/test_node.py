"""The node: state, held polls, clock and broadcast together."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec import Raw
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from pushup.broadcast import OnEnd, OnOutcome
from pushup.core.answer import Answer, Gap
from pushup.core.commands import ChannelState, Close, Command, Create, Draft, Expire, Outcome, Publish, Published
from pushup.core.cursor import Cursor
from pushup.core.errors import Overloaded, Refusal, UnknownChannel
from pushup.core.held_polls import SLICE
from pushup.core.limits import HoldLimits, Limits
from pushup.core.poll import Poll, Selection
from pushup.core.state_transfer import restore
from pushup.core.subscription import Subscription
from pushup.node.drain import BALANCERS_LIMIT, RECENT_SECONDS, REFUSALS, Draining
from pushup.node.expiry import EXPIRY_SECONDS, LONGEST_SLEEP_SECONDS
from pushup.node.node import DEADLINE_STEP_SECONDS
from tests.net.in_memory_node import AroundMemory, InMemoryNode, RecordingExchange, waiting_poll
from tests.net.in_memory_server import START, make_clock


def hold(node: InMemoryNode, poll: Poll, record: list[RecordingExchange] | None = None) -> RecordingExchange:
    """A poll that is expected to be held."""
    exchange = RecordingExchange(record)
    result = node.node.poll(poll, exchange)
    assert isinstance(result, Subscription)
    exchange.hold(result)
    return exchange


def publication(*channels: str) -> Publish:
    return Publish((Draft(channels, Raw(b"1")),))


@pytest.mark.parametrize("random", [0.0, 0.3, 0.999999])
@pytest.mark.parametrize("jitter", [0.0, 0.15, 0.5])
def test_hold_jitter(random: float, jitter: float) -> None:
    """A poll times out early by a random part of at most `hold_jitter`, never late, and gets a new cursor."""
    node = InMemoryNode(random=lambda: random, hold_limits=HoldLimits(hold_jitter=jitter))
    exchange = hold(node, waiting_poll(timeout=20.0))
    wanted = START + 20.0 * (1 - jitter * random)
    node.clock.advance(wanted - START - DEADLINE_STEP_SECONDS - 0.001)
    assert exchange.answers == []
    node.clock.advance(DEADLINE_STEP_SECONDS + 0.001)
    assert exchange.answers == [Answer("e-0", (), False, (), ())]
    assert (1 - jitter) * 20 - DEADLINE_STEP_SECONDS <= node.clock.seconds() - START <= 20
    assert node.polls.count == 0


def test_deadlines_in_any_order() -> None:
    """Each poll is answered at its own deadline, in whatever order the polls arrived."""
    node = InMemoryNode()
    exchanges = {timeout: hold(node, waiting_poll(timeout=timeout)) for timeout in (9.0, 3.0, 6.0, 3.0, 12.0)}
    for second in range(1, 13):
        node.clock.advance(1.0)
        assert {timeout for timeout, e in exchanges.items() if e.answers} == {t for t in exchanges if t <= second}


def test_the_end_of_a_time_range_is_a_deadline() -> None:
    """A poll for messages up to some time is answered at that time, whatever the other polls' timeouts."""
    node = InMemoryNode()
    hold(node, waiting_poll(timeout=10.0))
    exchange = hold(node, waiting_poll(timeout=25.0, selection=Selection(("a",), end=START + 5.0)))
    node.clock.advance(4.9)
    assert exchange.answers == []
    node.clock.advance(0.2)
    assert len(exchange.answers) == 1


def test_a_poll_without_timeout() -> None:
    """It is answered at once and leaves nothing behind."""
    node = InMemoryNode()
    assert node.node.poll(waiting_poll(timeout=0.0), RecordingExchange()) == Answer("e-0", (), False, (), ())
    assert node.polls.count == 0
    node.check()


def test_many_deadlines_at_once_are_answered_in_slices() -> None:
    """When more than a slice of polls is due, other work gets its turn in between."""
    node = InMemoryNode()
    record: list[RecordingExchange] = []
    for _ in range(3 * SLICE):
        hold(node, waiting_poll(timeout=5.0), record)
    between: list[int] = []
    node.clock.callLater(5.0, lambda: between.append(len(record)))
    node.clock.advance(5.0)
    assert between == [SLICE]
    assert len(record) == 3 * SLICE


def test_an_abandoned_poll_is_never_answered() -> None:
    """Neither a message nor its deadline reaches a client that has disconnected."""
    node = InMemoryNode()
    exchange = hold(node, waiting_poll(timeout=5.0))
    assert exchange.held is not None
    node.api.abandon(exchange.held)
    node.api.abandon(exchange.held)
    node.publish("a")
    node.advance(6.0)
    assert exchange.answers == []
    assert node.polls.count == 0
    node.check()


def test_a_client_that_disconnects_during_a_fan_out() -> None:
    """A client that disconnects between being woken and its slice is not answered."""
    node = InMemoryNode()
    exchanges = [hold(node, waiting_poll()) for _ in range(SLICE + 2)]
    node.node.submit(publication("a"), lambda outcome: None)
    node.turn()
    late = [exchange for exchange in exchanges if exchange.held is not None]
    assert len(late) == 2
    assert late[0].held is not None
    node.api.abandon(late[0].held)
    node.run()
    assert [len(exchange.answers) for exchange in late] == [0, 1]


def test_the_publisher_comes_first() -> None:
    """A publication is acknowledged before any subscriber is answered."""
    node = InMemoryNode()
    order: list[object] = []
    record: list[RecordingExchange] = []
    hold(node, waiting_poll(), record)
    node.node.submit(publication("a"), lambda outcome: order.append((outcome, len(record))))
    assert order == [(Published("e", 1, 1, START), 0)]
    node.run()
    assert len(record) == 1


def test_a_large_fan_out_comes_in_slices() -> None:
    """10,000 subscribers get the same answer object, SLICE of them at a time, nearest deadline first."""
    node = InMemoryNode()
    record: list[RecordingExchange] = []
    selection = Selection(("a",))
    for n in range(10_000):
        hold(node, waiting_poll(timeout=20.0 + n % 5, selection=selection), record)
    node.node.submit(publication("a"), lambda outcome: None)
    assert record == []
    turns = []
    while node.soon:
        assert len(node.soon) == 1
        before = len(record)
        node.turn()
        turns.append(len(record) - before)
    assert turns[:-1] == [SLICE] * (10_000 // SLICE)
    assert sum(turns) == 10_000
    assert len({id(exchange.answers[0]) for exchange in record}) == 1
    assert (node.metrics.messages, node.metrics.deliveries, node.metrics.answers) == (1, 10_000, 10_000)
    assert node.polls.count == 0
    node.check()


def test_a_second_message_during_a_fan_out() -> None:
    """Polls answered after the second message get both, and no poll gets a message twice."""
    node = InMemoryNode()
    exchanges = [hold(node, waiting_poll()) for _ in range(2 * SLICE)]
    node.node.submit(publication("a"), lambda outcome: None)
    node.turn()
    node.node.submit(publication("a"), lambda outcome: None)
    node.run()
    got = [[message.id for message in exchange.answers[0].messages] for exchange in exchanges]
    assert sorted(got) == [["e-1"]] * SLICE + [["e-1", "e-2"]] * SLICE


def test_an_unknown_channel_is_an_error() -> None:
    """With strict channels a poll on a channel that does not exist raises and is not held."""
    node = InMemoryNode(limits=Limits(strict_channels=True))
    with pytest.raises(UnknownChannel):
        node.node.poll(waiting_poll(), RecordingExchange())
    assert node.polls.count == 0


def test_a_limit_of_the_state_is_no_refusal_by_the_broadcast() -> None:
    """The command was carried out, and this is its outcome."""
    node = InMemoryNode(limits=Limits(channels_limit=1))
    node.publish("a")
    outcomes: list[Outcome] = []
    node.node.submit(Create("b", 5.0), outcomes.append)
    assert isinstance(outcomes[0], Overloaded)
    refused = [metric for metric in node.metrics.collect() if metric.name == "pushup_publications_refused"]
    assert {sample.value for metric in refused for sample in metric.samples} == {0}


def test_dropped_messages_are_counted_by_reason() -> None:
    """Each once, though it is on two channels; and when the node goes on from another state, from what was counted."""
    node = InMemoryNode(limits=Limits(retention_seconds=10.0, retention_messages=3))

    def dropped() -> dict[str, float]:
        (metric,) = [each for each in node.metrics.collect() if each.name == "pushup_messages_dropped"]
        return {sample.labels["reason"]: sample.value for sample in metric.samples}

    assert dropped() == {"expired": 0, "evicted": 0, "closed": 0, "deleted": 0}
    for _ in range(5):
        node.node.submit(publication("a", "b"), lambda outcome: None)
    assert dropped() == {"expired": 0, "evicted": 2, "closed": 0, "deleted": 0}
    node.publish("c")
    node.node.submit(Close("a"), lambda outcome: None)
    assert dropped()["closed"] == 0, "b has them"
    node.node.submit(Close("b"), lambda outcome: None)
    assert dropped() == {"expired": 0, "evicted": 2, "closed": 3, "deleted": 0}
    node.node.start_from(restore(node.state.snapshot()))
    assert dropped() == {"expired": 0, "evicted": 2, "closed": 3, "deleted": 0}
    node.advance(12.0)
    assert dropped() == {"expired": 1, "evicted": 2, "closed": 3, "deleted": 0}


def test_gaps_are_counted_by_reason() -> None:
    """Once for each poll and channel."""
    node = InMemoryNode(limits=Limits(retention_messages=1))
    for _ in range(2):
        node.node.submit(publication("a", "b"), lambda outcome: None)
    for cursor, channels in ((Cursor("e", 0), ("a", "b")), (Cursor("other", 1), ("a",)), (Cursor("e", 0), ("a",))):
        assert isinstance(node.node.poll(Poll(Selection(channels), cursor), RecordingExchange()), Answer)
    (metric,) = [each for each in node.metrics.collect() if each.name == "pushup_gaps"]
    counted = {sample.labels["reason"]: sample.value for sample in metric.samples}
    assert counted == {"expired": 0, "evicted": 3, "closed": 0, "deleted": 0, "lost": 1}


def test_shared_state_expires_by_itself() -> None:
    """Messages, keys and channels expire when they are due, by entries, without any request."""
    node = InMemoryNode(limits=Limits(retention_seconds=10.0, channel_ttl_seconds=30.0))
    node.publish("a")
    outcomes: list[Outcome] = []
    node.node.submit(Create("b", 5.0), outcomes.append)
    assert isinstance(outcomes[0], ChannelState)
    seen = []
    for _ in range(50):
        seen.append((node.state.message_count, len(node.state.channels)))
        node.advance(1.0)
    changes = [second for second in range(1, 50) if seen[second] != seen[second - 1]]
    assert [seen[second] for second in (0, *changes)] == [(1, 2), (1, 1), (0, 1), (0, 0)]
    for change, due in zip(changes, (5, 10, 30), strict=True):
        assert due <= change <= due + 1 + EXPIRY_SECONDS
    assert node.state.cursor.sequence >= 2 + 3, "each expiry needs an entry"


def test_nothing_due_takes_no_entry() -> None:
    """While nothing is due, time passes without entries."""
    node = InMemoryNode(limits=Limits(retention_seconds=100.0))
    node.publish("a")
    node.advance(50.0)
    assert node.state.cursor.sequence == 1


def test_nothing_due_takes_no_turn() -> None:
    """An idle node looks once after the last entry, and sleeps until the first thing is due, 10 s at a time."""
    node = InMemoryNode(limits=Limits(retention_seconds=1000.0, channel_ttl_seconds=1000.0))
    node.advance(5.0)
    assert node.clock.getDelayedCalls() == []
    node.publish("a")
    node.advance(EXPIRY_SECONDS)
    (call,) = node.clock.getDelayedCalls()
    assert call.getTime() >= node.clock.seconds() + LONGEST_SLEEP_SECONDS - EXPIRY_SECONDS


def test_something_that_is_due_earlier() -> None:
    """While a node sleeps until something is due, it notices entries that bring something that is due before."""
    node = InMemoryNode(limits=Limits(retention_seconds=1000.0, channel_ttl_seconds=1000.0))
    node.publish("a")
    node.advance(2.5)
    node.node.submit(Create("b", 3.0), lambda outcome: None)
    node.advance(3.0 + 1 + EXPIRY_SECONDS)
    assert len(node.state.channels) == 1


def test_things_that_are_due_one_after_the_other_take_few_entries() -> None:
    """All that is due within a step takes one entry."""
    node = InMemoryNode(limits=Limits(retention_seconds=10.0))
    for _ in range(50):
        node.publish("a")
        node.clock.advance(0.1)
    sequence = node.state.cursor.sequence
    for _ in range(200):
        node.clock.advance(0.1)
        node.run()
    assert node.state.message_count == 0
    assert node.state.cursor.sequence <= sequence + 6


def test_nodes_do_not_look_at_the_same_time() -> None:
    """Each looks at whole steps since its own start: or all nodes of a cluster would append an entry at once."""
    clock = make_clock()
    clock.advance(0.3)
    node = InMemoryNode(limits=Limits(retention_seconds=10.0), clock=clock)
    clock.advance(0.2)
    node.publish("a")
    counts = []
    for wanted in (10.4, 11.2, 11.4):
        node.clock.advance(START + wanted - clock.seconds())
        node.run()
        counts.append(node.state.message_count)
    assert counts == [1, 1, 0]


def test_an_expiry_that_was_refused_is_tried_again() -> None:
    """While entries are refused, a node tries once in each step."""

    class Refusing(AroundMemory):
        refused = 0

        def append(self, command: Command, on_outcome: OnOutcome) -> None:
            if isinstance(command, Expire) and self.refused < 5:
                self.refused += 1
                on_outcome(Refusal.STOPPING())
            else:
                self._broadcast.append(command, on_outcome)

    node = InMemoryNode(limits=Limits(retention_seconds=10.0), broadcast=Refusing)
    node.publish("a")
    node.advance(14.0)
    assert cast(Refusing, node.broadcast).refused in (4, 5)
    assert node.state.message_count == 1
    node.advance(3.0)
    assert node.state.message_count == 0


def test_a_large_expiry_takes_several_entries() -> None:
    """If more is due than one entry expires, several do it, each in a turn of its own."""
    node = InMemoryNode(limits=Limits(retention_seconds=10.0, retention_messages=10_000))
    drafts = tuple(Draft(("a",), Raw(b"1")) for _ in range(5000))
    node.node.submit(Publish(drafts), lambda outcome: None)
    node.clock.advance(12.0)
    turns = 0
    while node.soon:
        before = node.state.message_count
        node.turn()
        assert before - node.state.message_count <= 1000
        turns += 1
    assert node.state.message_count == 0
    assert turns >= 4


def test_readiness() -> None:
    """A node is ready until it drains."""
    node = InMemoryNode()
    assert node.node.why_not_ready() is None
    node.node.drain(0.0)
    assert node.node.member("1").draining
    assert node.node.why_not_ready() is not None


def test_drain_spreads_the_answers() -> None:
    """Held polls are answered evenly over the drain window, each once, and `drain` completes at its end."""
    for count in (1, 7, SLICE, 4 * SLICE):
        node = InMemoryNode()
        exchanges = [hold(node, waiting_poll(timeout=25.0)) for _ in range(count)]
        done: list[Any] = []
        node.node.drain(8.0).addCallback(done.append)
        for step in range(80):
            answered = sum(len(exchange.answers) for exchange in exchanges)
            assert count * step / 80 - 1 <= answered <= count * (step + 1) / 80 + 1 + count / 16
            assert not done
            node.clock.advance(0.1)
        node.clock.advance(0.001)
        assert [len(exchange.answers) for exchange in exchanges] == [1] * count
        assert done == [None]


def test_drain_takes_no_longer_turns_than_other_answers() -> None:
    """With no time to spread them, polls are answered one slice at a time."""
    node = InMemoryNode()
    record: list[RecordingExchange] = []
    for _ in range(3 * SLICE):
        hold(node, waiting_poll(timeout=25.0), record)
    between: list[int] = []
    done: list[Any] = []
    node.clock.callLater(0.0, lambda: node.clock.callLater(0.0, lambda: between.append(len(record))))
    node.node.drain(0.0).addCallback(done.append)
    between.append(len(record))
    node.clock.advance(0.0)
    assert between == [SLICE, 2 * SLICE]
    assert (len(record), done) == (3 * SLICE, [None])


def test_a_draining_node_holds_new_polls_briefly() -> None:
    """They wait between half a second and a second, so that clients do not poll in a loop; publications reach them."""
    for chance, seconds in ((0.0, 1.0), (0.5, 0.75), (0.999, 0.5)):
        node = InMemoryNode(random=lambda chance=chance: chance)  # type: ignore[misc]
        exchange = hold(node, waiting_poll())
        done: list[Any] = []
        node.node.drain(5.0).addCallback(done.append)
        assert len(exchange.answers) == 1
        new = hold(node, waiting_poll())
        node.clock.advance(seconds - 0.05)
        assert not new.answers
        node.clock.advance(0.05)
        assert len(new.answers) == 1
        newer = hold(node, waiting_poll())
        assert node.publish("a").status == 201
        assert newer.answers[0].messages
        assert isinstance(node.node.poll(waiting_poll(timeout=0.0), RecordingExchange()), Answer)
        assert not done
        node.clock.advance(5.0)
        assert done == [None]


def test_a_poll_late_in_the_drain_is_answered_at_its_end() -> None:
    """The server then stops: no client is left without an answer, and none delays the stop by polling again."""
    node = InMemoryNode()
    hold(node, waiting_poll())
    done: list[Any] = []
    node.node.drain(5.0).addCallback(done.append)
    node.clock.advance(4.9)
    new = hold(node, waiting_poll())
    node.clock.advance(0.1)
    assert (len(new.answers), done) == (1, [None])
    assert isinstance(node.node.poll(waiting_poll(), RecordingExchange()), Answer)


def test_polls_that_arrive_during_the_drain_do_not_delay_it() -> None:
    """Clients that have no other node and poll here again are answered about once a second each."""
    node = InMemoryNode(random=lambda: 0.5)
    count = 1000
    exchanges = [hold(node, waiting_poll(timeout=25.0)) for _ in range(count)]
    done: list[Any] = []
    node.node.drain(5.0).addCallback(done.append)
    again: list[RecordingExchange] = []
    waiting = exchanges
    for step in range(50):
        back = [hold(node, waiting_poll(timeout=25.0)) for exchange in waiting if exchange.answers]
        waiting = [exchange for exchange in waiting if not exchange.answers] + back
        again += back
        assert sum(len(e.answers) for e in exchanges) == pytest.approx(count * (step + 1) / 50, abs=25)
        node.clock.advance(0.1)
    assert all(e.answers for e in exchanges)
    # On average each returns in the middle of the drain, and is then answered every 0.75 s.
    assert len(again) < count * 2.5 / 0.75 * 1.2


def test_a_node_out_of_rotation() -> None:
    """It is not ready, and sends the clients it has away, over the drain window; those that still come are held as
    usual. It can be taken back at any time."""
    node = InMemoryNode()
    held = [hold(node, waiting_poll(timeout=25.0)) for _ in range(50)]
    changes: list[bool] = []
    node.node.draining.on_out = changes.append
    for _ in range(2):
        node.node.draining.set_out(True)
    assert node.node.why_not_ready() is not None
    node.advance(2.5)
    assert sum(len(exchange.answers) for exchange in held) == pytest.approx(25, abs=5)
    brief = hold(node, waiting_poll())
    node.advance(3)
    assert all(exchange.answers for exchange in (*held, brief))
    assert not node.node.is_draining
    assert node.node.why_not_ready() is not None
    assert node.node.member("1").draining
    late = hold(node, waiting_poll(timeout=25.0))
    node.advance(20)
    assert not late.answers
    assert changes == [True]
    node.node.draining.set_out(False)
    assert (node.node.why_not_ready(), changes) == (None, [True, False])
    assert not node.node.member("1").draining


def test_a_node_that_is_taken_back_early() -> None:
    """The polls that have not been answered by then stay held."""
    node = InMemoryNode()
    held = [hold(node, waiting_poll(timeout=25.0)) for _ in range(50)]
    node.node.draining.set_out(True)
    node.advance(1)
    node.node.draining.set_out(False)
    node.advance(15)
    assert sum(len(exchange.answers) for exchange in held) == pytest.approx(10, abs=2)
    assert node.node.why_not_ready() is None


@pytest.mark.parametrize("window_is_over", [False, True])
def test_a_node_out_of_rotation_stops(window_is_over: bool) -> None:
    """Balancers that have had the drain window to notice are not waited for again. Nothing else changes the stop."""
    node = InMemoryNode()
    node.node.answer_balancer("10.0.0.1")
    node.node.draining.set_out(True)
    node.advance(6 if window_is_over else 1)
    node.node.answer_balancer("10.0.0.1")
    done: list[Any] = []
    node.node.drain(5.0).addCallback(done.append)
    node.node.draining.set_out(False)
    assert node.node.why_not_ready() is not None
    assert bool(done) == window_is_over
    node.advance(4.75)
    assert bool(done) == window_is_over
    node.advance(0.5)
    assert done == [None]


def test_stop_leaves_no_timer() -> None:
    """A node that has stopped has nothing left to do."""
    node = InMemoryNode()
    hold(node, waiting_poll())
    stopped = Deferred.fromCoroutine(node.node.stop())
    assert stopped.called
    assert node.clock.getDelayedCalls() == []


# The clocks. The monotonic one is `node.clock`; `Clocks.ahead` is what the time of messages is ahead of it.


class Clocks:
    """A node whose messages have the time of another clock than the one that it waits on."""

    def __init__(self, ahead: float, **limits: Any) -> None:
        self.ahead = ahead
        clock = make_clock()
        self.node = InMemoryNode(clock=clock, steady_time=lambda: clock.seconds() + self.ahead, limits=Limits(**limits))


@pytest.mark.parametrize("ahead", [0.0, 1e9, -1e9])
def test_the_end_of_a_time_range_is_of_the_clock_of_messages(ahead: float) -> None:
    """A poll is held until messages have that time, and one whose range has ended already is answered at once."""
    node = Clocks(ahead).node
    start = START + ahead
    exchange = hold(node, waiting_poll(selection=Selection(("a",), end=start + 5.0)))
    node.clock.advance(4.9)
    assert exchange.answers == []
    node.clock.advance(0.1 + DEADLINE_STEP_SECONDS)
    assert len(exchange.answers) == 1
    for end in (start, start + 5.0):
        assert isinstance(
            node.node.poll(waiting_poll(selection=Selection(("a",), end=end)), RecordingExchange()), Answer
        )


def test_equal_ends_of_time_ranges_are_equal_deadlines() -> None:
    """Whatever the clocks: they are rounded, so that many polls share a place in the tree of deadlines."""
    clocks = Clocks(0.123456789)
    selection = Selection(("a",), end=START + 5.0)
    deadlines = set()
    for _ in range(10):
        (held,) = [hold(clocks.node, waiting_poll(selection=selection)).held]
        assert isinstance(held, Subscription)
        deadlines.add(held.deadline)
        clocks.node.clock.advance(0.0123)
    assert len(deadlines) <= 2


def test_a_poll_is_held_no_longer_than_it_may() -> None:
    """The shortest of the timeout, the end of the time range and the time allowed."""
    node = Clocks(1000.0).node
    exchange = RecordingExchange()
    ranged = waiting_poll(selection=Selection(("a",), end=START + 1000.0 + 9.0))
    held = node.node.poll(ranged, exchange, 3.0)
    assert isinstance(held, Subscription)
    assert held.deadline == START + 3.0
    assert isinstance(node.node.poll(ranged, exchange, 0.0), Answer)
    longer = node.node.poll(ranged, exchange, 30.0)
    assert isinstance(longer, Subscription)
    assert longer.deadline == START + 9.0


@pytest.mark.parametrize("jump", [7200.0, -3600.0])
def test_a_jump_of_the_clock_of_messages_moves_no_hold(jump: float) -> None:
    """A poll that was held before ends after its timeout, neither earlier nor later."""
    clocks = Clocks(0.0)
    exchange = hold(clocks.node, waiting_poll(timeout=8.0))
    clocks.node.clock.advance(4.0)
    clocks.ahead = jump
    clocks.node.clock.advance(3.9)
    assert exchange.answers == []
    clocks.node.clock.advance(0.1)
    assert len(exchange.answers) == 1


def test_message_times_never_decrease() -> None:
    """While the clock is behind the last entry, time stands still: nothing expires, and no `Expire` is appended."""
    clocks = Clocks(0.0, retention_seconds=10.0)
    node = clocks.node
    node.publish("a")
    clocks.ahead = -3600.0
    node.publish("a")
    before = node.state.cursor
    node.advance(60.0)
    assert node.state.cursor == before
    node.publish("a")
    assert [message.time for message in node.poll("channel=a").messages] == [START] * 3
    clocks.ahead = 0.0
    node.advance(2.0)
    assert node.state.message_count == 0


def test_the_delay_of_answers_is_measured_by_the_clock_of_messages() -> None:
    """However far it is from the monotonic one."""
    clocks = Clocks(-1e9)
    hold(clocks.node, waiting_poll())
    clocks.node.publish("a")
    assert clocks.node.metric("answer_delay_seconds_count", poll="held") == 1
    assert clocks.node.metric("answer_delay_seconds_sum", poll="held") == 0


class _Lagging(AroundMemory):
    """Finds the end of the order only when told to: others have appended to it."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.asking: list[OnEnd] = []

    def find_end(self, on_end: OnEnd) -> None:
        self.asking.append(on_end)


def test_a_poll_beyond_the_end_of_the_order_is_answered_lost() -> None:
    """At once, even without a timeout: this node has all entries that there are."""
    node = InMemoryNode()
    exchange = RecordingExchange()
    subscription = node.node.poll(Poll(Selection(("a",)), Cursor("e", 7)), exchange)
    assert isinstance(subscription, Subscription)
    node.turn()
    assert [answer.gaps for answer in exchange.answers] == [(Gap("a", "lost", "e-0"),)]


def test_the_end_is_asked_for_once_at_a_time() -> None:
    """Polls that come while the end is being found out are judged by the next question, not by this one."""
    node = InMemoryNode(broadcast=_Lagging)
    assert isinstance(node.broadcast, _Lagging)
    exchanges = [RecordingExchange() for _ in range(3)]
    for exchange in exchanges:
        node.node.poll(Poll(Selection(("a",)), Cursor("e", 7), 30.0), exchange)
    asking = node.broadcast.asking
    assert len(asking) == 1
    asking[0](Cursor("e", 6))
    node.turn()
    assert [len(exchange.answers) for exchange in exchanges] == [1, 0, 0]
    assert len(asking) == 2
    asking[1](Cursor("e", 7))
    node.turn()
    assert [len(exchange.answers) for exchange in exchanges] == [1, 0, 0]
    assert len(asking) == 2


def drained(node: InMemoryNode, seconds: float = 8.0) -> list[Any]:
    """Begin to drain; returns a list that has an element when the drain is over."""
    done: list[Any] = []
    node.node.drain(seconds).addCallback(done.append)
    return done


def test_a_node_without_a_balancer_stops_at_once() -> None:
    """If it holds no poll: also when a balancer last asked long ago."""
    assert drained(InMemoryNode())
    node = InMemoryNode()
    node.node.answer_balancer("10.0.0.1")
    node.advance(RECENT_SECONDS + 1.0)
    assert drained(node)


def test_a_stop_waits_until_each_balancer_has_noticed() -> None:
    """Each has to be refused a few times, whoever else asks meanwhile, and there is an end to the wait."""
    node = InMemoryNode()
    for host in ("10.0.0.1", "10.0.0.2"):
        assert node.node.answer_balancer(host) is None
    done = drained(node)
    for _ in range(REFUSALS):
        node.advance(0.5)
        assert node.node.answer_balancer("10.0.0.1") is not None
        node.node.answer_balancer("10.0.0.3")
    node.advance(0.5)
    assert not done
    for refusal in range(REFUSALS):
        assert not done, refusal
        node.node.answer_balancer("10.0.0.2")
        node.advance(0.25)
    assert done == [None]
    node.node.answer_balancer("10.0.0.2")
    silent = InMemoryNode()
    silent.node.answer_balancer("10.0.0.1")
    done = drained(silent)
    silent.advance(7.75)
    assert not done
    silent.advance(0.25)
    assert done == [None]


def test_polls_are_answered_over_the_whole_drain_although_balancers_have_noticed() -> None:
    """Their clients should not reach the other nodes at once; a poll that came later does not lengthen the drain."""
    node = InMemoryNode()
    node.node.answer_balancer("10.0.0.1")
    exchange = hold(node, waiting_poll(timeout=25.0))
    done = drained(node)
    for _ in range(2 * REFUSALS):
        node.node.answer_balancer("10.0.0.1")
        node.advance(1.0)
    assert (len(exchange.answers), done) == (1, [])
    node.advance(2.1)
    assert done == [None]
    empty = InMemoryNode()
    empty.node.answer_balancer("10.0.0.1")
    done = drained(empty)
    late = hold(empty, waiting_poll(timeout=25.0))
    for _ in range(REFUSALS):
        empty.node.answer_balancer("10.0.0.1")
    empty.advance(0.25)
    assert (len(late.answers), done) == (1, [None])


def test_few_balancers_are_remembered() -> None:
    """Those that asked last; whoever asks under many addresses cannot use up memory."""
    draining = Draining(Clock(), 5.0, held=lambda: 0, answer=lambda count: None)
    for number in range(2 * BALANCERS_LIMIT):
        draining.asked("10.0.0.1")
        draining.asked(str(number))
    assert len(draining.balancers()) == BALANCERS_LIMIT
    assert "10.0.0.1" in draining.balancers()
