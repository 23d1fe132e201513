"""Plant each bug in a copy of the source, and see how many seeds of the simulation it takes to notice it.

`python -m tests.planted_bugs --jobs 2` prints a table; `--only NAME` tries one. The exit status is 1 if one was not
found within `--seeds` seeds (the median of `--repeat` starting points), or is found without having been planted.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.planted_bugs import BUGS
from tests.planted_bugs.hunting import Known, Outcome, is_broken_without, try_bug
from tests.simulation.seeds import keep_quiet


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.planted_bugs", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], help="try these, each by its name or how that begins")
    parser.add_argument("--seeds", type=int, default=200, help="within how many seeds it must be found")
    parser.add_argument("--repeat", type=int, default=5, help="how many starting points")
    parser.add_argument("--jobs", type=int, default=1, help="bugs that are tried at the same time")
    parser.add_argument("--known", type=Path, help="a file of results; what is in it is not tried again")
    options = parser.parse_args()
    bugs = [bug for bug in BUGS if not options.only or any(bug.name.startswith(name) for name in options.only)]
    keep_quiet()
    known = Known(options.known)
    outcomes: list[Outcome] = []
    print("| bug | source | found by | median seeds | all | an example |", "|---|---|---|---:|---|---|", sep="\n")
    with ThreadPoolExecutor(options.jobs) as pool:
        for outcome in pool.map(
            lambda bug: try_bug(bug, seeds=options.seeds, repeat=options.repeat, known=known), bugs
        ):
            outcomes.append(outcome)
            print(outcome.row, flush=True)
    missed = [outcome.bug.name for outcome in outcomes if not outcome.is_found]
    sound = [seed for outcome in outcomes for seed in outcome.seeds if is_broken_without(seed)]
    if missed:
        print("", f"Not found within {options.seeds} seeds:", *missed, sep="\n  ")
    if sound:
        print("", "Seeds that fail without any bug, too:", *sound, sep="\n  ")
    return 1 if missed or sound else 0


if __name__ == "__main__":
    sys.exit(main())
