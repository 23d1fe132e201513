"""Combines all results in a folder into one self-contained page, to look at or to print.

First how many items of each paper agree; then each paper, with its figures, item by item; then all tables, and how they
were measured.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtest.reports.item_blocks import count
from loadtest.reports.items import PAPERS, Compared, Paper, judge
from loadtest.reports.results import Value, figure_about, shown
from loadtest.reports.saved import Saved

NAME = "report.html"

LONG = 20
"""Tables with more rows are collapsed, and come last: they are for reference."""

STYLE = Path(__file__).with_name("report.css")

INTRODUCTION = """The experiments of five papers, repeated on PushUp and on programs written for comparison. An item
agrees with its paper (<b>yes</b>) if all of its criteria are met, <b>partly</b> if one is, and else not (<b>no</b>).
The criteria stand beside our numbers; those that are not met are bold. <b>Tested</b> items are mechanisms: there was
nothing to measure. Times depend on the machine and its other load, so compare shapes and ratios."""


def write_report(folder: Path) -> Path:
    """Write a page with all tables and figures in the folder, or figures in the one beside it; returns its path.

    Raises: FileNotFoundError if the folder has no tables.
    """
    tables = [(file.stem, json.loads(file.read_text())) for file in sorted(folder.glob("*.json"))]
    tables = [(name, table) for name, table in tables if isinstance(table, dict) and "rows" in table]
    if not tables:
        raise FileNotFoundError(f"there are no results in {folder}: run an experiment first")
    saved = Saved(folder)
    figures = {file.stem: file for file in saved.drawn()}
    judged = [(paper, judge(paper, saved)) for paper in PAPERS]
    papers = [_paper(paper, items, figures) for paper, items in judged]
    runs: dict[str, list[tuple[str, Any]]] = {}
    for name, table in tables:
        runs.setdefault(table["about"]["command"], []).append((name, table))
    for file in figures.values():  # those of no paper
        runs.setdefault(figure_about(file)[1], [])
    sections = []
    for command, run in runs.items():
        run.sort(key=lambda named: len(named[1]["rows"]) > LONG)
        left = [name for name, file in figures.items() if figure_about(file)[1] == command]
        sections.append(_section(command, run, [_figure(name, figures[name]) for name in left]))
    page = folder / NAME
    page.write_text(
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>PushUp measurements</title>\n<style>{STYLE.read_text()}</style>\n"
        f"<h1>PushUp measurements</h1>\n<p>{INTRODUCTION}</p>\n"
        f'<p class="measured">{_when([table["about"] for _, table in tables])}</p>\n'
        f'<div class="cards">{"".join(_card(paper, items) for paper, items in judged)}</div>\n'
        + "\n".join([*papers, "<h2>All tables</h2>", *sections])
        + "\n</html>\n"
    )
    return page


def _when(abouts: Sequence[Mapping[str, Value]]) -> str:
    """Of which commits the results are, when they were measured, and where."""
    commits, machines = (sorted({str(one.get(key, "not recorded")) for one in abouts}) for key in ("commit", "machine"))
    dates = sorted({str(one["date"]) for one in abouts if "date" in one}) or ["not recorded"]
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return html.escape(f"Commit: {', '.join(commits)}. Measured: {when}. Machine: {'; '.join(machines)}.")


def _card(paper: Paper, judged: Sequence[Compared]) -> str:
    """How many items of a paper have each verdict: as a bar, and as numbers. It leads to the paper."""
    counted = count(judged)
    bar = "".join(f'<i class="{_kind(verdict)}" style="flex:{number}"></i>' for verdict, number in counted.items())
    numbers = " ".join(f"<span>{number} {_badge(verdict)}</span>" for verdict, number in counted.items())
    return (
        f'<a class="card" href="#{paper.name}"><b>{paper.name}</b> {len(judged)} items'
        f'<span class="bar">{bar}</span>{numbers}</a>'
    )


def _kind(verdict: str) -> str:
    return re.sub(r"\W+", "-", verdict)


def _badge(verdict: str) -> str:
    return f'<span class="badge {_kind(verdict)}">{"no rule" if verdict == "-" else verdict}</span>'


def _paper(paper: Paper, judged: Sequence[Compared], figures: dict[str, Path]) -> str:
    """The section for a paper: its figures, which are taken out of `figures`; and each item that is measured."""
    names = dict.fromkeys(name for one in judged for name in one.item.figures if name in figures)
    drawn = "".join(_figure(name, figures.pop(name), judged) for name in names)
    rows = "\n".join(_row(one) for one in judged if one.item.reads)
    heads = ("", "the paper says", "paper", "ours", "it agrees if", "agrees?", "why")
    head = "".join(f'<th class="text">{cell}</th>' for cell in heads)
    return (
        f'<section>\n<h2 id="{paper.name}">{paper.name}</h2>\n'
        f'<p class="measured">{html.escape(paper.title)}</p>\n<div class="figures">{drawn}</div>\n'
        f'<div class="wide"><table class="items">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table>'
        "</div>\n</section>"
    )


def _row(one: Compared) -> str:
    rules = "".join(f"<li>{_plain(rule)}</li>" for rule in one.rule.split("; ") if rule)
    cells = [_plain(cell) for cell in (one.item.place, one.item.says, one.item.value, one.ours)]
    cells += [f"<ul>{rules}</ul>" if rules else "", _badge(one.verdict), _plain(one.why)]
    return "<tr>" + "".join(f'<td class="text">{cell}</td>' for cell in cells) + "</tr>"


def _plain(markdown: str) -> str:
    """A cell of a document's table as HTML; a link leads to another document, so only its text is left."""
    text = html.escape(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", markdown))
    text = re.sub(r"\*\*([^*]*)\*\*", r"<b>\1</b>", text)
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", text)


def _figure(name: str, file: Path, judged: Sequence[Compared] = ()) -> str:
    """A figure, with its place in a paper and the verdicts on it."""
    title = html.escape(figure_about(file)[0] or name)
    of = [one for one in judged if name in one.item.figures]
    caption = f"<b>{html.escape(of[0].item.place)}</b> {' '.join(_badge(one.verdict) for one in of)}" if of else ""
    svg = _inline(name, file.read_text())
    return f'<figure role="img" aria-label="{title}">{svg}<figcaption>{caption}</figcaption></figure>'


def _section(command: str, tables: Sequence[tuple[str, Any]], figures: Sequence[str]) -> str:
    """The section for one run: its figures that are of no paper, its tables, and how they were measured."""
    words = command.removeprefix("python -m loadtest").split()
    parts = [f"<section>\n<h3>{html.escape(words[0] if words else 'Figures')}</h3>"]
    if tables:
        parts.append(f'<p class="measured">{_how(tables[0][1]["about"])}</p>')
    if figures:
        parts.append(f'<div class="figures">{"".join(figures)}</div>')
    parts += [_table(name, table) for name, table in tables]
    return "\n".join((*parts, "</section>"))


def _how(about: Mapping[str, Value]) -> str:
    parts = [f"<code>{html.escape(str(about['command']))}</code>"]
    parts += [
        f"{html.escape(name)}: {html.escape(shown(v))}"
        for name, v in about.items()
        if name not in ("command", "code", "sources")  # which older results have
    ]
    return " · ".join(parts)


def _table(name: str, table: Mapping[str, Any]) -> str:
    rows: list[dict[str, Value]] = table["rows"]
    columns = list(rows[0]) if rows else []
    texts = {column for column in columns if any(isinstance(row[column], str) for row in rows)}

    def cell(kind: str, column: str, value: Value) -> str:
        text = ' class="text"' if column in texts else ""
        return f"<{kind}{text}>{html.escape(shown(value))}</{kind}>"

    head = "".join(cell("th", column, column) for column in columns)
    body = "\n".join(f"<tr>{''.join(cell('td', column, row[column]) for column in columns)}</tr>" for row in rows)
    content = f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'
    if len(rows) > LONG:
        content = f"<details><summary>{len(rows)} rows</summary>\n{content}\n</details>"
    return f'<h4 id="{html.escape(name)}">{html.escape(table["title"])}</h4>\n{content}'


def _inline(name: str, svg: str) -> str:
    """Prepare a figure for the page: make its ids unique, and use the page's colours instead of black and white."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    return re.sub(r"#0{6}\b", "currentColor", re.sub(r"#f{6}\b", "var(--paper)", svg))
