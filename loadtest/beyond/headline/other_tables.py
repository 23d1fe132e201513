"""The tables below the main one: memory, delays, clients that do not read, and unused channels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from statistics import median

from loadtest.beyond.headline.generator import Work, loading, run
from loadtest.beyond.headline.processor_time import cost, faults
from loadtest.beyond.headline.servers import Start
from loadtest.load.servers import Usage
from loadtest.reports.results import Table, Value
from pushup.client import Client

Step = Callable[[str], None]

CHANNELS_OF_A_MESSAGE = 100
"""At most; the server's setting `message_channels_limit`."""


def memory(servers: Mapping[str, Start], *, polls: int, channels: int, rounds: int, step: Step) -> Table:
    """The growth of a server's PSS by polls on one channel; and by `channels` polls on as many, compared with one."""
    works = {
        "a held poll": Work("", polls),
        "the same, browser": Work("", polls, is_browser=True),
        "one": Work("", channels),
        "each": Work("", channels, channels),
    }
    grown: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for name, start in servers.items():
            for what, work in works.items():
                step(f"memory: {name}, {work.subscribers:,} polls on {work.channels:,} channels")
                with start() as target:
                    before = _pss(target.pids)
                    with loading(target, work, seconds=0):
                        grown.setdefault((name, what), []).append(_pss(target.pids) - before)
                    grown.setdefault((name, "process"), []).append(before)
    rows: list[tuple[Value, ...]] = []
    for name in servers:
        bytes_ = {what: median(grown[name, what]) for what in (*works, "process")}
        rows += [(what, name, bytes_[what] / works[what].subscribers) for what in list(works)[:2]]
        rows.append(("another channel with one poll on it", name, (bytes_["each"] - bytes_["one"]) / channels))
        rows.append(("the process itself", name, bytes_["process"]))
    return Table(
        "headline-memory",
        f"Growth of the PSS by {polls:,} polls; medians of {rounds} rounds",
        ("what", "server", "bytes"),
        rows,
    )


def _pss(pids: list[int]) -> int:
    return Usage(pids[0]).memory_bytes()


def delay(servers: Mapping[str, Start], *, polls: int, seconds: float, step: Step) -> Table:
    """A message a second to `polls` polls; beside it one poll on another channel, with 20 messages a second."""
    many, other = Work("fan-out", polls, rate=1), Work("other channel", 1, rate=20)
    rows: list[tuple[Value, ...]] = []
    failed = []
    for name, start in servers.items():
        step(f"delay: {name}")
        with (
            start() as target,
            loading(target, many, seconds=seconds) as fan_out,
            loading(target, other, seconds=seconds, prefix="other-") as beside,
        ):
            fan_out.start()
            beside.start()
            a, b = fan_out.end(), beside.end()
        rows.append((name, a.acknowledged_p50, b.trip_p50, b.trip_p99, a.trip_p50, a.last_p50))
        failed += [
            f"delay, {work.name}, {name}: {fault}" for work, m in ((many, a), (other, b)) if (fault := faults(work, m))
        ]
    columns = (
        "server",
        "fan-out acknowledged p50 ms",
        "other channel p50 ms",
        "p99 ms",
        "fan-out p50 ms",
        "to the last p50 ms",
    )
    title = f"A message a second to {polls:,} polls, and another channel with 20 a second"
    return Table("headline-delay", title, columns, rows, failed="\n".join(failed))


def stalled(start: Start, *, polls: int, stalled: int, seconds: float, step: Step) -> Table:
    """Messages of 16,000 bytes, 10 a second, with and without clients that send 64 polls at once and never read."""
    rows: list[tuple[Value, ...]] = []
    failed = []
    for number in (0, stalled):
        step(f"stalled: {number}")
        work = Work("", polls, rate=10, size=16_000, stalled=number)
        with start() as target:
            m = run(target, work, seconds=seconds)
        rows.append((number, m.trip_p50, m.trip_p99))
        if fault := faults(work, m):
            failed.append(f"{number} stalled: {fault}")
    columns = ("clients that do not read", "the others' p50 ms", "p99 ms")
    return Table(
        "headline-stalled", f"{polls:,} clients, messages of 16,000 bytes", columns, rows, failed="\n".join(failed)
    )


def other_channels(
    start: Start, *, polls: int, rate: float, others: tuple[int, ...], seconds: float, rounds: int, step: Step
) -> Table:
    """Polls on a channel each, beside a number of other channels that hold a message each."""
    work = Work("", polls, polls, rate=rate)
    found: dict[int, list[tuple[float, float]]] = {number: [] for number in others}
    failed = []
    for _ in range(rounds):
        for number in others:
            step(f"other channels: {number:,}")
            with start() as target:
                with closing(Client(f"http://127.0.0.1:{target.port}")) as client:
                    names = [f"other-{n}" for n in range(number)]
                    for first in range(0, number, CHANNELS_OF_A_MESSAGE):
                        client.publish(names[first : first + CHANNELS_OF_A_MESSAGE], "x")
                m = run(target, work, seconds=seconds)
            found[number].append((cost(work, m), m.trip_p50))
            if fault := faults(work, m):
                failed.append(f"{number} other channels: {fault}")
    rows = [(number, median(c for c, _ in runs), median(trip for _, trip in runs)) for number, runs in found.items()]
    title = f"{polls:,} polls on {polls:,} channels, {rate:,.0f} messages a second; medians of {rounds} rounds"
    return Table(
        "headline-channels", title, ("other channels", "us per message", "trip p50 ms"), rows, failed="\n".join(failed)
    )
