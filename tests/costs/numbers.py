"""The numbers in `costs.toml`: what they are now, and whether that is what the file says."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.costs.operations import HUNDREDS, MEMORY, OPERATIONS

FILE = Path(__file__).with_name("costs.toml")

COMMAND = "python -m tests.costs"

PYTHON = "{}.{}".format(*sys.version_info)

EXACT = ("calls", "outside_calls")
"""These are the same with every version of Python."""

TOLERANCE = 0.04
"""Of the others, with the version of Python that they were measured with. After other tests in the same process, a
delivery takes up to 3 % more instructions than alone."""

OTHER_PYTHON_TOLERANCE = 0.25
"""By so much more they may be with another version. Python 3.13 needs 9 to 17 % fewer instructions than 3.11."""

_HEAD = f"""\
# What one of each costs, written by `{COMMAND}`. tests/costs/operations.py says what each is.
# Fan-out: many clients wait on one channel. Spread: each waits on a channel of its own. `calls`: of functions of
# PushUp. `outside_calls`: from there of anything else, such as a function in C. `instructions`: of Python, those of
# libraries included. `bytes`: of memory.
"""

Numbers = dict[str, dict[str, float]]
"""Such as {"calls": {"a publication": 73.0}}."""


class Recorded(NamedTuple):
    """What the file says."""

    python: str
    """The version of Python that it was written with."""
    numbers: Numbers


def measure() -> Numbers:
    """The numbers of this tree."""
    costs = {name: measured() for name, measured in OPERATIONS.items()}
    return {
        "calls": {name: round(cost.calls, 2) for name, cost in costs.items()},
        "outside_calls": {name: round(cost.outside_calls, 2) for name, cost in costs.items()},
        "instructions": {name: round(cost.instructions, 2) for name, cost in costs.items()},
        "bytes": {name: round(measured() / HUNDREDS, 2) for name, measured in MEMORY.items()},
    }


def read(file: Path = FILE) -> Recorded:
    tables = tomllib.loads(file.read_text())
    return Recorded(tables.pop("python"), tables)


def write(numbers: Numbers, file: Path = FILE) -> None:
    lines = [f'{_HEAD}\npython = "{PYTHON}"']
    for kind, costs in numbers.items():
        lines += [f"\n[{kind}]", *(f'"{name}" = {value:.10g}' for name, value in costs.items())]
    file.write_text("\n".join(lines) + "\n")


def differences(recorded: Recorded, now: Numbers) -> Iterator[str]:
    """A sentence for each number that is not what the file says."""
    is_other = recorded.python != PYTHON
    for kind, costs in now.items():
        before = recorded.numbers.get(kind, {})
        for name in costs.keys() | before.keys():
            if name not in costs or name not in before:
                yield f"{name}: {kind} are {'no longer measured' if name in before else 'not in the file'}"
                continue
            tolerance = 0 if kind in EXACT else OTHER_PYTHON_TOLERANCE if is_other else TOLERANCE
            old, new = before[name], costs[name]
            is_less = new < old * (1 - tolerance) and not (is_other and tolerance)
            if new > old * (1 + tolerance) or is_less:
                yield f"{name} takes {'less' if is_less else 'MORE'}: {new:g} {kind} instead of {old:g}"


def table(recorded: Recorded | None, now: Numbers) -> Iterator[str]:
    """The lines of a table of all numbers, old and new."""
    yield from ("| cost | of | old | new | change |", "|---|---|---:|---:|---:|")
    for kind, costs in now.items():
        for name, new in costs.items():
            old = None if recorded is None else recorded.numbers.get(kind, {}).get(name)
            change = "" if old is None or old == new else f"{(new - old) / old:+.1%}" if old else "new"
            yield f"| {kind} | {name} | {'' if old is None else f'{old:g}'} | {new:g} | {change} |"
