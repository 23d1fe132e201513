"""`python -m loadtest all [--quick]`: every experiment, one after the other, each in a process of its own.

What has been done is noted in the results folder. A run that was interrupted goes on where it stopped, and an
experiment that failed is tried again. An experiment that fails does not stop the others.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import click

SECONDS: Mapping[str, tuple[int, int]] = {
    "far-away": (20, 60),
    "stalls": (60, 150),
    "redis-delay": (60, 120),
    "slow-backend": (60, 120),
    "journal": (60, 800),
    "blocked-client": (30, 5000),
    "echo": (60, 1500),
    "designs": (90, 600),
    "group": (120, 1500),
    "traffic": (60, 800),
    "threads-or-events": (180, 480),
    "nodes": (240, 1100),
    "peers": (60, 400),
    "kills": (60, 400),
    "workers": (90, 1200),
    "browsers": (330, 2700),
    "cluster-kills": (200, 9000),
}
"""The experiments in the order in which they run, and how many seconds each takes on 2 cores, with --quick and in full;
some of these are estimates. Those that share the machine with much else, and those that kill, are last."""

DONE = "done.json"
"""The file in the results folder that says which experiments have been done, with which options."""


def run_one(name: str, mode: str, folder: Path) -> bool:
    """Run an experiment in a process; what it prints goes into the folder. Returns whether it succeeded."""
    command = [sys.executable, "-m", "loadtest", name, mode, "--out", str(folder)]
    with (folder / f"{name}.log").open("w") as log:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False)  # noqa: S603
    return done.returncode == 0


def run_all(folder: Path, *, quick: bool, run: Callable[[str, str, Path], bool] = run_one) -> list[str]:
    """Run those that have not been done with these options. Returns the names of those that failed."""
    folder.mkdir(parents=True, exist_ok=True)
    done = _read(folder)
    mode = "--quick" if quick else "--full"
    left = [name for name in SECONDS if done.get(name, {}).get("mode") != mode]
    if before := len(SECONDS) - len(left):
        click.echo(f"{before} have been done before; to repeat them, delete {folder / DONE}", err=True)
    failed = []
    for name, line in _announced(left, quick=quick):
        click.echo(line, err=True)
        began = time.monotonic()
        if run(name, mode, folder):
            done[name] = {"mode": mode, "seconds": round(time.monotonic() - began)}
            (folder / DONE).write_text(json.dumps(done, indent=1) + "\n")
        else:
            failed.append(name)
            click.echo(f"  {name} failed: see {folder / name}.log", err=True)
    if failed:
        click.echo(f"failed: {', '.join(failed)}; `all` tries them again", err=True)
    return failed


def _announced(names: list[str], *, quick: bool) -> Iterator[tuple[str, str]]:
    """Each experiment, with a line that says which one it is, and how long it and the others will take."""
    seconds = {name: SECONDS[name][0 if quick else 1] for name in names}
    for number, name in enumerate(names, 1):
        left = sum(seconds[other] for other in names[number - 1 :])
        yield name, f"{number}/{len(names)} {name}: about {_minutes(seconds[name])}; {_minutes(left)} left in all"


def _minutes(seconds: int) -> str:
    return f"{max(1, round(seconds / 60))} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _read(folder: Path) -> dict[str, dict[str, str | int]]:
    try:
        found: dict[str, dict[str, str | int]] = json.loads((folder / DONE).read_text())
    except FileNotFoundError:
        return {}
    return found
