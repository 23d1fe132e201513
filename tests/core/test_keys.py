"""Idempotency keys, and the publications they stand for."""

from __future__ import annotations

from pushup.core.keys import Keys, Remembered
from pushup.core.limits import Limits
from pushup.core.rules import Rules


def published(sequence: int, time: float) -> Remembered:
    return Remembered("e1", sequence, 1, time, "f")


def keys_of(*times: float, most: int = 10) -> Keys:
    """Keys `k1`, `k2`, ... of publications at these times."""
    keys = Keys(Rules(Limits(keys_limit=most)))
    for number, time in enumerate(times, 1):
        keys.add(f"k{number}", published(number, time))
    return keys


def state(keys: Keys) -> tuple[list[str], float | None]:
    return [key for key, _ in keys.items()], keys.oldest_time


def test_a_key_returns_its_publication() -> None:
    """A key that was added is found, another one is not."""
    keys = keys_of(10.0, 11.0)
    assert keys.get("k1") == published(1, 10.0)
    assert keys.get("k2") == published(2, 11.0)
    assert keys.get("k3") is None


def test_the_oldest_key_is_forgotten_beyond_the_limit() -> None:
    """Only the newest keys up to the limit are remembered."""
    keys = keys_of(10.0, 11.0, 12.0, most=2)
    assert state(keys) == (["k2", "k3"], 11.0)
    assert keys.get("k1") is None


def test_keys_of_one_sequence_are_forgotten_together() -> None:
    """A checkpoint says only at which sequence the keys begin, and all nodes must have the same."""
    for forget in ("expired", "pushed out"):
        keys = Keys(Rules(Limits(keys_limit=3)))
        for name, sequence in (("a", 1), ("b", 2), ("c", 2), ("d", 3)):
            keys.restore(name, published(sequence, 10.0))
        if forget == "expired":
            keys.expire(10.0, 2)
        else:
            keys.add("e", published(4, 11.0))
        assert state(keys)[0][:1] == ["d"]


def test_keys_are_forgotten_up_to_a_time() -> None:
    """Keys from that time or earlier are forgotten, up to a given number; later ones stay."""
    keys = keys_of(10.0, 11.0, 11.0, 11.5)
    keys.expire(9.9, 10)
    assert state(keys) == (["k1", "k2", "k3", "k4"], 10.0)
    keys.expire(11.0, 2)
    assert state(keys) == (["k3", "k4"], 11.0)
    keys.expire(11.0, 10)
    assert state(keys) == (["k4"], 11.5)
    keys.expire(99.0, 10)
    assert state(keys) == ([], None)
