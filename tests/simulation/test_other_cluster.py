"""Another cluster beside the simulated one, and a replica that is restarted as the primary."""

from __future__ import annotations

from typing import Any

from tests.simulation.other_cluster import REDIS
from tests.simulation.redis_server import HOST
from tests.simulation.simulation import Simulation, simulate
from tests.simulation.steps import Plan, Step
from tests.simulation.world import START

SETUP: dict[str, Any] = {
    "kind": "redis", "nodes": 2, "limits": "roomy", "appendfsync": "always", "replica": True, "delay": 0.001,
    "slow_node": 0.0, "many": 0, "expire_at_most": 1000, "old_nodes": False, "other_cluster": True,
}  # fmt: skip


def looked_at(steps: tuple[Step, ...], times: tuple[float, ...], look: Any) -> list[Any]:
    """What was seen at these times, whatever the servers make of the steps."""
    seen: list[Any] = []

    def observe(simulation: Simulation) -> None:
        for at in times:
            simulation.world.at(START + at, lambda: seen.append(look(simulation)))

    simulate(Plan("steps", SETUP, steps), observe)
    return seen


def test_an_address_that_leads_to_another_redis(logged_failures: list[str]) -> None:
    """For a while; the connections to the other one are broken each time."""

    def leads_to(simulation: Simulation) -> set[str]:
        ends = [(end.host, end.peer.host) for end in simulation.network.connections.values()]
        return {redis for host, redis in ends if host == "n0" and redis in (HOST, REDIS)}

    seen = looked_at((Step(5.0, "other_redis", {"node": 0, "seconds": 4.0}),), (4.9, 8.0, 12.0), leads_to)
    logged_failures.clear()
    assert seen == [{HOST}, {REDIS}, {HOST}]


def test_a_state_directory_of_another_cluster(logged_failures: list[str]) -> None:
    """Its mark names the order of that cluster."""

    def mark(simulation: Simulation) -> tuple[bool, bool]:
        other = simulation.other
        assert other is not None
        other.publish("a")
        return simulation.servers[0].disk.mark == other.server.disk.mark, other.server.is_following

    steps = (Step(5.0, "other_state_directory", {"node": 0}),)
    assert looked_at(steps, (4.9, 5.0001), mark) == [(False, True), (True, True)]
    logged_failures.clear()


def test_a_replica_that_is_restarted_as_the_primary(logged_failures: list[str]) -> None:
    """It has what the replica had, and looks as if it had never been one."""

    def info(simulation: Simulation) -> tuple[int, dict[str, str]]:
        assert simulation.redis is not None
        return simulation.redis.runs, simulation.redis.redis.info

    ((before, _), (after, shown)) = looked_at((Step(5.0, "redis_replica_restart", {"seconds": 0.5}),), (4.9, 6.0), info)
    logged_failures.clear()
    assert after == before + 1
    assert (shown["second_repl_offset"], shown["role"], shown["connected_slaves"]) == ("-1", "master", "1")
