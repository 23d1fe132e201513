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


PRIVATES_AND_PATCHES = {
    "tests/broadcast/hub/test_hub_model.py": {
        "TURN_UNITS": "what a turn of the random states may do; they are small, and would be restored in one",
    },
    "tests/broadcast/redis/test_connector.py": {"_clock": "it is Twisted's; there is no other way to give it a clock"},
    "tests/core/test_bounded_tables.py": {"BOUNDED": "shows that a line there adds a table, as CONTRIBUTING.md says"},
    "tests/core/test_message_cache.py": {"EVICT_AT_MOST": "all replicas must have the same, so it is no argument"},
    "tests/core/test_restored_replicas.py": {"EXPIRE_AT_MOST": "all replicas must have the same, so it is no argument"},
    "tests/costs/server.py": {
        "select": "what is counted must not depend on a kernel",
        "monotonic": "nor on a clock",
    },
    "tests/net/test_connection_states.py": {
        "after": "sees each event of every connection where it is decided what follows",
        "(computed)": "the columns of the same table, for the events that happen most",
    },
    "tests/next_version.py": {"LATEST_VERSION": "the one place where tests have another release"},
    "tests/outbox/test_relay.py": {"POLL_SECONDS": "shows that a poke does not wait for the next look"},
    "tests/simulation/parent.py": {
        "_hand_over": "looks inside on purpose: notes that a state was handed over while something else happened",
        "_loading": "the same",
    },
    "tests/simulation/simulation.py": {
        "EXPIRE_AT_MOST": "all replicas must have the same, so it is no argument; a plan may choose it",
        "GONE_AT_MOST": "the same, and there are few members",
        "UNSENT_LIMIT_BYTES": "links are made in many places; a plan may choose it for all",
    },
    "tests/workers/test_parent.py": {
        "bind_socket": "another server has to come between two steps",
        "open_socket": "the same",
    },
}
"""Which names that are private to `pushup` tests use, and which of its modules' names they replace; and why."""

OTHERS_PRIVATES = ("group", "loadtest")
"""Folders of tests of other code, which may have private names like those of `pushup`."""

PRIVATE = re.compile(r"(?:\bself\.|\bdef |\bclass |^)(_[A-Za-z]\w*)", re.MULTILINE)


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


def test_tests_use_what_is_public() -> None:
    """They name nothing that is private to `pushup` and replace nothing in its modules, except for a reason.

    What is private can be changed then, and no test notices. See `PRIVATES_AND_PATCHES`.
    """
    private = {name for path in (ROOT / "pushup").rglob("*.py") for name in PRIVATE.findall(path.read_text())}
    private -= {"_fields", "_replace"}  # these are public in named tuples and syntax trees
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        name = path.relative_to(ROOT)
        if name.parts[1] not in OTHERS_PRIVATES:
            tree = ast.parse(path.read_text())
            used = {*privates_of_others(tree, private), *privates_inherited(tree), *replaced(tree)}
            found |= {str(name): used} if used else {}
    assert found == {path: set(reasons) for path, reasons in PRIVATES_AND_PATCHES.items()}


def test_what_is_not_public_is_found() -> None:
    """Each of the ways in which a test may get at it."""
    tree = ast.parse(
        "from pushup.broadcast.hub import hub as module\n"
        "from pushup.broadcast.hub.hub import Hub, _log\n"
        "class Mine(Hub):\n    def _beat(self): self._marks\n"
        "def f(self, hub, patch):\n"
        "    hub._saved, self._loading, hub._mine, self.hub._send\n"
        "    patch.setattr(module, 'BEAT_SECONDS', 1)\n"
        "    patch.setattr('pushup.broadcast.hub.frames.frame', 1)\n"
        "    patch.setattr(hub, 'attach', 1)\n"
        "    module.count = 1\n"
        "    hub.SOME_LIMIT = 1\n"
    )
    assert {*privates_of_others(tree, {"_saved", "_loading", "_send"})} == {"_log", "_saved", "_send"}
    assert {*privates_inherited(tree)} == {"_beat", "_marks"}
    assert {*replaced(tree)} == {"BEAT_SECONDS", "frame", "count", "SOME_LIMIT"}


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


def imports_of_pushup(tree: ast.Module) -> Iterator[tuple[str, str, Path | None]]:
    """What a module imports from `pushup`: each name there, the one that it has here, and the file that it is in.

    The file is None where the name is that of a module.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pushup":
            place = ROOT.joinpath(*str(node.module).split("."))
            for alias in node.names:
                is_module = (place / f"{alias.name}.py").exists() or (place / alias.name).is_dir()
                file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
                yield alias.name, alias.asname or alias.name, None if is_module else file


def privates_of_others(tree: ast.Module, private: set[str]) -> Iterator[str]:
    """The private names that are imported, or used of anything but `self`, `cls` and `super()`."""
    yield from (name for name, _, _ in imports_of_pushup(tree) if re.match(r"_(?!_)", name))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in private:
            of = ast.unparse(node.value)
            if of not in ("self", "cls", "super()"):
                yield node.attr


def privates_inherited(tree: ast.Module) -> Iterator[str]:
    """The private names that subclasses of classes in `pushup` use or override."""
    files = {here: file for _, here, file in imports_of_pushup(tree) if file is not None}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            bases = [ast.unparse(base).partition("[")[0] for base in node.bases]
            private = {name for base in bases if base in files for name in PRIVATE.findall(files[base].read_text())}
            yield from private.intersection(PRIVATE.findall(ast.unparse(node)))


def replaced(tree: ast.Module) -> Iterator[str]:
    """The names in modules of `pushup` that are set, by `setattr` or by assignment; and constants of anything."""
    modules = {here for _, here, file in imports_of_pushup(tree) if file is None}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if ast.unparse(node.value) in modules or node.attr.isupper():
                yield node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setattr") and node.args:
            target = node.args[0]
            if isinstance(target, ast.Constant) and str(target.value).startswith("pushup."):
                yield str(target.value).rpartition(".")[2]
            elif ast.unparse(target) in modules:
                name = node.args[1]
                yield str(name.value) if isinstance(name, ast.Constant) else "(computed)"


def listed_as(path: Path) -> str | None:
    """The name by which a docstring lists a file or subpackage; None if it need not be listed."""
    if path.is_dir():
        return path.name if (path / "__init__.py").exists() else None
    if path.suffix == ".py":
        return None if path.stem in ("__init__", "__main__") else path.stem
    return path.name if path.suffix in (".lua", ".js", ".ts", ".json", ".c", ".html", ".css") else None


def quoted_names(text: str) -> set[str]:
    """The names in backticks; a subpackage may end in a slash, a module in its suffix."""
    return {name.removesuffix("/").removesuffix(".py") for name in re.findall(r"`([\w./-]+)`", text)}


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


def test_no_file_of_the_product_is_long() -> None:
    """A file is one subject, which fits into 300 lines."""
    long = {
        path: count for path in (ROOT / "pushup").rglob("*.py") if (count := len(path.read_text().splitlines())) > 300
    }
    assert long == {}
