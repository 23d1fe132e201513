"""docs/operate/capacity.md: its formula foretells what three loads cost, and its example is calculated with it."""

from __future__ import annotations

import pytest

from loadtest.beyond.capacity import LOADS, Load, calculated, compare, example, unit_costs

TOLERANCE = 0.25

ATTEMPTS = 2
"""A load is measured again if something is off: the machine may have been busy with something else."""


@pytest.mark.parametrize("load", LOADS[:3], ids=lambda load: load.name)
def test_the_formula_foretells(load: Load) -> None:
    """Processor time, scaled by how fast this machine is just now, memory, and bytes sent and received."""
    for _ in range(ATTEMPTS):
        compared = compare(load, unit_costs(), rounds=6)
        if not (wrong := [one for one in compared if abs(one.ratio - 1) > TOLERANCE]):
            return
    pytest.fail("\n".join(map(str, wrong)))


def test_the_example_is_calculated() -> None:
    """The page says what its formula makes of its example."""
    shown = example()
    results = {name: shown.pop(name) for name in ("cores", "memory", "sent", "received", "redis")}
    found = calculated(shown, unit_costs("compiled"))
    assert results == pytest.approx({name: found[name] for name in results}, rel=0.02)
