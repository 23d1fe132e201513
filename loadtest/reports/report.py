"""Combines all results in a folder into one self-contained page.

First each paper, item by item; then all tables, how they were measured, and figures.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtest.reports.items import PAPERS, Paper, compare
from loadtest.reports.results import Value, figure_about, shown
from loadtest.reports.saved import Saved

NAME = "report.html"

LONG = 20
"""Tables with more rows are collapsed, and come last: they are for reference."""

STYLE = """
:root { color-scheme: light dark; --paper: #fdfdfb; --ink: #1d2126; --soft: #667; --line: #dcdcd6; --band: #f3f3ee;
  --accent: #1f6fb4; }
@media (prefers-color-scheme: dark) { :root { --paper: #16191d; --ink: #e4e6e8; --soft: #9aa3ad; --line: #343a42;
  --band: #1d2227; --accent: #6fb3e8; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 70rem; padding: 2.5rem 1.25rem 5rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.35rem; margin: 3.5rem 0 .25rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 2rem 0 .5rem; }
a { color: var(--accent); }
nav ul { columns: 16rem; list-style: none; padding: 0; }
code { font: .9em ui-monospace, monospace; }
.measured { color: var(--soft); font-size: .88rem; margin: .25rem 0 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; min-width: 30rem; }
th, td { padding: .35rem .7rem; text-align: right; border-bottom: 1px solid var(--line); }
th { text-align: right; font-weight: 600; color: var(--soft); vertical-align: bottom; }
td.text, th.text { text-align: left; }
tbody tr:nth-child(even) { background: var(--band); }
.figures { display: flex; flex-wrap: wrap; gap: 1.5rem; margin: 1.5rem 0; }
figure { margin: 0; flex: 1 1 26rem; max-width: 40rem; }
figure text { fill: currentColor; }
summary { cursor: pointer; color: var(--accent); font-size: .88rem; }
figure svg { width: 100%; height: auto; }
"""


def write_report(folder: Path) -> Path:
    """Write a page with all tables and figures in the folder; returns its path.

    Raises: FileNotFoundError if the folder has none.
    """
    tables = [(file.stem, json.loads(file.read_text())) for file in sorted(folder.glob("*.json"))]
    tables = [(name, table) for name, table in tables if isinstance(table, dict) and "rows" in table]
    if not tables:
        raise FileNotFoundError(f"there are no results in {folder}: run an experiment first")
    figures: dict[str, list[tuple[str, str]]] = {}
    for file in sorted(folder.glob("*.svg")):
        text = file.read_text()
        title, command = figure_about(file)
        figures.setdefault(command, []).append((title, _inline(file.stem, text)))
    runs: dict[str, list[tuple[str, Any]]] = {}
    for name, table in tables:
        runs.setdefault(table["about"]["command"], []).append((name, table))
    for run in runs.values():
        run.sort(key=lambda named: len(named[1]["rows"]) > LONG)
    sections = [_section(command, tables, figures.pop(command, [])) for command, tables in runs.items()]
    sections += [_section(command, [], left) for command, left in figures.items()]
    compared = [_paper(paper, Saved(folder)) for paper in PAPERS]
    links = "".join(f'<li><a href="#{paper.name}">{paper.name}, item by item</a></li>' for paper in PAPERS)
    links += "".join(
        f'<li><a href="#{name}">{html.escape(table["title"])}</a></li>' for run in runs.values() for name, table in run
    )
    page = folder / NAME
    page.write_text(
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>PushUp measurements</title>\n<style>{STYLE}</style>\n"
        "<h1>PushUp measurements</h1>\n<p>The papers' experiments, run on our server. "
        "<code>docs/lab/evaluation.md</code> describes them and what they show. Times depend on the machine and its "
        "other load; only ratios are meaningful.</p>\n"
        f"<nav><ul>{links}</ul></nav>\n" + "\n".join([*compared, *sections]) + "\n</html>\n"
    )
    return page


def _paper(paper: Paper, saved: Saved) -> str:
    """The section for a paper: each item that is measured, the paper's number, ours, and whether they agree."""
    rows = "\n".join(
        "<tr>"
        + "".join(
            f'<td class="text">{_plain(cell)}</td>'
            for cell in (one.item.place, one.item.says, one.item.value, one.ours, one.verdict, one.why)
        )
        + "</tr>"
        for one in compare(paper, saved)
    )
    heads = ("", "the paper says", "paper", "ours", "agrees?", "why")
    head = "".join(f'<th class="text">{cell}</th>' for cell in heads)
    return (
        f'<section>\n<h2 id="{paper.name}">{paper.name}, item by item</h2>\n'
        f'<p class="measured">{html.escape(paper.title)}</p>\n'
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>\n'
        "</section>"
    )


def _plain(markdown: str) -> str:
    """A cell of a document's table as HTML; a link leads to another document, so only its text is left."""
    text = html.escape(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", markdown))
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", text)


def _section(command: str, tables: Sequence[tuple[str, Any]], figures: Sequence[tuple[str, str]]) -> str:
    """The section for one run: its figures, its tables, and how they were measured."""
    words = command.removeprefix("python -m loadtest").split()
    parts = [f"<section>\n<h2>{html.escape(words[0] if words else 'Figures')}</h2>"]
    if tables:
        parts.append(f'<p class="measured">{_how(tables[0][1]["about"])}</p>')
    inline = [f'<figure role="img" aria-label="{html.escape(title)}">{svg}</figure>' for title, svg in figures]
    if inline:
        parts.append(f'<div class="figures">{"".join(inline)}</div>')
    parts += [_table(name, table) for name, table in tables]
    return "\n".join((*parts, "</section>"))


def _how(about: Mapping[str, Value]) -> str:
    parts = [f"<code>{html.escape(str(about['command']))}</code>"]
    parts += [f"{html.escape(name)}: {html.escape(shown(v))}" for name, v in about.items() if name != "command"]
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
    return f'<h3 id="{html.escape(name)}">{html.escape(table["title"])}</h3>\n{content}'


def _inline(name: str, svg: str) -> str:
    """Prepare a figure for the page: make its ids unique, and use the page's colours instead of black and white."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    return re.sub(r"#0{6}\b", "currentColor", re.sub(r"#f{6}\b", "var(--paper)", svg))
