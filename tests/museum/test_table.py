"""The table in docs/lab/museum.md lists exactly the scenarios, and each has a section with a link to the report."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__)
DOCUMENT = (HERE.parents[2] / "docs" / "lab" / "museum.md").read_text()
ROWS = re.findall(r"^\| \[.*?\]\((#.*?)\) \| .* \| (.*) \|$", DOCUMENT, re.MULTILINE)


def scenarios() -> list[str]:
    modules = [ast.parse(path.read_text()) for path in HERE.parent.glob("test_*.py") if path != HERE]
    functions = [node.name for module in modules for node in module.body if isinstance(node, ast.FunctionDef)]
    return [name for name in functions if name.startswith("test_")]


def test_the_table_lists_the_tests() -> None:
    """Each test once."""
    listed = [name for _, names in ROWS for name in re.findall(r"`(\w+)`", names)]
    assert sorted(listed) == sorted(scenarios())


def test_each_report_has_a_section_with_its_link() -> None:
    """In the order of the table."""
    sections = re.findall(r"^## (.*)\n\n\[[\w./-]+#\d+\]\(https://github\.com/[\w./-]+/\d+\)", DOCUMENT, re.MULTILINE)
    assert ["#" + title.lower().replace(" ", "-") for title in sections] == [anchor for anchor, _ in ROWS]
