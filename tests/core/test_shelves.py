"""The table by sequence: against a plain dict."""

from __future__ import annotations

from random import Random

import pytest

from pushup.core.shelves import PART, BySequence


@pytest.mark.parametrize("seed", range(20))
def test_it_does_what_a_dict_does(seed: int) -> None:
    """Values are added at ever higher sequences, and removed anywhere; several parts come and go."""
    random = Random(seed)
    table: BySequence[str] = BySequence()
    plain: dict[int, str] = {}
    sequence = 0
    for _ in range(3000):
        if random.random() < 0.6 or not plain:
            sequence += random.choice((1, 1, 1, 7, PART))
            table.add(sequence, str(sequence))
            plain[sequence] = str(sequence)
        else:
            old = next(iter(plain)) if random.random() < 0.5 else random.choice(list(plain))
            table.remove(old)
            del plain[old]
        assert len(table) == len(plain)
        assert bool(table) == bool(plain)
        if plain:
            assert table.oldest == next(iter(plain.values()))
    assert list(table) == list(plain.values())
    assert table.sequences() == list(plain)
    for at in (0, sequence, *random.choices(range(sequence), k=20)):
        assert table.get(at) == plain.get(at)


def test_what_is_not_there() -> None:
    """An empty table has no oldest value; a sequence can be removed once."""
    table: BySequence[str] = BySequence()
    with pytest.raises(StopIteration):
        _ = table.oldest
    table.add(3, "three")
    table.remove(3)
    assert (table.sequences(), table.get(3)) == ([], None)
    with pytest.raises(KeyError):
        table.remove(3)
