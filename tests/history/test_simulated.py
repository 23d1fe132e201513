"""Histories of simulated clusters: a file is judged like the run it comes from, and each planted change is noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random

import pytest
from msgspec import structs

from loadtest.history.events import Acknowledged, Answered, Event, Publish
from loadtest.history.file import read_history, write_history
from loadtest.history.verdict import check
from tests.simulation.__main__ import tell_story
from tests.simulation.plan import make_plan
from tests.simulation.simulation import Result, Simulation, simulate

SEEDS = tuple(map(str, range(12)))

BATCH_SEEDS = 4

CHANGES = 6
"""How often each history is changed in each way, at random places."""


@cache
def run(seed: str) -> Result:
    return simulate(make_plan(seed))


@pytest.fixture(autouse=True)
def _servers_log_faults(logged_failures: list[str]) -> Iterator[None]:
    yield
    logged_failures.clear()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_file_is_judged_like_the_run(seed: str, tmp_path: Path) -> None:
    """The verdict is the same, and so are the gaps without a loss."""
    result = run(seed)
    write_history(tmp_path / "h", result.history)
    verdict = check(read_history(tmp_path / "h"))
    assert (verdict.broken, verdict.without_loss) == (result.broken, result.without_loss) == ("", result.without_loss)
    assert verdict.counts["answered"] > 20


def test_the_command_that_writes_a_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m tests.simulation --seed 3 --history FILE`: the file has all that its clients were told."""
    assert tell_story("3", whole=False, history=tmp_path / "h") == 0
    assert capsys.readouterr().out == "\n3: every promise was kept\n"
    assert list(read_history(tmp_path / "h")) == run("3").history


def test_a_run_that_breaks_a_promise() -> None:
    """It ends with the event that breaks it, and its history is judged the same."""

    def lose_an_answer(simulation: Simulation) -> None:
        take = simulation.record.take

        def take_most(event: Event) -> None:
            if isinstance(event, Answered) and event.messages and simulation.record.now > 20:
                event = drop_one(event, 0)
            take(event)

        simulation.record.take = take_most  # type: ignore[method-assign]

    result = simulate(make_plan("3"), lose_an_answer)
    assert result.broken.startswith("delivered or covered by a gap: ")
    assert check(result.history).broken == result.broken


def drop_one(answer: Answered, number: int) -> Answered:
    return structs.replace(answer, messages=answer.messages[:number] + answer.messages[number + 1 :])


def repeat_one(answer: Answered, number: int) -> Answered:
    return structs.replace(answer, messages=answer.messages[: number + 1] + answer.messages[number:])


def swap_two(answer: Answered, number: int) -> Answered:
    messages = list(answer.messages)
    messages[number - 1], messages[number] = messages[number], messages[number - 1]
    return structs.replace(answer, messages=tuple(messages))


def places(history: list[Event], least: int) -> list[tuple[int, int]]:
    """Where to change a history: the numbers of an event and of a message in it.

    Only messages that were acknowledged, and none that are ephemeral, which may be absent; not in a subscriber's first
    answer, which may begin anywhere; not where a gap excuses it, nor of a subscriber that was told that messages were
    lost.

    `least`: how many messages the answer must have up to this one.
    """
    acknowledged = {event.publication for event in history if isinstance(event, Acknowledged)}
    published = [event for event in history if isinstance(event, Publish) and event.publication in acknowledged]
    messages = [message for event in published if event.key is None for message in event.messages]
    wanted = {message.data for message in messages if not message.ephemeral}
    answers = [(number, event) for number, event in enumerate(history) if isinstance(event, Answered)]
    excused = {answer.subscriber for _, answer in answers if "lost" in {gap.reason for gap in answer.gaps}}
    first = {answer.subscriber: line for line, answer in reversed(answers)}
    return [
        (line, number)
        for line, answer in answers
        if answer.subscriber not in excused and line != first[answer.subscriber] and not answer.gaps
        for number, message in enumerate(answer.messages)
        if message.data in wanted and number + 1 >= least
    ]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("change", "least", "promises"),
    [
        (drop_one, 1, ("delivered or covered by a gap: ",)),
        (repeat_one, 1, ("nothing twice: ", "one order: ")),  # one right after the other is out of order, too
        (swap_two, 2, ("one order: ",)),
    ],
)
def test_a_changed_answer_is_noticed(
    change: Callable[[Answered, int], Answered], least: int, promises: tuple[str, ...]
) -> None:
    """Wherever a delivery is dropped, repeated, or swapped with the one before it."""
    random, count = Random("changes"), 0
    for seed in SEEDS:
        history = run(seed).history
        where = places(history, least)
        for line, number in random.sample(where, min(CHANGES, len(where))):
            answer = history[line]
            assert isinstance(answer, Answered)
            verdict = check([*history[:line], change(answer, number), *history[line + 1 :]])
            expected = tuple(promise + answer.subscriber for promise in promises)
            assert verdict.broken.startswith(expected), (seed, line, number)
            count += 1
    assert count > 4 * CHANGES


@pytest.mark.parametrize("batch", range(len(SEEDS) // BATCH_SEEDS))
def test_gaps_that_are_left_out_are_noticed(batch: int) -> None:
    """If one subscriber of a cluster that drops messages is told of no gap, it has missed some without a word."""
    noticed = 0
    for seed in SEEDS[batch * BATCH_SEEDS :][:BATCH_SEEDS]:
        history = run(seed).history
        for name in sorted({event.subscriber for event in history if isinstance(event, Answered) and event.gaps}):
            changed = [
                structs.replace(event, gaps=()) if isinstance(event, Answered) and event.subscriber == name else event
                for event in history
            ]
            verdict = check(changed)
            if verdict.broken:
                assert name in verdict.broken
                noticed += 1
    assert noticed >= 10
