"""A worker asks the parent about all workers: metrics and subscribers; workers die, and do not answer."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pushup.workers import control_protocol
from pushup.workers.machine_metrics import Family, one_page
from pushup.workers.machine_queries import ANSWER_SECONDS
from tests.workers.stand_ins import PARENT, Ship, StandIn, metrics


def ask(worker: StandIn, number: int, *channels: str) -> None:
    """Let a worker ask for the subscribers of these channels, or for metrics."""
    worker.says(control_protocol.Question(number, channels or None))


def told(worker: StandIn, number: int) -> dict[str, Any]:
    """What a worker was told when it had asked; only once."""
    worker.carry()
    (answers,) = [m for m in worker.heard if isinstance(m, control_protocol.Answers) and m.number == number]
    return {name: msgspec.json.decode(body) for name, body in answers.bodies.items()}


def is_told(worker: StandIn, number: int) -> bool:
    worker.carry()
    return any(isinstance(m, control_protocol.Answers) and m.number == number for m in worker.heard)


def answers_total(bodies: dict[str, Any]) -> float:
    """The sum of the counter over all that is shown."""
    return sum(
        float(value)
        for body in bodies.values()
        for name, _, _, samples in body
        for _, _, value in samples
        if name == "answers"
    )


def answer_all(ship: Ship, *counts: int) -> None:
    """Let all workers that live answer with their counter, and a gauge of the same value."""
    for worker, count in zip(ship.alive, counts, strict=True):
        worker.answers(metrics(count, count))


def replaced(bodies: dict[str, Any]) -> float:
    """What the parent says about replaced workers."""
    return float(next(samples[0][2] for name, _, _, samples in bodies["parent"] if name == "pushup_workers_replaced"))


def test_all_are_asked_and_the_answers_go_to_the_asker() -> None:
    """Also its own, under the number of its question; the others hear nothing of it."""
    ship = Ship(3)
    one, two, three = ship.started
    ask(two, 7, "a", "b")
    for worker, counts in ((three, [0, 3]), (one, [1, 0])):
        worker.answers(counts)
    assert not is_told(two, 7)
    two.carry()
    assert two.questions[0].channels == ("a", "b")
    two.answers([5, 5])
    assert [*told(two, 7).items()] == [("1", [1, 0]), ("2", [5, 5]), ("3", [0, 3])]
    assert not is_told(one, 7)
    assert ship.clock.getDelayedCalls()[1:] == []  # only the watch is left


def test_all_workers_leave_the_rotation(logged_failures: list[str]) -> None:
    """One that starts later as well, until they are taken back."""
    ship = Ship(2)
    one, two = ship.started
    one.says(control_protocol.Question(3, (), is_out=True))
    for worker in (one, two):
        worker.carry()
        assert worker.questions[0].is_out
        worker.answers([])
    assert is_told(one, 3)
    two.dies()
    ship.advance(1)
    three = ship.started[-1]
    assert three is not two
    three.carry()
    assert [question.is_out for question in three.questions] == [True]
    one.says(control_protocol.Question(4, (), is_out=False))
    three.carry()
    assert three.questions[-1].is_out is False
    one.dies()
    ship.advance(1)
    ship.started[-1].carry()
    assert ship.started[-1].questions == []
    assert len(logged_failures) == 2
    logged_failures.clear()


def test_questions_under_way_are_not_mixed_up() -> None:
    """Of several workers, with the same numbers of their own."""
    ship = Ship()
    one, two = ship.started
    ask(one, 1, "a")
    ask(two, 1, "b")
    ask(one, 2)
    for worker in (one, two):
        for _ in range(3):
            worker.carry()
            channels = worker.questions[0].channels
            worker.answers(metrics(worker.number, 0) if channels is None else [f"{channels[0]}{worker.number}"])
    assert told(one, 1) == {"1": ["a1"], "2": ["a2"]}
    assert told(two, 1) == {"1": ["b1"], "2": ["b2"]}
    assert {*told(one, 2)} == {"1", "2", "parent"}


def test_who_does_not_answer_in_time_is_left_out() -> None:
    """An answer that comes later is ignored; and its metrics are no answer about channels."""
    ship = Ship()
    one, two = ship.started
    ask(two, 1)
    answer_all(ship, 5, 7)
    ask(one, 1, "a")
    one.answers([1])
    ship.advance(ANSWER_SECONDS - 0.2)
    assert not is_told(one, 1)
    ship.advance(0.3)
    assert told(one, 1) == {"1": [1]}
    two.answers([2])
    assert told(one, 1) == {"1": [1]}


def test_who_has_never_given_a_sign_is_not_asked(logged_failures: list[str]) -> None:
    """Everybody would wait for it."""
    ship = Ship()
    ship.advance(11.0)
    ship.started[1].dies()
    while len(ship.started) < 3:
        ship.turn()
    one, _, starting = ship.started
    ask(one, 1, "a")
    one.answers([1])
    assert told(one, 1) == {"1": [1]}
    starting.carry()
    assert starting.questions == []
    logged_failures.clear()


def test_who_asks_before_its_first_sign_is_asked_as_well() -> None:
    """It has clients already, and they would be missing in what it tells one of them."""
    ship = Ship(begin=False)
    ship.crew.begin(ship.settings)
    one, two = ship.started
    one.signs()
    ask(two, 1, "a")
    one.answers([1])
    two.answers([2])
    assert told(two, 1) == {"1": [1], "2": [2]}


def test_who_dies_is_not_waited_for(logged_failures: list[str]) -> None:
    """The others' answers are enough; nor is anything sent to an asker that has died."""
    ship = Ship(3)
    one, two, three = ship.started
    ask(one, 1, "a")
    ask(three, 1, "a")
    one.answers([1])
    one.answers([1])
    three.answers([3])
    assert not is_told(one, 1)
    two.dies()
    assert told(one, 1) == {"1": [1], "3": [3]}
    three.dies()
    ship.advance(ANSWER_SECONDS)
    assert not is_told(three, 1)
    logged_failures.clear()


