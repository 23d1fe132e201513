"""The history in docs/internals/histories.md, and its lists."""

from __future__ import annotations

import re
from pathlib import Path

from loadtest.history.events import Event
from loadtest.history.file import read_history
from loadtest.history.verdict import check

DOCUMENT = (Path(__file__).parents[2] / "docs" / "internals" / "histories.md").read_text()
SAMPLE = DOCUMENT.partition("```json\n")[2].partition("```")[0]


def verdict(tmp_path: Path, text: str) -> str:
    (tmp_path / "h").write_text(text)
    return check(read_history(tmp_path / "h")).broken


def test_the_sample(tmp_path: Path) -> None:
    """It keeps every promise, and what the text says of two changes is true."""
    two = ', {"id": "k3f9-2", "channels": ["a"], "data": "two"}'
    gap = ', {"channel": "b", "reason": "lost"}'
    assert (SAMPLE.count(two), SAMPLE.count(gap)) == (1, 1)
    assert verdict(tmp_path, SAMPLE) == ""
    assert verdict(tmp_path, SAMPLE.replace(gap, "")) == ""
    assert verdict(tmp_path, SAMPLE.replace(two, "")).startswith("delivered or covered by a gap: s1 ")


def test_every_kind_of_event_is_described_with_its_fields() -> None:
    """Each row of the table names the fields of one kind, and no others."""
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| .* \| (.*) \|$", DOCUMENT, re.MULTILINE))
    kinds = {str(kind.__struct_config__.tag): kind for kind in Event.__args__}
    assert rows.keys() == kinds.keys()
    for name, kind in kinds.items():
        assert all(f"`{field}`" in rows[name] for field in kind.__struct_fields__[1:]), name


def test_every_reason_is_described() -> None:
    """What the checker counts as gaps without a loss is in the document, word by word."""
    folder = Path(__file__).parents[2] / "loadtest" / "history"
    reasons = re.findall(r'self\._count\("([^"]*)"\)', (folder / "checker.py").read_text())
    assert len(set(reasons)) == 8
    assert all(f"| {reason} |" in DOCUMENT for reason in reasons)
