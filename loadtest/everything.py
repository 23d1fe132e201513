"""`python -m loadtest all [--quick]`: every experiment, one after the other, each in a process of its own.

What has been done is noted in the results folder. A run that was interrupted goes on where it stopped; an experiment
that failed, or whose code has changed since, is run again. An experiment that fails does not stop the others.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import click

from loadtest.reports.about import QUICK, digests


class Plan(NamedTuple):
    """How many seconds an experiment takes on 2 cores, with --quick and in full; the tables and figures it may write.

    `measures`: the code that its results are about: when that changes, they are old. `options`: what `all --full`
    gives it.
    """

    quick: int
    full: int
    writes: tuple[str, ...]
    measures: tuple[str, ...]
    options: tuple[str, ...] = ()


LONGEST = 45 * 60
"""Seconds that an experiment may take in full, so that a part of `all` fits between other work."""

ENGINE = ("pushup/core", "pushup/net", "pushup/node", "pushup/service.py")
LONE = (*ENGINE, *(f"pushup/broadcast/{name}.py" for name in ("__init__", "formats", "memory")))
"""What one server runs that has no journal, no workers and no Redis."""

SERVER = (*ENGINE, "pushup/broadcast")
SWARM = (*SERVER, "loadtest/load")
LIU = (*LONE, "loadtest/load", "loadtest/liu")
HSU = (*LONE, "pushup/backends", "loadtest/hsu", "loadtest/load")
BEYOND = "loadtest/beyond"
STALLS = tuple(f"{BEYOND}/stalls{part}.py" for part in ("", "_client", "_probe", "_server"))

PLAN: Mapping[str, Plan] = {
    "capacity": Plan(60, 120, ("capacity",), (*SWARM, f"{BEYOND}/capacity.py", "docs/operate/capacity.md")),
    "far-away": Plan(11, 130, ("far-away", "far-away-answers"), (*SWARM, f"{BEYOND}/far_away.py")),
    "raw-events": Plan(14, 420, ("raw-events",), (*SWARM, f"{BEYOND}/raw_events.py")),
    "stalls": Plan(28, 150, ("stalls",), (*SWARM, *STALLS)),
    "redis-delay": Plan(21, 230, ("redis-delay", "redis-rate"), (*SWARM, f"{BEYOND}/redis_delay.py")),
    "counts": Plan(20, 250, ("counts",), (*SWARM, "pushup/workers", f"{BEYOND}/workers")),
    "growing-output": Plan(14, 31, ("growing-output",), HSU),
    "slow-backend": Plan(40, 1300, ("slow-backend", "slow-backend-delays", "slow-backend-polls"), HSU),
    "service-requests": Plan(45, 900, ("service-requests",), HSU),
    "journal": Plan(22, 410, ("journal",), (*SWARM, f"{BEYOND}/journal.py")),
    "blocked-client": Plan(38, 1900, ("blocked-client", "blocked-client-timeline", "blocked-client-threshold"), HSU),
    "recorded-game": Plan(40, 740, ("recorded-game",), HSU),
    "echo": Plan(29, 880, (
        "echo", "echo-claims", "echo-sizes", "echo-figure-1", "echo-figure-2", "echo-cost", "echo-pushup",
    ), ("loadtest/libman", "pushup/net/wait")),
    "echo-native": Plan(33, 2400, (
        "echo-native", "echo-native-claims", "echo-native-sizes", "echo-native-figure-1", "echo-native-figure-2",
        "echo-native-cost",
    ), ("loadtest/libman",)),
    "range-operations": Plan(
        5, 60, ("range-operations",), ("pushup/core/time_tree.py", "loadtest/liu/range_operations.py")
    ),
    "idle-connections": Plan(15, 150, ("idle-connections",), ("loadtest/libman",)),
    "designs": Plan(36, 900, (
        "designs-table-1", "designs-capacities", "designs-most-clients", "designs-theorems",
        "designs-probes-in-service", "designs-cost",
    ), ("loadtest/roussev",)),
    "designs-threads": Plan(30, 2100, ("designs-table-2", "designs-threads"), ("loadtest/roussev",)),
    "group": Plan(44, 2500, (
        "group-delivery", "group-stability", "group-messages", "group-latency", "group-throughput", "group-saturation",
        "group-micro-costs", "group-complexity", "group-figure-1", "group-figure-2", "group-figure-3",
    ), ("loadtest/mishra",)),
    "group-waits": Plan(
        14, 1600, ("group-delivery-waits", "group-stability-waits", "group-trace"), ("loadtest/mishra",)
    ),
    "traffic": Plan(34, 790, ("traffic", "trip-time", "push-or-pull"), LIU),
    "trip-time": Plan(34, 790, ("traffic", "trip-time", "push-or-pull"), LIU),
    "traffic-closing": Plan(70, 2600, ("traffic-closing", "trip-time-closing", "push-or-pull-closing"), LIU),
    "packet-loss": Plan(40, 1500, ("packet-loss",), LIU),
    "threads-or-events": Plan(75, 2000, (
        "threads-or-events", "threads-or-events-memory", "threads-or-events-trip-time", "threads-or-events-received",
        "threads-or-events-overload", "threads-or-events-overload-received", "threads-or-events-loss",
    ), LIU),
    "nodes": Plan(75, 2300, (
        "nodes", "nodes-trip-time", "nodes-received", "nodes-with-shares", "nodes-with-shares-trip-time",
        "nodes-with-shares-received", "nodes-a-core-each", "nodes-full-core",
    ), (*SWARM, "loadtest/liu")),
    "peers": Plan(23, 1300, ("peers",), (*SWARM, f"{BEYOND}/peers.py")),
    "headline": Plan(100, 2000, (
        "headline", "headline-runs", "headline-memory", "headline-delay", "headline-stalled", "headline-channels",
    ), (*SWARM, f"{BEYOND}/headline")),
    "pushback": Plan(11, 60, ("pushback",), (*SERVER, f"{BEYOND}/pushback.py")),
    "soak": Plan(17, 5110, ("soak", "soak-memory"), (*SERVER, f"{BEYOND}/soak.py")),
    "kills": Plan(14, 400, ("kills",), (*SWARM, f"{BEYOND}/kills.py")),
    "workers": Plan(99, 1200, (
        "workers-cost", "workers-capacity", "workers-balance", "workers-kills", "workers-replaced", "workers-many",
    ), (*SWARM, "pushup/workers", f"{BEYOND}/workers")),
    "browsers": Plan(52, 3400, ("browsers", "browsers-summary"), (*SERVER, "pushup/browser", f"{BEYOND}/browsers")),
    "cluster-kills": Plan(
        45, 2400, ("cluster-kills",), (*SWARM, f"{BEYOND}/cluster_kills"), ("--minutes", "35"),
    ),
}  # fmt: skip
"""The experiments in the order in which `all` runs them. Those that share the machine with much else, and those that
kill, are last."""

ALIASES = ("trip-time",)
"""Other names of experiments, which `all` leaves out."""

ALL = tuple(name for name in PLAN if name not in ALIASES)

FULL = "--full"

DONE = "done.json"
"""The file in the results folder that says which experiments have been done, with which options, of which code."""


def run_one(name: str, mode: str, folder: Path) -> bool:
    """Run an experiment in a process; what it prints goes into the folder. Returns whether it succeeded."""
    options = PLAN[name].options if mode == FULL else ()
    command = [sys.executable, "-m", "loadtest", name, mode, *options, "--out", str(folder)]
    with (folder / f"{name}.log").open("w") as log:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False)  # noqa: S603
    return done.returncode == 0


def run_all(folder: Path, *, quick: bool, run: Callable[[str, str, Path], bool] = run_one) -> list[str]:
    """Run those that have not been done with these options. Returns the names of those that failed."""
    folder.mkdir(parents=True, exist_ok=True)
    done = _read(folder)
    mode = QUICK if quick else FULL
    left = [name for name in ALL if not _is_done(name, mode, done.get(name, {}))]
    if before := len(ALL) - len(left):
        click.echo(f"{before} have been done before; to repeat them, delete {folder / DONE}", err=True)
    failed = []
    for name, line in _announced(left, quick=quick):
        click.echo(line, err=True)
        began, code = time.monotonic(), digests(PLAN[name].measures)
        if run(name, mode, folder):
            seconds = round(time.monotonic() - began)
            done[name] = {"mode": mode, "seconds": seconds, "code": code}
            (folder / DONE).write_text(json.dumps(done, indent=1) + "\n")
        else:
            failed.append(name)
            click.echo(f"  {name} failed: see {folder / name}.log", err=True)
    if failed:
        click.echo(f"failed: {', '.join(failed)}; `all` tries them again", err=True)
    return failed


def _is_done(name: str, mode: str, noted: Mapping[str, object]) -> bool:
    """Whether what is noted of an experiment is a run with this option, and of the code as it is."""
    return noted.get("mode") == mode and noted.get("code") == digests(PLAN[name].measures)


def _announced(names: list[str], *, quick: bool) -> Iterator[tuple[str, str]]:
    """Each experiment, with a line that says which one it is, and how long it and the others will take."""
    seconds = {name: PLAN[name].quick if quick else PLAN[name].full for name in names}
    for number, name in enumerate(names, 1):
        left = sum(seconds[other] for other in names[number - 1 :])
        yield name, f"{number}/{len(names)} {name}: about {_minutes(seconds[name])}; {_minutes(left)} left in all"


def _minutes(seconds: int) -> str:
    return f"{max(1, round(seconds / 60))} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _read(folder: Path) -> dict[str, dict[str, object]]:
    try:
        found: dict[str, dict[str, object]] = json.loads((folder / DONE).read_text())
    except FileNotFoundError:
        return {}
    return found
