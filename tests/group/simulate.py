"""One simulated team, from its seed to the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from loadtest.mishra.core.messages import Atomicity, Order
from tests.group.promises import judge
from tests.group.world import ALL_FAULTS, SETTINGS, World


def simulate(
    seed: int, orders: Sequence[Order] = tuple(Order), atomicities: Sequence[Atomicity] = tuple(Atomicity)
) -> Counter[str]:
    """A team of three or five for three seconds with all faults; returns what happened. Raises: BrokenPromise."""
    world = World(seed, settings=replace(SETTINGS, team=3 if seed % 2 else 5), faults=ALL_FAULTS)
    world.orders, world.atomicities = tuple(orders), tuple(atomicities)
    world.run(3.0)
    world.heal()
    judge(world)
    return world.seen
