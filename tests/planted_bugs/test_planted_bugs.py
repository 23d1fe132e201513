"""The planted bugs fit the source as it is now, and some of them are tried."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.planted_bugs import BUGS
from tests.planted_bugs.bug import ROOT, Bug, DoesNotFit, Edit
from tests.planted_bugs.hunting import Hunt, Known, Outcome, try_bug
from tests.simulation.seeds import run_seed

QUICK = ("caught-up-too-early", "cursor-not-advanced", "output-without-limit")


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_a_bug_fits(bug: Bug) -> None:
    """Each text to replace is there exactly once, Python can read what results, and the test that sees it exists."""
    assert (ROOT / bug.test.partition("::")[0]).exists(), bug.test
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


def test_each_bug_is_documented() -> None:
    """Once, in one of the tables; and nothing else is."""
    page = (ROOT / "docs" / "lab" / "planted-bugs.md").read_text().partition("## The defences")[0]
    assert sorted(re.findall(r"^\| `([^`]*)` \|", page, re.MULTILINE)) == sorted(bug.name for bug in BUGS)


@pytest.mark.long
@pytest.mark.processes
@pytest.mark.parametrize("name", QUICK)
def test_a_bug_is_found(name: str) -> None:
    """Those that few seeds find; `python -m tests.planted_bugs` tries all, which takes hours."""
    (bug,) = (bug for bug in BUGS if bug.name == name)
    outcome = try_bug(bug, seeds=25, repeat=1, known=Known(None))
    assert outcome.is_found
    assert bug.test or not run_seed(outcome.seeds[0]).broken


@pytest.mark.long
@pytest.mark.processes
def test_what_is_no_bug_is_not_found() -> None:
    """Neither the copy nor the change alone breaks a promise, or fails a test."""
    harmless = Bug("harmless", "", "", (Edit("pushup/core/poll.py", "import math\n", "import math \n"),))
    assert not try_bug(harmless, seeds=2, repeat=1, known=Known(None)).is_found
    with_test = harmless._replace(test="tests/core/test_cursor.py")
    assert not try_bug(with_test, seeds=2, repeat=1, known=Known(None)).is_found


def test_a_text_that_has_changed() -> None:
    """A change of the source that a bug does not fit any more is an error, and so is a text that is there twice."""
    with pytest.raises(DoesNotFit, match="0 times"):
        Edit("x", "a", "b").made_in("c")
    with pytest.raises(DoesNotFit, match="2 times"):
        Edit("x", "a", "b").made_in("aa")


def test_the_median_of_several_starting_points(tmp_path: Path) -> None:
    """A starting point from which it was not found counts as more than all seeds; results are kept in a file."""
    known = Known(tmp_path / "known")
    for number, (seeds, broken) in enumerate([(3, "x: y"), (200, ""), (7, "z: y")]):
        known.add("name", number, Hunt(seeds, str(number), broken))
    again = Known(tmp_path / "known")
    hunts = [again["name", number] for number in range(3)]
    outcome = Outcome(BUGS[0], tuple(hunts), 200)
    assert (outcome.median, outcome.is_found, outcome.seeds) == (7, True, ["0", "2"])
    assert "| x; z | 7 | 3, >200, 7 | 0 |" in outcome.row
    assert Outcome(BUGS[0], (hunts[0], hunts[1], hunts[1]), 200).median is None
