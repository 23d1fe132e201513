"""Run many seeds: `python -m tests.simulation --seeds 20000 --jobs 2`, or tell the story of one: `--seed 17`."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from twisted.logger import globalLogBeginner

from tests.simulation.plan import make_plan
from tests.simulation.reach import STATES
from tests.simulation.shrink import kind_of, shrink
from tests.simulation.simulation import Result, simulate

LEAST = 20
"""How often each dangerous state must have been reached in a long run."""


def run_seed(seed: str) -> tuple[str, str, str, dict[str, int], dict[str, int], int]:
    """Seed, broken promise or error, digest, states reached, false alarms, and the longest turn."""
    try:
        result = simulate(make_plan(seed))
    except Exception:
        return seed, "error: " + traceback.format_exc().strip().splitlines()[-1], "", {}, {}, 0
    return seed, result.broken, result.digest, result.reached, result.false_alarms, result.longest_turn


def run_seeds(seeds: list[str], jobs: int) -> Iterator[tuple[str, str, str, dict[str, int], dict[str, int], int]]:
    if jobs == 1:
        yield from map(run_seed, seeds)
        return
    with ProcessPoolExecutor(jobs, max_tasks_per_child=500) as pool:
        yield from pool.map(run_seed, seeds, chunksize=10)


def tell_story(seed: str, *, whole: bool) -> int:
    """One seed: what it does, what it breaks, and the shortest plan that breaks it."""
    result: Result = simulate(make_plan(seed))
    if not result.broken:
        print("\n".join(result.story) if whole else "", f"{seed}: every promise was kept", sep="\n")
        return 0
    if not whole:
        result = shrink(result, lambda text: print(f"  {text}", file=sys.stderr))
    print(f"The cluster: {result.plan.setup}", "What happens:", *result.plan.steps, "", "What was seen:", sep="\n")
    print("\n".join(result.story))
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--seed", help="tell the story of this one")
    parser.add_argument("--digests", action="store_true", help="print a line for each seed: the seed and its digest")
    parser.add_argument("--whole", action="store_true", help="with --seed: all of the story, not shrunk")
    options = parser.parse_args()
    globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)
    if options.seed is not None:
        return tell_story(options.seed, whole=options.whole)
    began, broken, reached, alarms = time.monotonic(), Counter[str](), Counter[str](), Counter[str]()
    seeds = [str(n) for n in range(options.first, options.first + options.seeds)]
    longest = 0
    if options.digests:
        for seed, what, digest, *_ in run_seeds(seeds, options.jobs):
            print(seed, digest or what, flush=True)
        return 0
    for number, (seed, what, _, states, false, turn) in enumerate(run_seeds(seeds, options.jobs), 1):
        reached.update(states)
        alarms.update(false)
        longest = max(longest, turn)
        if what:
            broken[kind_of(what)] += 1
            print(f"seed {seed}: {what}", flush=True)
        if number % max(1, options.seeds // 20) == 0:
            seconds = time.monotonic() - began
            print(f"{number} of {options.seeds} seeds, {sum(broken.values())} broken, {seconds:.0f} s", flush=True)
    print("", "Dangerous states reached:", *(f"{reached[state]:8} {state}" for state in STATES), sep="\n")
    print("", "Gaps without a loss:", *(f"{count:8} {reason}" for reason, count in sorted(alarms.items())), sep="\n")
    print(
        "",
        f"Longest turn: {longest} units of work",
        "Broken promises:",
        *(f"{n:8} {what}" for what, n in broken.items()),
        sep="\n",
    )
    rare = [state for state in STATES if reached[state] < LEAST] if options.seeds >= 1000 else []
    if rare:
        print("", f"Reached less than {LEAST} times:", *rare, sep="\n  ")
    return 1 if broken or rare else 0


if __name__ == "__main__":
    sys.exit(main())
