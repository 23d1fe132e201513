"""The items of the papers: each is accounted for, in the code, in the tests, in the results and in the documents."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from loadtest.everything import PLAN
from loadtest.liu.papers_tables import INTERVALS, TABLE_1, TABLE_2
from loadtest.mishra import complexity
from loadtest.reports import blocks
from loadtest.reports.about import digests
from loadtest.reports.documents import GENERATED, LAB, documents, filled, publish
from loadtest.reports.item_blocks import COMPARE, FIGURE, ITEMS
from loadtest.reports.items import NOT_DONE, PAPERS, TESTED, TOO_SHORT, Item, Paper, compare, judge, problems
from loadtest.reports.readings.found import NO, NOT_MEASURED, PARTLY, YES, Criterion, Found
from loadtest.reports.results import Figure, Table
from loadtest.reports.saved import Saved

ROOT = LAB.parents[1]
WRITTEN = {name for plan in PLAN.values() for name in plan.writes}
GOOD = Item(place="§1", says="it works", code=("loadtest/everything.py",), tests=("tests/loadtest/test_items.py",))


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)
def test_every_item_is_accounted_for(paper: Paper) -> None:
    """It has code and tests that exist, and results that some experiment writes and a function reads; or a reason."""
    items = paper.items()
    assert len(items) > 30
    found = [
        f"{item.place}, {item.says}: {problem}" for item in items for problem in problems(paper, item, ROOT, WRITTEN)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        ({"tests": ()}, "no test, and no reason"),
        ({"tests": ("tests/loadtest/test_nothing.py",)}, "no tests/loadtest/test_nothing.py"),
        ({"tests": ("tests/loadtest/test_items.py::test_no_such_thing",)}, "no test_no_such_thing"),
        ({"tests": ("tests/loadtest/readable.py",)}, "tests/loadtest/readable.py is no test"),
        ({"code": ()}, "no code, and no reason"),
        ({"code": ("loadtest/nothing.py",)}, "no loadtest/nothing.py"),
        ({"results": ("nothing",), "reads": "table_1"}, "no experiment writes nothing"),
        ({"results": ("traffic",)}, "nothing reads its results"),
        ({"figures": ("nothing",)}, "no experiment writes nothing"),
        ({"results": ("traffic",), "reads": "no_such_reading"}, "no reading no_such_reading"),
        ({"reads": "table_1"}, "a reading without results"),
        ({"not_done": "too hard"}, "both done and not done"),
    ],
)
def test_what_is_missing_is_found(change: dict[str, object], problem: str | None) -> None:
    """Each way in which an item can be unaccounted for is told."""
    item = msgspec.structs.replace(GOOD, **change)
    found = problems(PAPERS[0], item, ROOT, WRITTEN)
    assert (problem is None and not found) or any(str(problem) in one for one in found)


def test_a_reason_is_enough() -> None:
    """An item that was not done needs nothing but the reason."""
    assert not problems(PAPERS[0], Item(place="§1", says="it flies", not_done="no wings"), ROOT, WRITTEN)


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)
def test_a_result_that_differs_has_an_explanation(paper: Paper) -> None:
    """Where the results in docs/ disagree with the paper, the item says why."""
    for one in compare(paper, Saved(LAB / "results")):
        assert one.verdict not in (NO, PARTLY) or one.item.differs, f"{one.item.place}, {one.item.says}: {one.ours}"


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)
def test_every_verdict_has_a_rule(paper: Paper) -> None:
    """With the results in docs/, whoever reads a verdict sees the metric and its bounds; one that changed says why."""
    for one in judge(paper, Saved(LAB / "results")):
        assert bool(one.rule) == (one.verdict in (YES, PARTLY, NO)), one.item.says
        assert bool(one.item.was) == bool(one.item.because)
        assert one.item.was != one.verdict, f"{one.item.place}, {one.item.says}: it has not changed"
        assert one.item.reads or one.verdict in (TESTED, NOT_DONE)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ((1.0, 3.0), YES),
        ((0.9, 3.0), PARTLY),
        ((3.1, 0.9), NO),
        ((2.0, None), PARTLY),
        ((4.0, None), NO),
        ((None, None), NOT_MEASURED),
    ],
)
def test_a_verdict_follows_from_its_criteria(values: tuple[float | None, ...], verdict: str) -> None:
    """All met, some, or none; the bounds belong to what is allowed, and what was not measured is not met."""
    found = Found("", tuple(Criterion("m", value, 1, 3) for value in values))
    assert found.verdict == verdict


def test_the_reader_sees_the_rule() -> None:
    """The metric and its bounds; what was measured if it is outside of them, never rounded to the bound."""
    rules = [
        Criterion("a", 2, most=3),
        Criterion("b", 1.4996, least=1.5),
        Criterion("c", None, 1, 2),
        Criterion("d", 1, 1, 1),
    ]
    assert Found("", tuple(rules)).rule == (
        "a: at most 3; b: at least 1.5, **is 1.4996**; c: 1 to 2, **not measured**; d: exactly 1"
    )


def test_each_number_comes_from_the_results(tmp_path: Path) -> None:
    """A reading follows the result file, and so does its verdict; without the file nothing was measured."""
    (hsu,) = (paper for paper in PAPERS if paper.name == "Hsu")
    (item,) = (item for item in hsu.items() if item.reads == "limited_service")

    def ours(calls: int) -> tuple[str, str]:
        rows = [("threads of the server", 0.1, 100, 98, calls)]
        columns = ("helper", "call s", "polls", "200", "most concurrent calls")
        Table("slow-backend-polls", "", columns, rows).write(tmp_path, {})
        return next((one.ours, one.verdict) for one in compare(hsu, Saved(tmp_path)) if one.item == item)

    assert {one.verdict for one in compare(hsu, Saved(tmp_path))} == {NOT_MEASURED}
    assert ours(20) == ("at most 20 calls at a time; 98 % of the polls were answered", PARTLY)
    assert ours(21) == ("at most 21 calls at a time; 98 % of the polls were answered", NO)


def test_engines_in_c_count_more_than_those_in_python(tmp_path: Path) -> None:
    """A verdict on Libman's claims is about the engines in Python only until those in C have been measured."""
    (libman,) = (paper for paper in PAPERS if paper.name == "Libman")

    def verdict(name: str, ours: float) -> str:
        columns = ("claim", "of", "against", "measure", "ours")
        rows = [("emulation costs nothing", "emulated, poll", "reactor, poll", "processor time", ours)]
        Table(name, "", columns, rows).write(tmp_path, {})
        return next(one.verdict for one in compare(libman, Saved(tmp_path)) if one.item.reads == "no_overhead")

    assert verdict("echo-claims", 0.7) == NO
    assert verdict("echo-native-claims", 1.0) == YES


