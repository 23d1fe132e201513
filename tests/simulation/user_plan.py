"""Plans with users whose tokens are revoked, on top of whatever else happens to a cluster or to workers.

Their seeds begin with `u`. No clock jumps, for tokens have times; and no node is made to forget what it cannot know of.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulation.steps import FAULT_SECONDS, Plan, Step

WITHOUT = ("jump", "redis_jump", "put_back_with_mark")

SUBJECTS = ("ann", "ben")


def make_user_plan(seed: str, of_cluster: Callable[[str], Plan], of_workers: Callable[[str], Plan]) -> Plan:
    """`of_cluster`, `of_workers`: the plans that it is laid upon."""
    random = Random(f"users {seed}")
    plan = random.choice((of_cluster, of_cluster, of_workers))(seed)
    steps = [step for step in plan.steps if step.kind not in WITHOUT]
    at = 3.0
    while (at := at + random.expovariate(0.4)) < FAULT_SECONDS:
        where = {"target": random.choice(("balancer", "node")), "node": random.randrange(3)}
        steps.append(Step(at, "revoke", {"subject": random.choice(SUBJECTS), **where}))
    return Plan(seed, {**plan.setup, "users": True}, tuple(sorted(steps, key=lambda step: step.at)))
