"""Plans: the same for the same seed, and made of steps that do not depend on each other."""

from __future__ import annotations

import inspect
from functools import cache

import pytest

from tests.simulation import plan as plans
from tests.simulation.lease_plan import LEASE_WEIGHTS
from tests.simulation.plan import LEASES, LIMITS, POLICIES, STRANGERS, WEIGHTS, WITH_POLICIES, make_plan
from tests.simulation.simulation import Simulation, simulate
from tests.simulation.steps import FAULT_SECONDS, Step
from tests.simulation.stranger_plan import STRANGER_WEIGHTS

SEEDS = [str(seed) for seed in range(300)]

plan_of = cache(make_plan)

signature_of = cache(inspect.signature)


def test_the_same_seed_is_the_same_plan() -> None:
    """And another seed is another one."""
    assert [make_plan(seed) for seed in SEEDS[:100]] == [plan_of(seed) for seed in SEEDS[:100]]
    assert len({str(plan_of(seed)) for seed in SEEDS[:100]}) == 100


def test_steps_are_in_order_and_end_before_the_faults_do() -> None:
    """So everything is healed after `FAULT_SECONDS`."""
    for seed in SEEDS:
        times = [step.at for step in plan_of(seed).steps]
        assert times == sorted(times)
        assert times[0] > 0
        assert times[-1] <= FAULT_SECONDS


def test_some_clusters_have_policies() -> None:
    """And some of these change them, one way or another."""
    chosen = [plan for plan in map(plan_of, SEEDS) if plan.setup["limits"] in WITH_POLICIES]
    assert len(SEEDS) // 5 < len(chosen) < len(SEEDS) // 2
    steps = [step for plan in chosen for step in plan.steps if step.kind == "new_settings"]
    assert {step.arguments["limits"].get("channels") for step in steps} >= set(POLICIES)


def test_every_step_can_be_carried_out() -> None:
    """The simulation has a method for each, which takes its arguments."""
    for seed in SEEDS:
        for step in plan_of(seed).steps:
            signature_of(getattr(Simulation, f"do_{step.kind}")).bind(None, **step.arguments)


def test_every_fault_and_every_cluster_is_chosen() -> None:
    """Among a few hundred seeds; and a fault fits the cluster."""
    chosen = [plan_of(seed) for seed in SEEDS]
    kinds = {step.kind for plan in chosen for step in plan.steps}
    assert kinds == {*WEIGHTS, "publish", "subscribe", "sleep", "fork"}
    assert {plan.setup["kind"] for plan in chosen} == set(plans.KINDS)
    assert {plan.setup["limits"] for plan in chosen} == set(LIMITS)
    for plan in chosen:
        if plan.setup["kind"] != "redis":
            assert not any(step.kind.startswith("redis_") for step in plan.steps)
        if plan.setup["kind"] != "journal":
            assert not {"disk", "put_back", "kill_writing"} & {step.kind for step in plan.steps}


@pytest.mark.parametrize(
    ("family", "weights"),
    [(LEASES, LEASE_WEIGHTS), (STRANGERS, {**STRANGER_WEIGHTS, "stranger": 0})],
    ids=["leases", "strangers"],
)
def test_plans_of_their_own(family: str, weights: dict[str, float]) -> None:
    """Every fault is chosen, and can be carried out."""
    chosen = [make_plan(f"{family}{seed}") for seed in range(50)]
    assert {step.kind for plan in chosen for step in plan.steps} == {*weights, "publish", "subscribe"}
    for plan in chosen:
        times = [step.at for step in plan.steps]
        assert times == sorted(times)
        assert times[-1] <= FAULT_SECONDS
        for step in plan.steps:
            signature_of(getattr(Simulation, f"do_{step.kind}")).bind(None, **step.arguments)


def test_leaving_out_a_step_changes_no_other(log: list[str]) -> None:
    """What the other steps publish, where and when is the same without it."""
    plan = make_plan("2")
    faults = [number for number, step in enumerate(plan.steps) if step.kind in WEIGHTS]
    shorter = plan._replace(steps=tuple(step for number, step in enumerate(plan.steps) if number != faults[0]))

    def published(steps: tuple[Step, ...]) -> list[str]:
        story = simulate(plan._replace(steps=steps)).story
        return [line for line in story if "publishes on" in line and "last on" not in line]

    first_tries = {line.split(": ")[0].split()[1]: line for line in reversed(published(plan.steps))}
    assert first_tries == {line.split(": ")[0].split()[1]: line for line in reversed(published(shorter.steps))}


def test_a_step_is_shown_in_one_line() -> None:
    """As the story of a seed prints it."""
    assert str(Step(4.5, "kill", {"node": 1, "seconds": 0.0})) == "   4.500 kill(node=1, seconds=0.0)"
