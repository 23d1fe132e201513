"""Plans in which messages are deleted, on top of whatever else happens to a cluster or to workers.

Their seeds begin with `e`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulation.steps import FAULT_SECONDS, Plan, Step


def make_erasure_plan(seed: str, of_cluster: Callable[[str], Plan], of_workers: Callable[[str], Plan]) -> Plan:
    """`of_cluster`, `of_workers`: the plans that it is laid upon."""
    random = Random(f"erasures {seed}")
    plan = random.choice((of_cluster, of_cluster, of_workers))(seed)
    steps = list(plan.steps)
    at = 3.0
    while (at := at + random.expovariate(1.0)) < FAULT_SECONDS:
        steps.append(Step(at, "erase", {
            "which": random.choice(("message", "message", "channel", "owner")),
            "back": random.choice((0, 0, 1, 3, 8)),
            "target": random.choice(("balancer", "node")),
            "node": random.randrange(3),
        }))  # fmt: skip
    return Plan(seed, plan.setup, tuple(sorted(steps, key=lambda step: step.at)))