def test_a_run_that_is_too_short_is_told(tmp_path: Path) -> None:
    """Processor time has a resolution of 10 ms, so a short run may cost nothing; other items are compared."""
    columns = ("connections", "server", "memory MB", "mean trip s", "p99 s", "received %", "server's us a delivery")
    rows = [
        (500, kind, 40.0 + number, 0.1, 0.2, 100.0, 0.0)
        for number, kind in enumerate(("threads", "threads for requests", "events"))
    ]
    Table("threads-or-events", "", columns, rows).write(tmp_path, {})
    found = {one.item.reads: one.ours for one in compare(PAPERS[0], Saved(tmp_path))}
    assert found["a_thread_for_each_request"] == found["memory_of_a_connection"] == TOO_SHORT
    assert found["figure_11_slowly"] == "100 % with threads, 100 % with events; 500 connections"


def test_the_papers_own_tables_agree_with_it(tmp_path: Path) -> None:
    """What PushUp says of its Tables 1 and 2 holds for them by our rules; the ratio shown as its own is one of them."""
    columns = ("connections", "method", *(f"{interval:g} s" for interval in INTERVALS))
    for name, values in (("traffic", TABLE_1), ("trip-time", TABLE_2)):
        Table(name, "", columns, [(*case, *line) for case, line in values.items()]).write(tmp_path, {})
    found = {one.item.reads: one for one in compare(PAPERS[0], Saved(tmp_path))}
    same = ("table_1", "table_2", "figure_7", "figure_8", "traffic_of_long_polling", "trip_of_pulling", "alike_for_few")
    assert {name: found[name].verdict for name in same} == dict.fromkeys(same, YES)
    assert found["alike_for_few"].item.value == found["alike_for_few"].ours


