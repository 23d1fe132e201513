"""Plans with users who follow channels with presence, on top of whatever else happens to a cluster or to workers.

Their seeds begin with `m`, for members. No clock of a server jumps, for tokens have times; and that of Redis is not set
back, for then the time of the order stands still, and nobody leaves meanwhile. In some there is no fault but that the
order stands still for a while: nobody who follows leaves because of that.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulation.steps import FAULT_SECONDS, Plan, Step

WITHOUT = ("jump", "put_back_with_mark", "new_settings", "poison")

GRACE_SECONDS, HIDDEN_SECONDS = 6.0, 15.0

SUBJECTS = ("ann", "bob", "cy", "dee")


def make_presence_plan(seed: str, of_cluster: Callable[[str], Plan], of_workers: Callable[[str], Plan]) -> Plan:
    """`of_cluster`, `of_workers`: the plans that it is laid upon."""
    random = Random(f"presence {seed}")
    plan = random.choice((of_cluster, of_cluster, of_workers))(seed)
    steps = [step for step in plan.steps if step.kind not in WITHOUT]
    steps = [step for step in steps if step.kind != "redis_jump" or step.arguments["by"] > 0]
    steps = [step for step in steps if step.kind != "publish" or random.random() < 0.3]
    for number in range(random.choice((3, 5, 8))):
        steps.append(_tab(random, number, random.uniform(1.0, 10.0)))
        at = 5.0
        while (at := at + random.expovariate(0.1)) < FAULT_SECONDS:
            kind = random.choice(("close_tab", "close_tab", "hide_tab", "tab"))
            if kind == "tab":
                steps.append(_tab(random, number, at))
            elif kind == "hide_tab":
                steps.append(Step(at, "hide_tab", {"number": number, "hidden": random.random() < 0.6}))
            else:
                steps.append(Step(at, "close_tab", {"number": number, "says": random.random() < 0.5}))
    still = Random(f"still {seed}")
    if ("has_parent" in plan.setup or plan.setup["kind"] == "redis") and still.random() < 0.3:
        steps = _only_still(still, steps)
    setup = {**plan.setup, "limits": "roomy", "users": True, "presence": True}
    return Plan(seed, setup, tuple(sorted(steps, key=lambda step: step.at)))


def _only_still(random: Random, steps: list[Step]) -> list[Step]:
    """Without any fault but that the order stands still for a while after a node has asked about somebody.

    Most tabs keep to one server, so that those of one user often are at several.
    """
    kept = []
    for step in steps:
        if step.kind == "tab" and random.random() < 0.8:
            step = Step(step.at, step.kind, {**step.arguments, "node": random.randrange(3)})
        if step.kind in ("publish", "subscribe", "sleep", "fork", "tab", "close_tab", "hide_tab"):
            kept.append(step)
    for _ in range(random.choice((1, 2, 3))):
        at, seconds = random.uniform(5.0, FAULT_SECONDS), random.choice((1.0, 2.0, 3.0, 5.0, 10.0))
        kept.append(Step(at, "stand_still", {"after": random.choice((0.0, 0.0, 0.02, 0.3)), "seconds": seconds}))
    return kept


def _tab(random: Random, number: int, at: float) -> Step:
    return Step(at, "tab", {
        "number": number,
        "subject": random.choice(SUBJECTS),
        "channels": random.choice((("room:1",), ("room:2",), ("room:1", "room:2"))),
        "streams": random.random() < 0.4,
        "direct": random.random() < 0.7,
        "pause": random.choice((0.0, 0.1, 0.4)),
        "is_named": random.random() < 0.7,
    })  # fmt: skip
