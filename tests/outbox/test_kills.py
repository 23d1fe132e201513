"""What the experiment with kills calls a fault."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.outbox.kills import Result, Seen

GAP = None


@pytest.mark.parametrize(
    ("seen", "faults"),
    [
        ([("a-0", None), ("b-0", "a-0"), ("a-1", "b-0")], []),
        ([("a-0", None), ("b-0", "a-0")], ["a-1 is missing"]),
        ([("a-0", None), ("b-0", "a-1"), ("a-1", None)], ["b-0 before a-1"]),
        ([("a-1", None), ("a-0", None), ("b-0", None)], ["a-0 after a later one of its writer"]),
        (
            [("a-0", None), ("a-1", None), ("b-0", None), ("b-0", None)],
            ["b-0 after a later one of its writer", "b-0 twice"],
        ),
        (
            [("a-0", None), ("a-1", None), ("b-0", None), ("b-rolled-back-1", None)],
            ["b-rolled-back-1 was not committed"],
        ),
        ([("a-0", None), GAP, ("b-0", "a-0")], []),
        ([GAP, ("a-0", None), ("b-0", "a-0")], ["a-1 is missing"]),
        ([("a-0", None), ("b-0", None), GAP, ("b-0", None), ("a-1", None)], []),
        (
            [GAP, ("a-0", None), ("b-0", None), ("b-0", None), ("a-1", None)],
            ["b-0 after a later one of its writer", "b-0 twice"],
        ),
        ([GAP, ("a-1", None), ("a-0", None), ("b-0", None)], ["a-0 after a later one of its writer"]),
    ],
    ids=[
        "none",
        "missing",
        "order",
        "order of a writer",
        "twice",
        "rolled back",
        "missing beside a gap",
        "missing elsewhere",
        "twice around a gap",
        "twice elsewhere",
        "order after a gap",
    ],
)
def test_faults(seen: list[tuple[str, str | None] | None], faults: list[str]) -> None:
    """Missing, twice, not committed, or out of the promised order, unless a gap that was told explains it."""
    messages: Seen = [GAP if each is None else {"name": each[0], "after": each[1]} for each in seen]
    result = Result({"a-0", "a-1", "b-0"}, {"poll": messages}, Counter(), 0)
    assert result.faults() == [f"poll: {fault}" for fault in faults]