def test_the_balancer_of_several_nodes_is_counted(tmp_path: Path) -> None:
    """Nodes that cost no more than one alone do not balance at little cost, if HAProxy takes as much again."""

    def verdict(haproxy: float) -> str:
        columns = ("nodes", "connections", "nodes us per delivery", "haproxy us", "redis us")
        rows = [("1 node, alone", 500, 30.0, 0.0, 0.0), ("4 nodes", 500, 30.0, haproxy, 1.0)]
        Table("nodes", "", columns, rows).write(tmp_path, {})
        return next(
            one.verdict for one in compare(PAPERS[0], Saved(tmp_path)) if one.item.reads == "cost_of_four_nodes"
        )

    assert (verdict(1.0), verdict(30.0)) == (YES, PARTLY)


def test_the_documents_are_generated_from_the_results() -> None:
    """`python -m loadtest report --docs` would change nothing."""
    assert {file.name for file in documents()} == {"designs.md", "echo.md", "evaluation.md", "group.md", "papers.md"}
    for file in documents():
        assert filled(file.read_text()) == file.read_text(), f"{file.name}: run `python -m loadtest report --docs`"


def test_what_is_counted_is_up_to_date() -> None:
    """The complexity of Mishra's two implementations is counted in their source, so the committed table is checked."""
    table = complexity.measure()
    counted = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert Saved(LAB / "results").rows("group-complexity") == counted


def test_every_part_and_every_paper_is_in_a_document() -> None:
    """No block is left out, each paper has its list and its comparison, and every committed result is shown."""
    names = [found[2] for file in documents() for found in GENERATED.finditer(file.read_text())]
    assert set(blocks.BLOCKS) <= set(names)
    assert {name.removeprefix(FIGURE) for name in names if name.startswith(FIGURE)} <= WRITTEN
    assert blocks.tables_of_blocks() <= WRITTEN
    for paper in PAPERS:
        assert names.count(f"{ITEMS}{paper.name}") == names.count(f"{COMPARE}{paper.name}") == 1
    of_items = {name for paper in PAPERS for item in paper.items() for name in item.results}
    saved = {file.stem for file in (LAB / "results").glob("*.json")}
    assert saved <= of_items | blocks.tables_of_blocks()
    assert {file.stem for file in (LAB / "results").glob("*.csv")} == saved


def test_what_is_not_measured_yet_has_no_result() -> None:
    """The list of experiments says so only of one whose results are not in docs/."""
    rows = [row.split("|") for row in (ROOT / "loadtest" / "README.md").read_text().splitlines() if row[:1] == "|"]
    missing = [row[2].strip(" `") for row in rows if row[-2].strip() == "not measured yet"]
    saved = {file.stem for file in (LAB / "results").glob("*.json")}
    assert not [command for command in missing if saved & {*PLAN[command].writes}]


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """A folder of documents, with one part that shows a table and one that shows a figure."""
    docs = tmp_path / "docs"
    docs.mkdir()
    mark = "<!-- generated by python -m loadtest report: "
    parts = "".join(f"{mark}begin {name} -->\n{mark}end -->\n" for name in ("group-complexity", "figure traffic"))
    (docs / "one.md").write_text(f"# By hand\n\n{parts}")
    (docs / "two.md").write_text("# Only by hand\n")
    return docs


def results(folder: Path, about: Mapping[str, object]) -> Path:
    """A folder with a table and a figure that documents show, and a table that none does."""
    columns = ("implementation", "lines")
    Table("group-complexity", "Complexity", columns, [("events", 51), ("threads", 81)]).write(folder, about)
    Table("kills", "Others", ("a",), [(1,)]).write(folder, about)
    Figure("traffic", "Traffic", "s", "KB", {"CP": [(1, 2), (2, 3)]}).write(folder, about)
    return folder


