"""Another cluster beside the simulated one, and a replica that is restarted as the primary."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.simulation import Simulation, simulate
from tests.simulation.steps import CLUSTER, Plan, Step
from tests.simulation.world import START

SETUP = {**CLUSTER, "replica": True, "delay": 0.001, "other_cluster": True}


def looked_at(steps: tuple[Step, ...], times: tuple[float, ...], look: Any) -> list[Any]:
    """What was seen at these times. No promise is broken."""
    seen: list[Any] = []

    def observe(simulation: Simulation) -> None:
        for at in times:
            simulation.world.at(START + at, lambda: seen.append(look(simulation)))

    result = simulate(Plan("steps", SETUP, steps), observe)
    assert not result.broken
    return seen


def test_an_address_that_leads_to_another_redis(log: list[str]) -> None:
    """For a while; the node refuses, and follows again when the address leads home."""

    def follows(simulation: Simulation) -> tuple[bool, bool]:
        server = simulation.servers[0]
        trouble = server.node.why_not_ready()
        return server.is_following, trouble is not None and "belongs to cluster" in trouble.operator_detail

    seen = looked_at((Step(15.0, "other_redis", {"node": 0, "seconds": 4.0}),), (14.9, 18.0, 22.0), follows)
    assert seen == [(True, False), (False, True), (True, False)]


@pytest.mark.parametrize(
    ("step", "who"),
    [(Step(5.0, "other_redis", {"node": 0, "seconds": 4.0}), "n0"), (Step(5.0, "other_node", {"seconds": 4.0}), "x0")],
)
def test_a_change_in_the_log_of_another_cluster_is_noticed(step: Step, who: str, log: list[str]) -> None:
    """A node joins a log that was founded just now, if its own is gone; so it does if its address leads elsewhere."""
    broken = simulate(Plan("steps", SETUP, (step,))).broken
    assert broken.startswith(f"clusters stay apart: {who} changed the log of another cluster")


def test_a_message_of_another_cluster_that_is_lost_is_noticed(log: list[str]) -> None:
    """Its clients have a checker of their own."""
    forgotten: list[bool] = []

    def flush(simulation: Simulation) -> None:
        def flush_there() -> None:
            assert simulation.other is not None
            forgotten.append("stranger.1/0" in simulation.other.record.checker.data_at.values())
            simulation.other.redis.flush()

        simulation.world.at(START + 20.0, flush_there)

    broken = simulate(Plan("steps", SETUP, (Step(15.0, "stranger", {"channel": "a", "key": False}),)), flush).broken
    assert forgotten == [True]
    assert broken == "follower of strangers was told that messages on a were lost; nothing can have been"


@pytest.mark.parametrize("removed", [False, True])
def test_a_state_directory_of_another_cluster(removed: bool, log: list[str]) -> None:
    """Its mark names the order of that cluster: the node refuses until it has its own again, or none."""

    def mark(simulation: Simulation) -> tuple[bool, bool]:
        other = simulation.other
        assert other is not None
        return simulation.servers[0].disk.mark == other.server.disk.mark, simulation.servers[0].is_following

    steps = (Step(5.0, "other_state_directory", {"node": 0, "seconds": 4.0, "removed": removed}),)
    assert looked_at(steps, (4.9, 5.0001, 8.9, 11.0), mark) == [
        (False, True), (True, False), (True, False), (False, True),
    ]  # fmt: skip


def test_a_replica_that_is_restarted_as_the_primary(log: list[str]) -> None:
    """It has what the replica had, and looks as if it had never been one."""

    def info(simulation: Simulation) -> tuple[int, dict[str, str]]:
        assert simulation.redis is not None
        return simulation.redis.runs, simulation.redis.redis.info

    ((before, _), (after, shown)) = looked_at((Step(5.0, "redis_replica_restart", {"seconds": 0.5}),), (4.9, 6.0), info)
    assert after == before + 1
    assert (shown["second_repl_offset"], shown["role"], shown["connected_slaves"]) == ("-1", "master", "0")
