"""What the experiment with kills calls a fault."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.outbox.kills import Result, Seen

GAP = None

Names = list[tuple[str, str | None] | None]
"""Of messages that were seen, each with the one that it names; or a gap."""

CASES: dict[str, tuple[Names, list[str]]] = {
    "none": ([("a-0", None), ("b-0", "a-0"), ("a-1", "b-0")], []),
    "missing": ([("a-0", None), ("b-0", "a-0")], ["a-1 is missing"]),
    "order": ([("a-0", None), ("b-0", "a-1"), ("a-1", None)], ["b-0 before a-1"]),
    "order of a writer": ([("a-1", None), ("a-0", None), ("b-0", None)], ["a-0 after a later one of its writer"]),
    "twice": (
        [("a-0", None), ("a-1", None), ("b-0", None), ("b-0", None)],
        ["b-0 after a later one of its writer", "b-0 twice"],
    ),
    "rolled back": (
        [("a-0", None), ("a-1", None), ("b-0", None), ("b-rolled-back-1", None)],
        ["b-rolled-back-1 was not committed"],
    ),
    "missing beside a gap": ([("a-0", None), GAP, ("b-0", "a-0")], []),
    "missing elsewhere": ([GAP, ("a-0", None), ("b-0", "a-0")], ["a-1 is missing"]),
    "twice around a gap": ([("a-0", None), ("b-0", None), GAP, ("b-0", None), ("a-1", None)], []),
    "twice elsewhere": (
        [GAP, ("a-0", None), ("b-0", None), ("b-0", None), ("a-1", None)],
        ["b-0 after a later one of its writer", "b-0 twice"],
    ),
    "order after a gap": (
        [GAP, ("a-1", None), ("a-0", None), ("b-0", None)],
        ["a-0 after a later one of its writer"],
    ),
}


@pytest.mark.parametrize(("seen", "faults"), CASES.values(), ids=CASES)
def test_faults(seen: Names, faults: list[str]) -> None:
    """Missing, twice, not committed, or out of the promised order, unless a gap that was told explains it."""
    messages: Seen = [GAP if each is None else {"name": each[0], "after": each[1]} for each in seen]
    result = Result({"a-0", "a-1", "b-0"}, {"poll": messages}, Counter(), 0)
    assert result.faults() == [f"poll: {fault}" for fault in faults]
