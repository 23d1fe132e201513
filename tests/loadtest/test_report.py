from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from loadtest.__main__ import _command, main
from loadtest.reports.items import PAPERS
from loadtest.reports.report import write_report
from loadtest.reports.results import Figure, Table

ABOUT = {"command": "python -m loadtest one --quick", "seconds": 12.5}
TABLE = Table(
    "t1", "Trips & <times>", ("connections", "server", "mean s"), [(1000, "threads", 0.25), (16000, "a", 1.5)]
)
OTHER = Table("t2", "Another", ("n",), [(7,)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The results of two experiments, one of which has figures, and an unrelated file."""
    TABLE.write(tmp_path, ABOUT)
    OTHER.write(tmp_path, {"command": "python -m loadtest other"})
    Figure("f1", "A < B", "connections", "seconds", {"threads": [(1, 2), (2, 3)], "events": [(1, 1)]}).write(
        tmp_path, ABOUT
    )
    Figure("f2", "Again", "connections", "%", {"threads": [(1, 2)]}).write(tmp_path, ABOUT)
    (tmp_path / "other.json").write_text("[1, 2]")
    return tmp_path


def test_the_report_has_all_tables_and_figures(folder: Path) -> None:
    """Each table has its rows and how it was measured, and each figure is in the section of its run."""
    page = write_report(folder)
    text = page.read_text()
    seen = _Seen()
    seen.feed(text)
    assert seen.cells[-11:] == [
        "connections",
        "server",
        "mean s",
        "1,000",
        "threads",
        "0.25",
        "16,000",
        "a",
        "1.5",
        "n",
        "7",
    ]
    assert "Trips &amp; &lt;times&gt;" in text
    assert "python -m loadtest one --quick" in text
    assert "seconds: 12.5" in text
    assert seen.labels == ["A < B", "Again"]
    assert seen.svgs == 2
    one, other = text.index("<h3>one</h3>"), text.index("<h3>other</h3>")
    assert one < text.index('aria-label="Again"') < other


def test_the_report_is_self_contained(folder: Path) -> None:
    """It loads no other file, ids of its figures do not collide, and it follows the system's light or dark theme."""
    text = write_report(folder).read_text()
    assert not re.findall(r"<(?:img|script|link|iframe)\b|@import|url\((?!#)", text)
    ids = re.findall(r'\sid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    for name in re.findall(r'(?:xlink:href="#|url\(#)([^")]+)', text):
        assert name in ids
    assert "prefers-color-scheme: dark" in text
    assert "#000000" not in text
    assert "#ffffff" not in text


def test_a_papers_line_is_dashed_in_the_colour_of_ours(tmp_path: Path) -> None:
    """So the two are seen to belong together; the paper's comes last, whatever the order was."""
    lines = {"CP, paper": [(1, 2), (2, 5)], "CP": [(1, 3), (2, 4)], "ELP": [(1, 1), (2, 1)]}
    Figure("f", "Traffic", "s", "KB", lines).write(tmp_path, ABOUT)
    svg = (tmp_path / "f.svg").read_text()
    drawn = re.findall(r'<g id="line2d_\d+">\s*<path d="[^"]*" clip-path[^>]*style="([^"]*)"', svg)
    solid = [style for style in drawn if "stroke: #1f77b4" in style and "dasharray" not in style]
    dashed = [style for style in drawn if "stroke: #1f77b4" in style and "dasharray" in style]
    assert (len(solid), len(dashed)) == (1, 1)
    assert ">CP, paper</text>" in svg


def test_the_spread_of_several_rounds_is_drawn(tmp_path: Path) -> None:
    """As error bars, from the least value to the greatest; a line without spreads has none."""
    lines = {"threads": [(1, 5), (2, 6)], "events": [(1, 1), (2, 1)]}
    for name, spreads in (("with", {"threads": [(4.0, 8.0), (6.0, 6.0)]}), ("without", {})):
        Figure(name, "Memory", "connections", "MB", lines, spreads=spreads).write(tmp_path, ABOUT)
    bars = [(tmp_path / f"{name}.svg").read_text().count('id="LineCollection') for name in ("with", "without")]
    assert bars == [2, 0]  # the line, and the legend


def test_the_command_writes_the_report(folder: Path, tmp_path: Path) -> None:
    """`python -m loadtest report --out FOLDER` writes it, or says that there are no results."""
    done = CliRunner().invoke(main, ["report", "--out", str(folder)])
    assert done.exit_code == 0
    assert (folder / "report.html").exists()
    empty = CliRunner().invoke(main, ["report", "--out", str(tmp_path / "nothing")])
    assert empty.exit_code == 1
    assert "there are no results" in empty.output


def test_the_page_compares_each_paper(folder: Path) -> None:
    """Each paper has a section with its items; one of which there is a result has our number and a verdict."""
    columns = ("implementation", "lines of code", "threads", "places that wait")
    rows = [("events", 51, 1, 1), ("threads", 81, 6, 8)]
    Table("group-complexity", "Complexity", columns, rows).write(folder, ABOUT)
    text = write_report(folder).read_text()
    for paper in PAPERS:
        assert f'<h2 id="{paper.name}">' in text
        assert html.escape(paper.title) in text
    ours = "lines of code 51 to 81; threads 1 to 6; places that wait 1 to 8"
    rules = "".join(f"<li>{what}, threads / events: at least 1.1</li>" for what in columns[1:])
    badge = '<span class="badge yes">yes</span>'
    assert f'<td class="text">{ours}</td><td class="text"><ul>{rules}</ul></td><td class="text">{badge}</td>' in text
    assert "](" not in text
    assert "**" not in text
    mishra = text.partition('href="#Mishra"')[2].partition("</a>")[0]
    assert f"<span>1 {badge}</span>" in mishra
    assert 'class="badge not-measured">not measured</span>' in mishra


def test_a_figure_of_a_paper_has_its_place_and_its_verdict(folder: Path) -> None:
    """It is in the paper's section, and not again in that of its run."""
    about = {"command": "python -m loadtest group", "commit": "c0ffee", "date": "2026-11-26 20:00 UTC"}
    columns = ("figure", "implementation", "arrivals a second", "delivered a second")
    rows = [(1, "events", 100, 100.0), (1, "threads", 100, 50.0)]
    Table("group-throughput", "Throughput", columns, rows).write(folder, about)
    Figure("group-figure-1", "Rates", "s", "a second", {"events": [(1, 2)]}).write(folder, about)
    text = write_report(folder).read_text()
    section = text.partition('<h2 id="Mishra">')[2].partition("</section>")[0]
    assert text.count('aria-label="Rates"') == section.count('aria-label="Rates"') == 1
    assert '<figcaption><b>Figure 1</b> <span class="badge yes">yes</span></figcaption>' in section
    assert "Commit: c0ffee, not recorded. Measured: 2026-11-26 20:00 UTC. " in text


@pytest.mark.parametrize(
    "words",
    [
        ["all", "--quick", "--faults", "3"],
        ["report", "--fault", "pause"],
        ["report", "--quick"],
        ["report", "--full"],
        ["all", "--docs"],
        ["all", "--check"],
        ["designs", "--docs"],
        ["designs", "--browser", "firefox"],
    ],
)
def test_options_of_others_are_refused(words: list[str], tmp_path: Path) -> None:
    """An option that would have no effect is an error that names it, and nothing runs."""
    done = CliRunner().invoke(main, [*words, "--out", str(tmp_path / "results")])
    assert done.exit_code == 2
    assert words[-1 if words[-1].startswith("--") else -2] in done.output
    assert words[0] in done.output
    assert not (tmp_path / "results").exists()


class _Seen(HTMLParser):
    """Collects cells, figures and their labels."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.labels: list[str] = []
        self.svgs = 0
        self._in_cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_cell = tag in ("td", "th")
        self.svgs += tag == "svg"
        if tag == "figure":
            self.labels.append(dict(attrs)["aria-label"] or "")

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.cells.append(data)
            self._in_cell = False


def test_how_a_result_was_measured_names_no_folder() -> None:
    """The command can be repeated anywhere."""
    assert _command(["echo", "--full", "--out", "/somewhere"]) == "python -m loadtest echo --full"
    assert _command(["--out", "a", "echo"]) == "python -m loadtest echo"
