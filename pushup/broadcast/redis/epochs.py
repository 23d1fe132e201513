"""The names of epochs: they have an order, so that an epoch that was over is known when Redis comes back with it."""

from __future__ import annotations

import secrets


def age(epoch: str) -> tuple[int, str]:
    """Epochs in the order in which they were begun."""
    return len(epoch), epoch


def next_epoch(after: str, now: float) -> str:
    """A name for an epoch that is later than this one: hexadecimal milliseconds, and two digits by chance.

    Redis may come back with the log of an epoch that was over, and so it can be told. No name is used twice.
    """
    began = max(int(now * 1000), int(after[:-2] or "0", 16) + 1)
    return f"{began:x}{secrets.token_hex(1)}"


def beginning(epoch: str) -> float | None:
    """When an epoch of this name began, by the clock of whoever began it; None if it is not such a name."""
    try:
        return int(epoch[:-2], 16) / 1000
    except ValueError:
        return None
