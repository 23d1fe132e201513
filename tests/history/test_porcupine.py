"""Histories judged by porcupine, a checker that others wrote: it accepts those of clusters that keep their promises."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from loadtest.history.events import FORMAT, Acknowledged, Answered, Begin, Delivered, Draft, Event, Poll, Publish
from loadtest.history.file import write_history
from loadtest.history.verdict import check
from tests.simulation.plan import make_plan
from tests.simulation.simulation import simulate

pytestmark = [pytest.mark.processes, pytest.mark.long]

PROGRAM = Path(__file__).parent / "porcupine"

SEEDS = tuple(map(str, range(12)))

Judge = Callable[[list[Event]], tuple[int, str]]
"""Returns the exit status and what was printed."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built from its Go module and porcupine's."""
    go = shutil.which("go")
    assert go, "porcupine is built by Go 1.24 or later, and there is no go. Install it."
    built = tmp_path_factory.mktemp("porcupine") / "porcupine"
    environment = {**os.environ, "GOFLAGS": "-mod=readonly -buildvcs=false -trimpath"}
    subprocess.run([go, "build", "-o", str(built), "."], cwd=PROGRAM, env=environment, check=True)
    return built


@pytest.fixture
def judge(program: Path, tmp_path: Path) -> Judge:
    def judge(history: list[Event]) -> tuple[int, str]:
        path = tmp_path / "history.jsonl"
        write_history(path, history)
        run = subprocess.run([program, path], capture_output=True, text=True, check=False)
        return run.returncode, run.stdout + run.stderr

    return judge


@pytest.fixture
def history(request: pytest.FixtureRequest, logged_failures: list[str]) -> list[Event]:
    result = simulate(make_plan(request.param))
    logged_failures.clear()  # servers log faults
    assert not result.broken
    return result.history


@pytest.mark.parametrize("history", SEEDS, indirect=True)
def test_histories_of_clusters_are_linearizable(history: list[Event], judge: Judge) -> None:
    """With faults, and with what these may lose."""
    status, printed = judge(history)
    assert (status, printed.rpartition(": ")[2]) == (0, "linearizable\n")


def drop_one(history: list[Event]) -> Event:
    answer = late_answer(history)
    return structs.replace(answer, messages=answer.messages[1:])


def repeat_one(history: list[Event]) -> Event:
    answer = late_answer(history)
    return structs.replace(answer, messages=(answer.messages[0], *answer.messages))


def swap_two(history: list[Event]) -> Event:
    answer = late_answer(history)
    one, other, *rest = answer.messages
    return structs.replace(answer, messages=(other, one, *rest))


def late_answer(history: list[Event]) -> Answered:
    """One with two messages, in the middle of the history; not the first of its subscriber."""
    answers = [event for event in history if isinstance(event, Answered)]
    return next(answer for answer in answers[len(answers) // 2 :] if len(answer.messages) > 1 and not answer.gaps)


@pytest.mark.parametrize("history", ["3"], indirect=True)
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (drop_one, "is absent, and there is no gap"),
        (repeat_one, "comes too late in the answer"),
        (swap_two, "comes too late in the answer"),
    ],
)
def test_changed_answers_are_refused(
    history: list[Event], judge: Judge, change: Callable[[list[Event]], Event], why: str
) -> None:
    """A delivery that is dropped, repeated, or swapped with the next."""
    line = history.index(late_answer(history))
    status, printed = judge([*history[:line], change(history), *history[line + 1 :]])
    assert status == 1
    assert f"NOT linearizable: line {line + 1}: " in printed
    assert printed.endswith(f"{why}\n")


@pytest.mark.parametrize("history", ["2"], indirect=True)
def test_a_gap_that_is_left_out_is_refused(history: list[Event], judge: Judge) -> None:
    """This cluster keeps few bytes."""
    changed = [structs.replace(event, gaps=()) if isinstance(event, Answered) else event for event in history]
    status, printed = judge(changed)
    assert (status, printed.endswith("is absent, and there is no gap\n")) == (1, True)


@pytest.mark.parametrize(("ephemeral", "status"), [(True, 0), (False, 1)])
def test_ephemeral_messages_may_be_absent(judge: Judge, ephemeral: bool, status: int) -> None:
    """And be received on fewer channels, without a gap; not out of order."""
    poll, answered = Poll(0.0, "s", ("a", "b"), "e1-0"), Answered(0.0, "s", "e1-2", (Delivered("e1-2", ("b",), "two"),))
    drafts = (Draft(("a",), "one", ephemeral), Draft(("a", "b"), "two", ephemeral))
    begin: list[Event] = [Begin(0.0, FORMAT), Publish(0.0, "p", drafts), Acknowledged(0.0, "p", ("e1-1", "e1-2"))]
    assert judge([*begin, poll, answered])[0] == status
    turned = structs.replace(
        answered, messages=tuple(Delivered(f"e1-{n}", ("a",), d) for n, d in ((2, "two"), (1, "one")))
    )
    assert judge([*begin, poll, turned])[0] == 1


@pytest.mark.parametrize("history", ["3"], indirect=True)
def test_an_order_that_contradicts_the_publishers_is_refused(history: list[Event], judge: Judge) -> None:
    """Whatever subscribers saw: a publication that begins when another has been acknowledged comes after it."""
    acknowledged = [event for event in history if isinstance(event, Acknowledged)]
    earlier, later = acknowledged[20:22]
    begins = {event.publication: event for event in history if isinstance(event, Publish)}
    first: list[Event] = [begins[later.publication], later]
    rest = [event for event in history if event not in first]
    line = rest.index(begins[earlier.publication])
    assert judge([*rest[: line + 1], *first, *rest[line + 1 :]])[0] == 0  # the two overlap
    status, printed = judge([*rest[:line], *first, *rest[line:]])
    assert (status, printed.endswith("has no order that fits all calls and returns\n")) == (1, True)
    assert check([*rest[:line], *first, *rest[line:]]).broken.startswith("one order: ")
