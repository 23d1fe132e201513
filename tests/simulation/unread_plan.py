"""Plans with messages that wait for readers, on top of whatever else happens to a cluster or to workers.

Their seeds begin with `n`. No clock of a server jumps, for tokens have times; that of Redis may.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulation.application import MOODS
from tests.simulation.steps import FAULT_SECONDS, Plan, Step

WITHOUT = ("jump", "put_back_with_mark")

SUBJECTS = ("s0", "s1", "s2", "s3", "zoe")
"""Most are the names of subscribers. The last one never comes."""


def make_unread_plan(seed: str, of_cluster: Callable[[str], Plan], of_workers: Callable[[str], Plan]) -> Plan:
    """`of_cluster`, `of_workers`: the plans that it is laid upon."""
    random = Random(f"unread {seed}")
    plan = random.choice((of_cluster, of_cluster, of_workers))(seed)
    steps = [step for step in plan.steps if step.kind not in WITHOUT]
    share = random.choice((0.2, 0.8))
    for number, step in enumerate(steps):
        if step.kind == "publish" and random.random() < share:
            subjects = tuple(random.sample(SUBJECTS, random.choice((1, 1, 2, 4))))
            unread = random.choice((1.0, 3.0, 8.0)), subjects
            steps[number] = step._replace(arguments={**step.arguments, "unread": unread})
    at = 2.0
    while random.random() < 0.6 and (at := at + random.uniform(0.0, 12.0)) < FAULT_SECONDS:
        seconds = random.choice((0.5, 3.0, 20.0, 35.0))
        steps.append(Step(at, "application", {"mood": random.choice(MOODS), "seconds": seconds}))
    setup = {**plan.setup, "users": True, "unread_limit": random.choice((6, 100_000, 100_000))}
    return Plan(seed, setup, tuple(sorted(steps, key=lambda step: step.at)))
