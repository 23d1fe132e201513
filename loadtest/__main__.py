"""`python -m loadtest EXPERIMENT [--quick] [--out FOLDER]`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import click

from loadtest.beyond import (
    capacity,
    far_away,
    journal,
    kills,
    peers,
    pushback,
    raw_events,
    redis_delay,
    soak,
    stalls,
)
from loadtest.beyond.browsers import experiment as browsers
from loadtest.beyond.browsers.drivers import BROWSERS
from loadtest.beyond.browsers.scenarios import SCENARIOS
from loadtest.beyond.cluster_kills import experiment as cluster_kills
from loadtest.beyond.cluster_kills.rounds import kinds
from loadtest.beyond.headline import experiment as headline
from loadtest.beyond.workers import counts
from loadtest.beyond.workers import experiment as workers
from loadtest.everything import PLAN, run_all
from loadtest.history.events import BadHistory
from loadtest.history.file import read_history
from loadtest.history.verdict import check
from loadtest.hsu import blocked_client, growing_output, recorded_game, service_requests, slow_backend
from loadtest.libman import experiment as echo
from loadtest.libman import idle_connections
from loadtest.libman import native_experiment as echo_native
from loadtest.liu import (
    closing_connections,
    nodes,
    packet_loss,
    push_or_pull,
    range_operations,
    threads_or_events,
)
from loadtest.load.servers import LOAD_CORE, pin, raise_file_limit
from loadtest.mishra import experiment as group
from loadtest.mishra import waits
from loadtest.reports.about import Measuring, NotOfThisCommit
from loadtest.reports.documents import old, publish
from loadtest.reports.report import write_report
from loadtest.reports.results import Figure, Table
from loadtest.roussev import designs, thread_numbers


class Experiment(Protocol):
    """The interface of an experiment's module."""

    __doc__: str | None

    @staticmethod
    def run(*, quick: bool) -> tuple[list[Table], list[Figure]]: ...


EXPERIMENTS = {
    "blocked-client": blocked_client,
    "browsers": browsers,
    "capacity": capacity,
    "cluster-kills": cluster_kills,
    "counts": counts,
    "designs": designs,
    "designs-threads": thread_numbers,
    "echo": echo,
    "echo-native": echo_native,
    "far-away": far_away,
    "group": group,
    "group-waits": waits,
    "growing-output": growing_output,
    "headline": headline,
    "idle-connections": idle_connections,
    "journal": journal,
    "kills": kills,
    "nodes": nodes,
    "packet-loss": packet_loss,
    "peers": peers,
    "pushback": pushback,
    "range-operations": range_operations,
    "raw-events": raw_events,
    "recorded-game": recorded_game,
    "redis-delay": redis_delay,
    "service-requests": service_requests,
    "slow-backend": slow_backend,
    "soak": soak,
    "stalls": stalls,
    "threads-or-events": threads_or_events,
    "traffic": push_or_pull,
    "traffic-closing": closing_connections,
    "trip-time": push_or_pull,
    "workers": workers,
}

CLUSTER_KILLS = "cluster-kills"
REAL_BROWSERS = "browsers"
ALL = "all"
REPORT = "report"
JUDGE = "judge"

