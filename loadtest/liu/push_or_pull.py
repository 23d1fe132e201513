"""PushUp §4.2, Tables 1 and 2, Figures 7 and 8: network traffic and trip time of client pull and of long polling.

It compares three methods: client pull (CP, once per second), multithreaded long polling (MLP,
`thread_per_request`) and event-driven long polling (ELP, PushUp). All use the same HTTP interface and locust
users. Each run measures traffic and trip time, so `traffic` and `trip-time` are one experiment.

Each method with each number of connections has its own server and its own locust. They all run concurrently, since most
are nearly idle (an interval of 50 s for 10 connections is one response in 5 s). Publishers go through the paper's
intervals: a few messages 10 s apart, then 20 s apart, and so on. All servers share one processor, and all locusts the
other; the results show how busy they were. With --quick everything is ten times faster: the pull interval is 0.1 s, a
poll is held for 5 s, and a message is published every 1 to 5 s.

`closing_connections` is the same as the paper did it: a connection for each request, and one case after the other.

Network traffic is what all subscribers' connections carry per published message: HTTP requests and responses, without
TCP and IP headers.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import NamedTuple

from loadtest.liu.papers_tables import INTERVALS, TABLE_1, TABLE_2, Values
from loadtest.liu.tally import Tally, read_tallies
from loadtest.load.servers import LOAD_CORE, Server, pin, running
from loadtest.reports.results import PAPER as PAPERS_LINE
from loadtest.reports.results import Figure, Progress, Table, Value

CONNECTIONS = (10, 100, 1000)
PULL_SECONDS = 1.0
POLL_SECONDS = 50.0
MESSAGES = 5
QUICK_SPEED = 10.0
QUICK_MESSAGES = 1

BEGIN_SECONDS = 1.3
"""Processor time that a locust needs to start. No locust publishes before the last one is ready."""

END_SECONDS = 40.0
"""How long a locust may take to end on a busy machine."""


class Method(NamedTuple):
    """A way to receive messages: a server module with its flags, and a locust user.

    Polls are held for the whole timeout, as in the paper. Otherwise most of those of 50 s end before the message comes.
    """

    name: str
    module: str
    user: str
    flags: tuple[str, ...] = ("--set", "hold_jitter=0")


METHODS = (
    Method("CP", "pushup", "ClientPull"),
    Method("MLP", "loadtest.liu.thread_per_request", "LongPoll", ("--thread-for", "request", "--hold-jitter", "0")),
    Method("ELP", "pushup", "LongPoll"),
)


class Pace(NamedTuple):
    """The timing of a run, in seconds; `messages` is the number of messages per interval."""

    intervals: Sequence[float]
    pull: float
    poll: float
    messages: int

    @property
    def seconds(self) -> float:
        return sum(self.intervals) * self.messages


PAPER = Pace(INTERVALS, PULL_SECONDS, POLL_SECONDS, MESSAGES)
QUICK = Pace(
    [interval / QUICK_SPEED for interval in INTERVALS],
    PULL_SECONDS / QUICK_SPEED,
    POLL_SECONDS / QUICK_SPEED,
    QUICK_MESSAGES,
)

Case = tuple[int, Method]


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    return measure(CONNECTIONS, QUICK if quick else PAPER)


def measure(connections: Sequence[int], pace: Pace, *, closing: bool = False) -> tuple[list[Table], list[Figure]]:
    """The paper's two tables, a third with all measurements, and both figures (for the most connections).

    `closing`: each request has a connection of its own, and one case is measured after the other. The names of tables
    and figures end in `-closing` then.
    """
    cases = [(number, method) for number in connections for method in METHODS]
    results: dict[Case, list[Tally]] = {}
    for group in [[case] for case in cases] if closing else [cases]:
        results |= measure_together(group, pace, closing=closing)
    suffix, remark = ("-closing", ", connections are closed") if closing else ("", "")
    at = tuple(f"{interval:g} s" for interval in pace.intervals)

    def table(name: str, title: str, value: str) -> Table:
        rows: list[list[Value]] = [
            [number, method.name, *[tally.summary()[value] for tally in tallies]]
            for (number, method), tallies in results.items()
        ]
        return Table(name + suffix, title + remark, ("connections", "method", *at), rows)

    def figure(name: str, title: str, value: str, y: str, paper: Values) -> Figure:
        lines = {
            method.name: [(tally.interval, tally.summary()[value]) for tally in tallies]
            for (number, method), tallies in results.items()
            if number == connections[-1]
        }
        if set(pace.intervals) <= set(PAPER.intervals):
            lines |= papers_lines(paper, connections[-1])
        title = f"{title}, {connections[-1]} connections{remark}"
        return Figure(name + suffix, title, "publish interval (s)", y, lines)

    traffic, trip = "traffic KB a message", "mean trip s"
    first = next(iter(results.values()))[0].summary()
    all_rows: list[tuple[Value, ...]] = [
        (number, method.name, *tally.summary().values())
        for (number, method), tallies in results.items()
        for tally in tallies
    ]
    return [
        table("traffic", "Network traffic, KB per published message (PushUp Table 1)", traffic),
        table("trip-time", "Mean publish trip time, s (PushUp Table 2)", trip),
        Table(
            f"push-or-pull{suffix}",
            f"Pull and push: all measurements{remark}",
            ("connections", "method", *first),
            all_rows,
        ),
    ], [
        figure("traffic", "Network traffic (PushUp Figure 7)", traffic, "KB per message", TABLE_1),
        figure("trip-time", "Mean publish trip time (PushUp Figure 8)", trip, "seconds", TABLE_2),
    ]


def papers_lines(paper: Values, connections: int) -> dict[str, list[tuple[float, float]]]:
    """The paper's values with so many connections, as lines of a figure; none if it has no such number."""
    return {
        method + PAPERS_LINE: list(zip(INTERVALS, values, strict=True))
        for (number, method), values in paper.items()
        if number == connections
    }


