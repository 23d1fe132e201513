"""What a worker's node may rely on: outcomes, confirmations, the end of the order, beats, and the end of the link."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from pushup.broadcast.admission import size_of
from pushup.broadcast.hub import frames
from pushup.broadcast.hub.hub import BEAT_SECONDS
from pushup.broadcast.hub.worker_broadcast import SILENCE_SECONDS, UNKNOWN_EPOCHS
from pushup.broadcast.work_budget import ENTRY_UNITS, TURN_UNITS
from pushup.core.commands import (
    Ack,
    Close,
    Closed,
    Command,
    Confirmation,
    Continue,
    Done,
    Entry,
    Outcome,
    Published,
)
from pushup.core.cursor import Cursor
from pushup.core.errors import KeyReused, Overloaded, Unavailable, UnknownChannel
from pushup.transport.framed_link import UNSENT_LIMIT_BYTES, framed
from tests.broadcast.hub.machine import AHEAD, EPOCH, JournaledMachine, Machine, Worker, bodies_in
from tests.core.builders import batch, draft, publish
from tests.metric_values import value_of
from tests.net.observed_log import logged_at

UNKNOWN = "this may or may not have been published; retry with the same Idempotency-Key"


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def worker(machine: Machine) -> Worker:
    (worker,) = machine.start()
    return worker


@pytest.fixture
def journaled(tmp_path: Path) -> Iterator[JournaledMachine]:
    machine = JournaledMachine(tmp_path / "journal")
    yield machine
    machine.file.close()


def why(outcomes: list[Outcome]) -> tuple[str, str]:
    """The detail, and the operator's, of the one refusal."""
    (outcome,) = outcomes
    assert isinstance(outcome, Unavailable)
    return outcome.detail, outcome.operator_detail


# Outcomes.


def test_a_publisher_is_answered_by_its_own_worker(machine: Machine) -> None:
    """Once this has applied the entry; the other applies it as well, and answers nobody."""
    asked, other = machine.start(2)
    outcomes = asked.append(publish("a"))
    asked.end.carry()
    assert machine.hub.cursor.sequence == 1
    assert (outcomes, asked.broadcast.waiting_bytes) == ([], size_of(publish("a")))
    machine.run()
    assert outcomes == [Published(EPOCH, 1, 1, machine.clock.seconds() + AHEAD)]
    assert (asked.broadcast.waiting_bytes, other.equals_hub()) == (0, True)


def test_a_worker_that_takes_nothing_delays_only_its_own_publishers(machine: Machine) -> None:
    """The others' entries wait for it in the parent."""
    quick, slow = machine.start(2)
    slow.end.is_reading = False
    late, early = slow.append(publish("a")), quick.append(publish("a"))
    machine.run()
    assert (len(late), len(early)) == (0, 1)
    slow.end.is_reading = True
    machine.run()
    assert (len(late), slow.equals_hub()) == (1, True)


def test_outcomes_come_in_order(machine: Machine) -> None:
    """Of everything: publications, errors of the order, and a key that is used again."""
    asked, other = machine.start(2)
    commands: list[Command] = [
        batch(draft("a"), draft("b"), key="k"),
        Close("nobody"),
        batch(draft("a"), draft("b"), key="k"),
        publish("c", key="k"),
        Close("a"),
        Continue("e6"),
    ]
    received: list[Outcome] = []
    for command in commands:
        asked.broadcast.append(command, received.append)
    other.append(publish("b"))
    machine.run()
    first = Published(EPOCH, 1, 2, machine.hub.state.time)
    assert (received[0], received[2], received[4:]) == (first, first, [Closed("a"), Done()])
    assert [type(received[1]), type(received[3])] == [UnknownChannel, KeyReused]
    assert (asked.equals_hub(), other.equals_hub()) == (True, True)


def test_a_callback_that_fails_is_logged(machine: Machine, worker: Worker, log: list[str]) -> None:
    """The worker goes on, and so do the other publishers."""

    def fails(outcome: Outcome) -> None:
        raise ValueError("an error of somebody else")

    worker.broadcast.append(publish("a"), fails)
    outcomes = worker.append(publish("a"))
    machine.run()
    assert ["could not answer a publisher" in line for line in log] == [True]
    assert (len(outcomes), worker.broadcast.waiting_bytes, worker.lost) == (1, 0, [])


