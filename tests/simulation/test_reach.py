"""The list of dangerous states, and what counts them."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.simulation.reach import STATES


def test_what_is_counted_is_listed_and_the_other_way_round() -> None:
    """Every state that a source counts is in one of the lists, and every one of those is counted somewhere."""
    counted = set()
    for path in Path(__file__).parent.glob("*.py"):
        if not path.name.startswith("test_"):
            counted |= names_reached(ast.parse(path.read_text()))
    assert sorted(counted) == sorted({state for states in STATES.values() for state in states})


def test_the_names_that_a_source_counts() -> None:
    """Calls of `reach`, by whatever it belongs to, and both sides of a conditional name."""
    source = "reach('a'); world.reach('b' if x else 'c'); tell('d'); reach(name)"
    assert names_reached(ast.parse(source)) == {"a", "b", "c"}


def names_reached(tree: ast.Module) -> set[str]:
    """The literal names that are given to `reach`."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name == "reach":
                values = [node.args[0]]
                for value in values:
                    if isinstance(value, ast.IfExp):
                        values += [value.body, value.orelse]
                found |= {value.value for value in values if isinstance(value, ast.Constant)}
    return {name for name in found if isinstance(name, str)}
