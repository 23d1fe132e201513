"""What was lost on the way to a tab, what came twice, and how soon the tab was up to date."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class Verdict(NamedTuple):
    """What became of the messages in one tab.

    lost: never shown, though they were acknowledged
    repeated: shown again
    out_of_order: shown after one that was published later, not counting repetitions
    gaps: what the page was told that it missed
    late: for each moment from which on the tab should be current: how long it took until it was, in seconds. That is
        the longest time that a message took after that moment to be shown, from its acknowledgement, or from the
        moment if that is later. Up to the next moment; what is never shown does not count
    """

    lost: int
    repeated: int
    out_of_order: int
    gaps: int
    late: tuple[float, ...]


def judge(
    acknowledged: Sequence[float], told: Sequence[tuple[str, object, float]], moments: Sequence[float]
) -> Verdict:
    """
    acknowledged: when each message was, in seconds since the epoch; the messages are numbers from 0
    told: what the page was told, in this order: `message` or `gap`, its content, the time in milliseconds
    moments: in seconds since the epoch
    """
    shown: dict[int, float] = {}
    repeated = out_of_order = 0
    latest = -1
    for kind, value, at in told:
        if kind != "message" or not isinstance(value, int):
            continue
        if value in shown:
            repeated += 1
            continue
        out_of_order += value < latest
        latest = max(latest, value)
        shown[value] = at / 1000
    late = []
    for moment, end in pairwise([*sorted(moments), math.inf]):
        waits = [at - max(acknowledged[number], moment) for number, at in shown.items() if acknowledged[number] < end]
        late += [max(0.0, *waits)] if waits else []
    return Verdict(
        lost=len(acknowledged) - len(shown),
        repeated=repeated,
        out_of_order=out_of_order,
        gaps=sum(kind == "gap" for kind, _, _ in told),
        late=tuple(late),
    )
