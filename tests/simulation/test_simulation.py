"""Whole clusters: no promise is broken, and a seed decides everything."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.observed_node import BUG
from tests.simulation.plan import make_plan
from tests.simulation.simulation import simulate

ROOT = Path(__file__).parents[2]

FIRST_SEED = 0
BATCHES = 8
BATCH_SEEDS = 25
"""These are the seeds of `make check`; `python -m tests.simulation --seeds 20000` runs many more."""

SAME_STORY_SEEDS = 60


@pytest.mark.parametrize("batch", range(BATCHES))
def test_seeds(batch: int, logged_failures: list[str]) -> None:
    """No promise is broken, and no server meets an error that it does not expect.

    For the story of a seed: `python -m tests.simulation --seed 17`.
    """
    first = FIRST_SEED + batch * BATCH_SEEDS
    seeds = range(first, first + BATCH_SEEDS)
    broken = [f"seed {seed}: {what}" for seed in seeds if (what := simulate(make_plan(str(seed))).broken)]
    gc.collect()  # a lost Deferred logs its failure now, and not in another test
    unexpected = [text for text in logged_failures if "Traceback" in text and BUG not in text]
    logged_failures.clear()  # what servers log about faults, they may log as an error
    assert not broken, "\n".join(broken)
    assert not unexpected, "\n".join(unexpected)


@pytest.mark.processes
def test_the_same_seed_is_the_same_story() -> None:
    """Two Pythons with other hashes of strings, and so with another order of every set, do the same."""
    command = [sys.executable, "-m", "tests.simulation", "--digests", "--jobs", "1"]
    command += ["--first", str(FIRST_SEED), "--seeds", str(SAME_STORY_SEEDS)]
    processes = [
        subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONHASHSEED": hash_seed}
        )
        for hash_seed in ("1", "2")
    ]
    one, other = [process.communicate()[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert len(one) == SAME_STORY_SEEDS
    assert all(len(line.split()) == 2 for line in one), "errors"
    assert one == other
