"""What the experiment with kills calls a fault."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.outbox.kills import Result


@pytest.mark.parametrize(
    ("seen", "faults"),
    [
        ([("a-0", None), ("b-0", "a-0"), ("a-1", "b-0")], []),
        ([("a-0", None), ("b-0", "a-0")], ["a-1 is missing"]),
        ([("a-0", None), ("b-0", "a-1"), ("a-1", None)], ["b-0 before a-1"]),
        ([("a-1", None), ("a-0", None), ("b-0", None)], ["a-0 after a later one of its writer"]),
        (
            [("a-0", None), ("a-1", None), ("b-0", None), ("b-0", None)],
            ["b-0 after a later one of its writer", "b-0 2 times"],
        ),
        (
            [("a-0", None), ("a-1", None), ("b-0", None), ("b-rolled-back-1", None)],
            ["b-rolled-back-1 was not committed"],
        ),
    ],
    ids=["none", "missing", "order", "order of a writer", "twice", "rolled back"],
)
def test_faults(seen: list[tuple[str, str | None]], faults: list[str]) -> None:
    """Missing, twice, not committed, or out of the promised order."""
    messages: list[dict[str, Any]] = [{"name": name, "after": after} for name, after in seen]
    result = Result({"a-0", "a-1", "b-0"}, {"poll": messages}, 0, Counter(), 0)
    assert result.faults() == [f"poll: {fault}" for fault in faults]
