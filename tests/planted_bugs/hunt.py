"""Runs seeds until a promise is broken: `python -m tests.planted_bugs.hunt NAME FIRST SEEDS`, in a copy with that bug.

Prints a line of JSON: how many seeds that took, the last of them, and what was broken (empty: nothing was).
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from types import FrameType

import pushup
from tests.planted_bugs import BUGS
from tests.planted_bugs.bug import Bug
from tests.simulation.plan import make_plan
from tests.simulation.seeds import keep_quiet, run_seed

SEED_SECONDS = 60
"""A seed that takes more of the processor hangs: it goes round in circles without simulated time passing."""


class Hangs(Exception):
    """A seed does not end."""


def _hang(number: int, frame: FrameType | None) -> None:
    raise Hangs(f"the seed did not end within {SEED_SECONDS} s of processor time")


def hunt(bug: Bug, first: int, most: int) -> dict[str, object]:
    """Run at most so many seeds. Those that cannot show the bug count, and are not run."""
    signal.signal(signal.SIGVTALRM, _hang)
    for number in range(1, most + 1):
        seed = f"{bug.family}{first + number - 1}"
        if not bug.may_show(make_plan(seed)):
            continue
        signal.setitimer(signal.ITIMER_VIRTUAL, SEED_SECONDS)
        run = run_seed(seed)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if run.broken:
            return {"seeds": number, "seed": seed, "broken": run.broken}
    return {"seeds": most, "seed": "", "broken": ""}


if __name__ == "__main__":
    assert Path(pushup.__file__).is_relative_to(Path.cwd()), "another copy of PushUp was imported"
    keep_quiet()
    name, first, most = sys.argv[1:]
    bug = next((bug for bug in BUGS if bug.name == name), Bug(name, "", "", ()))  # one that is not listed: any seed
    print(json.dumps(hunt(bug, int(first), int(most))))
