"""The generated parts about papers and figures. The first word of a name says which part, the rest of what."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby

from loadtest.reports.items import NOT_DONE, PAPERS, Compared, Item, Paper, compare, judge
from loadtest.reports.markdown import table
from loadtest.reports.results import figure_about
from loadtest.reports.saved import Saved

FIGURE, COMPARE, ITEMS = "figure ", "compare ", "items "
"""What a part's name begins with."""

ROOT = "../../"
"""From the documents."""

VERDICTS = ("yes", "partly", "no", "not measured", "-", "tested", NOT_DONE)


def count(judged: Iterable[Compared]) -> dict[str, int]:
    """How many items have each verdict."""
    found = Counter(one.verdict for one in judged)
    return {verdict: found[verdict] for verdict in VERDICTS if found[verdict]}


def title_of(figure: str, saved: Saved) -> str:
    """The title of a figure, with the paper and the place in it that it repeats; empty if it was not drawn."""
    file = next((file for file in saved.drawn() if file.stem == figure), None)
    if file is None:
        return ""
    title = re.sub(r" \((?!in place)[^()]*Figure[^()]*\)", "", figure_about(file)[0] or figure)
    places = [f"{paper.name}, {item.place}" for paper in PAPERS for item in paper.items() if figure in item.figures]
    return f"{places[0]}: {title}" if places else title


def _figure(name: str, saved: Saved) -> str:
    title = title_of(name, saved)
    return f"![{title}](figures/{name}.svg)" if title else "*Not drawn yet.*"


def _compared(name: str, saved: Saved) -> str:
    """What the paper says, beside what we measured."""
    rows = [
        (one.item.place, one.item.says, one.item.value, one.ours, one.rule, one.verdict, one.why)
        for one in compare(_paper(name), saved)
    ]
    head = ("", "the paper says", "paper", "ours", "it agrees if", "agrees?", "why")
    return table(head, rows, texts=7)


def _items(name: str, saved: Saved) -> str:
    """Every item of a paper: its verdict, its code, its tests and its results."""
    judged = judge(_paper(name), saved)
    counted = ", ".join(f"{number} {verdict}" for verdict, number in count(judged).items())
    rows = [_item(one, saved) for one in judged]
    head = ("place", "what", "agrees?", "code", "tests", "results")
    return f"{len(judged)} items: {counted}.\n\n{table(head, rows, texts=6)}"


def _item(one: Compared, saved: Saved) -> tuple[str, ...]:
    item = one.item
    what = item.says + (f". *Here*: {item.note}" if item.note else "")
    if item.not_done:
        return item.place, what, f"{NOT_DONE}: {item.not_done}", "", "", ""
    code = ", ".join(f"[`{path.removeprefix('pushup/')}`]({ROOT}{path})" for path in item.code)
    return item.place, what, one.verdict, code, _tests(item), ", ".join(_results(item, saved))


def _tests(item: Item) -> str:
    """Each file once, with the functions in it."""
    pairs = [test.partition("::")[::2] for test in item.tests]
    parts = []
    for file, group in groupby(pairs, key=lambda pair: pair[0]):
        names = ", ".join(f"`{name}`" for _, name in group if name)
        parts.append(f"[`{file.removeprefix('tests/')}`]({ROOT}{file})" + (f" ({names})" if names else ""))
    return ", ".join(parts)


def _results(item: Item, saved: Saved) -> list[str]:
    figures = [f"[{item.place}](figures/{name}.svg)" for name in item.figures if title_of(name, saved)]
    tables = [
        f"[{name}]({saved.folder.name}/{name}.csv)" if (saved.folder / f"{name}.csv").exists() else f"{name}: not yet"
        for name in item.results
    ]
    return [*figures, *tables]


def _changed(verdict: str, saved: Saved) -> str:
    """The items whose verdict has changed."""
    rows = [
        (paper.name, one.item.place, one.item.says, one.item.was, one.verdict, one.item.because)
        for paper in PAPERS
        for one in judge(paper, saved)
        if one.item.was
    ]
    return table(("paper", "place", "the paper says", "was", verdict, "why it changed"), rows, texts=6)


def _paper(name: str) -> Paper:
    return next(paper for paper in PAPERS if paper.name == name)


KINDS: Mapping[str, Callable[[str, Saved], str]] = {
    FIGURE: _figure,
    COMPARE: _compared,
    ITEMS: _items,
    "verdicts ": _changed,
}
