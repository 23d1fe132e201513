"""New workers get the state in pieces, while it changes, and while others come and go."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest
from twisted.internet.defer import Deferred

from pushup.broadcast.hub import frames
from pushup.broadcast.hub.hub import BEAT_SECONDS
from pushup.core.commands import Close, Confirmation, Published
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import Outgoing
from tests.broadcast.hub.machine import EPOCH, Machine, Worker, bodies_in
from tests.core.builders import publish
from tests.core.random_entries import random_commands


@pytest.fixture
def machine() -> Machine:
    """One that hands its state over in small pieces; there are 30 channels, and no worker yet."""
    machine = Machine(take_out=partial(Outgoing, piece=3, last=4))
    for number in range(30):
        machine.hub_publishes(publish(f"c{number}"))
    return machine


def pieces_under_way(worker: Worker) -> list[frames.ToWorker]:
    """The frames that the hub has sent to a worker, and that have not arrived."""
    return [frames.read_by_worker(body) for body in bodies_in(worker.hub_end.unsent)]


def is_noting(machine: Machine) -> bool:
    """Whether the state records what changes."""
    name = f"noted {machine.hub.cursor.sequence}"
    machine.hub_publishes(publish(name))
    return name in machine.hub.state.change_log.names(0)["channels"]


def test_a_worker_gets_the_state_and_then_every_entry(machine: Machine) -> None:
    """It can serve from its first beat on, and is told so once."""
    worker = machine.begin()
    assert (worker.node.cursor.epoch, worker.serves) == ("", False)
    machine.run()
    assert (worker.serves, worker.equals_hub(), worker.node.cursor) == (True, True, machine.hub.cursor)
    machine.hub_publishes(publish("later"))
    machine.advance(5.0)
    assert (worker.states, worker.equals_hub()) == (1, True)
    assert [entry.sequence for entry in worker.node.applied] == [31]


def test_a_large_state_is_told_of_before_and_after(machine: Machine) -> None:
    """Twice in all, so that its garbage can be dealt with."""
    (worker,) = machine.start()
    assert worker.large == 2


def test_the_state_may_change_while_it_is_handed_over(machine: Machine) -> None:
    """Between any two pieces: what arrives is the state as of the last one, and no entry is lost or repeated."""
    random = Random(7)
    commands = random_commands(random)
    worker = machine.begin()
    changes = 0
    while not worker.serves:
        machine.turn()
        for _ in range(2 if changes < 40 else 0):
            machine.hub_publishes(next(commands)[1])
            changes += 1
    assert changes == 40
    machine.run()
    assert worker.equals_hub()


def test_others_get_their_turn_before_the_next_piece(machine: Machine) -> None:
    """One piece in each turn, whatever else happens."""
    (old,) = machine.start()
    worker = machine.begin()
    counts = set()
    while worker.states == 0:
        machine.clock.turn()
        counts.add(sum(isinstance(message, frames.Part) for message in pieces_under_way(worker)))
        old.hub_link.on_room()  # there is room again, on the link of some worker
        old.hub_link.on_room()
        machine.carry()
    assert counts == {0, 1}


def test_workers_that_come_at_once_get_the_same_pieces(machine: Machine) -> None:
    """The state is read once for all of them."""
    workers = [machine.begin() for _ in range(3)]
    machine.clock.turn()
    machine.clock.turn()
    numbers, (first, *others) = set(), [pieces_under_way(worker) for worker in workers]
    for frames_of_one in (first, *others):
        welcome = frames_of_one.pop(0)
        assert isinstance(welcome, frames.Welcome)
        numbers.add(welcome.number)
    assert (len(first), len(numbers)) == (2, 3)
    assert all(other == first for other in others)
    machine.run()
    assert all(worker.serves and worker.equals_hub() for worker in workers)


def test_a_new_worker_gets_no_entry_that_its_state_contains(machine: Machine) -> None:
    """Though it has its last piece in the batch of events in which others are passed on."""
    (old,) = machine.start()
    worker = machine.begin()
    while worker.states == 0 and not worker.lost:
        machine.hub_publishes(publish("before"))
        machine.clock.turn()
        machine.hub_publishes(publish("after"))
        machine.carry()
    machine.run()
    assert (worker.equals_hub(), old.equals_hub(), worker.lost) == (True, True, [])


def test_a_worker_that_comes_later_waits_for_the_next_time(machine: Machine) -> None:
    """It gets nothing before the others have all; then it gets everything."""
    first = machine.begin()
    machine.turn()
    machine.turn()
    second = machine.begin()
    machine.hub_publishes(publish("between"))
    while first.states == 0:
        assert pieces_under_way(second) == []
        machine.turn()
    machine.run()
    assert second.serves
    assert (first.equals_hub(), second.equals_hub()) == (True, True)


def test_the_next_piece_waits_until_all_can_take_it(machine: Machine) -> None:
    """The slowest of those that load says how fast; what waits for it is little."""
    quick, slow = machine.begin(), machine.begin(buffer_bytes=300)
    slow.end.is_reading = False
    for _ in range(20):
        machine.turn()
    assert slow.hub_link.is_full
    assert (slow.hub_link.unsent_bytes, quick.states) == (0, 0)
    under_way = len(pieces_under_way(slow))
    assert under_way < 5
    slow.end.is_reading = True
    machine.run()
    assert (quick.serves, slow.serves, quick.equals_hub(), slow.equals_hub()) == (True,) * 4


def test_the_others_go_on_when_the_slowest_dies(machine: Machine) -> None:
    quick, slow = machine.begin(), machine.begin(buffer_bytes=300)
    slow.end.is_reading = False
    for _ in range(20):
        machine.turn()
    assert quick.states == 0
    slow.end.die()
    machine.run()
    assert (quick.serves, quick.equals_hub()) == (True, True)


@pytest.mark.parametrize("turns", range(8))
def test_one_of_several_may_die_while_it_loads(machine: Machine, turns: int) -> None:
    """At any time; those that stay get the state, and so does one that comes in its place."""
    stays, dies = machine.begin(), machine.begin()
    for _ in range(turns):
        machine.turn()
    dies.end.die()
    machine.hub_publishes(publish("meanwhile"))
    again = machine.begin()
    machine.run()
    assert all(worker.serves and worker.equals_hub() for worker in (stays, again))
    assert dies.states == 0


def test_reading_ends_when_all_who_load_have_died(machine: Machine) -> None:
    """Then changes are not noted any more, and the next worker gets the state from its beginning."""
    worker = machine.begin()
    machine.turn()
    machine.turn()
    assert is_noting(machine)
    worker.end.die()
    assert not is_noting(machine)
    machine.run()
    (again,) = machine.start()
    assert again.equals_hub()


def test_changes_are_noted_only_while_the_state_is_handed_over(machine: Machine) -> None:
    """Noting costs time and memory, and a broadcast in memory has no use for it."""
    assert not is_noting(machine)
    worker = machine.begin()
    assert not is_noting(machine)
    machine.turn()
    assert is_noting(machine)
    machine.run()
    assert worker.serves
    assert not is_noting(machine)


def test_a_worker_may_leave_before_its_turn(machine: Machine) -> None:
    loading = machine.begin()
    machine.turn()
    waiting = machine.begin()
    waiting.end.die()
    machine.run()
    assert (loading.serves, waiting.ended != [], waiting.states) == (True, True, 0)
    confirmed = loading.confirm()
    machine.run()
    assert confirmed[0].nodes == 1


def test_a_link_that_was_never_connected_counts_for_nothing(machine: Machine) -> None:
    """When a process cannot be started, nobody waits for it, and no worker that comes later does."""
    machine.hub.attach("worker 9", lambda reason: None)
    machine.run()
    assert not is_noting(machine)
    (worker,) = machine.start()
    confirmed = worker.confirm()
    machine.run()
    assert [(each.ack, each.nodes) for each in confirmed] == [("stable", 1)]


def test_publishing_goes_on_while_a_worker_loads(machine: Machine) -> None:
    """Through the workers that serve already; the one that loads refuses, and says why."""
    (old,) = machine.start()
    new = machine.begin()
    machine.turn()
    outcomes = old.append(publish("a"))
    (refused,) = new.append(publish("a"))
    assert "still loading" in str(refused)
    machine.run()
    assert outcomes == [Published(EPOCH, 31, 1, machine.hub.state.time)]
    assert new.equals_hub()


def test_a_state_that_cannot_be_restored_ends_the_worker(
    machine: Machine, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is replaced; the parent and the others are not concerned."""
    (old,) = machine.start()
    new = machine.begin()
    monkeypatch.setattr(new.node, "start_from", fails)
    machine.run()
    assert ["could not restore the state" in line for line in log] == [True]
    assert new.lost == ["this worker could not restore the state"]
    assert (len(new.ended), new.states, old.serves) == (1, 0, True)


