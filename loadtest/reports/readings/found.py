"""What a reading returns, and what several readings need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from loadtest.reports.results import shown
from loadtest.reports.saved import Saved

CLOSE = 0.25
"""A value agrees with the paper's if it differs from it by no more than this share."""


class Found(NamedTuple):
    """What we found. `agrees`: whether it is what the paper says; None if that cannot be compared."""

    ours: str
    agrees: bool | None = None


Reading = Callable[[Saved], Found]
"""Raises: NotMeasured."""


def span(values: Iterable[float]) -> str:
    """The least and the greatest value, or the only one."""
    ordered = sorted(values)
    low, high = shown(float(ordered[0])), shown(float(ordered[-1]))
    return low if low == high else f"{low} to {high}"


def beside(pairs: Iterable[tuple[float, float]]) -> Found:
    """Compare values (ours, the paper's) one by one; they agree if nearly all are close."""
    known = [(ours, paper) for ours, paper in pairs if paper]
    close = sum(abs(ours - paper) <= CLOSE * paper for ours, paper in known)
    text = f"{close} of {len(known)} within {CLOSE:.0%}; ours / paper {span(ours / paper for ours, paper in known)}"
    return Found(text, close >= 0.9 * len(known))
