"""Shrinking: it finds the steps that matter, keeps the promise, and ends."""

from __future__ import annotations

import pytest

from tests.simulation.shrink import kind_of, shrink
from tests.simulation.simulation import Result
from tests.simulation.steps import Plan, Step


def plan_of(*kinds: str) -> Plan:
    return Plan("0", {}, tuple(Step(float(at), kind, {}) for at, kind in enumerate(kinds)))


class MadeUp:
    """Stands for the simulation: decides by the kinds of a plan's steps which promise is broken."""

    def __init__(self, *needed: str, otherwise: str = "") -> None:
        self.runs = 0
        self._needed = needed
        self._otherwise = otherwise

    def __call__(self, plan: Plan) -> Result:
        self.runs += 1
        kinds = [step.kind for step in plan.steps]
        if "crash" in kinds and "crash needs" not in kinds:
            raise ValueError("a step without the one that it needs")
        fails = all(kind in kinds for kind in self._needed)
        broken = f"one order: {len(kinds)} steps" if fails else self._otherwise
        return Result(plan, broken, "", {}, {}, [], 0, 0, [])


@pytest.mark.parametrize("needed", [("7",), ("0",), ("19",), ("3", "4"), ("0", "19"), ("1", "9", "17")])
def test_it_finds_the_steps_that_matter(needed: tuple[str, ...]) -> None:
    run = MadeUp(*needed)
    found = shrink(run(plan_of(*map(str, range(20)))), run=run)
    assert tuple(step.kind for step in found.plan.steps) == needed
    assert found.broken == f"one order: {len(needed)} steps"


def test_another_promise_does_not_count() -> None:
    """Without the step that matters something else is broken; that is not the failure that was looked for."""
    run = MadeUp("7", otherwise="live again: n0 is not ready")
    found = shrink(run(plan_of(*map(str, range(20)))), run=run)
    assert [step.kind for step in found.plan.steps] == ["7"]


def test_a_plan_that_cannot_be_carried_out_does_not_count() -> None:
    """Leaving out a step may make nonsense of another one."""
    run = MadeUp("crash")
    found = shrink(run(plan_of("a", "crash needs", "b", "crash", "c")), run=run)
    assert [step.kind for step in found.plan.steps] == ["crash needs", "crash"]


def test_it_ends_after_so_many_runs() -> None:
    """With the best that it has found until then; and it tells of each."""
    run, told = MadeUp("7"), list[str]()
    found = shrink(run(plan_of(*map(str, range(20)))), told.append, most=3, run=run)
    assert run.runs == 1 + 3
    assert told[-1] == f"{len(found.plan.steps)} steps are enough"
    assert 1 < len(found.plan.steps) < 20


def test_the_kind_of_a_failure() -> None:
    """Which promise it was, without who and when."""
    assert kind_of("one order: s1 went back: e1-2") == "one order"
    assert kind_of("") == ""
