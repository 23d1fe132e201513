"""Runs checks, several at a time, within a time limit."""

from __future__ import annotations

import resource
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, NamedTuple

import conformance.checks
from conformance.adapter import Adapter
from conformance.options import Options
from conformance.registry import CHECKS, Check, Failed, NotApplicable
from conformance.trial import Trial

assert conformance.checks  # importing it has registered the checks

WORKERS = 8
"""Checks at a time: most of them wait."""

Verdict = Literal["passed", "failed", "not applicable", "not run"]


class Result(NamedTuple):
    """What became of a check; `reason` says why it did not pass."""

    check: Check
    verdict: Verdict
    reason: str
    seconds: float


def allow_many_files() -> None:
    """Raise this process's limit on open files, often 1024: some checks hold a hundred connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def select(patterns: Sequence[str]) -> list[Check]:
    """The checks with these names; `*` stands for anything. Raises: ValueError if a pattern fits none."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in CHECKS):
            raise ValueError(f"no check is called {pattern}")
    return [c for c in CHECKS.values() if not patterns or any(fnmatchcase(c.name, p) for p in patterns)]


def run(
    checks: Iterable[Check],
    new_adapter: Callable[[Options], Adapter],
    options: Options,
    *,
    seconds: float = 60.0,
    workers: int = WORKERS,
) -> list[Result]:
    """Run checks; those that have not begun after `seconds` are not run."""
    allow_many_files()
    end = time.monotonic() + seconds

    def one(check: Check) -> Result:
        began = time.monotonic()
        verdict, reason = (
            _judge(check, new_adapter(options), options) if began < end else ("not run", "the time was over")
        )
        return Result(check, verdict, reason, time.monotonic() - began)

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one, checks))


def _judge(check: Check, adapter: Adapter, options: Options) -> tuple[Verdict, str]:
    for capability in check.needs:
        if reason := adapter.why_not(capability):
            return "not applicable", reason
    trial = Trial(adapter, options)
    try:
        check.body(trial)
    except NotApplicable as error:
        return "not applicable", str(error)
    except Failed as error:
        return "failed", str(error)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}, line {place.lineno}"
        return "failed", f"expected an answer of another shape: {type(error).__name__}: {error} ({where})"
    finally:
        trial.close()
    return "passed", ""
