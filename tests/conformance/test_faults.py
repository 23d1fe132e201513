"""Each check can fail: it notices a fault of a server that is otherwise good, and says what came instead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from conformance import reports
from conformance.options import Options
from conformance.pushup import PushUp
from conformance.registry import CHECKS, Check
from conformance.runner import run, select
from faults import FAULTS, NOTICED
from servers import CONFIGURATIONS, SECONDS, started
from spoiled import Fault, spoiled

PATIENCE_SECONDS = 1.5
"""Less than `LATE_SECONDS` in `spoiled`. A good server on a busy machine may need more, but these are bad."""

GIVE_UP_SECONDS = 6.0

PARTS = 8
"""The faults are tried in as many tests, so that these can run in parallel."""


def applicable_in(check: Check) -> str:
    """The first configuration in which a check is applicable."""
    fits = (name for name, o in CONFIGURATIONS.items() if not any(map(PushUp(o).why_not, check.needs)))
    return next(fits)


def test_every_check_notices_a_fault() -> None:
    """Each check is in the table, and each fault."""
    assert {check.name for patterns in NOTICED.values() for check in select(patterns)} == set(CHECKS)
    assert set(NOTICED) == set(FAULTS)


class Servers:
    """Good servers, each started when it is needed."""

    def __init__(self, stack: ExitStack, directories: pytest.TempPathFactory) -> None:
        self._stack = stack
        self._directories = directories
        self._options: dict[str, Options] = {}

    def __getitem__(self, name: str) -> Options:
        if name not in self._options:
            self._options[name] = self._stack.enter_context(started(name, self._directories.mktemp("server")))
        return self._options[name]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack, tmp_path_factory)


def test_no_check_fails_without_a_fault(servers: Servers) -> None:
    """The proxy alone spoils nothing."""
    options = servers["memory"]
    with spoiled(options.urls[0], Fault()) as url:
        results = run(select(()), PushUp, replace(options, urls=(url,)), seconds=SECONDS)
    assert not [r for r in results if r.verdict in ("failed", "not run")], reports.text(results)


@pytest.mark.parametrize("part", range(PARTS))
def test_faults_are_noticed(servers: Servers, part: int) -> None:
    """Every check fails that should, with a sentence about what was expected and what came."""
    unnoticed = []
    for fault in list(FAULTS)[part::PARTS]:
        by_configuration: dict[str, list[Check]] = {}
        for check in select(NOTICED[fault]):
            by_configuration.setdefault(applicable_in(check), []).append(check)
        for name, checks in by_configuration.items():
            with ExitStack() as stack:
                options = servers[name]
                urls = tuple(stack.enter_context(spoiled(url, FAULTS[fault])) for url in options.urls)
                bad = replace(options, urls=urls, patience=PATIENCE_SECONDS, check_seconds=GIVE_UP_SECONDS)
                results = run(checks, PushUp, bad)
            unnoticed += [f"{fault}: {r.check.name} {r.verdict}" for r in results if r.verdict != "failed"]
            unnoticed += [
                f"{fault}: {r.reason}" for r in results if r.verdict == "failed" and "expected" not in r.reason
            ]
    assert not unnoticed, "\n".join(unnoticed)
