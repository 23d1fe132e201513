"""Hypothesis tries the same examples in every run, whatever else has been imported."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def _examples() -> list[int]:
    tried: list[int] = []

    @settings(max_examples=200)
    @given(st.integers())
    def collect(number: int) -> None:
        tried.append(number)

    collect()
    return tried


def test_examples_do_not_depend_on_other_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that runs alone gets the same examples as in the whole suite."""
    before = _examples()
    module = ModuleType("imported_later")
    module.__file__ = str(tmp_path / "imported_later.py")
    Path(module.__file__).write_text("NUMBERS = (123_456_789, 987_654_321)\n")
    monkeypatch.setitem(sys.modules, "imported_later", module)
    assert _examples() == before
