"""PushUp §4.2's explanation of Table 2: client pull has more traffic, so it loses more packets, and is slower.

Client pull and long polling run as in `push_or_pull` while 0 to 3 % of the packets between subscribers and the server
are lost, at the paper's shortest and longest publish interval. Each case has a server, a locust and a network of its
own, and all run at the same time: with connections that are kept, and with one for each request as in the paper. The
publisher loses nothing, as its losses would delay all subscribers at once.

TCP sends most lost packets again within 0.2 s, as there is no distance; one that opens a connection after a second, as
everywhere. With --quick everything is ten times faster.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click
import msgspec

from loadtest.liu import push_or_pull
from loadtest.liu.papers_tables import INTERVALS
from loadtest.liu.push_or_pull import METHODS, POLL_SECONDS, PULL_SECONDS, QUICK_SPEED, Pace
from loadtest.liu.tally import Tally
from loadtest.load import lossy_network
from loadtest.load.lossy_network import SAFE_ADDRESS, Packets
from loadtest.reports.results import Figure, Progress, Table, Value

PULL, PUSH = (method for method in METHODS if method.name in ("CP", "ELP"))
KEPT, CLOSED = "kept", "closed"


class Scale(NamedTuple):
    """How much to measure. Each interval has as many messages as fit into `seconds`."""

    losses: Sequence[float]
    rounds: int
    connections: int
    intervals: Sequence[float]
    seconds: float
    pull: float
    poll: float


FULL = Scale((0.0, 0.001, 0.01, 0.03), 3, 200, (INTERVALS[0], INTERVALS[-1]), 100.0, PULL_SECONDS, POLL_SECONDS)
QUICK = Scale(
    (0.0, 0.03), 1, 20, (INTERVALS[0] / QUICK_SPEED, INTERVALS[-1] / QUICK_SPEED), 5.0, PULL_SECONDS / QUICK_SPEED,
    POLL_SECONDS / QUICK_SPEED,
)  # fmt: skip


class Task(msgspec.Struct, frozen=True):
    """A case, for the process that runs it. `beside`: how many others start at the same time."""

    loss: float
    method: str
    closing: bool
    connections: int
    interval: float
    messages: int
    pull: float
    poll: float
    beside: int
    file: str


class Outcome(msgspec.Struct, frozen=True):
    """What subscribers and the network have counted."""

    tally: Tally
    packets: Packets


Case = tuple[str, str, float, float]
"""Connections kept or closed, method, loss, publish interval."""

COLUMNS = (
    "connections are", "method", "lost packets %", "publish interval s", "mean trip s", "trip p99 s", "trip max s",
    "received %", "failed polls", "packets a message", "dropped a message", "sent again a message",
    "timeouts a message", "mean trip s, from to",
)  # fmt: skip


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    """Raises: ClickException if no packets can be dropped here."""
    if reason := lossy_network.why_not():
        raise click.ClickException(reason)
    return measure(QUICK if quick else FULL)


def measure(scale: Scale) -> tuple[list[Table], list[Figure]]:
    """The medians of all rounds."""
    progress = Progress(scale.rounds * len(scale.losses))
    found: dict[Case, list[Outcome]] = {}
    for _ in range(scale.rounds):
        for loss in scale.losses:
            progress.step(f"{loss:.1%} of the packets are lost")
            for case, outcome in _at_once(loss, scale).items():
                found.setdefault(case, []).append(outcome)
    progress.end()
    rows = [_row(case, outcomes) for case, outcomes in sorted(found.items())]
    title = f"Client pull and long polling with lost packets, {scale.connections} subscribers (PushUp §4.2)"
    return [Table("packet-loss", title, COLUMNS, rows)], [_figure(rows, scale)]


def _at_once(loss: float, scale: Scale) -> dict[Case, Outcome]:
    """All cases with this loss, each in a process with its own network. Raises: CalledProcessError."""
    cases = [
        (kept, method.name, loss, interval)
        for kept in (KEPT, CLOSED)
        for method in (PULL, PUSH)
        for interval in scale.intervals
    ]
    with tempfile.TemporaryDirectory() as folder:
        files = {case: f"{folder}/{number}.json" for number, case in enumerate(cases)}
        processes: dict[Case, subprocess.Popen[str]] = {}
        try:
            for case in cases:
                kept, method, _, interval = case
                task = Task(
                    loss, method, kept == CLOSED, scale.connections, interval, round(scale.seconds / interval),
                    scale.pull, scale.poll, len(cases) - 1, files[case],
                )  # fmt: skip
                program = [sys.executable, "-m", "loadtest.liu.packet_loss", msgspec.json.encode(task).decode()]
                command = lossy_network.inside(program)
                processes[case] = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)  # noqa: S603
            return {case: _outcome(process, files[case]) for case, process in processes.items()}
        finally:
            for process in processes.values():
                process.terminate()
                process.wait()
                assert process.stderr is not None
                process.stderr.close()


def _outcome(process: subprocess.Popen[str], file: str) -> Outcome:
    """Raises: RuntimeError if the case has failed."""
    _, errors = process.communicate()
    if process.returncode:
        raise RuntimeError(f"a case has failed: {errors.strip()}")
    return msgspec.json.decode(Path(file).read_bytes(), type=Outcome)


def _row(case: Case, outcomes: Sequence[Outcome]) -> tuple[Value, ...]:
    kept, method, loss, interval = case
    tallies = [outcome.tally.summary() for outcome in outcomes]
    trips = [tally["mean trip s"] for tally in tallies]
    return (
        kept, method, 100 * loss, interval, median(trips), *(
            median(tally[name] for tally in tallies)
            for name in ("trip p99 s", "trip max s", "received %", "failed polls")
        ), *(
            median(values)
            for values in zip(*(_a_message(outcome) for outcome in outcomes), strict=True)
        ), f"{min(trips):.3g} {max(trips):.3g}",
    )  # fmt: skip


def _a_message(outcome: Outcome) -> tuple[float, ...]:
    """Packets that were sent, dropped and sent again, and timeouts."""
    sent, resent, timeouts, dropped = outcome.packets
    return tuple(count / max(1, outcome.tally.published) for count in (sent, dropped, resent, timeouts))


def _figure(rows: Sequence[tuple[Value, ...]], scale: Scale) -> Figure:
    """Trip time over loss, at the longest interval."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for kept, method, loss, interval, trip, *_ in rows:
        if interval == scale.intervals[-1]:
            lines.setdefault(f"{method}, connections {kept}", []).append((float(loss), float(trip)))
    title = f"Mean trip time with lost packets, a message every {scale.intervals[-1]:g} s (PushUp §4.2)"
    return Figure("packet-loss", title, "lost packets (%)", "seconds", lines)


def main(task: Task) -> None:
    """Run a case, in a network of its own; write what came out to its file."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what it has started ends with it
    lossy_network.begin()
    counted: list[Packets] = []

    @contextmanager
    def losing() -> Iterator[None]:
        lossy_network.lose(task.loss)
        before = lossy_network.packets()
        yield
        counted.append(lossy_network.packets().since(before))

    (method,) = (method for method in METHODS if method.name == task.method)
    pace = Pace((task.interval,), task.pull, task.poll, task.messages)
    ((tally,),) = push_or_pull.measure_together(
        [(task.connections, method)], pace, closing=task.closing, beside=task.beside, publish_from=SAFE_ADDRESS,
        during=losing(),
    ).values()  # fmt: skip
    Path(task.file).write_bytes(msgspec.json.encode(Outcome(tally, counted[0])))


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Task))
