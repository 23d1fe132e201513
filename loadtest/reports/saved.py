"""Reads the tables that experiments have written to a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

Row = Mapping[str, Any]


class NotMeasured(Exception):
    """The folder does not have this result, or the run left this part of it out."""


class Saved(NamedTuple):
    """The results in a folder."""

    folder: Path

    def table(self, name: str) -> Mapping[str, Any]:
        """A table with its `title`, its `rows` and `about`: how it was measured. Raises: NotMeasured."""
        try:
            found: Mapping[str, Any] = json.loads((self.folder / f"{name}.json").read_text())
        except FileNotFoundError:
            raise NotMeasured(name) from None
        return found

    def drawn(self) -> list[Path]:
        """The figures: in the folder, or in docs/lab/ in the one beside it."""
        return sorted(self.folder.glob("*.svg")) or sorted((self.folder.parent / "figures").glob("*.svg"))

    def rows(self, name: str, **where: object) -> list[Row]:
        """The rows with these values. Raises: NotMeasured if there are none."""
        return some(
            [row for row in self.table(name)["rows"] if all(row.get(key) == value for key, value in where.items())]
        )


def some(rows: list[Row]) -> list[Row]:
    """These rows. Raises: NotMeasured if there are none."""
    if not rows:
        raise NotMeasured
    return rows


def number(row: Row, column: str) -> float:
    """A number of a row. Raises: NotMeasured if the run did not measure it."""
    value = row.get(column)
    if not isinstance(value, int | float):
        raise NotMeasured(column)
    return float(value)
