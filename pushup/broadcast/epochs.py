"""The names of epochs. They are ordered, so that a log that was put back to an earlier epoch is recognized.

A cluster is named by its first epoch, and keeps that name through all later ones.
"""

from __future__ import annotations

from collections.abc import Callable


def order_of(epoch: str) -> tuple[int, str]:
    """A sort key: the later epoch has the larger one."""
    return len(epoch), epoch


def next_epoch(after: str, now: float, random: Callable[[], float], cluster: str) -> str:
    """A new name that is later than `after`: the time in hexadecimal milliseconds, four digits, and two random ones.

    The four are those of the cluster's name; random if it has none yet (`cluster` is empty), which is this one then.
    `now`: seconds since the epoch, on the wall clock. Later even if that was set back. `random` returns a number in
    [0, 1). Names of 0.1 (eight hexadecimal digits) are earlier than all of these.
    """
    try:
        later = int(after[:-6] or "0", 16) + 1
    except ValueError:
        later = 0  # no epoch has such a name
    began = max(int(now * 1000), later)
    lineage = cluster[-6:-2] or f"{int(65536 * random()):04x}"
    return f"{began:x}{lineage:0>4}{int(256 * random()):02x}"


def is_of_one_cluster(epoch: str, other: str) -> bool:
    """Whether both may be epochs of one cluster: their names have the same four digits of it."""
    return epoch[-6:-2] == other[-6:-2]
