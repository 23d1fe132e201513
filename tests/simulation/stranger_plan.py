"""Plans around another cluster, and a replica that is restarted as the primary (`other_cluster`).

Their seeds begin with `s`. Addresses lead to the other cluster's Redis and back, a machine gets the other's state
directory, and the usual faults happen meanwhile, except those that empty Redis: a flushed log is of no cluster.
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.simulation.steps import CLUSTER, FAULT_SECONDS, NAMES, Plan, Step

STRANGER_WEIGHTS = {
    "other_redis": 5, "other_state_directory": 3, "other_node": 2, "redis_replica_restart": 1, "replica_pause": 2,
    "lost_together": 4,
    "kill": 2, "pause": 1, "drain": 1, "cut": 1, "slow_link": 1, "redis_restart": 1, "redis_pause": 1, "stop_all": 0.5,
}  # fmt: skip
"""The faults, and how often each is chosen."""

FIRST_FAULT = 12.0
"""A node joins a log that was founded after it last saw its own, give or take 10 s (`catch_up.FOUNDED_SECONDS`); both
logs are founded at the beginning."""


def make_stranger_plan(seed: str) -> Plan:
    random = Random(f"plan {seed}")
    setup = {
        **CLUSTER,
        "nodes": random.choice((2, 2, 3)),
        "replica": random.random() < 0.4,
        "delay": random.choice((0.0003, 0.003, 0.02)),
        "slow_node": random.choice((0.0, 0.0, 0.25)),
        "probes": random.random() < 0.3,
        "other_cluster": True,
    }
    steps = []
    at, rate = 1.0, random.choice((0.5, 2.0))
    while (at := at + random.expovariate(rate)) < FAULT_SECONDS:
        arguments: dict[str, Any] = {
            "publisher": random.randrange(3),
            "groups": [tuple(random.sample(NAMES, random.choice((1, 2))))],
            "key": random.random() < 0.4,
            "ack": random.choice(("accepted", "accepted", "replicated", "stable")),
            "target": random.choice(("balancer", "node")),
            "node": random.randrange(3),
        }
        steps.append(Step(at, "publish", arguments))
    at = 1.0
    while (at := at + random.expovariate(1.0)) < FAULT_SECONDS:
        steps.append(Step(at, "stranger", {"channel": random.choice(NAMES), "key": random.random() < 0.5}))
    for number in range(random.choice((2, 4))):
        arguments = {
            "number": number,
            "channels": tuple(random.sample(NAMES, random.choice((1, 2)))),
            "cursor": random.choice(("", "earliest", "now")),
            "timeout": random.choice((0, 2, 10)),
            "limit": 100,
            "direct": random.random() < 0.6,
            "streams": random.random() < 0.4,
            "slow": 0.0,
            "pause": random.choice((0.0, 0.2)),
        }
        steps.append(Step(random.uniform(0.5, 10.0), "subscribe", arguments))
    needs_replica = ("redis_replica_restart", "replica_pause", "lost_together")
    wanted = [name for name in STRANGER_WEIGHTS if setup["replica"] or name not in needs_replica]
    at = random.uniform(FIRST_FAULT, 18.0)
    while at < FAULT_SECONDS:
        name = random.choices(wanted, [STRANGER_WEIGHTS[name] for name in wanted])[0]
        steps.append(Step(at, name, _arguments(random, name)))
        at += random.choice((random.uniform(0.0, 1.0), random.uniform(1.0, 12.0)))
    return Plan(seed, setup, tuple(sorted(steps, key=lambda step: step.at)))


def _arguments(random: Random, name: str) -> dict[str, Any]:
    node = random.randrange(3)
    seconds = random.choice((0.3, 1.0, 4.0, 15.0))
    match name:
        case "other_redis":
            return {"node": node, "seconds": seconds}
        case "other_state_directory":
            return {"node": node, "seconds": seconds, "removed": random.random() < 0.5}
        case "other_node":
            return {"seconds": seconds}
        case "redis_replica_restart" | "redis_restart":
            return {"seconds": random.choice((0.0, 0.3, 3.0))}
        case "pause" | "redis_pause" | "replica_pause":
            return {"node": node, "seconds": seconds, "what": ""}
        case "cut":
            return {"node": node, "other": "redis", "seconds": seconds}
        case "slow_link":
            return {"node": node, "other": "redis", "seconds": seconds, "delay": random.choice((0.1, 0.4))}
        case "stop_all":
            return {
                "redis": random.choice(("", "restart")),
                "good": random.random() < 0.5,
                "seconds": random.choice((0.2, 4.0)),
                "share": 0.0,
            }
    return {"node": node, "seconds": random.choice((0.0, 1.0, 4.0))}
