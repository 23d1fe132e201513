"""The names of epochs and their order."""

from __future__ import annotations

import pytest

from pushup.core.cursor import next_epoch, order_of

NOW = 1_800_000_000.5


@pytest.mark.parametrize(("random", "digits"), [(0.0, "000000"), (0.5, "800080"), (0.99999, "ffffff")])
def test_a_name_is_the_time_and_random_digits(random: float, digits: str) -> None:
    """In milliseconds; so two machines that begin one at the same time hardly choose the same name."""
    assert next_epoch("", NOW, lambda: random, "") == f"{1_800_000_000_500:x}{digits}"


def test_names_in_one_cluster_have_its_digits() -> None:
    """Those of its first name; only the last two are random in each."""
    cluster = next_epoch("", NOW, lambda: 0.5, "")
    assert next_epoch(cluster, NOW + 1.0, lambda: 0.0, cluster) == f"{1_800_000_001_500:x}800000"
    assert next_epoch("", NOW, lambda: 0.0, "e1") == f"{1_800_000_000_500:x}000000", "the names of tests have none"


def test_each_name_is_later_than_the_one_before() -> None:
    """However often there is a new one, whatever the random digits, and if the clock was set back."""
    after = next_epoch("", NOW, lambda: 0.9, "")
    for n in range(1000):
        name = next_epoch(after, NOW - 3600.0 * (n % 2), lambda: 0.0, after)
        assert order_of(name) > order_of(after)
        assert int(name[:-6], 16) == int(after[:-6], 16) + 1
        after = name
    assert next_epoch(after, NOW + 60.0, lambda: 0.0, "") == f"{1_800_000_060_500:x}000000"


def test_a_longer_name_is_later() -> None:
    """Those of tests are numbered, and shorter than real ones."""
    names = ["", "e1", "e9", "e10", "ffffffff", "fffffffffffff", next_epoch("fffffffffffff", NOW, lambda: 0.0, "")]
    assert sorted({*names}, key=order_of) == names
