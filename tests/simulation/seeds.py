"""Many seeds, in several processes."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from twisted.logger import ILogObserver, LogEvent, globalLogBeginner, globalLogPublisher
from zope.interface import implementer

from tests.simulation.observed_node import BUG
from tests.simulation.plan import make_plan
from tests.simulation.simulation import simulate


class Run(NamedTuple):
    """What is left of a run when it has come from another process."""

    seed: str
    broken: str
    """The promise that was broken, or the error; empty if there was none."""
    digest: str = ""
    reached: dict[str, int] = {}  # noqa: RUF012
    without_loss: dict[str, int] = {}  # noqa: RUF012
    longest_turn: int = 0


def run_seed(seed: str) -> Run:
    errors = _UnexpectedErrors()
    globalLogPublisher.addObserver(errors)
    gc.disable()
    try:
        result = simulate(make_plan(seed))
    except Exception:
        return Run(seed, "error: " + traceback.format_exc().strip().splitlines()[-1])
    finally:
        gc.enable()
        gc.collect()  # once for each seed: a lost Deferred logs its failure now, and not during another
        globalLogPublisher.removeObserver(errors)
    if errors.seen and not result.broken:
        return Run(seed, f"no unexpected error: {errors.seen[0]}")
    return Run(seed, result.broken, result.digest, result.reached, result.without_loss, result.longest_turn)


@implementer(ILogObserver)
class _UnexpectedErrors:
    """Errors of a server that it did not expect: it logs them with a traceback."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, event: LogEvent) -> None:
        failure = event.get("log_failure")
        if failure is not None and BUG not in str(failure.value):
            self.seen.append(f"{type(failure.value).__name__}: {failure.value}")


def run_seeds(seeds: list[str], jobs: int) -> Iterator[Run]:
    if jobs == 1:
        yield from map(run_seed, seeds)
        return
    with ProcessPoolExecutor(jobs, initializer=keep_quiet, max_tasks_per_child=500) as pool:
        yield from pool.map(run_seed, seeds, chunksize=10)


def keep_quiet() -> None:
    """Nobody reads what the simulated servers log, except in their stories."""
    globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)
    gc.collect()
    gc.freeze()  # what is imported stays, and need not be looked at after each seed
