"""The names of epochs. They are ordered, so that a log that was put back to an earlier epoch is recognized."""

from __future__ import annotations

from collections.abc import Callable


def order_of(epoch: str) -> tuple[int, str]:
    """A sort key: the later epoch has the larger one."""
    return len(epoch), epoch


def next_epoch(after: str, now: float, random: Callable[[], float]) -> str:
    """A new name that is later than `after`: the time in hexadecimal milliseconds and two random digits.

    `now`: seconds since the epoch, on the wall clock. Later even if that was set back. `random` returns a number in
    [0, 1). Names of 0.1 (eight hexadecimal digits) are earlier than all of these.
    """
    try:
        later = int(after[:-2] or "0", 16) + 1
    except ValueError:
        later = 0  # no epoch has such a name
    began = max(int(now * 1000), later)
    return f"{began:x}{int(256 * random()):02x}"