def test_full_runs_get_into_the_documents(docs: Path, tmp_path: Path) -> None:
    """What a document shows is copied, and its part is written; what is written by hand stays."""
    about = {"command": "python -m loadtest group", "code": digests(PLAN["group"].measures), "commit": "c0ffee"}
    copied, left = publish(results(tmp_path / "results", about), docs)
    assert (sorted(copied), left) == (["group-complexity.csv", "group-complexity.json", "traffic.svg"], [])
    text = (docs / "one.md").read_text()
    assert "| lines | 51 | 81 |" in text
    assert "![PushUp, Figure 7: Traffic](figures/traffic.svg)" in text
    assert text.startswith("# By hand\n\n")
    assert filled(text, docs) == text
    assert (docs / "two.md").read_text() == "# Only by hand\n"
    assert json.loads((docs / "results/group-complexity.json").read_text())["about"]["command"]


def test_shortened_runs_do_not(docs: Path, tmp_path: Path) -> None:
    """The results of --quick are left where they are, and the parts say that nothing was measured."""
    copied, left = publish(results(tmp_path / "results", {"command": "python -m loadtest group --quick"}), docs)
    assert (copied, left) == ([], ["group-complexity.json", "traffic.svg"])
    assert not (docs / "results").exists()
    assert blocks.NOT_MEASURED in (docs / "one.md").read_text()


def test_the_spread_of_several_runs_is_shown(tmp_path: Path) -> None:
    """Medians have their least and greatest value beside them, where the run was repeated."""
    columns = ("connections", "server", "memory MB", "mean trip s", "p99 s", "received %", "server's us a delivery")
    row = (500, "events", 42.0, 0.02, 0.05, 100.0, 24.0)
    Table("threads-or-events", "", columns, [row]).write(tmp_path, {"command": "c"})
    assert "| 0.02 (0.05) | 100 | 24 |" in blocks.block("threads-or-events", Saved(tmp_path))
    more = (*columns, "mean trip s, from to", "server's us a delivery, from to")
    Table("threads-or-events", "", more, [(*row, "0.01 0.04", "22 31")]).write(tmp_path, {"command": "c"})
    assert "| 0.02 (0.05), 0.01 to 0.04 | 100 | 24, 22 to 31 |" in blocks.block("threads-or-events", Saved(tmp_path))


def test_a_part_that_is_not_known_is_an_error(docs: Path) -> None:
    """A misspelt name does not leave an empty place."""
    text = (docs / "one.md").read_text().replace("group-complexity", "group-simplicity")
    with pytest.raises(KeyError):
        filled(text, docs)


def test_every_reading_is_used() -> None:
    """Each public function of a paper's readings is named by an item."""
    for paper in PAPERS:
        module = Path(str(getattr(paper.readings, "__file__", "")))
        tree = ast.parse(module.read_text())
        named = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) if not node.name.startswith("_")}
        assigned = {
            name for node in tree.body if isinstance(node, ast.Assign)
            for name in re.findall(r"\b[a-z]\w*\b", " ".join(ast.unparse(target) for target in node.targets))
        }  # fmt: skip
        assert named | assigned == {item.reads for item in paper.items() if item.reads}


GIVEN = {
    "evaluation.md": {"2010", "8000", "16"},
    "papers.md": {"2005", "2,048", "64"},
}
"""Numbers in the text that are not measured: years, words of a paper, KB of a thread's stack in Linux, constants."""


@pytest.mark.parametrize("page", GIVEN)
def test_the_numbers_in_the_text_stand_in_the_results(page: str) -> None:
    """Each number around the generated parts is in one of them, so that no measurement is told that has no result."""
    text = (LAB / page).read_text()
    number = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w]*[a-zA-Z_])")
    generated = {one.rstrip(",") for part in GENERATED.finditer(text) for one in number.findall(part[0])}
    by_hand = re.sub(r"^    .*$|`[^`]*`|\]\([^)]*\)|<http[^>]*>", "", GENERATED.sub("", text), flags=re.MULTILINE)
    found = {one.rstrip(",") for one in number.findall(by_hand)}
    assert len(found) > 5
    assert found - generated <= GIVEN[page]  # by chance, a result may be equal to one of these
