"""What is changed in a file, and what is not; and that a mutant is killed by a test that reaches it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.explained import Explained, read
from tests.mutation.mutants import SourceFile


def changes(text: str) -> list[str]:
    return [mutant.change for mutant in SourceFile(Path("x.py"), text).mutants]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f(a, b):\n    return a < b", {"a < b  ->  a <= b", "a < b  ->  a != b", "a < b  ->  True"}),
        ("def f(a):\n    return a == 0", {"a == 0  ->  a >= 0", "a == 0  ->  a == 1"}),
        ("def f(a, b):\n    if a and not b:\n        g()", {"a and (not b)  ->  a", "a and (not b)  ->  not b"}),
        (
            "def f(a):\n    a.b = min(a, 2)",
            {"a.b = min(a, 2)  ->  pass", "min(a, 2)  ->  max(a, 2)", "min(a, 2)  ->  a"},
        ),
        ("def f():\n    g(a=1)", {"g(a=1)  ->  pass", "g(a=1)  ->  without a"}),
        ("class C:\n    limit: int = 3", {"limit: int = 3  ->  limit: int = 4"}),
        ("try:\n    f()\nexcept OSError:\n    g()", {"except OSError:  ->  raise"}),
    ],
)
def test_code_is_changed(text: str, expected: set[str]) -> None:
    """Each change that the table of the module lists is tried."""
    assert expected <= {*changes(text)}


@pytest.mark.parametrize(
    "text",
    [
        '"""A docstring."""',
        "LIMIT = 4 * 1024",
        "ENDED = -1",
        'Name = Literal["a", "b"]',
        "T = TypeVar('T')",
        "Both = A | B",
        '__slots__ = ("a", "b")',
        "def f(a: int | None) -> bool:\n    assert a == 1",
        'def check(self):\n    """Assert the invariants."""\n    f(1)',
        "if TYPE_CHECKING:\n    x = 1",
        "from typing import Protocol\nclass P(Protocol):\n    width: int = 1",
    ],
)
def test_nothing_is_changed(text: str) -> None:
    """Types, docstrings, named numbers and assertions stay as they are."""
    assert changes(text) == []


def test_texts_for_people_stay() -> None:
    """What is raised or logged loses its place, but not its words."""
    text = 'def f(log, x):\n    log.info("gone", x=1)\n    raise ValueError("bad", f"{x}")'
    assert changes(text) == ["log.info('gone', x=1)  ->  pass", "raise ValueError('bad', f'{x}')  ->  pass"]


def test_a_change_is_compiled_and_undone() -> None:
    """The code of a mutant has its change, and that of the file has none."""
    file = SourceFile(Path("x.py"), "def f(a):\n    return a + 1")
    plus = next(mutant for mutant in file.mutants if mutant.change == "a + 1  ->  a - 1")
    results = []
    for code in (file.code(), file.code(plus), file.code()):
        names: dict[str, object] = {}
        exec(code, names)
        results.append(eval("f(5)", names))
    assert results == [6, 4, 6]


def test_an_explanation_fits_its_line() -> None:
    """It names the file, the line's text and the changes."""
    (mutant, *_) = SourceFile(Path("x.py"), "def f(a):\n    return a < 2").mutants
    assert Explained("x.py", "return a < 2", ["another", mutant.change], "why").fits(mutant)
    assert not Explained("x.py", "return a < 2", ["another"], "why").fits(mutant)
    assert not Explained("x.py", "return a < 3", [mutant.change], "why").fits(mutant)
    assert not Explained("y.py", "return a < 2", [mutant.change], "why").fits(mutant)


def test_every_survivor_has_a_reason() -> None:
    """`survivors.toml` can be read, and is about files that exist."""
    assert all(e.reason and Path(__file__).parents[2].joinpath(e.file).is_file() for e in read())


@pytest.mark.processes
@pytest.mark.parametrize(("tests", "fate"), [("test_cursor.py", "killed"), ("test_idempotency_keys.py", "survivors")])
def test_a_mutant_is_killed_by_a_test_that_reaches_it(tests: str, fate: str) -> None:
    """Tests of cursors kill a mutant of cursors, inside of a function and outside; tests of keys do not."""
    path, root = Path("pushup/core/cursor.py"), Path(__file__).parents[2]
    lines = (root / path).read_text().splitlines()
    chosen = [n for n, line in enumerate(lines, 1) if "return _STARTS" in line or line.startswith("_STARTS")]
    options = [f"--line={n}" for n in chosen]
    command = [sys.executable, "-m", "tests.mutation", str(path), f"--tests=tests/core/{tests}", *options]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)
    columns = ("mutants", "killed", "explained", "survivors")
    row = next(line for line in result.stdout.splitlines() if line.startswith("together"))
    counts = dict(zip(columns, map(int, row.split()[1:5]), strict=True))
    assert counts["mutants"] == counts[fate] >= 4, result.stdout
    assert result.returncode == (1 if fate == "survivors" else 0)
