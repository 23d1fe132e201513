"""All rounds, in turn, until there were enough faults or the time is over; and the table."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click

from loadtest.beyond.cluster_kills.rounds import Fault, Round, Tally, kinds, missing
from loadtest.beyond.cluster_kills.stage import Base
from loadtest.reports.results import Figure, Progress, Table

FAULTS = 1000
QUICK_FAULTS = 12
QUICK_KINDS = (
    "node-killed", "node-stopped", "cut-both-ways", "redis-killed", "older-snapshot", "journal-killed",
)  # fmt: skip
"""One kind of each sort, as each takes some seconds to set up."""

MESSAGES = 50_000
QUICK_MESSAGES = 1000
LONGEST_SECONDS = 60.0
QUICK_LONGEST_SECONDS = 2.0
MINUTES = 60.0
"""No fault begins later than this."""

SEED = 13

COLUMNS = (
    "fault", "times", "acknowledged", "lost", "repeated", "out of order", "true gaps", "gaps without a loss",
    "live again p50 s", "worst s", "other broken promises",
)  # fmt: skip

GAP = "not a gap"
"""How the checker begins the names of what it counts beside gaps."""


def run(
    *,
    quick: bool,
    faults: int | None = None,
    only: Sequence[str] = (),
    seed: int = SEED,
    minutes: float = MINUTES,
    out: Path = Path("results"),
) -> tuple[list[Table], list[Figure]]:
    """`faults`: in all; `only`: of these kinds. Histories are written to `out`/histories."""
    number = (QUICK_FAULTS if quick else FAULTS) if faults is None else faults
    only = only or (QUICK_KINDS if quick else ())
    longest, messages = (QUICK_LONGEST_SECONDS, QUICK_MESSAGES) if quick else (LONGEST_SECONDS, MESSAGES)
    return measure(
        counts(kinds(longest=longest), number, only), longest=longest, messages=messages, seed=seed,
        deadline=time.monotonic() + 60 * minutes, histories=out / "histories",
    )  # fmt: skip


def counts(all_: dict[str, Fault], faults: int, only: Sequence[str] = ()) -> dict[str, int]:
    """How many of each kind, in proportion to their shares; `faults` in all. Kinds that lack a program are left out."""
    chosen = {name: fault for name, fault in all_.items() if not only or name in only}
    for name, fault in chosen.items():
        if lacking := missing(fault):
            click.echo(f"{name} is left out: it needs {lacking}", err=True)
    chosen = {name: fault for name, fault in chosen.items() if not missing(fault)}
    whole = sum(fault.share for fault in chosen.values())
    found: dict[str, int] = {}
    so_far = given = 0
    for name, fault in chosen.items():
        so_far += fault.share
        found[name] = round(faults * so_far / whole) - given
        given += found[name]
    return found


def measure(
    times: dict[str, int], *, longest: float, messages: int, seed: int, deadline: float, histories: Path
) -> tuple[list[Table], list[Figure]]:
    """Cause so many faults of each kind; `messages` are there before. No fault begins after `deadline`."""
    histories.mkdir(parents=True, exist_ok=True)
    all_ = kinds(longest=longest)
    tallies = {name: Tally() for name in times}
    rounds = planned(times, all_)
    progress = Progress(len(rounds) + 1)
    with tempfile.TemporaryDirectory(prefix="pushup-kills-") as folder:
        progress.step("preparing the data")
        base = Base(Path(folder), messages)
        for number, (name, count) in enumerate(rounds):
            if time.monotonic() > deadline:
                break
            progress.step(f"{name}, {count} times")
            one = Round(name, all_[name], seed=f"{seed} {number}", history=histories / f"{name}-{number}.jsonl")
            before = len(tallies[name].broken)
            one.run(base, count, deadline, tallies[name])
            for line in tallies[name].broken[before:]:
                click.echo(line, err=True)
    progress.end()
    broken = [line for tally in tallies.values() for line in tally.broken]
    untried = [name for name, tally in tallies.items() if times[name] and not (tally.times or tally.broken)]
    broken += [f"{name}: no time was left" for name in untried]
    rows = [_row(name, tally) for name, tally in tallies.items() if tally.times or tally.broken]
    done, wanted = sum(tally.times for tally in tallies.values()), sum(times.values())
    title = f"{done} of {wanted} faults of four nodes with one Redis, or of one with a journal, under load"
    return [Table("cluster-kills", title, COLUMNS, rows, failed="\n".join(broken))], []


def planned(times: dict[str, int], all_: dict[str, Fault]) -> list[tuple[str, int]]:
    """The rounds: kinds in turn, so that a run that is cut short has some of each."""
    left = {name: count for name, count in times.items() if count}
    rounds = []
    while left:
        for name in list(left):
            count = min(left[name], all_[name].a_round)
            rounds.append((name, count))
            left[name] -= count
            if not left[name]:
                del left[name]
    return rounds


def _row(name: str, tally: Tally) -> tuple[str | int | float, ...]:
    alarms = {why: count for why, count in tally.without_loss.items() if not why.startswith(GAP)}
    counted = tally.lost + tally.repeated + tally.out_of_order
    return (
        name, tally.times, tally.acknowledged, tally.lost, tally.repeated, tally.out_of_order,
        tally.gaps - sum(alarms.values()),
        "; ".join(f"{count} {why}" for why, count in tally.without_loss.items()) or "0",
        statistics.median(tally.live) if tally.live else 0.0, max(tally.live, default=0.0),
        len(tally.broken) - counted,
    )  # fmt: skip
