"""The first broken promise of a history, and what it contains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from loadtest.history.checker import Checker
from loadtest.history.events import BadHistory, Begin, BrokenPromise, End, Event


class Verdict(NamedTuple):
    """What a checker makes of a history."""

    broken: str
    """The first promise that was broken; empty if none was."""
    line: int
    """The number of the event at which it was noticed, from 1; 0 if it was noticed when there were no more."""
    counts: dict[str, int]
    """How many events of each kind were read."""
    without_loss: dict[str, int]
    """Gaps without a loss, by reason."""


def check(events: Iterable[Event]) -> Verdict:
    """Judge a history. Raises: BadHistory, with the number of the line, if it is none.

    One that breaks off without an end is judged by what its subscribers' cursors have passed.
    """
    checker = Checker()
    counts: Counter[str] = Counter()
    last: Event | None = None
    broken, line = "", 0
    try:
        for line, event in enumerate(events, 1):
            if isinstance(event, Begin) != (line == 1) or isinstance(last, End):
                raise BadHistory("a history begins with `begin`, and nothing follows after `end`")
            counts[str(event.__struct_config__.tag)] += 1
            checker.take(event)
            last = event
        line = 0
        if last is None:
            raise BadHistory("it is empty")
        if not isinstance(last, End):
            checker.check_deliveries()
    except BrokenPromise as error:
        broken = str(error)
    except BadHistory as error:
        raise BadHistory(
            f"line {line}: {error}" if line and not str(error).startswith("line ") else str(error)
        ) from None
    return Verdict(broken, line if broken else 0, dict(sorted(counts.items())), dict(checker.without_loss))
