"""The documentation names every setting and every metric correctly."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families

from pushup.broadcast.redis.errors import ErrorCode
from pushup.core.channel import DropReason, GapReason
from pushup.core.limits import ChannelPolicy
from pushup.core.refusals import Refusal
from pushup.metrics import Metrics, MetricsPage
from pushup.net.problems import PROBLEM_TYPES
from pushup.settings import Settings

DOCS = Path(__file__).parents[1] / "docs"


def test_every_setting_is_documented_with_its_default() -> None:
    """docs/operations.md has exactly one row for each setting, with its default."""
    section = (DOCS / "operations.md").read_text().partition("## Settings")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| (.*?) \|", section, re.MULTILINE))
    rooms: list[Any] = [getattr(Settings(), room.name) for room in structs.fields(Settings)]
    defaults = {name: value for room in rooms for name, value in structs.asdict(room).items()}
    assert rows.keys() == defaults.keys()
    for name, value in defaults.items():
        assert rows[name] == _shown(value), name


def test_every_field_of_a_policy_is_documented_with_its_default() -> None:
    """docs/operations.md has exactly one row for each; what is None by default is described."""
    section = (DOCS / "operations.md").read_text().partition("| in a table |")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| (.*?) \|", section, re.MULTILINE))
    assert rows.keys() == {field.name for field in structs.fields(ChannelPolicy)}
    assert rows["share"] == _shown(ChannelPolicy(prefix="a").share)


def test_every_metric_is_documented() -> None:
    """docs/operations.md names each metric that a node exports."""
    text = (DOCS / "operations.md").read_text()
    families = list(text_string_to_metric_families(MetricsPage(Metrics()).text().decode()))
    assert len(families) > 5
    for family in families:
        assert f"`{family.name}" in text, family.name


GAPS = {*get_args(GapReason)}


@pytest.mark.parametrize(
    ("page", "place", "reasons"),
    [
        ("docs/http.md", r"^\| `gaps` \|.*?cursor `until`\.(.*)", GAPS),
        ("docs/protocol.md", r"\*\*GAP-2\*\* `reason`(.*)", GAPS),
        ("docs/openapi.yaml", r"^    Gap:(?s:.*?)reason: .*enum: \[(.*?)\]", GAPS),
        ("docs/client.md", r"`reason` is (.*?)\.", GAPS),
        ("pushup/browser/pushup.d.ts", r"interface Gap \{(?s:.*?)/\*\*(.*?)\*/", GAPS),
        (
            "docs/openapi.yaml",
            r"^    Problem:\n      type: object(?s:.*?)enum: \[((?s:.*?))\]",
            {kind.code for kind in PROBLEM_TYPES.values()},
        ),
        ("docs/operations.md", r"^\| `pushup_gaps_total` \|.*?: (.*?)\.", GAPS),
        ("docs/operations.md", r"^\| `pushup_messages_dropped_total` \|.*?: (.*?)\.", {*get_args(DropReason)}),
        (
            "docs/operations.md",
            r"^\| `pushup_refusals_total` \|.*?: (.*)",
            {t.refusal for t in PROBLEM_TYPES.values()} - {""},
        ),
        (
            "docs/operations.md",
            r"^\| `pushup_publications_refused_total` \|.*?: (.*)",
            {refusal.kind for refusal in Refusal if refusal.is_of_commands} | {code.value for code in ErrorCode} - {""},
        ),
    ],
)
def test_every_reason_is_documented(page: str, place: str, reasons: set[str]) -> None:
    """Why requests are refused, messages dropped and gaps told: the words of the code, and no others."""
    found = re.search(place, (DOCS.parent / page).read_text(), re.MULTILINE)
    assert found is not None
    words = re.findall(r"[\w:-]+" if page.endswith(".yaml") else r"`([\w-]+)`", found[1])
    assert {word.removeprefix("urn:pushup:") for word in words} == reasons


def test_every_file_named_in_the_papers_page_exists() -> None:
    """docs/papers.md refers to existing files and tests."""
    text = (DOCS / "papers.md").read_text()
    root = DOCS.parent
    for name in re.findall(r"`((?:core|net|broadcast|backends|server|loadtest|deploy)/[\w/]+\.py)`", text):
        assert any((root / part / name).exists() for part in ("pushup", "tests", "")), name


def test_every_link_leads_somewhere() -> None:
    """Every link from one document to another names an existing file and heading."""
    root = DOCS.parent
    documents = [
        root / "README.md",
        *DOCS.rglob("*.md"),
        root / "deploy" / "README.md",
        root / "loadtest" / "README.md",
    ]
    links = [(page, *link) for page in documents for link in re.findall(r"\]\(([^)#:]*)(#[^)]*)?\)", page.read_text())]
    assert len(links) > 50
    for page, path, anchor in links:
        there = page.parent / path if path else page
        assert there.exists(), f"{page.name}: {path}"
        headings = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE) if anchor else []
        assert not anchor or anchor in map(_anchor, headings), f"{page.name}: {path}{anchor}"


def _anchor(heading: str) -> str:
    """The anchor that GitHub gives to a heading."""
    return "#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _shown(value: object) -> str:
    if value in ((), ""):
        return "none"
    if isinstance(value, tuple):
        value = ", ".join(value)
    if isinstance(value, bool):
        value = str(value).lower()
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"
