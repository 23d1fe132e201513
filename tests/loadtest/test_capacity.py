"""docs/operate/capacity.md: its formula foretells what three loads cost, and its example is calculated with it."""

from __future__ import annotations

import pytest

from loadtest.beyond.capacity import LOADS, PROCESSOR, Compared, Load, calculated, compare, example, unit_costs

TOLERANCE = 1.3

MACHINES_DIFFER = 2.5
"""Of processor times, which are of another machine: an Intel Xeon took 0.6 to 1.6 of them."""

ATTEMPTS = 2
"""A load is measured again if something is off: the machine may have been busy with something else."""


@pytest.mark.parametrize("load", LOADS[:3], ids=lambda load: load.name)
def test_the_formula_foretells(load: Load) -> None:
    """Processor time, memory, and bytes sent and received."""
    for _ in range(ATTEMPTS):
        if not (wrong := [one for one in compare(load, unit_costs(), rounds=6) if not _near(one)]):
            return
    pytest.fail("\n".join(map(str, wrong)))


def _near(one: Compared) -> bool:
    limit = MACHINES_DIFFER if one.what == PROCESSOR else TOLERANCE
    return 1 / limit < one.ratio < limit


def test_the_example_is_calculated() -> None:
    """The page says what its formula makes of its example."""
    shown = example()
    results = {name: shown.pop(name) for name in ("cores", "memory", "sent", "received", "redis")}
    found = calculated(shown, unit_costs("compiled"))
    assert results == pytest.approx({name: found[name] for name in results}, rel=0.02)
