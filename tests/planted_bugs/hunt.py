"""Runs seeds until a promise is broken: `python -m tests.planted_bugs.hunt FIRST SEEDS [KIND]`, in a copy with a
bug.

Prints a line of JSON: how many seeds that took, the last of them, and what was broken (empty: nothing was).
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from types import FrameType

import pushup
from tests.simulation.plan import make_plan
from tests.simulation.seeds import keep_quiet, run_seed

SEED_SECONDS = 300
"""A seed that takes longer on any machine hangs: it goes round in circles without simulated time passing."""


class Hangs(Exception):
    """A seed does not end."""


def _hang(number: int, frame: FrameType | None) -> None:
    raise Hangs(f"the seed did not end within {SEED_SECONDS} s")


def hunt(first: int, most: int, kind: str = "") -> dict[str, object]:
    """Run at most so many seeds. Those of another kind of cluster count, and are not run."""
    signal.signal(signal.SIGALRM, _hang)
    for number in range(1, most + 1):
        seed = str(first + number - 1)
        if kind and make_plan(seed).setup["kind"] != kind:
            continue
        signal.alarm(SEED_SECONDS)
        run = run_seed(seed)
        signal.alarm(0)
        if run.broken:
            return {"seeds": number, "seed": seed, "broken": run.broken}
    return {"seeds": most, "seed": "", "broken": ""}


if __name__ == "__main__":
    assert Path(pushup.__file__).is_relative_to(Path.cwd()), "another copy of PushUp was imported"
    keep_quiet()
    print(json.dumps(hunt(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])))
