"""Tables and figures: printed for people, as CSV and JSON for programs, as PNG and SVG for documents."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from xml.etree import ElementTree as ET

import click

Value = float | int | str

BAR_WIDTH = 30
LINE_WIDTH = 100
_DUBLIN_CORE = "{http://purl.org/dc/elements/1.1/}"
COLOURS = 10
"""Of matplotlib's cycle."""

PAPER = ", paper"
"""After the name of a line with a paper's values."""

LEGEND_LINES = 6
"""A figure with more lines than this has its legend beside it, not in it."""


class Table(NamedTuple):
    """An experiment's result. `name`: of its files, without suffix; `columns`: headings with units.

    `failed`: what should not have happened, a line each; the command fails then.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Value]]
    failed: str = ""

    def text(self) -> str:
        """The table as aligned text."""
        cells = [list(self.columns), *([shown(value) for value in row] for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
        return "\n".join((self.title, "", *lines))

    def write(self, folder: Path, about: Mapping[str, object]) -> None:
        """Write `<name>.csv` and `<name>.json`; `about` describes how it was measured."""
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{self.name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([self.columns, *self.rows])
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        text = json.dumps({"title": self.title, "about": about, "rows": rows}, indent=1)
        (folder / f"{self.name}.json").write_text(text + "\n")


class Figure(NamedTuple):
    """A line chart; `lines` maps each line's name to its (x, y) points. `log_x`: x is logarithmic.

    A line with the name of another and `PAPER` after it has a paper's values: it is dashed, in the other's colour.
    `spreads`: for each point of a line, the least and the greatest value of several rounds, drawn as error bars.
    """

    name: str
    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    log_x: bool = False
    spreads: Mapping[str, Sequence[tuple[float, float]]] = MappingProxyType({})

    def write(self, folder: Path, about: Mapping[str, object]) -> None:
        """Write `<name>.png` and `<name>.svg`; the SVG's metadata names the command that produced it."""
        import matplotlib as mpl

        mpl.use("Agg")
        mpl.rcParams["svg.fonttype"] = "none"  # text stays text
        from matplotlib import pyplot as plt

        folder.mkdir(parents=True, exist_ok=True)
        figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
        ours = [name for name in self.lines if not name.endswith(PAPER)]
        colours = {name: f"C{number % COLOURS}" for number, name in enumerate(ours)}
        for marker, name in zip(cycle("os^DvPX*"), ours, strict=False):
            x, y = zip(*self.lines[name], strict=True)
            bars = [
                [abs(end - value) for end, value in zip(ends, y, strict=True)]
                for ends in zip(*self.spreads.get(name, ()), strict=True)
            ]
            axes.errorbar(x, y, yerr=bars or None, marker=marker, color=colours[name], label=name, capsize=3)
        for name in [name for name in self.lines if name.endswith(PAPER)]:
            colour = colours[name.removesuffix(PAPER)]
            points = zip(*self.lines[name], strict=True)
            axes.plot(*points, linestyle="--", marker="x", color=colour, alpha=0.7, label=name)
        axes.set(title=self.title, xlabel=self.x, ylabel=self.y)
        axes.set_ylim(bottom=0)
        if self.log_x:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.grid(visible=True, alpha=0.3)
        if len(self.lines) > LEGEND_LINES:
            figure.legend(loc="outside right upper")
        else:
            axes.legend()
        figure.savefig(folder / f"{self.name}.png", dpi=120)
        metadata = {"Title": self.title, "Source": str(about["command"])}
        figure.savefig(folder / f"{self.name}.svg", metadata=metadata)
        plt.close(figure)


def figure_about(file: Path) -> tuple[str, str]:
    """The title of an SVG that `Figure.write` has written, and the command that produced it; empty if it has none."""
    root = ET.parse(file).getroot()  # noqa: S314  # our own file
    found = (next(root.iter(_DUBLIN_CORE + tag), None) for tag in ("title", "source"))
    title, command = ((element.text or "") if element is not None else "" for element in found)
    return title, command


class Progress:
    """A progress bar on standard error; one line per step if that is not a terminal."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._done = 0
        self._terminal = sys.stderr.isatty()

    def step(self, what: str) -> None:
        """Show that the next step begins."""
        filled = BAR_WIDTH * self._done // self._steps
        bar = f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}]"
        self._done += 1
        line = f"{bar} {self._done}/{self._steps} {what}"
        click.echo(f"\r{line:<{LINE_WIDTH}}" if self._terminal else line, err=True, nl=not self._terminal)

    def end(self) -> None:
        if self._terminal:
            click.echo("\r" + " " * LINE_WIDTH + "\r", err=True, nl=False)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share (0 to 1) of the values lies; 0 if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def shown(value: Value) -> str:
    """Format a value, with a sensible number of digits."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else value
