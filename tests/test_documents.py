"""The documents: every setting, metric and reason is named, links lead somewhere, and pages for users stay short."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families

from pushup.broadcast.formats import FORMAT
from pushup.broadcast.redis.redis_errors import ErrorCode
from pushup.core.channel import DropReason, GapReason
from pushup.core.errors import Refusal
from pushup.core.limits import ChannelPolicy
from pushup.net.http_errors import PROBLEM_TYPES
from pushup.settings.settings import Settings
from tests.net.in_memory_node import InMemoryNode

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def test_every_setting_is_documented_with_its_default() -> None:
    """docs/operate/settings.md has exactly one row for each setting, with its default."""
    found = re.findall(r"^\| `([a-z_]+)` \| (.*?) \|", (DOCS / "operate" / "settings.md").read_text(), re.MULTILINE)
    rows = dict(found)
    assert len(rows) == len(found)
    rooms: list[Any] = [getattr(Settings(), room.name) for room in structs.fields(Settings)]
    defaults = {name: value for room in rooms for name, value in structs.asdict(room).items()}
    assert rows.keys() == defaults.keys()
    for name, value in defaults.items():
        assert rows[name] == _shown(value), name


def test_every_field_of_a_policy_is_documented_with_its_default() -> None:
    """docs/operate/retention.md has exactly one row for each; what is None by default is described."""
    section = (DOCS / "operate" / "retention.md").read_text().partition("| in a table |")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| (.*?) \|", section, re.MULTILINE))
    assert rows.keys() == {field.name for field in structs.fields(ChannelPolicy)}
    assert rows["share"] == _shown(ChannelPolicy(prefix="a").share)


def test_every_metric_is_documented() -> None:
    """docs/operate/monitoring.md names each metric that a node exports."""
    text = (DOCS / "operate" / "monitoring.md").read_text()
    families = list(text_string_to_metric_families(InMemoryNode().page.text().decode()))
    assert len(families) > 5
    for family in families:
        assert f"`{family.name}" in text, family.name


def test_every_backend_is_documented() -> None:
    """docs/operate/monitoring.md names each value of the label `backend`; the alerts ask for some of them."""
    made = re.findall(r'\.(?:backend|helpers)\("(\w+)"', (ROOT / "pushup" / "parts.py").read_text())
    row = re.search(r"calls of a backend \((.*?)\)", (DOCS / "operate" / "monitoring.md").read_text())
    assert row is not None
    assert {*re.findall(r"`(\w+)`", row[1])} == {*made}
    asked = re.search(r'backend=~"(.*?)"', (ROOT / "deploy" / "monitoring" / "alerts.yml").read_text())
    assert asked is not None
    assert {*asked[1].split("|")} < {*made}


def test_the_format_of_what_is_stored_is_documented() -> None:
    """docs/operate/upgrades.md names the one that this tree uses."""
    assert f"has a format, now {FORMAT}. " in (DOCS / "operate" / "upgrades.md").read_text()


GAPS = {*get_args(GapReason)}


@pytest.mark.parametrize(
    ("page", "place", "reasons"),
    [
        ("docs/guide/http.md", r"^\| `gaps` \|.*?cursor `until`\.(.*)", GAPS),
        ("docs/internals/protocol.md", r"\*\*GAP-2\*\* `reason`(.*)", GAPS),
        ("docs/guide/openapi.yaml", r"^    Gap:(?s:.*?)reason: .*examples: \[(.*?)\]", GAPS),
        ("docs/guide/browser.md", r"`reason` is (.*?)\.", GAPS),
        ("pushup/browser/pushup.d.ts", r"interface Gap \{(?s:.*?)/\*\*(.*?)\*/", GAPS),
        (
            "docs/guide/openapi.yaml",
            r"^    Problem:\n      type: object(?s:.*?)examples: \[((?s:.*?))\]",
            {kind.code for kind in PROBLEM_TYPES.values()},
        ),
        ("docs/operate/monitoring.md", r"^\| `pushup_gaps_total` \|.*?: (.*?)\.", GAPS),
        ("docs/operate/monitoring.md", r"^\| `pushup_messages_dropped_total` \|.*?: (.*?)\.", {*get_args(DropReason)}),
        (
            "docs/operate/monitoring.md",
            r"^\| `pushup_refusals_total` \|.*?: (.*)",
            {t.refusal for t in PROBLEM_TYPES.values()} - {""},
        ),
        (
            "docs/operate/monitoring.md",
            r"^\| `pushup_publications_refused_total` \|.*?: (.*)",
            {refusal.kind for refusal in Refusal if refusal.is_of_commands} | {code.value for code in ErrorCode} - {""},
        ),
    ],
)
def test_every_reason_is_documented(page: str, place: str, reasons: set[str]) -> None:
    """Why requests are refused, messages dropped and gaps told: the words of the code, and no others."""
    found = re.search(place, (ROOT / page).read_text(), re.MULTILINE)
    assert found is not None
    words = re.findall(r"[\w:-]+" if page.endswith(".yaml") else r"`([\w-]+)`", found[1])
    assert {word.removeprefix("urn:pushup:") for word in words} == reasons


@pytest.mark.parametrize("page", ["papers.md", "faults.md"])
def test_every_file_named_in_a_table_exists(page: str) -> None:
    """The pages about papers and faults refer to existing files and tests."""
    text = (DOCS / "lab" / page).read_text()
    for name in re.findall(r"`((?:core|net|broadcast|backends|server|workers|loadtest|deploy)/[\w/]+\.py)`", text):
        assert any((ROOT / part / name).exists() for part in ("pushup", "tests", "")), name


PAGES = sorted(
    page
    for top in ("", "docs/**/", "deploy/**/", "loadtest/**/", "tests/**/", "pushup/**/")
    for page in ROOT.glob(f"{top}*.md")
    if "node_modules" not in page.parts
)
"""Every document of the repository."""

FOR_USERS = [ROOT / "README.md", DOCS / "README.md"] + [
    page for page in PAGES for folder in ("start", "guide", "operate") if DOCS / folder in page.parents
]
"""The documents that users need."""

QUESTIONS = [page for page in PAGES if DOCS in page.parent.parents and page.parent.name != "decisions"]
"""The documents in the folders of docs/; a decision has a form of its own."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    """Every link to a file of the repository names an existing one, and an existing heading of it."""
    for path, anchor in _links(page.read_text()):
        there = page.parent / path if path else page
        assert there.exists(), path
        assert not anchor or anchor in _anchors(there.read_text()), f"{path}#{anchor}"


@pytest.mark.parametrize("page", FOR_USERS, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_for_users_is_short(page: Path) -> None:
    """At most 1,500 words, or it says why not, in its second paragraph."""
    _title, _question, reason, *_ = page.read_text().split("\n\n")
    assert _words(page) <= 1500 or "This page is longer than 1,500 words because" in reason


@pytest.mark.parametrize("page", QUESTIONS, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_begins_with_its_question(page: Path) -> None:
    """The first paragraph asks what the page answers."""
    title, question, *_ = page.read_text().split("\n\n")
    assert title.startswith("# ")
    assert "?" in question, question


def test_what_users_need_can_be_read_in_an_afternoon() -> None:
    """The pages for users have 32,000 words together, and what is read only at night: alerts, backups, capacity."""
    assert sum(map(_words, FOR_USERS)) <= 36_400


def test_every_page_is_found_from_the_list_of_questions() -> None:
    """docs/README.md links to each page of the folders beside it; decisions and recipes have lists of their own."""
    linked = {(DOCS / path).resolve() for path, _ in _links((DOCS / "README.md").read_text())}
    listed = {page for page in PAGES if DOCS in page.parents and page.parent.name not in ("decisions", "recipes")}
    assert not listed - linked - {DOCS / "README.md"}
    recipes = DOCS / "start" / "recipes" / "README.md"
    assert {path for path, _ in _links(recipes.read_text())} >= {page.name for page in recipes.parent.glob("[a-z]*.md")}


def test_code_names_existing_documents() -> None:
    """A document that a comment, a docstring or a setting names exists."""
    sources = [path for folder in ("pushup", "loadtest", "deploy", "tests") for path in (ROOT / folder).rglob("*")]
    sources = [path for path in sources if path.suffix in SOURCES and "node_modules" not in path.parts]
    named = [(path, name) for path in sources for name in re.findall(r"\bdocs/[\w/.-]*\w", path.read_text())]
    assert len(named) > 50
    for path, name in named:
        assert (ROOT / name).exists(), f"{path.relative_to(ROOT)}: {name}"


SOURCES = {".py", ".js", ".ts", ".toml", ".service", ".go", ".yaml", ".lua"}
"""The kinds of files with comments that name documents."""


def _links(text: str) -> list[tuple[str, str]]:
    """The path and the anchor of each link that leads to a file of the repository; samples of code have none."""
    prose = re.sub(r"^ *(```+).*?^ *\1|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"\]\(([^)#:\s]*)(?:#([^)]*))?\)", prose)


def _anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    texts = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts}


def _words(page: Path) -> int:
    return len(page.read_text().split())


def _shown(value: object) -> str:
    if value in ((), ""):
        return "none"
    if isinstance(value, tuple):
        value = ", ".join(value)
    if isinstance(value, bool):
        value = str(value).lower()
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"
