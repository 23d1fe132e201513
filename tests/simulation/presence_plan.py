"""Plans with users who follow channels with presence, on top of whatever else happens to a cluster or to workers.

Their seeds begin with `m`, for members. No clock of a server jumps, for tokens have times; and that of Redis is not set
back, for then the time of the order stands still, and nobody leaves meanwhile. In some, users keep to their servers,
and there is at most one kind of fault: there it is known exactly who follows.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulation.steps import FAULT_SECONDS, Plan, Step

WITHOUT = ("jump", "put_back_with_mark", "new_settings", "poison")

GRACE_SECONDS, HIDDEN_SECONDS = 6.0, 15.0

SUBJECTS = ("ann", "bob", "cy", "dee", "eve", "fay")


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
    settled = Random(f"settled {seed}")
    setup = {**plan.setup, "limits": "roomy", "users": True, "presence": True}
    if settled.random() < 0.5:
        steps = _settled(settled, plan)
        setup["slow_node"] = 0.0
    return Plan(seed, setup, tuple(sorted(steps, key=lambda step: step.at)))


def _settled(random: Random, plan: Plan) -> list[Step]:
    """Users with up to three tabs, each at one server, and polls and streams that may outlast the grace.

    There is no fault, or the order stands still after a node has asked about somebody, or its memory is lost.
    """
    steps = [step for step in plan.steps if step.kind in ("publish", "subscribe", "sleep", "fork")]
    steps = [step for step in steps if step.kind != "publish" or random.random() < 0.3]
    has_order = "has_parent" in plan.setup or plan.setup["kind"] == "redis"
    fault = random.choice(("", "still", "still", "lost")) if has_order else ""
    users, tabs = (3, 9) if fault == "still" else random.choice(((3, 4), (3, 6), (6, 9)))
    for number in range(tabs):
        at, user = random.uniform(1.0, 10.0), number % users
        node = user + random.choice((0, number // users, number // users))  # often not where the user's first tab is
        kept = {"subject": SUBJECTS[user], "direct": True, "node": node, "poll_seconds": random.choice((1.0, 4.0, 9.0))}
        steps.append(Step(at, "tab", {**_tab(random, number, at).arguments, **kept}))
        if random.random() < 0.4:
            steps.append(Step(random.uniform(at, FAULT_SECONDS), "hide_tab", {"number": number, "hidden": True}))
        if random.random() < 0.7:
            at = random.uniform(at + 2.0, FAULT_SECONDS)
            steps.append(Step(at, "close_tab", {"number": number, "says": random.random() < 0.5}))
            if fault == "still" and random.random() < 0.7:
                still = {"after": random.choice((0.0, 0.02)), "seconds": random.choice((1.0, 3.0, 5.0, 10.0, 10.0))}
                steps.append(Step(at - 0.1, "stand_still", still))
    if fault == "lost":
        kind = "parent_kill" if "has_parent" in plan.setup else "redis_restart"
        steps.append(Step(random.uniform(15.0, FAULT_SECONDS), kind, {"seconds": 0.0}))
    return steps


def _tab(random: Random, number: int, at: float) -> Step:
    return Step(at, "tab", {
        "number": number,
        "subject": random.choice(SUBJECTS[:4]),
        "channels": random.choice((("room:1",), ("room:2",), ("room:1", "room:2"))),
        "streams": random.random() < 0.4,
        "direct": random.random() < 0.7,
        "pause": random.choice((0.0, 0.1, 0.4)),
        "is_named": random.random() < 0.7,
    })  # fmt: skip
