"""`python -m tests.orders --seeds 20000 [--first 0]`: many seeds, and what they came by.

`--bugs`: the first of these seeds that notices each planted bug.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections import Counter

from tests.orders.bugs import BUGS, noticed
from tests.orders.checker import BrokenPromise
from tests.orders.world import STATES, run


def main() -> int:
    parser = ArgumentParser()
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--bugs", action="store_true")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    if arguments.bugs:
        missed = 0
        for bug in BUGS:
            found = noticed(bug, seeds)
            print(f"{bug.name}: {found or 'not noticed'}", flush=True)
            missed += found is None
        return bool(missed)
    reached: Counter[str] = Counter()
    broken = 0
    for seed in seeds:
        try:
            reached += run(seed)
        except BrokenPromise as error:
            broken += 1
            print(f"seed {seed}: {error}", flush=True)
    for state in STATES:
        print(f"{reached[state]:>8}  {state}")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
