"""The planted bugs fit the source as it is now."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.planted_bugs import BUGS
from tests.planted_bugs.bug import ROOT, Bug


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_a_bug_fits(bug: Bug) -> None:
    """Each text to replace is there exactly once, and Python can read what results."""
    texts: dict[str, str] = {}
    for edit in bug.edits:
        before = texts.get(edit.file) or (ROOT / edit.file).read_text()
        after = texts[edit.file] = edit.made_in(before)
        assert after != before
    for file, text in texts.items():
        if file.endswith(".py"):
            ast.parse(text, file)


def test_names_are_used_once() -> None:
    """A name stands for one bug."""
    assert [name for name, count in Counter(bug.name for bug in BUGS).items() if count > 1] == []
