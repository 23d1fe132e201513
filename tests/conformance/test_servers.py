"""PushUp keeps its protocol in every configuration; every check is applicable in one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance import reports
from conformance.pushup import PushUp
from conformance.registry import CHECKS
from conformance.runner import run, select
from servers import CONFIGURATIONS, ONLY, SECONDS, started


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_pushup_passes(configuration: str, tmp_path: Path) -> None:
    """Every applicable check passes, MUST and SHOULD."""
    with started(configuration, tmp_path) as options:
        results = run(select(ONLY.get(configuration, ())), PushUp, options, seconds=SECONDS)
    assert {r.verdict for r in results} <= {"passed", "not applicable"}, reports.text(results)
    assert any(r.verdict == "passed" for r in results)


def test_every_check_is_applicable_somewhere() -> None:
    """No check is skipped in all configurations."""
    selected = [
        (check, PushUp(options)) for name, options in CONFIGURATIONS.items() for check in select(ONLY.get(name, ()))
    ]
    applicable = {check.name for check, adapter in selected if not any(map(adapter.why_not, check.needs))}
    assert applicable == set(CHECKS)
