"""Run many seeds: `python -m tests.simulation --seeds 20000 --jobs 2`, or tell the story of one: `--seed 17`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from twisted.logger import globalLogBeginner

from loadtest.history.file import write_history
from tests.simulation.plan import FAMILIES, make_plan
from tests.simulation.reach import STATES
from tests.simulation.seeds import run_seeds
from tests.simulation.shrink import kind_of, shrink
from tests.simulation.simulation import Result, simulate

LEAST = 20
"""How often each dangerous state must have been reached in a long run."""


def print_digests(seeds: list[str], jobs: int) -> int:
    """A line for each seed: the seed, and the digest of its story or the error."""
    for run in run_seeds(seeds, jobs):
        print(run.seed, run.digest or run.broken, flush=True)
    return 0


def tell_story(seed: str, *, whole: bool, history: Path | None) -> int:
    """One seed: what it does, what it breaks, and the shortest plan that breaks it."""
    result: Result = simulate(make_plan(seed))
    if history is not None:
        write_history(history, result.history)
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
    for family, (option, what) in FAMILIES.items():
        text = f"{what}: seeds {family}0, {family}1, ..."
        parser.add_argument(f"--{option}", action="store_const", dest="family", const=family, default="", help=text)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--seed", help="tell the story of this one")
    parser.add_argument("--digests", action="store_true", help="print a line for each seed: the seed and its digest")
    parser.add_argument("--whole", action="store_true", help="with --seed: all of the story, not shrunk")
    parser.add_argument("--history", type=Path, help="with --seed: write what its clients were told to this file")
    options = parser.parse_args()
    globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)
    if options.seed is not None:
        return tell_story(options.seed, whole=options.whole, history=options.history)
    began, broken, reached, alarms = time.monotonic(), Counter[str](), Counter[str](), Counter[str]()
    family, states = options.family, STATES[options.family]
    seeds = [f"{family}{n}" for n in range(options.first, options.first + options.seeds)]
    if options.digests:
        return print_digests(seeds, options.jobs)
    longest = 0
    for number, run in enumerate(run_seeds(seeds, options.jobs), 1):
        reached.update(run.reached)
        alarms.update(run.without_loss)
        longest = max(longest, run.longest_turn)
        if run.broken:
            broken[kind_of(run.broken)] += 1
            print(f"seed {run.seed}: {run.broken}", flush=True)
        if number % max(1, options.seeds // 20) == 0:
            seconds = time.monotonic() - began
            print(f"{number} of {options.seeds} seeds, {sum(broken.values())} broken, {seconds:.0f} s", flush=True)
    print("", "Dangerous states reached:", *(f"{reached[state]:8} {state}" for state in states), sep="\n")
    print("", "Gaps without a loss:", *(f"{count:8} {reason}" for reason, count in sorted(alarms.items())), sep="\n")
    print(
        "",
        f"Longest turn: {longest} units of work",
        "Broken promises:",
        *(f"{n:8} {what}" for what, n in broken.items()),
        sep="\n",
    )
    rare = [state for state in states if reached[state] < LEAST] if options.seeds >= 1000 else []
    if rare:
        print("", f"Reached less than {LEAST} times:", *rare, sep="\n  ")
    return 1 if broken or rare else 0


if __name__ == "__main__":
    sys.exit(main())
