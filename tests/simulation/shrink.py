"""Leaves out of a failing plan whatever the failure does not need, so that what remains is a short story."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.simulation import Result, simulate
from tests.simulation.steps import Plan


def shrink(
    result: Result,
    tell: Callable[[str], None] = lambda text: None,
    *,
    most: int = 400,
    run: Callable[[Plan], Result] = simulate,
) -> Result:
    """The smallest plan found that breaks the same promise, within so many runs.

    It leaves out half of the steps at a time, then quarters, and so on down to single ones.
    """
    promise = kind_of(result.broken)
    best, tried = result, 0
    size = max(1, len(best.plan.steps) // 2)
    while size and tried < most:
        start = 0
        while start < len(best.plan.steps) and tried < most:
            steps = best.plan.steps[:start] + best.plan.steps[start + size :]
            tried += 1
            found = _try(run, best.plan._replace(steps=steps))
            if found is not None and kind_of(found.broken) == promise:
                best = found
                tell(f"{len(best.plan.steps)} steps are enough")
            else:
                start += size
        size //= 2
    return best


def _try(run: Callable[[Plan], Result], plan: Plan) -> Result | None:
    try:
        return run(plan)
    except Exception:
        return None  # a step needs one that was left out


def kind_of(broken: str) -> str:
    """Which promise was broken, without who and when."""
    return broken.partition(":")[0]
