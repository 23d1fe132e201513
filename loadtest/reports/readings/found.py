"""What a reading returns: our number, and the rule by which it agrees with the paper or not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from loadtest.reports.results import shown
from loadtest.reports.saved import Saved

CLOSE = 0.25
"""A value is close to the paper's if it differs from it by no more than this share."""

NEARLY_ALL = 90
"""Per cent of a table's values that are close to the paper's, if the table agrees."""

YES, PARTLY, NO, NOT_MEASURED, NO_RULE = "yes", "partly", "no", "not measured", "-"


class Criterion(NamedTuple):
    """A metric, what we measured, and the bounds within which it is what the paper says.

    `value`: None if no run has measured it.
    """

    metric: str
    value: float | None
    least: float = -math.inf
    most: float = math.inf

    @property
    def met(self) -> bool:
        return self.value is not None and self.least <= self.value <= self.most

    @property
    def rule(self) -> str:
        """The metric and its bounds; what we measured only if that is outside of them."""
        low, high = shown(self.least), shown(self.most)
        if self.least == self.most:
            bounds = f"exactly {low}"
        elif math.isinf(self.most):
            bounds = f"at least {low}"
        elif math.isinf(self.least):
            bounds = f"at most {high}"
        else:
            bounds = f"{low} to {high}"
        if self.met:
            return f"{self.metric}: {bounds}"
        if self.value is None:
            return f"{self.metric}: {bounds}, **{NOT_MEASURED}**"
        rounded = shown(self.value)
        return f"{self.metric}: {bounds}, **is {rounded if rounded not in (low, high) else format(self.value, '.5g')}**"


class Found(NamedTuple):
    """What we found, and the criteria by which it agrees with the paper; none if that cannot be compared."""

    ours: str
    criteria: tuple[Criterion, ...] = ()

    @property
    def verdict(self) -> str:
        """It agrees if every criterion is met, and partly if one of them is."""
        if not self.criteria:
            return NO_RULE
        if all(one.value is None for one in self.criteria):
            return NOT_MEASURED
        met = [one.met for one in self.criteria]
        return YES if all(met) else PARTLY if any(met) else NO

    @property
    def rule(self) -> str:
        return "; ".join(one.rule for one in self.criteria)


Reading = Callable[[Saved], Found]
"""Raises: NotMeasured."""


def span(values: Iterable[float]) -> str:
    """The least and the greatest value, or the only one."""
    ordered = sorted(values)
    low, high = shown(float(ordered[0])), shown(float(ordered[-1]))
    return low if low == high else f"{low} to {high}"


def close(metric: str, ours: float, paper: float) -> Criterion:
    """Whether a value is close to the paper's."""
    return Criterion(f"{metric}, ours / paper", ours / paper, 1 - CLOSE, 1 + CLOSE)


def beside(pairs: Iterable[tuple[float, float]]) -> Found:
    """Compare values (ours, the paper's) one by one; they agree if nearly all are close."""
    known = [(ours, paper) for ours, paper in pairs if paper]
    near = sum(abs(ours - paper) <= CLOSE * paper for ours, paper in known)
    within = f"within {CLOSE:.0%}"
    text = f"{near} of {len(known)} {within}; ours / paper {span(ours / paper for ours, paper in known)}"
    return Found(text, (Criterion(f"values {within} of the paper's, %", 100 * near / len(known), NEARLY_ALL),))
