"""Idempotency keys, and the publications they stand for."""

from __future__ import annotations

from pushup.core.bounded_table import Keys, Remembered
from pushup.core.change_log import ChangeLog
from pushup.core.limits import Limits
from pushup.core.machine_rules import Rules


def published(number: int, time: float) -> Remembered:
    return Remembered(f"k{number}", "e1", number, 1, time, "f")


def keys_of(*times: float, most: int = 10) -> Keys:
    """Keys `k1`, `k2`, ... of publications at these times."""
    keys = Keys(Rules(Limits(keys_limit=most, retention_seconds=5.0)), ChangeLog(0).of("keys"))
    for number, time in enumerate(times, 1):
        keys.put(published(number, time))
    return keys


def state(keys: Keys) -> tuple[list[str | int], float | None]:
    return keys.names(), keys.next_time


def test_the_oldest_key_is_forgotten_beyond_the_limit() -> None:
    keys = keys_of(10.0, 11.0, 12.0, most=2)
    assert state(keys) == (["k2", "k3"], 16.0)
    assert (keys.row("k1"), keys.row("k3")) == (None, published(3, 12.0))


def test_keys_are_forgotten_when_they_are_due() -> None:
    """At that time exactly, up to a given number; later ones stay."""
    keys = keys_of(10.0, 11.0, 11.0, 11.5)
    keys.expire(14.9, 10)
    assert state(keys) == (["k1", "k2", "k3", "k4"], 15.0)
    keys.expire(16.0, 2)
    assert state(keys) == (["k3", "k4"], 16.0)
    keys.expire(16.0, 10)
    assert state(keys) == (["k4"], 16.5)
    keys.expire(99.0, 10)
    assert state(keys) == ([], None)
