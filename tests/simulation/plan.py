"""What a seed does: a list of steps, each with its time and all it needs. Leaving steps out changes none of the others.

So a failing seed can be shrunk (`shrink.py`): whatever is not needed for the failure is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from pushup.core.limits import ChannelPolicy
from tests.simulation.erasure_plan import make_erasure_plan
from tests.simulation.lease_plan import make_lease_plan
from tests.simulation.presence_plan import make_presence_plan
from tests.simulation.producer_plan import make_producer_plan
from tests.simulation.steps import FAULT_SECONDS, NAMES, Plan, Step
from tests.simulation.stranger_plan import make_stranger_plan
from tests.simulation.unread_plan import make_unread_plan
from tests.simulation.user_plan import make_user_plan

KINDS = ("redis", "redis", "redis", "redis", "redis", "journal", "journal", "memory")

LIMITS: dict[str, dict[str, Any]] = {
    "roomy": {},
    "short": {"retention_seconds": 8.0, "channel_ttl_seconds": 6.0, "keys_limit": 4},
    "few messages": {"retention_messages": 3, "retention_seconds": 30.0},
    "few bytes": {"retention_bytes": 4000, "retention_seconds": 20.0},
    "few channels": {"channels_limit": 12, "channel_ttl_seconds": 3.0, "retention_seconds": 5.0},
    "classes": {
        "retention_seconds": 6.0,
        "channel_ttl_seconds": 8.0,
        "ephemeral_bytes": 3500,
        "channels": (
            ChannelPolicy(prefix="a", retention_seconds=20.0, retention_messages=5),
            ChannelPolicy(prefix="b", retention_seconds=3.0, channel_ttl_seconds=4.0),
            ChannelPolicy(prefix="tag:", retention_seconds=4.0, retention_messages=2),
            ChannelPolicy(prefix="tag:é", retention_seconds=15.0),
        ),
    },
    "shares": {
        "retention_bytes": 12_000,
        "ephemeral_bytes": 2500,
        "channels": (
            ChannelPolicy(prefix="a", share=4.0),
            ChannelPolicy(prefix="b", share=0.5, retention_bytes=4000),
            ChannelPolicy(prefix="tag:", retention_seconds=12.0, retention_messages=3),
        ),
    },
}

WITH_POLICIES = ("classes", "shares")
"""The limits that differ between channels. They are drawn apart, as are the changes of policies."""

WITHOUT_POLICIES = tuple(name for name in LIMITS if name not in WITH_POLICIES)

POLICIES: tuple[tuple[ChannelPolicy, ...], ...] = (
    (),
    (ChannelPolicy(prefix="a", share=0.25), ChannelPolicy(prefix="c", retention_seconds=25.0, share=2.0)),
    (ChannelPolicy(prefix="b", share=8.0), ChannelPolicy(prefix="t", retention_messages=2, retention_seconds=5.0)),
    (ChannelPolicy(prefix="a", retention_seconds=10.0), ChannelPolicy(prefix="b", retention_bytes=2500)),
)
"""What policies are changed to."""


WORKERS, LEASES, STRANGERS, USERS = "w", "l", "s", "u"
ERASURES, PRODUCERS, PRESENCE, UNREAD = "e", "p", "m", "n"

FAMILIES = {
    WORKERS: ("workers", "one machine with several workers"),
    LEASES: ("leases", "slow, stopped and joining nodes"),
    STRANGERS: ("strangers", "another cluster beside this one"),
    USERS: ("users", "users whose tokens are revoked"),
    ERASURES: ("erasures", "messages are deleted"),
    PRODUCERS: ("producers", "producers number their messages"),
    PRESENCE: ("presence", "channels have members"),
    UNREAD: ("unread", "messages wait for readers"),
}
"""What seeds may begin with: the option that runs these, and what they have that others have not."""


def make_plan(seed: str) -> Plan:
    """The plan of a seed."""
    if seed.startswith(LEASES):
        return make_lease_plan(seed)
    if seed.startswith(STRANGERS):
        return make_stranger_plan(seed)
    if seed.startswith(USERS):
        return make_user_plan(seed, _cluster_plan, _workers_plan)
    if seed.startswith(ERASURES):
        return make_erasure_plan(seed, _cluster_plan, _workers_plan)
    if seed.startswith(PRODUCERS):
        return make_producer_plan(seed, _cluster_plan, _workers_plan)
    if seed.startswith(PRESENCE):
        return make_presence_plan(seed, _cluster_plan, _workers_plan)
    if seed.startswith(UNREAD):
        return make_unread_plan(seed, _cluster_plan, _workers_plan)
    return _workers_plan(seed) if seed.startswith(WORKERS) else _cluster_plan(seed)


def _workers_plan(seed: str) -> Plan:
    random = Random(f"plan {seed}")
    setup: dict[str, Any] = {
        "kind": random.choice(("journal", "memory")),
        "nodes": random.choice((2, 2, 3)),
        "has_parent": True,
        "limits": random.choice(WITHOUT_POLICIES),
        "delay": random.choice((0.0001, 0.0001, 0.01)),
        "slow_node": random.choice((0.0, 0.0, 0.3)),
        "many": random.choice((0, 0, 40)),
        "piece": random.choice((1, 5, 256)),
        "unsent_limit": random.choice((10_000, 100_000, 100_000_000)),
        "expire_at_most": random.choice((3, 10, 1000)),
        "old_nodes": False,
    }
    if setup["many"]:
        setup["limits"] = "few channels"
    policies = _policies(seed, setup)
    steps = [*policies, *_publications(random, setup), *_subscribers(random), *_faults(random, setup, WORKER_WEIGHTS)]
    more = Random(f"more {seed}")
    if more.random() < 0.3:  # the parent dies while a worker that has just started gets the state
        at = more.uniform(10.0, FAULT_SECONDS - 1.0)
        steps.append(Step(at, "kill", {"node": more.randrange(3), "seconds": 0.0}))
        steps.append(
            Step(at + setup["delay"] * more.uniform(2.0, 12.0), "parent_kill", {"seconds": more.choice((0.0, 0.5))})
        )
    return Plan(seed, setup, tuple(sorted(steps, key=lambda step: step.at)))


def _cluster_plan(seed: str) -> Plan:
    random = Random(f"plan {seed}")
    kind = random.choice(KINDS)
    setup = {
        "kind": kind,
        "nodes": random.choice((2, 2, 3)) if kind == "redis" else 1,
        "limits": random.choice(WITHOUT_POLICIES),
        "appendfsync": random.choice(("always", "everysec", "none")),
        "replica": random.random() < 0.4,
        "delay": random.choice((0.0003, 0.0003, 0.003, 0.02)),
        "slow_node": random.choice((0.0, 0.0, 0.0, 0.3)),
        "many": random.choice((0, 0, 0, 0, 40)),
    }
    setup["expire_at_most"] = random.choice((3, 10, 1000)) if setup["many"] else 1000
    setup["old_nodes"] = kind != "memory" and not setup["many"] and random.random() < 0.15
    if setup["many"]:
        setup["limits"] = "few channels"
    policies = _policies(seed, setup)
    steps = [*policies, *_publications(random, setup), *_subscribers(random), *_faults(random, setup)]
    return Plan(seed, setup, tuple(sorted(steps, key=lambda step: step.at)))


def _policies(seed: str, setup: dict[str, Any]) -> list[Step]:
    """Give a third of the clusters limits with policies, and return the steps that change these.

    They come from a generator of their own, so that all else that a seed does stays the same.
    """
    random = Random(f"policies {seed}")
    if setup["many"] or random.random() > 0.33:
        return []
    setup["limits"] = random.choice(WITH_POLICIES)
    # A node with a slow link may have followed no log yet when Redis has lost everything. If the others stop just then,
    # it begins another cluster.
    if "has_parent" in setup or setup["kind"] == "memory" or setup["slow_node"]:
        return []
    return [
        Step(random.uniform(5.0, FAULT_SECONDS), "new_settings", {"limits": {"channels": random.choice(POLICIES)}})
        for _ in range(random.choice((0, 0, 1, 1, 2)))
    ]


def _publications(random: Random, setup: dict[str, Any]) -> list[Step]:
    steps = []
    rate = random.choice((0.5, 2.0, 5.0))
    at = 1.0
    while (at := at + random.expovariate(rate)) < FAULT_SECONDS:
        groups = [tuple(random.sample(NAMES, random.choice((1, 1, 2)))) for _ in range(random.choice((1, 1, 1, 2, 4)))]
        if setup["many"] and random.random() < 0.3:
            groups = [tuple(f"many{random.randrange(60)}" for _ in range(6))]
            groups = [tuple(dict.fromkeys(groups[0]))]
        elif random.random() < 0.02:
            groups = [tuple(f"burst{n}" for n in range(20)) for _ in range(40)]
        steps.append(
            Step(at, "publish", {
                "publisher": random.randrange(3),
                "groups": groups,
                "key": random.random() < 0.4,
                "ack": random.choice(("accepted",) * 6 + ("replicated", "stable")),
                "target": random.choice(("balancer", "balancer", "node")),
                "node": random.randrange(3),
            })
        )  # fmt: skip
    return steps


def _subscribers(random: Random) -> list[Step]:
    steps = []
    for number in range(random.choice((2, 4, 6))):
        steps.append(
            Step(random.uniform(0.5, 12.0), "subscribe", {
                "number": number,
                "channels": tuple(random.sample(NAMES, random.choice((1, 2, 4)))),
                "cursor": random.choice(("", "earliest", "now")),
                "timeout": random.choice((0, 2, 10, 10)),
                "limit": random.choice((1, 3, 100)),
                "direct": random.random() < 0.3,
                "streams": random.random() < 0.4,
                "slow": random.choice((0.0, 0.0, 0.0, 1.0)),
                "pause": random.choice((0.0, 0.0, 0.2, 2.0)),
            })
        )  # fmt: skip
        if random.random() < 0.4:
            steps.append(
                Step(
                    random.uniform(8.0, FAULT_SECONDS),
                    "sleep",
                    {"number": number, "seconds": random.choice((1.0, 8.0, 25.0))},
                )
            )
        if random.random() < 0.2:
            steps.append(Step(random.uniform(8.0, FAULT_SECONDS), "fork", {"number": number}))
    return steps


WEIGHTS = {
    "kill": 3, "pause": 2, "drain": 2, "new_settings": 1, "poison": 0.7, "poison_one": 0.7,
    "drain_and_failover": 1, "kill_writing": 2, "cut_all": 0.7,
    "clog": 3, "cut": 2, "slow_link": 1, "stop_all": 1, "jump": 1,
    "redis_restart": 2, "redis_power": 2, "redis_old": 1.5, "redis_failover": 1.5, "redis_evict": 1, "redis_flush": 1,
    "redis_deny": 1, "redis_pause": 1, "redis_jump": 0.5, "redis_without_save": 1.5, "replica_pause": 1,
    "disk": 4, "put_back": 2, "put_back_with_mark": 1,
    "late": 1.5, "upgrade": 0, "roll_back": 0,
}  # fmt: skip
"""The faults, and how often each is chosen. Upgrades are planned apart, for clusters that begin with old nodes."""


WORKER_WEIGHTS = {
    "kill": 4, "pause": 2, "drain": 2, "clog": 3, "slow_link": 1, "stop_all": 1, "jump": 1,
    "parent_kill": 2, "parent_pause": 1, "parent_stop": 1, "disk": 3,
}  # fmt: skip
"""The same on a machine with several workers."""


def _faults(random: Random, setup: dict[str, Any], all_weights: Mapping[str, float] = WEIGHTS) -> list[Step]:
    """One to six faults; some at the same time."""
    wanted = [name for name in all_weights if _fits(name, setup)]
    weights = [all_weights[name] for name in wanted]
    steps = []
    at = random.uniform(4.0, 12.0)
    if setup["many"]:
        # Nodes start from checkpoints while many channels are due.
        steps += [
            Step(random.uniform(6.0, FAULT_SECONDS), "kill", {"node": random.randrange(3), "seconds": 0.0})
            for _ in range(random.randrange(2, 8))
        ]
    if setup["old_nodes"] and random.random() < 0.7:
        steps.append(Step(random.uniform(4.0, FAULT_SECONDS), "upgrade", {}))
        for _ in range(random.choice((0, 1, 2))):
            back = {"node": random.randrange(3), "seconds": random.choice((0.0, 2.0))}
            steps.append(Step(random.uniform(4.0, FAULT_SECONDS), "roll_back", back))
    for _ in range(random.choice((0, 1, 1, 2, 2, 3, 4, 6))):
        name = random.choices(wanted, weights)[0]
        arguments = _arguments(random, name)
        if "has_parent" in setup and arguments.get("other") == "redis":
            arguments["other"] = "parent"
        steps.append(Step(at, name, arguments))
        if random.random() > 0.3:  # else the next fault comes at once
            at += random.uniform(0.2, 12.0)
        if at > FAULT_SECONDS:
            break
    return steps


def _fits(name: str, setup: dict[str, Any]) -> bool:
    if "has_parent" in setup:
        return name != "disk" or bool(setup["kind"] == "journal")
    if name.startswith("redis_") or name in ("clog", "cut", "slow_link"):
        return bool(setup["kind"] == "redis") and (name != "redis_failover" or setup["replica"])
    if name == "replica_pause":
        return bool(setup["replica"]) and setup["kind"] == "redis"
    if name in ("new_settings", "poison", "poison_one", "drain_and_failover", "cut_all", "late"):
        return bool(setup["kind"] == "redis")
    if name in ("disk", "put_back", "put_back_with_mark", "kill_writing"):
        return bool(setup["kind"] == "journal")
    return True


def _arguments(random: Random, name: str) -> dict[str, Any]:
    node = random.randrange(3)
    seconds = random.choice((0.1, 0.5, 2.0, 6.0, 15.0))
    match name:
        case "parent_kill" | "parent_stop":
            return {"seconds": random.choice((0.0, 0.5, 3.0))}
        case "parent_pause":
            return {"seconds": seconds}
        case "kill":
            return {"node": node, "seconds": random.choice((0.0, 0.5, 3.0))}
        case "pause" | "redis_pause" | "redis_deny" | "replica_pause":
            return {"node": node, "seconds": seconds, "what": random.choice(("OOM", "MISCONF", "READONLY"))}
        case "drain":
            return {"node": node, "seconds": random.choice((0.0, 1.0))}
        case "clog":
            return {"node": node, "other": random.choice(("redis", "redis", "balancer")), "seconds": seconds,
                    "direction": random.choice(("to", "from", "both"))}  # fmt: skip
        case "cut":
            return {"node": node, "other": random.choice(("redis", "balancer")), "seconds": seconds}
        case "slow_link":
            return {"node": node, "other": "redis", "seconds": seconds, "delay": random.choice((0.05, 0.4))}
        case "stop_all":
            return {
                "redis": random.choice(("", "old", "power", "restart", "without_save", "put_back")),
                "good": random.random() < 0.5,
                "seconds": random.choice((0.2, 4.0)),
                "share": random.random(),
            }
        case "jump" | "redis_jump":
            return {"node": node, "by": random.choice((-3600.0, 3600.0, 7200.0, -30.0, 30.0))}
        case "redis_restart" | "redis_power" | "redis_without_save" | "redis_failover":
            return {"seconds": random.choice((0.0, 0.3, 3.0))}
        case "redis_old":
            return {"seconds": random.choice((0.0, 2.0)), "share": random.random()}
        case "redis_evict":
            return {"key": random.choice(("state", "log", *["rows"] * 3, "leases", "members"))}
        case "disk":
            return {"what": random.choice(("full", "broken", "slow", "unsure")), "seconds": seconds}
        case "new_settings":
            return {
                "limits": random.choice(({"retention_messages": 5}, {"keys_limit": 3}, {"retention_seconds": 15.0}))
            }
        case "poison":
            return {
                "width": random.choice((1, 3)),
                "what": random.choice(('{"type":', "[1", '{"type":"close","channel":5}')),
            }
        case "drain_and_failover":
            return {"node": node, "seconds": random.choice((0.1, 0.5, 1.0))}
        case "kill_writing":
            return {"seconds": random.choice((0.0, 1.0)), "share": random.random()}
        case "cut_all":
            return {"seconds": seconds}
        case "late":
            return {
                "what": random.choice(("append", "save", "save", "save")),
                "seconds": random.choice((3.5, 5.0, 8.0)),
                "flush": random.random() < 0.4,
            }
        case "poison_one":
            return {"node": node}
        case "put_back" | "put_back_with_mark":
            return {"share": random.random(), "good": random.random() < 0.5}
    return {}
