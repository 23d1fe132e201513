"""The files of the Helm chart agree with each other and with the project; tests/deploy/test_chart.py renders it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from pushup.net.api.browser_client import NAMES

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy" / "chart"


def rows() -> Iterator[str]:
    """The table of the README: each value with its default, and the comment above it."""
    comment: list[str] = []
    group = ""
    for line in (CHART / "values.yaml").read_text().splitlines():
        text = line.strip()
        if text.startswith("#"):
            comment.append(text.removeprefix("# "))
        elif not text:
            comment.clear()
        elif found := re.match(r"( {0,2})(\w+):(.*)", line):
            if comment:
                group = group if found[1] else ""
                name = f"{group}{found[2]}"
                yield f"| `{name}` | `{json.dumps(default(name))}` | {' '.join(comment)} |"
                comment.clear()
            elif not found[1]:
                group = f"{found[2]}."


def default(name: str) -> Any:
    value = yaml.safe_load((CHART / "values.yaml").read_text())
    for part in name.split("."):
        value = value[part]
    return value


def names(values: dict[str, Any], schema: dict[str, Any], shared: Any, path: str = "") -> Iterator[tuple[str, bool]]:
    """Each value that has a default, and whether the schema knows it; the schema's further names as well.

    `shared`: the definitions that the schema refers to.
    """
    properties = schema["properties"]
    for name in values.keys() | properties.keys() - {"global"}:
        yield path + name, name in values and name in properties
        inner = properties.get(name, {})
        if "$ref" in inner:
            inner = shared[inner["$ref"].removeprefix("#/definitions/")]
        if "properties" in inner:
            yield from names(values[name], inner, shared, f"{path}{name}.")


def test_the_table_in_the_readme_has_all_values() -> None:
    """Each value, its default and its meaning, as values.yaml has them."""
    table = re.search(
        r"\| value \| default \| meaning \|\n\|---\|---\|---\|\n(.*?)\n\n", (CHART / "README.md").read_text(), re.S
    )
    assert table is not None
    assert table[1] == "\n".join(rows())


def test_the_schema_knows_all_values_and_no_others() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert [name for name, known in names(values, schema, schema["definitions"]) if not known] == []


def test_the_image_is_the_one_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert default("image.repository") == project["tool"]["pushup"]["image"]


def test_scripts_are_reached_from_outside() -> None:
    """The Ingress passes the paths of all of them on."""
    listed = re.search(r"range list (.*) }}", (CHART / "templates" / "ingress.yaml").read_text())
    assert listed is not None
    assert {*NAMES} == {name for name in json.loads(f"[{listed[1].replace(' ', ',')}]") if name.endswith(".js")}
