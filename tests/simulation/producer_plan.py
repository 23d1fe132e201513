"""Plans with producers that number their messages, on top of whatever else happens to a cluster or to workers.

Their seeds begin with `p`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulation.steps import FAULT_SECONDS, NAMES, Plan, Step

PRODUCERS = 2


def make_producer_plan(seed: str, of_cluster: Callable[[str], Plan], of_workers: Callable[[str], Plan]) -> Plan:
    """`of_cluster`, `of_workers`: the plans that it is laid upon."""
    random = Random(f"producers {seed}")
    plan = random.choice((of_cluster, of_cluster, of_workers))(seed)
    steps = list(plan.steps)
    rate = random.choice((0.5, 2.0, 6.0))
    at = 1.0
    while (at := at + random.expovariate(rate)) < FAULT_SECONDS:
        channels = tuple(random.sample(NAMES, random.choice((1, 1, 2))))
        steps.append(Step(at, "produce", {"producer": random.randrange(PRODUCERS), "channels": channels}))
    at = 3.0
    while (at := at + random.expovariate(0.3)) < FAULT_SECONDS:
        producer, seconds = random.randrange(PRODUCERS), random.choice((0.2, 3.0, 12.0))
        if random.random() < 0.5:
            steps.append(Step(at, "hang_producer", {"producer": producer, "seconds": seconds}))
        steps.append(Step(at + random.choice((0.0, 0.5)), "take_over", {"producer": producer}))
    setup = {**plan.setup, "producers": PRODUCERS}
    return Plan(seed, setup, tuple(sorted(steps, key=lambda step: step.at)))
