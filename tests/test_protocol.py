"""docs/internals/protocol.md and the checks of the conformance suite name the same requirements."""

from __future__ import annotations

import re
from pathlib import Path

from conformance import runner
from conformance.registry import CHECKS

DOCS = Path(__file__).parents[1] / "docs"

PROTOCOL = (DOCS / "internals" / "protocol.md").read_text()
REQUIREMENTS = dict(re.findall(r"^- \*\*([A-Z]+-\d+)\*\* (.*?)(?=^- \*\*|\n\n|\Z)", PROTOCOL, re.M | re.S))
"""The text of each requirement by its name."""

UNCHECKED = {
    "ACK-1": "what 201 means: the other checks are about that",
    "ACK-5": "needs a server that fails after it has published",
    "KEY-3": "needs more time, or more keys, than a check can use",
    "PROD-7": "needs more producers than a check can use",
    "CLIENT": "about clients",
    "TICKET-4": "needs an application that allows polls for moments",
    "TOKEN-4": "needs to know by how much the server lets clocks differ",
    "REVOKE-2": "needs a full table, or an order that ends",
    "ERASE-4": "needs a key for some channels only",
    "ERASE-5": "needs to read the files of the server",
    "OPS-5": "stops the server",
}
"""Requirements that no check cites, and why."""


def test_requirements_are_numbered() -> None:
    """Each group counts from 1 without holes."""
    groups: dict[str, list[int]] = {}
    for name in REQUIREMENTS:
        group, _, number = name.partition("-")
        groups.setdefault(group, []).append(int(number))
    assert len(REQUIREMENTS) > 100
    for group, numbers in groups.items():
        assert numbers == list(range(1, len(numbers) + 1)), group


def test_every_check_cites_a_requirement() -> None:
    """It exists, and says MUST or SHOULD as the check does."""
    assert runner.select(())
    for check in CHECKS.values():
        text = REQUIREMENTS[check.requirement]
        assert re.search(rf"\b{check.level}\b", text), f"{check.name}: {check.requirement} has no {check.level}"


def test_every_requirement_is_checked() -> None:
    """Or there is a reason why not."""
    cited = {check.requirement for check in CHECKS.values()}
    unchecked = {name for name in REQUIREMENTS if name not in cited}
    assert {name for name in unchecked if name not in UNCHECKED and name.partition("-")[0] not in UNCHECKED} == set()
    assert {name for name in UNCHECKED if name in cited} == set()
    assert all(any(name.startswith(key) for name in REQUIREMENTS) for key in UNCHECKED)


def test_requirements_say_how_much_they_require() -> None:
    """Each has a key word of RFC 2119, in capitals."""
    assert [name for name, text in REQUIREMENTS.items() if not re.search(r"\b(MUST|SHOULD|MAY)\b", text)] == []
