"""What is compiled (pyproject.toml, docs/internals/decisions/0019-compiled.md), and in which form these tests run."""

from __future__ import annotations

import ast
import importlib
import os
import tomllib
from pathlib import Path

import pytest

from pushup.host.build_form import form

ROOT = Path(__file__).parents[1]

COMPILED: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pushup"]["compiled"]


def test_these_tests_run_in_the_form_that_was_asked_for() -> None:
    """`make test-compiled` runs them with PUSHUP_FORM=compiled; otherwise PushUp is interpreted."""
    expected = os.environ.get("PUSHUP_FORM", "interpreted")
    assert form() == expected
    files = {name: importlib.import_module(name).__file__ or "" for name in COMPILED}
    assert {name for name, file in files.items() if file.endswith(".so")} == set(
        COMPILED if expected == "compiled" else ()
    )


@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_module_defines_no_struct(name: str) -> None:
    """mypyc ignores the options in a class statement, such as `frozen=True`: the Struct would have others."""
    module = ast.parse((ROOT / (name.replace(".", "/") + ".py")).read_text())
    classes = [node for node in ast.walk(module) if isinstance(node, ast.ClassDef)]
    assert not [c.name for c in classes if c.keywords or "Struct" in map(ast.unparse, c.bases)]


@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_module_names_its_logger(name: str) -> None:
    """Twisted would look for the name in the frame that calls `Logger`, and C has none."""
    assert "Logger()" not in (ROOT / (name.replace(".", "/") + ".py")).read_text()