# Metrics.


def test_metrics_of_all_and_of_the_parent() -> None:
    """By the number of the worker."""
    ship = Ship()
    ask(ship.started[0], 1)
    answer_all(ship, 5, 7)
    bodies = told(ship.started[0], 1)
    assert list(bodies) == ["1", "2", "parent"]
    assert (answers_total(bodies), replaced(bodies)) == (12, 0)
    assert msgspec.json.decode(msgspec.json.encode(PARENT)) in bodies["parent"]


def test_a_silent_worker_that_never_told_its_metrics_is_left_out() -> None:
    """There is nothing to show."""
    ship = Ship()
    ask(ship.started[0], 1)
    ship.started[0].answers(metrics(5, 5))
    ship.advance(ANSWER_SECONDS + 0.1)
    assert [*told(ship.started[0], 1)] == ["1", "parent"]


def test_the_parents_metrics_can_be_shown(logged_failures: list[str]) -> None:
    """On the page that a worker makes of them."""
    ship = Ship()
    ship.started[1].dies()
    ask(ship.started[0], 1)
    ship.started[0].answers(metrics(5, 5))
    bodies = told(ship.started[0], 1)
    page = one_page({name: msgspec.convert(body, list[Family]) for name, body in bodies.items()}).decode()
    assert "# TYPE pushup_workers_replaced_total counter\npushup_workers_replaced_total 1.0\n" in page
    assert 'parents{worker="parent"} 1.0\n' in page
    assert 'pushup_workers{worker="parent"} 1.0\n' in page
    logged_failures.clear()


def test_a_silent_worker_counts_with_its_last_metrics(logged_failures: list[str]) -> None:
    """Or the sums would shrink, and grow again."""
    ship = Ship()
    one, two = ship.started
    ask(one, 1)
    answer_all(ship, 5, 7)
    ask(one, 2)
    one.answers(metrics(6, 6))
    ship.advance(ANSWER_SECONDS + 0.1)
    assert answers_total(told(one, 2)) == 13
    two.dies()
    ask(one, 3)
    one.answers(metrics(8, 8))
    assert answers_total(told(one, 3)) == 15
    logged_failures.clear()


def test_the_counters_of_the_dead_stay_in_the_sums(logged_failures: list[str]) -> None:
    """Of each that has ended, and those of the one in its place come to it. Their gauges go."""
    ship = Ship()
    one = ship.started[0]
    expected = 0
    for number in range(1, 4):
        ask(one, number)
        answer_all(ship, 100, 10)
        bodies = told(one, number)
        expected = 100 + 10 * number
        assert (answers_total(bodies), replaced(bodies)) == (expected, number - 1)
        assert [name for name, *_ in bodies["parent"]].count("polls") == 0
        assert bodies["2"][0][3][0][2] == 10
        ship.started[-1].dies()
        ship.advance(3.0)
    ask(one, 9)
    one.answers(metrics(100, 100))
    ship.started[-1].answers([])
    assert answers_total(told(one, 9)) == expected
    logged_failures.clear()


def test_a_worker_that_dies_before_it_answers_counts_in_that_answer(logged_failures: list[str]) -> None:
    """With what it last told: a sum that shrinks for one page looks like a restart to Prometheus."""
    ship = Ship()
    one, two = ship.started
    ask(one, 1)
    answer_all(ship, 5, 7)
    ask(one, 2)
    one.answers(metrics(5, 5))
    two.dies()
    bodies = told(one, 2)
    assert (answers_total(bodies), "2" in bodies) == (12, False)
    logged_failures.clear()


def test_a_worker_that_dies_after_it_has_answered_counts_once(logged_failures: list[str]) -> None:
    """As one that has ended; also if another one has taken its place when the answer is complete."""
    ship = Ship(3)
    one, two, three = ship.started
    ask(one, 1)
    one.answers(metrics(5, 5))
    two.answers(metrics(7, 7))
    ask(one, 2, "a")
    one.answers([1])
    two.answers([2])
    two.dies()
    three.answers(metrics(1, 1))
    bodies = told(one, 1)
    assert (answers_total(bodies), "2" in bodies) == (13, False)
    three.answers([3])
    assert told(one, 2) == {"1": [1], "2": [2], "3": [3]}
    logged_failures.clear()


def test_metrics_that_cannot_be_read_cost_no_worker(logged_failures: list[str]) -> None:
    """Whose they are is replaced as ever when it has ended."""
    ship = Ship()
    one, two = ship.started
    ask(one, 1)
    one.answers(metrics(5, 5))
    two.answers([["polls", "gauge", "", [["polls", {}, None]]]])
    with pytest.raises(msgspec.ValidationError):
        two.dies()
    ship.advance(1.0)
    assert [worker.number for worker in ship.started] == [1, 2, 2]
    logged_failures.clear()
