"""The layout of the repository: imports of test modules, package docstrings, and lists that must agree."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pushup import __version__

ROOT = Path(__file__).parents[1]

PACKAGES = sorted(
    init.parent
    for top in ("pushup", "loadtest", "deploy")
    for init in (ROOT / top).rglob("__init__.py")
    if "node_modules" not in init.parts
)

IMPORT_OF_A_TEST = re.compile(r"\bimport\b[^()\n]*(\([^)]*)?\btest_|^\s*(from|import)\b.*\btest_", re.MULTILINE)


def test_no_test_module_imports_another() -> None:
    """Code that several test modules use is in a support module, whose name does not start with test_."""
    found = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if IMPORT_OF_A_TEST.search(path.read_text())  # most have none, and parsing takes a while
        for name in imported_names(path)
        if name.startswith("tests.") and any(part.startswith("test_") for part in name.split(".")[1:3])
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.relative_to(ROOT)))
def test_a_package_docstring_lists_its_files(package: Path) -> None:
    """Each file and subpackage is named in backticks, and the table's `file` column names nothing else."""
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    files = {entry for child in package.iterdir() if (entry := listed_as(child))}
    assert not files - quoted_names(docstring), "missing from the docstring"
    in_table = {name for cell in column(docstring, "file") for name in quoted_names(cell)}
    assert not in_table - files, "listed, but does not exist"


def test_the_files_of_a_docstring() -> None:
    """Every name in backticks in the `file` column counts, wherever the column is, and no other name in the table."""
    docstring = "x\n\n| # | file | what |\n|---|---|---|\n| 1 | `a`, `b.lua` | `c` |\n\n| x |\n|---|\n| `d` |\n\n`e/`"
    assert [quoted_names(cell) for cell in column(docstring, "file")] == [{"a", "b.lua"}]
    assert quoted_names(docstring) == {"a", "b.lua", "c", "d", "e"}


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", "SECURITY.md"])
def test_files_named_at_the_top_level_exist(document: str) -> None:
    """Every path in a link or in backticks exists, and every constant named is in its file."""
    text = (ROOT / document).read_text()
    links = re.findall(r"\]\(([^)#:]+)", text)
    quoted = re.findall(r"`((?:pushup|tests|docs|loadtest|deploy)/[\w./]*)`", text)
    assert links
    missing = [path for path in (*links, *quoted) if not (ROOT / path).exists()]
    missing += [
        f"{name} in {path}"
        for name, path in re.findall(r"`([A-Z_]+)` in `([\w./]+)`", text)
        if not re.search(rf"^{name}\b", (ROOT / path).read_text(), re.MULTILINE)
    ]
    assert not missing


def test_the_changelog_has_the_version() -> None:
    """Unreleased changes come first, then dated versions, newest first; one of them is the current version."""
    headings = re.findall(r"^## (.*)$", (ROOT / "docs" / "changelog.md").read_text(), re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    versions = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - (\d{4}-\d{2}-\d{2})", heading) for heading in headings[1:]]
    found = [(version[2], version[1]) for version in versions if version]
    assert len(found) == len(versions)
    assert found == sorted(found, reverse=True)
    assert __version__ in [version for _, version in found]


def test_pre_commit_runs_what_make_lint_runs() -> None:
    """The same commands in the same order."""
    recipe = (ROOT / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0].splitlines()[1:]
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert [hook["entry"] for hook in hooks] == [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe]


def imported_names(path: Path) -> Iterator[str]:
    """The full names of everything that a module imports: modules, and the names imported from them."""
    package = ".".join(path.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield from (f"{module}.{alias.name}" for alias in node.names)


def listed_as(path: Path) -> str | None:
    """The name by which a docstring lists a file or subpackage; None if it need not be listed."""
    if path.is_dir():
        return path.name if (path / "__init__.py").exists() else None
    if path.suffix == ".py":
        return None if path.stem in ("__init__", "__main__") else path.stem
    return path.name if path.suffix in (".lua", ".js", ".ts", ".json", ".c") else None


def quoted_names(text: str) -> set[str]:
    """The names in backticks; a subpackage may end in a slash, a module in its suffix."""
    return {name.removesuffix("/").removesuffix(".py") for name in re.findall(r"`([\w./]+)`", text)}


def column(docstring: str, heading: str) -> Iterator[str]:
    """The cells below a heading, in every table that has it."""
    index: int | None = None
    header = True
    for line in docstring.splitlines():
        if not line.startswith("|"):
            index, header = None, True
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if header:
            index, header = (cells.index(heading) if heading in cells else None), False
        elif index is not None and set(cells[index]) != {"-"}:
            yield cells[index]
