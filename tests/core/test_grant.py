"""Grants: which channels a right is for, and what counts where."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pushup.core.grant import EVERYTHING, NOTHING, Grant, Scope, to_read

names = st.text("ab:7", min_size=1, max_size=4)


@given(st.frozensets(names), st.lists(names), st.lists(names))
def test_a_scope(exact: frozenset[str], prefixes: list[str], channels: list[str]) -> None:
    """It has the channels with its names and those that begin with its prefixes, and it covers all or none."""
    scope = Scope(exact, tuple(prefixes))
    inside = [c for c in channels if c in exact or any(c[: len(prefix)] == prefix for prefix in prefixes)]
    assert scope.covers(channels) == (inside == channels)
    assert EVERYTHING.covers(channels)
    assert Scope().covers(channels) == (not channels)


def test_a_right_is_for_its_own_channels() -> None:
    """No right lends its scope to another, and one that is missing is for no channel, nor for none."""
    grant = Grant({"read": Scope(frozenset("a")), "publish": Scope(prefixes=("b",))})
    assert grant.allows("read", ("a",))
    assert grant.allows("publish", ("b", "bb"))
    assert not grant.allows("read", ("b",))
    assert not grant.allows("publish", ("a",))
    assert not grant.allows("operate", ())
    assert not NOTHING.allows("read", ())


def test_a_grant_to_read() -> None:
    grant = to_read(("a", "b"), subject="mei", issued_at=1, valid_until=2)
    assert (grant.subject, grant.issued_at, grant.valid_until) == ("mei", 1, 2)
    assert grant.allows("read", ("b", "a", "b"))
    assert not grant.allows("read", ("a", "ab"))
    assert not grant.allows("publish", ("a",))