def fails(state: ReplicatedState) -> None:
    raise ValueError("a bug")


@pytest.fixture
def large() -> Machine:
    """One whose state takes several turns to restore."""
    machine = Machine()
    for number in range(1000):
        machine.hub_publishes(publish(f"c{number}"))
    return machine


def restoring(machine: Machine) -> Worker:
    """A worker that has all of the state, and has begun to restore it."""
    worker = machine.begin()
    while not worker.large:
        machine.turn()
    machine.turn()
    assert (worker.large, worker.link.is_open, worker.end.is_reading) == (1, True, False)
    return worker


def test_restoring_takes_turns(large: Machine) -> None:
    """What comes meanwhile waits, and is applied then."""
    worker = restoring(large)
    large.hub_publishes(publish("meanwhile"))
    turns = 0
    while worker.large == 1:
        large.turn()
        turns += 1
        assert worker.node.applied == [] or worker.large == 2
    assert turns > 3
    large.run()
    assert (len(worker.node.applied), worker.serves, worker.equals_hub()) == (1, True, True)


def test_stable_does_not_wait_for_a_worker_that_restores(large: Machine) -> None:
    """It answers no polls yet. It counts before it does."""
    (asking,) = large.start()
    new = restoring(large)
    large.hub_publishes(publish("meanwhile"))
    confirmed = asking.confirm()
    while not confirmed:
        large.turn()
        assert new.states == 0, "not waited for"
    assert confirmed == [Confirmation("stable", nodes=1)]
    large.run()
    assert (new.serves, new.equals_hub()) == (True, True)
    again = asking.confirm()
    large.run()
    assert again == [Confirmation("stable", nodes=2)]