OPTIONS = {
    CLUSTER_KILLS: {"faults", "only", "seed", "minutes"},
    REAL_BROWSERS: {"browsers", "scenarios"},
    REPORT: {"docs", "check"},
}
"""Those that only one experiment or command has."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("experiment", type=click.Choice([*sorted(EXPERIMENTS), ALL, REPORT, JUDGE]))
@click.argument("file", required=False, type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.option("--quick/--full", default=None, help="--quick shortens the run; in full it takes as long as docs/ says.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=Path("results"), show_default=True,
    help="Folder for tables and figures.",
)  # fmt: skip
@click.option("--faults", type=click.IntRange(min=1), help="cluster-kills: how many faults in all.")
@click.option(
    "--fault",
    "only",
    type=click.Choice(sorted(kinds(longest=1.0))),
    multiple=True,
    help="cluster-kills: only this kind.",
)
@click.option("--seed", type=int, help="cluster-kills: the faults and the load follow from it.")
@click.option("--minutes", type=click.FloatRange(min=0), help="cluster-kills: no fault begins later.")
@click.option("--browser", "browsers", type=click.Choice([*BROWSERS]), multiple=True, help="browsers: only this one.")
@click.option(
    "--scenario", "scenarios", type=click.Choice([*SCENARIOS]), multiple=True, help="browsers: only this one."
)
@click.option("--docs", is_flag=True, default=None, help="report: also update the results and tables in docs/lab/.")
@click.option("--check", is_flag=True, default=None, help="report: only check that no result is older than its code.")
def main(experiment: str, file: Path | None, *, quick: bool | None, out: Path, **special: Any) -> None:
    """Run an EXPERIMENT, which starts the servers it needs, and save its results.

    "all" runs every experiment, or goes on with those that have not been done, and ends with a report. "report" runs
    nothing: it combines all results in the folder into one page; with --docs it also copies those of full runs to
    docs/lab/results/, and writes the tables in docs/lab/ that are made from them. "judge" reads a history from FILE,
    and says whether the server kept its promises (docs/internals/histories.md).
    """
    if (experiment == JUDGE) != (file is not None):
        raise click.UsageError(f"{JUDGE} needs a FILE, and nothing else takes one")
    given = {name: value for name, value in special.items() if value not in (None, ())}
    if others := given.keys() - OPTIONS.get(experiment, set()):
        raise click.UsageError(f"{experiment} does not have {_flags(others)}")
    if quick is not None and experiment in (REPORT, JUDGE):
        raise click.UsageError(f"{experiment} runs nothing, so it takes neither --quick nor --full")
    if file is not None:
        sys.exit(judge(file))
    if "check" in given:
        sys.exit(1 if _old(out) else 0)
    if experiment in (ALL, REPORT):
        undone = run_all(out, quick=bool(quick)) if experiment == ALL else []
        _report(out, docs="docs" in given)
        sys.exit(1 if undone else 0)
    raise_file_limit()
    measuring = Measuring(PLAN[experiment].measures)
    if experiment == CLUSTER_KILLS:  # the servers share the processors with the load, as the processes that it starts
        tables, figures = cluster_kills.run(quick=bool(quick), out=out, **given)
    elif experiment == REAL_BROWSERS:  # and so do the browsers
        tables, figures = browsers.run(quick=bool(quick), **given)
    else:
        pin(0, LOAD_CORE)
        tables, figures = EXPERIMENTS[experiment].run(quick=bool(quick))
    about = measuring.about(_command(sys.argv[1:]))
    for table in tables:
        table.write(out, about)
        click.echo(table.text() + "\n")
    for figure in figures:
        figure.write(out, about)
    click.echo("\n".join(f"{name}: {value}" for name, value in about.items() if name != "code"))
    click.echo(f"Results written to {out}/")
    if unknown := {*(table.name for table in tables), *(one.name for one in figures)} - set(PLAN[experiment].writes):
        raise RuntimeError(f"not in the plan (loadtest/everything.py): {unknown}")
    failed = "\n".join(table.failed for table in tables if table.failed)
    if failed:
        click.echo(f"\nBroken promises:\n{failed}")
        sys.exit(1)


def _flags(names: Iterable[str]) -> str:
    """The options as they are written on the command line."""
    named = {parameter.name: parameter.opts[0] for parameter in main.params}
    return ", ".join(sorted(named[name] for name in names))


def _command(arguments: Sequence[str]) -> str:
    """How to do this again; wherever the results went."""
    kept = list(arguments)
    if "--out" in kept:
        at = kept.index("--out")
        del kept[at : at + 2]
    return " ".join(["python -m loadtest", *kept])


def _old(out: Path) -> int:
    """Name the results that are older than the code that they measure. Returns how many there are."""
    found = old(out)
    for name, why in found.items():
        click.echo(f"old: {name}: {why}")
    return len(found)


def _report(out: Path, *, docs: bool) -> None:
    """Write the page, and with `docs` the generated parts of the documents. Without results there is no page."""
    try:
        click.echo(f"Report written to {write_report(out)}")
    except FileNotFoundError as error:
        if not docs:
            raise click.ClickException(str(error)) from None
    _old(out)
    if docs:
        try:
            copied, left = publish(out)
        except NotOfThisCommit as error:
            raise click.ClickException(str(error)) from None
        click.echo(f"Copied to docs/lab/: {', '.join(copied) or 'nothing'}")
        if left:
            click.echo(f"Not copied, as they are of a run with --quick: {', '.join(left)}")


def judge(file: Path) -> int:
    """Print whether a history keeps all promises, and what is in it. Returns the exit status."""
    try:
        verdict = check(read_history(file))
    except BadHistory as error:
        click.echo(f"{file} is not a history: {error}", err=True)
        return 2
    rows = {**verdict.counts, **{f"without a loss: {why}": count for why, count in verdict.without_loss.items()}}
    click.echo("\n".join(f"{count:8} {what}" for what, count in rows.items()))
    where = f"line {verdict.line}: " if verdict.line else ""
    click.echo(where + verdict.broken if verdict.broken else "every promise was kept")
    return 1 if verdict.broken else 0


if __name__ == "__main__":
    main()
