"""The pages of the site, made from the files of the repository, which stay as they are.

docs/README.md decides what is a page, and where in the navigation: it lists all questions, and each of its sections is
a part. So there is no second list.
"""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FORGE: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Homepage"]

# Files are named by their path in the repository, with slashes.
FRONT = "README.md"
QUESTIONS = "docs/README.md"
SCHEMA = "docs/guide/openapi.yaml"
RECIPES = "docs/start/recipes"
DECISIONS = "docs/internals/decisions"

_CODE = r"^ *(?P<fence>```+).*?^ *(?P=fence)|`[^`\n]*`"
_LINK = r"(?P<name>\[[\w./-]+\.(?:md|yaml))?\]\((?P<path>[^)#:\s]+)(?P<anchor>#[^)]*)?\)"
_CODE_OR_LINK = re.compile(f"{_CODE}|{_LINK}", re.MULTILINE | re.DOTALL)
"""A sample of code, which is left alone, or a link to a file; `name` is "[http.md" if its text is a file's name."""

_CODE_OR_PICTURE = re.compile(
    _CODE + r'|(?<= src=")(?P<src>[^":]+)|(?<= srcset=")(?P<srcset>[^":]+)', re.MULTILINE | re.DOTALL
)
"""A sample of code, or a file that HTML shows."""


def stage(out: Path, ref: str) -> None:
    """Write all pages to this new folder. `ref`: the branch or tag on the forge where their links lead.

    Raises: FileNotFoundError if a page refers to a file that does not exist.
    """
    parts = _parts()
    on_site = {FRONT, QUESTIONS, *_files(RECIPES, "*.md"), *_files(DECISIONS, "*.md")}
    on_site.update(*(_files("docs", pattern) for pattern in ("**/*.svg", "**/*.webp")))
    on_site.update(*(files for _title, files in parts))
    for file in on_site - {DECISIONS}:
        there = out / _place(file)
        there.parent.mkdir(parents=True, exist_ok=True)
        if file == SCHEMA:
            there.write_text(_schema_page())
        elif file.endswith(".md"):
            there.write_text(_with_links(file, on_site, ref))
        else:
            shutil.copy(ROOT / file, there)
    (out / _place(DECISIONS)).write_text("# Decisions\n\nWhy is it built this way?\n")
    _add_contents(out, DECISIONS, _files(DECISIONS, "*.md"))
    _add_contents(out, f"{RECIPES}/README.md", _files(RECIPES, "[a-z]*.md"), ":hidden:")
    _add_contents(out, FRONT, [QUESTIONS], ":hidden:")
    for title, files in parts:
        _add_contents(out, FRONT, files, f":caption: {title}\n:hidden:")


def _parts() -> list[tuple[str, list[str]]]:
    """The title of each section of the list of questions, and the files it leads to, each of them once."""
    parts, seen = [], {FRONT}
    for section in (ROOT / QUESTIONS).read_text().split("\n## ")[1:]:
        files = [_resolved(QUESTIONS, path) for path in re.findall(r"\]\(([^)#:\s]+)", section)]
        parts.append((section.partition("\n")[0], [file for file in dict.fromkeys(files) if file not in seen]))
        seen.update(files)
    return parts


def _place(file: str) -> str:
    """Where a page is on the site."""
    special = {QUESTIONS: "questions.md", SCHEMA: "guide/openapi.md", DECISIONS: "internals/decisions/index.md"}
    place = special.get(file, file.removeprefix("docs/").replace("README.md", "index.md"))
    return place if "/" in place else place.lower()


def _with_links(file: str, on_site: set[str], ref: str) -> str:
    """The text of a file, in which each link leads to a page of the site, or else to the forge."""

    def led(path: str) -> str:
        target = _resolved(file, path)
        if target in on_site:
            return os.path.relpath(_place(target), os.path.dirname(_place(file)) or ".")
        if not (ROOT / target).exists():
            raise FileNotFoundError(f"{file} leads to {target}, which does not exist")
        return f"{FORGE}/{'tree' if (ROOT / target).is_dir() else 'blob'}/{ref}/{target}"

    def replaced(found: re.Match[str]) -> str:
        name, path, anchor = found["name"] or "", found["path"], found["anchor"] or ""
        if path is None:
            return found[0]
        if name and _resolved(file, path) in on_site:
            name = "["  # Sphinx shows the title of a page instead of nothing
        return f"{name}]({led(path)}{anchor})"

    text = _CODE_OR_LINK.sub(replaced, (ROOT / file).read_text())
    return _CODE_OR_PICTURE.sub(lambda found: led(found[0]) if found["src"] or found["srcset"] else found[0], text)


def _schema_page() -> str:
    """The calls of openapi.yaml in a table, and the file itself."""
    text = (ROOT / SCHEMA).read_text()
    paths: dict[str, dict[str, Any]] = yaml.safe_load(text)["paths"]
    table = ["| call | what it does | needs |", "|---|---|---|"]
    for path, calls in paths.items():
        for method, call in calls.items():
            if method != "parameters":
                needs = "a publish key" if "security" in call else ""
                table.append(f"| `{method.upper()} {path}` | {call['summary']} | {needs} |")
    question = (
        "Is there a schema for programs? This one, of OpenAPI 3.2. Publish keys are needed if the server has any."
    )
    return "\n".join(["# OpenAPI", "", question, "", *table, "", "```yaml", f"{text}```", ""])


def _add_contents(out: Path, page: str, files: list[str], options: str = "") -> None:
    """Add a list of pages to a page, for Sphinx's navigation."""
    start = os.path.dirname(_place(page)) or "."
    lines = [os.path.relpath(_place(file), start) for file in files]
    with (out / _place(page)).open("a") as there:
        there.write("\n".join(["", "```{toctree}", options, "", *lines, "```", ""]))


def _files(folder: str, pattern: str) -> list[str]:
    return sorted(file.relative_to(ROOT).as_posix() for file in (ROOT / folder).glob(pattern))


def _resolved(file: str, path: str) -> str:
    """The file of the repository that a link in another one leads to."""
    return os.path.normpath(os.path.join(os.path.dirname(file), path))