def test_what_waits_is_bounded(machine: Machine) -> None:
    """A command beyond the limit is refused at once; what was answered makes room."""
    worker = machine.begin(waiting_limit_bytes=2 * size_of(publish("a")))
    machine.run()
    first, second, third = (worker.append(publish("a")) for _ in range(3))
    assert (first, second, type(third[0])) == ([], [], Overloaded)
    machine.run()
    assert (len(first), len(second)) == (1, 1)
    fourth = worker.append(publish("a"))
    machine.run()
    assert isinstance(fourth[0], Published)


def test_many_entries_are_applied_over_several_turns(machine: Machine, worker: Worker) -> None:
    """`TURN_UNITS` of work in each; nothing that comes behind them is taken before."""
    (old,) = machine.workers
    channels = tuple(f"c{number}" for number in range(100))
    each = 100 + ENTRY_UNITS
    count = 3 * (TURN_UNITS // each) + 1
    for _ in range(count):
        machine.hub_publishes(publish(*channels))
    outcomes = worker.append(publish("last"))
    found = worker.find_end()
    counts = [0]
    while not outcomes:
        machine.turn()
        counts.append(len(worker.node.applied))
        assert found == [] or len(worker.node.applied) >= count
    done = [after - before for before, after in pairwise(counts)]
    assert max(done) * each <= TURN_UNITS + each
    assert len([number for number in done if number]) >= 4
    machine.run()
    assert found == [old.node.cursor]


# A broadcast that delays, refuses, and does not know.


def test_with_a_journal_nobody_applies_before_the_disk_has_it(journaled: JournaledMachine) -> None:
    """Nor is anybody told."""
    one, two = journaled.start(2)
    outcomes = one.append(publish("a"))
    journaled.run()
    assert (outcomes, one.node.cursor.sequence, two.node.cursor.sequence) == ([], 0, 0)
    journaled.run_with_disk()
    assert isinstance(outcomes[0], Published)
    assert (one.equals_hub(), two.equals_hub()) == (True, True)


@pytest.mark.parametrize("takes_effect", [False, True])
def test_a_commit_that_fails(journaled: JournaledMachine, log: list[str], takes_effect: bool) -> None:
    """Those whose commands were being written do not know, the others were refused; all apply what was written."""
    one, two = journaled.start(2)
    first = one.append(publish("a"))
    journaled.run()
    second = two.append(publish("b"))
    journaled.run()
    (journaled.helpers.fail_after_effect if takes_effect else journaled.helpers.fail)("the disk is full")
    journaled.run()
    assert why(first) == (UNKNOWN, "the disk is full")
    assert why(second) == ("the message log cannot be written", "the disk is full")
    journaled.advance(BEAT_SECONDS)
    third = one.append(publish("c"))
    assert why(third) == ("the message log cannot be written", "the disk is full")
    assert one.broadcast.why_not_ready() is third[0]
    for _ in range(3):
        journaled.run_with_disk()
        journaled.advance(BEAT_SECONDS)
    assert (one.broadcast.why_not_ready(), one.node.cursor.sequence) == (None, 1 if takes_effect else 0)
    fourth = one.append(publish("d"))
    journaled.run_with_disk()
    assert isinstance(fourth[0], Published)
    assert (one.equals_hub(), two.equals_hub(), one.broadcast.waiting_bytes) == (True, True, 0)


def test_a_full_waiting_room_of_the_parent(tmp_path: Path) -> None:
    """Is told as such, with when to try again."""
    machine = JournaledMachine(tmp_path / "journal", waiting_limit_bytes=size_of(publish("a")))
    one, two = machine.start(2)
    first, second = one.append(publish("a")), two.append(publish("a"))
    machine.run()
    assert first == []
    (full,) = second
    assert isinstance(full, Overloaded)
    assert (full.retry_after, "waiting_limit_bytes" in full.detail) == (1, True)
    machine.run_with_disk()
    assert isinstance(first[0], Published)
    machine.file.close()


# Confirmations.


@pytest.mark.parametrize("ack", ["accepted", "replicated"])
def test_there_are_no_replicas(worker: Worker, ack: Ack) -> None:
    """What was accepted is told at once, and no more was reached."""
    assert worker.confirm(ack) == [Confirmation("accepted", nodes=1)]


def test_stable_waits_for_all(machine: Machine) -> None:
    """Also for the slowest, which must have applied the entry, and not only received it."""
    quick, slow = machine.start(2)
    slow.end.is_reading = False
    quick.append(publish("a"))
    machine.run()
    confirmed = quick.confirm()
    machine.run()
    assert confirmed == []
    slow.end.is_reading = True
    machine.run()
    assert (confirmed, slow.equals_hub()) == ([Confirmation("stable", nodes=2)], True)


def test_a_worker_passes_a_mark_when_it_has_applied_what_came_before(machine: Machine) -> None:
    """However many turns that takes."""
    quick, slow = machine.start(2)
    for _ in range(40):
        quick.append(publish(*[f"c{number}" for number in range(100)]))
    while quick.node.cursor.sequence < 40:
        machine.turn()
    confirmed = quick.confirm()
    while not confirmed:
        machine.turn()
        assert not confirmed or slow.node.cursor.sequence == 40
    machine.run()
    assert confirmed == [Confirmation("stable", nodes=2)]


def test_each_confirmation_has_its_own_mark(machine: Machine) -> None:
    """Those of several workers, under way at once, are not mixed up."""
    one, two, three = machine.start(3)
    three.end.is_reading = False
    first = one.confirm()
    machine.run()
    three.end.is_reading = True
    second, third = two.confirm(), one.confirm(seconds=1.0)
    two.end.is_reading = False
    machine.run()
    assert (len(first), second, third) == (1, [], [])
    two.end.is_reading = True
    machine.run()
    assert {*first, *second, *third} == {Confirmation("stable", nodes=3)}
    assert machine.hub.confirming_count == 0


def test_a_worker_that_dies_is_not_waited_for(machine: Machine) -> None:
    """It serves nobody any more; who sees to that is told before the confirmation goes out."""
    asking, dying = machine.start(2)
    dying.end.is_reading = False
    confirmed = asking.confirm()
    machine.run()
    seen: list[bytes] = []
    dying.on_ended = lambda reason: seen.append(asking.hub_end.unsent)
    dying.end.die()
    assert (seen, asking.hub_end.unsent != b"") == ([b""], True)
    machine.run()
    assert [confirmation.ack for confirmation in confirmed] == ["stable"]


def test_a_worker_that_loads_is_not_waited_for(machine: Machine) -> None:
    """What it gets contains the entry, and it serves nobody before."""
    (asking,) = machine.start()
    machine.hub_publishes(publish("a"))
    loading = machine.begin(buffer_bytes=50)
    loading.end.is_reading = False
    confirmed = asking.confirm()
    machine.run()
    assert (confirmed, loading.states) == ([Confirmation("stable", nodes=1)], 0)


def test_a_confirmation_that_takes_too_long(machine: Machine) -> None:
    """Is of what was reached; what comes later is ignored."""
    asking, slow = machine.start(2)
    slow.end.is_reading = False
    confirmed = asking.confirm(seconds=2.0)
    machine.advance(1.9)
    assert confirmed == []
    machine.advance(0.2)
    assert confirmed == [Confirmation("accepted", nodes=1)]
    slow.end.is_reading = True
    machine.run()
    assert (len(confirmed), asking.lost) == (1, [])


def test_an_asker_that_dies_is_not_answered(machine: Machine) -> None:
    """Its confirmation is forgotten, also if others pass the mark later."""
    asking, slow, other = machine.start(3)
    slow.end.is_reading = False
    asking.confirm()
    confirmed = other.confirm()
    machine.run()
    asking.hub_end.die()
    assert machine.hub.confirming_count == 1
    slow.end.is_reading = True
    machine.run()
    assert (machine.hub.confirming_count, len(confirmed), slow.lost) == (0, 1, [])


# The end of the order, and epochs.


def test_the_end_of_the_order(machine: Machine) -> None:
    """Of some moment after the question; everything up to there was applied when it comes."""
    one, two = machine.start(2)
    two.append(publish("a"))
    machine.turn()
    found = one.find_end()
    again = one.find_end()
    assert found == []
    machine.run()
    assert (found, again) == ([Cursor(EPOCH, 1)], [Cursor(EPOCH, 1)])
    assert one.node.cursor == Cursor(EPOCH, 1)


def test_the_end_is_not_told_when_the_parent_has_ended(machine: Machine, worker: Worker) -> None:
    found = worker.find_end()
    worker.hub_end.die()
    machine.run()
    assert (found, worker.find_end()) == ([], [])
    machine.run()
    assert found == []


def test_an_epoch_before_this_one_is_not_awaited(machine: Machine, worker: Worker) -> None:
    """Nor one that this order was called before, or is called: nothing is asked."""
    worker.append(Continue("e7"))
    machine.run()
    assert [worker.broadcast.awaits(epoch) for epoch in ("e4", "e6", EPOCH)] == [False] * 3
    assert worker.end.unsent == b""


def test_a_later_epoch_is_awaited_until_the_parent_has_answered(machine: Machine, worker: Worker) -> None:
    """The parent may have ended without this worker's notice, and another may have begun that epoch."""
    assert worker.broadcast.awaits("e9")
    assert worker.broadcast.awaits("e9")
    machine.run()
    assert not worker.broadcast.awaits("e9")
    assert worker.broadcast.awaits("e8")


def test_a_parent_that_does_not_answer_is_asked_about_few_epochs(machine: Machine, worker: Worker) -> None:
    """Each once, however often a client comes with it; so what waits for it is bounded."""
    for name in [f"f{number:03}" for number in range(2 * UNKNOWN_EPOCHS)]:
        assert worker.broadcast.awaits(name)
        assert worker.broadcast.awaits(name)
    assert worker.end.unsent == UNKNOWN_EPOCHS * frames.frame(frames.FindEnd())
    machine.run()
    assert not any(worker.broadcast.awaits(f"f{number:03}") for number in range(UNKNOWN_EPOCHS))
    assert worker.broadcast.awaits(f"f{2 * UNKNOWN_EPOCHS - 1:03}")


def test_only_the_last_unknown_epochs_are_remembered(machine: Machine, worker: Worker) -> None:
    """Clients can send any name."""
    names = [f"f{number:03}" for number in range(UNKNOWN_EPOCHS + 1)]
    for name in names[:-1]:
        assert worker.broadcast.awaits(name)
    machine.run()
    assert [name for name in names[:-1] if worker.broadcast.awaits(name)] == []
    assert worker.broadcast.awaits(names[-1])
    machine.run()
    assert [name for name in names if worker.broadcast.awaits(name)] == names[:1]


def test_every_other_epoch_is_awaited_when_the_parent_has_ended(machine: Machine, worker: Worker) -> None:
    """The next parent may have begun it; not those that this order was called before."""
    for command in (Continue("e7"), publish("a"), publish("a"), Continue("e8")):
        worker.append(command)
    worker.broadcast.awaits("e9")
    machine.run()
    worker.hub_end.die()
    assert [worker.broadcast.awaits(epoch) for epoch in ("e9", "e6", "e7", EPOCH)] == [True, True, False, False]


# Beats.


def test_the_time_is_the_parents(machine: Machine, worker: Worker) -> None:
    """It goes on between beats; a beat tells when the parent's clock was corrected. It never goes back."""
    assert worker.broadcast.now() == machine.clock.seconds() + AHEAD
    machine.clock.rightNow += BEAT_SECONDS / 2
    assert worker.broadcast.now() == machine.clock.seconds() + AHEAD
    machine.ahead += 100.0
    machine.advance(BEAT_SECONDS)
    assert worker.broadcast.now() == machine.clock.seconds() + AHEAD + 100.0
    worker.append(publish("a"))
    machine.run()
    machine.ahead -= 300.0
    machine.advance(BEAT_SECONDS)
    assert worker.broadcast.now() == worker.node.state.time == machine.hub.state.time
    machine.advance(400.0)
    assert worker.broadcast.now() == machine.clock.seconds() + AHEAD - 200.0
    machine.ahead += 100.0
    machine.hub_publishes(publish("a"))
    machine.run()
    assert worker.broadcast.now() == worker.node.state.time  # before the next beat


def test_workers_know_each_other(machine: Machine) -> None:
    """All that serve, as of their last report; those that have ended leave with the next beat."""
    one, two = machine.start(2)
    machine.advance(BEAT_SECONDS)
    two.append(publish("a"))
    machine.run()
    loading = machine.begin()
    loading.end.is_reading = False
    machine.advance(BEAT_SECONDS)
    machine.advance(BEAT_SECONDS)
    for worker in (one, two):
        assert [(member.id, member.cursor) for member in worker.broadcast.members()] == [
            ("1", f"{EPOCH}-1"),
            ("2", f"{EPOCH}-1"),
        ]
    one.end.die()
    machine.advance(BEAT_SECONDS)
    assert [member.id for member in two.broadcast.members()] == ["2"]


def test_how_far_workers_lag_behind(machine: Machine) -> None:
    """As they report. One that is silent has not applied anything since."""
    one, two = machine.start(2)
    machine.advance(BEAT_SECONDS)
    two.end.is_reading = False
    for _ in range(3):
        one.append(publish("a"))
    machine.run()

    def lag() -> list[float]:
        return [value_of(machine.hub.metrics(), "worker_lag_entries", worker=number) for number in "12"]

    assert lag() == [0, 0]
    machine.advance(BEAT_SECONDS)
    assert lag() == [0, 3]
    two.end.is_reading = True
    machine.advance(BEAT_SECONDS)
    machine.advance(BEAT_SECONDS)
    assert lag() == [0, 0]
    two.hub_end.is_reading = False
    one.append(publish("a"))
    machine.run()
    machine.advance(BEAT_SECONDS)
    machine.advance(BEAT_SECONDS)
    assert lag() == [0, 0]
    machine.advance(BEAT_SECONDS)
    assert lag() == [0, 1]
    assert [*one.broadcast.metrics()] == [], "the parent has them"


def test_a_worker_that_has_not_reported_does_not_lag(machine: Machine) -> None:
    """It has the state, and may take its time to restore it."""
    machine.hub_publishes(publish("a"))
    worker = machine.begin()
    worker.hub_end.is_reading = False
    machine.run()
    (lag,) = [metric for metric in machine.hub.metrics() if metric.name == "pushup_worker_lag_entries"]
    assert lag.samples == []


def test_the_hub_has_the_metrics_of_its_broadcast(journaled: JournaledMachine) -> None:
    names = {metric.name for metric in journaled.broadcast.metrics()}
    assert names
    assert names < {metric.name for metric in journaled.hub.metrics()}


# A parent that hangs.


def hang(machine: Machine, seconds: float, workers: list[Worker]) -> None:
    """Let time pass in which the parent does nothing for these workers, whose links stay; they run."""
    for worker in workers:
        worker.end.is_reading = worker.hub_end.is_reading = False
    for _ in range(round(seconds / 0.25)):
        machine.advance(0.25)


def go_on(machine: Machine, workers: list[Worker]) -> None:
    for worker in workers:
        worker.end.is_reading = worker.hub_end.is_reading = True
    machine.run()


def test_publishers_are_answered_while_the_parent_hangs(machine: Machine, log: list[str]) -> None:
    """Those that wait: it is not known. Later ones are refused; the worker is not ready. All ends with the hang."""
    workers = machine.start(2)
    asked, other = workers
    hang(machine, 1.0, workers)
    outcomes, confirmed = asked.append(publish("a")), asked.confirm(seconds=2.0)
    hang(machine, SILENCE_SECONDS - 2.0, workers)
    assert (outcomes, asked.broadcast.why_not_ready()) == ([], None)
    hang(machine, 2 * BEAT_SECONDS + 1.0, workers)
    detail, reason = why(outcomes)
    assert (detail, "the parent process has not responded for" in reason) == (UNKNOWN, True)
    assert confirmed == [Confirmation("accepted", nodes=1)]
    refused = why(asked.append(publish("b")))
    assert refused == ("the message log cannot be reached", reason)
    assert (asked.broadcast.waiting_bytes, asked.lost, other.lost) == (0, [], [])
    for worker in workers:
        error = worker.broadcast.why_not_ready()
        assert error is not None
        assert error.operator_detail == reason
    hang(machine, 60.0, workers)
    assert [line.startswith(reason) for line in log] == [True, True]
    go_on(machine, workers)
    assert [worker.broadcast.why_not_ready() for worker in workers] == [None, None]
    assert machine.hub.cursor.sequence == 1, "it may, and this one was"
    again = asked.append(publish("c"))
    machine.run()
    assert isinstance(again[0], Published)
    assert (len(outcomes), asked.equals_hub(), other.equals_hub()) == (1, True, True)
    hang(machine, SILENCE_SECONDS + 2.0, workers)
    assert len(log) == 4


@pytest.mark.parametrize("pause", [13.0, 86400.0])
def test_a_pause_of_all_is_not_the_parents(machine: Machine, pause: float) -> None:
    """A worker that runs again first gives the parent its time. It does not matter which of them was paused."""
    workers = machine.start(2)
    outcomes = workers[0].append(publish("a"))
    for _ in range(3):
        hang(machine, SILENCE_SECONDS - 3.0, workers)
        machine.advance(pause)
        assert [worker.broadcast.why_not_ready() for worker in workers] == [None, None]
        assert outcomes == [] or isinstance(outcomes[0], Published)
        go_on(machine, workers)
    assert len(outcomes) == 1


def test_a_parent_that_is_slow_does_not_hang(machine: Machine, worker: Worker) -> None:
    """Whatever comes from it shows that it runs, also if its beats are late: behind a large state, for instance."""
    for _ in range(60):
        worker.hub_end.carry(1)
        hang(machine, 0.5, [worker])
        worker.end.is_reading = True
    assert worker.broadcast.why_not_ready() is None


def test_the_end_of_a_hang_is_logged(machine: Machine, log: list[str]) -> None:
    """Once by each worker, and not when the parent has never hung."""
    with logged_at("info") as lines:
        workers = machine.start(2)
        machine.advance(BEAT_SECONDS)
        assert lines == []
        hang(machine, SILENCE_SECONDS + 2.0, workers)
        go_on(machine, workers)
        machine.advance(BEAT_SECONDS)
    assert lines == ["the parent process responds again"] * 2


def test_a_worker_that_stops_while_the_parent_hangs(machine: Machine, worker: Worker, log: list[str]) -> None:
    """It is not held up; nothing is left to do."""
    hang(machine, SILENCE_SECONDS + 2.0, [worker])
    assert Deferred.fromCoroutine(worker.broadcast.stop()).called
    assert why(worker.append(publish("a"))) == ("the server is stopping", "")
    go_on(machine, [worker])
    assert why(worker.append(publish("a"))) == ("the server is stopping", "")


# The end.


def test_the_parent_ends(machine: Machine, worker: Worker) -> None:
    """What becomes of the commands under way is not known; others are refused; nothing is left to do."""
    outcomes, confirmed = worker.append(publish("a")), worker.confirm()
    was_current = worker.broadcast.is_current
    worker.hub_end.die()
    assert (was_current, worker.broadcast.is_current) == (True, False)
    assert (confirmed, worker.broadcast.waiting_bytes) == ([Confirmation("accepted", nodes=1)], 0)
    (reason,) = worker.lost
    assert why(outcomes) == (UNKNOWN, reason)
    refused = why(worker.append(publish("a")))
    assert refused == ("the message log cannot be reached", f"the parent process: {reason}")
    assert worker.confirm() == [Confirmation("accepted", nodes=1)]
    machine.run()
    assert len(machine.clock.getDelayedCalls()) == 1  # the hub's next beat
    machine.hub_publishes(publish("b"))
    machine.advance(5.0)
    assert (len(outcomes), worker.node.applied) == (1, [])


def test_a_worker_stops(machine: Machine) -> None:
    """Publishers are told, and nothing of what still comes counts: neither beats, nor outcomes, nor entries."""
    worker, other = machine.start(2)
    outcomes, confirmed = worker.append(publish("a")), worker.confirm()
    worker.end.carry()
    assert Deferred.fromCoroutine(worker.broadcast.stop()).called
    assert (why(outcomes), confirmed) == ((UNKNOWN, "this worker has stopped"), [Confirmation("accepted", nodes=1)])
    worker.hub_link.on_flush()
    sent = worker.hub_end.unsent
    beat = frames.frame(frames.Beat(AHEAD, None, ()))
    assert frames.Next in [type(frames.read_by_worker(body)) for body in bodies_in(sent)]
    worker.link.dataReceived(sent + beat)
    assert why(worker.append(publish("a"))) == ("the server is stopping", "")
    machine.run()
    assert (worker.lost, len(worker.ended), worker.node.applied) == ([], 1, [])
    machine.advance(BEAT_SECONDS)
    assert (other.equals_hub(), other.broadcast.why_not_ready()) == (True, None)
    assert why(worker.append(publish("a"))) == ("the server is stopping", "")


def test_a_worker_stops_between_entries_of_a_frame(machine: Machine, worker: Worker) -> None:
    for _ in range(40):
        machine.hub_publishes(publish(*[f"c{number}" for number in range(100)]))
    while not worker.node.applied:
        machine.turn()
    count = len(worker.node.applied)
    assert Deferred.fromCoroutine(worker.broadcast.stop()).called
    machine.run()
    assert len(worker.node.applied) == count < 40


def test_a_message_to_the_parent_that_cannot_be_read(machine: Machine, log: list[str]) -> None:
    """Ends the worker that sent it, which is logged; the others are not concerned, and nothing behind it is taken."""
    bad, good = machine.start(2)
    bad.link.send(framed(b'["nonsense"]'))
    bad.append(publish("behind"))
    outcomes = good.append(publish("a"))
    machine.run()
    assert ["malformed message from worker 1" in line for line in log] == [True]
    assert (bad.ended, bad.hub_link.was_aborted) == (["it sent a malformed message"], True)
    assert (len(bad.lost), len(outcomes), good.equals_hub(), machine.hub.cursor.sequence) == (1, 1, True, 1)


def test_a_message_of_the_parent_that_cannot_be_read(machine: Machine, log: list[str]) -> None:
    """Ends the worker, with the same reason for everybody who waits."""
    worker, other = machine.start(2)
    worker.hub_link.send(framed(b'["nonsense"]'))
    outcomes = worker.append(publish("a"))
    machine.run()
    assert ["could not follow the parent process" in line for line in log] == [True]
    assert worker.lost == ["this worker could not follow the parent process"]
    assert why(outcomes) == (UNKNOWN, *worker.lost)
    assert (len(worker.ended), other.lost, other.equals_hub()) == (1, [], True)


@pytest.mark.parametrize("before", [0, 1, 2, 3, 4, 5, 20])
def test_an_entry_that_cannot_be_applied(machine: Machine, log: list[str], before: int) -> None:
    """Ends the worker, also if the entry's turn comes later. Its publisher does not get the outcome of another one."""
    worker, other = machine.start(2)

    def fails(entry: Entry) -> None:
        if entry.command == bad:
            raise ValueError("a bug")

    bad = publish(*[f"bad {number}" for number in range(100)])
    worker.node.on_apply = fails
    for _ in range(before):
        machine.hub_publishes(publish(*[f"c{number}" for number in range(100)]))
    good = worker.append(publish("good"))
    outcomes, after = worker.append(bad), worker.append(publish("after"))
    machine.run()
    assert ["could not follow the parent process" in line for line in log] == [True]
    assert "a bug" in log[0]
    assert isinstance(good[0], Published)
    assert (why(outcomes), why(after)) == ((UNKNOWN, *worker.lost), (UNKNOWN, *worker.lost))
    assert (len(worker.ended), other.equals_hub()) == (1, True)


def test_the_hub_stops(machine: Machine, worker: Worker) -> None:
    worker.end.die()
    assert Deferred.fromCoroutine(machine.hub.stop()).called
    assert Deferred.fromCoroutine(machine.hub.stop()).called
    assert machine.clock.getDelayedCalls() == []


def test_the_hub_is_ready_when_its_broadcast_is(journaled: JournaledMachine, log: list[str]) -> None:
    """And says why it is not; as a node it has no name."""
    assert journaled.hub.why_not_ready() is None
    journaled.hub_publishes(publish("a"))
    journaled.helpers.fail()
    error = journaled.hub.why_not_ready()
    assert error is not None
    assert error.operator_detail == "the disk is full"
    member = journaled.hub.member("hub")
    assert (member.id, member.cursor, member.held_polls) == ("hub", str(journaled.hub.cursor), 0)


def test_a_worker_that_is_too_far_behind_is_given_up(machine: Machine) -> None:
    """What waits for it in the parent is bounded; the others do not notice."""
    stuck, good = machine.start(2)
    stuck.end.is_reading = False
    command = publish("a", data=f'"{"x" * (UNSENT_LIMIT_BYTES // 20)}"')
    sent = 0
    while not stuck.ended:
        outcomes = good.append(command)
        machine.run()
        assert isinstance(outcomes[0], Published)
        sent += 1
    assert 20 <= sent <= 30
    assert (stuck.hub_link.was_aborted, "behind" in stuck.ended[0]) == (True, True)
    assert good.equals_hub()


def test_frames_of_a_worker_are_taken_over_several_turns(machine: Machine) -> None:
    """The parent appends `TURN_UNITS` of work of one worker in a turn; another gets its turn between."""
    busy, other = machine.start(2)
    command = publish(*[f"c{number}" for number in range(100)])
    count = 2 * TURN_UNITS // (100 + ENTRY_UNITS)
    for _ in range(count):
        busy.append(command)
    outcomes = other.append(publish("a"))
    machine.carry()
    assert 0 < machine.hub.cursor.sequence < count
    machine.turn()
    assert 0 < machine.hub.cursor.sequence < count + 1
    machine.run()
    assert isinstance(outcomes[0], Published)
    assert outcomes[0].sequence < count
    assert (busy.equals_hub(), other.equals_hub()) == (True, True)


def test_the_entries_of_a_batch_of_events_are_one_frame_for_all(machine: Machine) -> None:
    """With those of all publishers, and encoded once, however many workers there are."""
    workers: list[Worker] = machine.start(3)
    for worker in workers[:2]:
        worker.append(publish("a"))
        worker.append(publish("b"))
        assert worker.end.unsent == b""
        worker.link.on_flush()
        (body,) = bodies_in(worker.end.unsent)
        asked = frames.read_by_parent(body)
        assert isinstance(asked, frames.Append)
        assert asked.commands == (publish("a"), publish("b"))
        worker.end.carry()
    machine.hub_publishes(publish("c"))
    workers[0].hub_link.on_flush()
    bodies = {worker.hub_end.unsent for worker in workers}
    ((body,),) = map(bodies_in, bodies)
    received = frames.read_by_worker(body)
    assert isinstance(received, frames.Next)
    assert [entry.sequence for entry in received.entries] == [1, 2, 3, 4, 5]
    assert (len(set(received.numbers)), received.numbers[4]) == (5, 0)


def test_entries_go_before_anything_else(machine: Machine, worker: Worker) -> None:
    """Answers to a worker and beats come behind what is in order by then, also within a batch of events."""
    machine.hub_publishes(publish("a"))
    worker.find_end()
    worker.end.carry()
    machine.hub_publishes(publish("b"))
    machine.clock.rightNow += BEAT_SECONDS
    machine.clock.turn()
    kinds = [type(frames.read_by_worker(body)) for body in bodies_in(worker.hub_end.unsent)]
    assert kinds == [frames.Next, frames.End, frames.Next, frames.Beat]


def test_a_report_is_passed_on_with_the_next_beat(machine: Machine) -> None:
    """Not at once: each of many workers would get a beat for the report of each other."""
    one, other = machine.start(2)
    one.link.send(frames.frame(frames.Present(one.node.member("1"))))
    one.end.carry()
    assert (one.hub_end.unsent, other.hub_end.unsent) == (b"", b"")


def test_a_publisher_whose_only_worker_dies_before_the_commit(journaled: JournaledMachine) -> None:
    """Nobody is told the outcome; the next worker has the message."""
    (worker,) = journaled.start()
    worker.append(publish("a"))
    journaled.run()
    worker.end.die()
    journaled.run_with_disk()
    (worker,) = journaled.start()
    assert (worker.node.cursor.sequence, worker.equals_hub()) == (1, True)


def test_a_frame_is_not_much_larger_than_its_limit(machine: Machine) -> None:
    """However much comes in a batch of events: a frame is read in one go."""
    asked, other = machine.start(2)
    command = publish("a", data=f'"{"x" * 10_000}"')
    outcomes = [asked.append(command) for _ in range(20)]
    asked.link.on_flush()
    sizes = [len(body) for body in bodies_in(asked.end.unsent)]
    assert 50_000 < max(sizes) < 80_000
    while not other.hub_end.unsent:
        asked.end.carry()
    asked.hub_link.on_flush()
    assert max(len(body) for body in bodies_in(other.hub_end.unsent)) < 80_000
    machine.run()
    assert all(isinstance(outcome, Published) for (outcome,) in outcomes)
    assert other.equals_hub()