def test_a_worker_serves_only_once_it_counts(machine: Machine) -> None:
    """However many beats the others get before its report arrives; and then it has what was stable without it."""
    (asking,) = machine.start()
    new = machine.begin()
    new.hub_end.is_reading = False
    for _ in range(3):
        machine.advance(BEAT_SECONDS)
    machine.hub_publishes(publish("meanwhile"))
    confirmed = asking.confirm()
    machine.run()
    assert (confirmed, new.states) == ([Confirmation("stable", nodes=1)], 0)
    assert new.broadcast.why_not_ready() is not None
    new.end.is_reading = False
    new.hub_end.is_reading = True
    machine.hub_publishes(publish("once it counts"))
    machine.run()
    again = asking.confirm()
    machine.run()
    assert (again, new.states) == ([], 0)
    new.end.is_reading = True
    machine.run()
    assert (again, new.states, new.equals_hub()) == ([Confirmation("stable", nodes=2)], 1, True)


def test_the_parent_may_die_while_the_state_is_restored(large: Machine) -> None:
    """Then it is not taken, and nothing goes on."""
    worker = restoring(large)
    worker.hub_end.die()
    large.run()
    assert (worker.node.cursor.epoch, worker.states, len(worker.lost)) == ("", 0, 1)
    assert waiting_calls(large) == 1


def test_a_worker_may_stop_while_it_restores_the_state(large: Machine) -> None:
    """Likewise, also if its link takes time to end, because the parent does not read."""
    worker = restoring(large)
    worker.hub_end.is_reading = False
    worker.append(publish("refused"))
    worker.find_end()
    stopped = Deferred.fromCoroutine(worker.broadcast.stop())
    assert stopped.called
    large.run()
    assert (worker.node.cursor.epoch, worker.states, worker.lost) == ("", 0, [])
    worker.hub_end.is_reading = True
    large.run()
    assert len(worker.ended) == 1
    assert waiting_calls(large) == 1


def waiting_calls(machine: Machine) -> int:
    """The calls that are still to come; one is the hub's next beat."""
    return len(machine.clock.getDelayedCalls())


def test_closed_channels_are_handed_over(machine: Machine) -> None:
    machine.hub_publishes(Close("c3"))
    (worker,) = machine.start()
    assert worker.equals_hub()
