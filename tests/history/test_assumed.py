"""How long messages may have been kept at least, when policies differ between channels and change."""

from __future__ import annotations

import pytest

from loadtest.history.assumed import Assumed
from pushup.core.limits import ChannelPolicy, Limits

POLICIES = (
    ChannelPolicy(prefix="a", retention_seconds=20.0),
    ChannelPolicy(prefix="ab", retention_seconds=5.0, channel_ttl_seconds=7.0),
    ChannelPolicy(prefix="c"),
)
LIMITS = Limits(retention_seconds=10.0, channel_ttl_seconds=30.0, channels=POLICIES)


@pytest.mark.parametrize(
    ("channels", "seconds"),
    [(("a",), 20.0), (("ab",), 5.0), (("abc",), 5.0), (("c",), 10.0), (("x",), 10.0), (("ab", "x", "a"), 20.0)],
)
def test_the_longest_prefix_and_the_longest_retention(channels: tuple[str, ...], seconds: float) -> None:
    """Of several policies the one with the longest prefix, of several channels the one that keeps it longest."""
    assert Assumed(LIMITS).message_seconds(channels) == seconds


def test_a_message_stays_in_its_class() -> None:
    """If it was published as one of `ab`, and that policy is gone, the next longest prefix counts."""
    assumed = Assumed(LIMITS)
    assert assumed.message_seconds(("a", "x")) == 20.0
    assumed.add(Limits(retention_seconds=10.0, channels=(ChannelPolicy(prefix="a", retention_seconds=3.0),)))
    assert assumed.message_seconds(("ab",)) == 3.0
    assert assumed.message_seconds(("x",)) == 10.0
    assert assumed.message_seconds(("a", "x")) == 3.0  # published before the change, and expired by what holds after it


def test_the_smallest_of_all() -> None:
    """Of closed channels nobody knows which they were."""
    assumed = Assumed(LIMITS)
    assert (assumed.closed_seconds, assumed.channel_ttl_seconds, assumed.key_seconds) == (5.0, 7.0, 10.0)
    assumed.add(Limits(retention_seconds=2.0, channel_ttl_seconds=6.0, keys_limit=3, channels_limit=4))
    assert (assumed.closed_seconds, assumed.channel_ttl_seconds, assumed.key_seconds) == (2.0, 6.0, 2.0)
    assert (assumed.keys_limit, assumed.channels_limit) == (3, 4)