def measure_together(
    cases: Sequence[Case],
    pace: Pace,
    *,
    closing: bool,
    beside: int = 0,
    publish_from: str = "",
    during: AbstractContextManager[None] | None = None,
) -> dict[Case, list[Tally]]:
    """Run these cases at the same time; returns each case's tally for each publish interval.

    `beside`: how many others start meanwhile. `publish_from`: the publisher's own address. `during`: entered while
    messages are published.
    """
    progress = Progress(1 + len(pace.intervals))
    progress.step(f"starting {', '.join(f'{method.name} with {number}' for number, method in cases)}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        locusts: dict[Case, subprocess.Popen[bytes]] = {}
        servers = [stack.enter_context(running(*method.flags, module=method.module)) for _, method in cases]
        begin = time.time() + 1.0 + BEGIN_SECONDS * (len(cases) + beside)
        turn = 0.0
        for (number, method), server in zip(cases, servers, strict=True):
            file = _file(folder, (number, method))
            options: dict[str, object] = {"close-connections": int(closing), "measured-file": file}
            if publish_from:
                options["publish-from"] = publish_from
            # One after the other within the shortest interval: a message to many would delay those of other cases.
            turn = len(locusts) * pace.intervals[0] / len(cases)
            process = _locust(number, method, pace, server, begin + turn, options)
            stack.callback(_end, process)
            locusts[number, method] = process
        time.sleep(max(0.0, begin - time.time()))
        with during or nullcontext():
            for interval in pace.intervals:
                progress.step(f"one message every {interval:g} s")
                _wait(interval * pace.messages, locusts)
            _wait(turn, locusts)
        until = time.monotonic() + END_SECONDS
        for process in locusts.values():
            process.wait(max(0.0, until - time.monotonic()))
        _check(locusts)
        results = {case: read_tallies(_file(folder, case)) for case in cases}
        for (number, method), tallies in results.items():
            published = [tally.published for tally in tallies]
            if not publish_from and published != [pace.messages] * len(pace.intervals):  # else packets are lost
                raise RuntimeError(f"{method.name} with {number} connections: {published} messages were published")
    progress.end()
    return results


def _wait(seconds: float, locusts: Mapping[Case, subprocess.Popen[bytes]]) -> None:
    """Raises: RuntimeError as soon as a locust has failed."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        _check(locusts)
        time.sleep(min(left, 1.0))


def _check(locusts: Mapping[Case, subprocess.Popen[bytes]]) -> None:
    """Raises: RuntimeError if a locust has failed."""
    for (number, method), process in locusts.items():
        if process.poll():
            name = f"locust for {method.name} with {number} connections"
            raise RuntimeError(f"{name} has failed. If locust is missing, run: pip install '.[loadtest]'")


def _file(folder: Path, case: Case) -> Path:
    number, method = case
    return folder / f"{method.name}-{number}.json"


def _locust(
    number: int, method: Method, pace: Pace, server: Server, begin: float, more: Mapping[str, object]
) -> subprocess.Popen[bytes]:
    """Start a locust with `number` users of this server, and one that publishes from `begin` on. `more`: options."""
    host, port = server.address
    command = [sys.executable, "-m", "locust", "--headless", "-f", str(Path(__file__).parents[1] / "locustfile.py")]
    command += [method.user, "Publisher", "--host", f"http://{host}:{port}", "--loglevel", "ERROR"]
    command += [
        "--users",
        str(number + 1),
        "--spawn-rate",
        str(number + 1),
        "--only-summary",
        "--exit-code-on-error",
        "0",
    ]
    options = {
        "pull-interval": pace.pull,
        "poll-timeout": pace.poll,
        "publish-intervals": ",".join(f"{interval:g}" for interval in pace.intervals),
        "messages": pace.messages,
        "begin-at": begin,
        "server-pid": server.pid,
        **more,
    }
    command += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
    pin(process.pid, LOAD_CORE)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
