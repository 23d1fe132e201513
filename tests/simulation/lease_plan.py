"""Plans around leases and reports: nodes that are slow, stopped for a while, cut off or joining, and nothing is lost.

Their seeds begin with `l`. Most publications ask for `stable`, so that nodes are asked for the present (`probes`).
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.simulation.steps import CLUSTER, FAULT_SECONDS, NAMES, Plan, Step

LEASE_WEIGHTS = {
    "pause": 3, "cut_off": 4, "join_slowly": 4, "slow_link": 2, "kill": 1, "drain": 1, "redis_pause": 1,
    "late_report": 2,
}  # fmt: skip
"""The faults, and how often each is chosen."""


def make_lease_plan(seed: str) -> Plan:
    random = Random(f"plan {seed}")
    setup = {
        **CLUSTER,
        "nodes": random.choice((2, 2, 3)),
        "delay": random.choice((0.0003, 0.003, 0.02)),
        "slow_node": random.choice((0.0, 0.0, 0.25, 0.5)),
        "probes": True,
    }
    steps = []
    at, rate = 1.0, random.choice((1.0, 4.0))
    while (at := at + random.expovariate(rate)) < FAULT_SECONDS:
        arguments = {
            "publisher": random.randrange(3),
            "groups": [tuple(random.sample(NAMES, random.choice((1, 2))))],
            "key": random.random() < 0.3,
            "ack": random.choice(("accepted", "stable", "stable", "stable")),
            "target": "node",
            "node": random.randrange(3),
        }
        steps.append(Step(at, "publish", arguments))
    for number in range(2):
        arguments = {
            "number": number,
            "channels": tuple(random.sample(NAMES, 2)),
            "cursor": random.choice(("", "earliest", "now")),
            "timeout": random.choice((0, 2, 10)),
            "limit": 100,
            "direct": True,
            "streams": random.random() < 0.4,
            "slow": 0.0,
            "pause": random.choice((0.0, 0.2)),
        }
        steps.append(Step(random.uniform(0.5, 5.0), "subscribe", arguments))
    at = random.uniform(3.0, 8.0)
    while at < FAULT_SECONDS:
        name = random.choices([*LEASE_WEIGHTS], [*LEASE_WEIGHTS.values()])[0]
        steps.append(Step(at, name, _arguments(random, name)))
        at += random.choice((random.uniform(0.0, 1.0), random.uniform(1.0, 12.0)))
    return Plan(seed, setup, tuple(sorted(steps, key=lambda step: step.at)))


def _arguments(random: Random, name: str) -> dict[str, Any]:
    node = random.randrange(3)
    seconds = random.uniform(2.0, 7.0)  # a lease lasts three
    match name:
        case "pause" | "redis_pause":
            return {"node": node, "seconds": seconds, "what": ""}
        case "cut_off":
            return {"node": node, "seconds": seconds, "how": random.choice(("cut", "to", "from", "both"))}
        case "join_slowly":
            return {"node": node, "seconds": seconds, "delay": random.choice((0.1, 0.25, 0.45))}
        case "slow_link":
            return {"node": node, "other": "redis", "seconds": seconds, "delay": random.choice((0.1, 0.25, 0.45))}
        case "late_report":
            return {"seconds": seconds}
    return {"node": node, "seconds": random.choice((0.0, 1.0, 4.0))}
