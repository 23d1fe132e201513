"""Hsu §4.1 to §4.3 with real servers: polls that need DNS, a database or LDAP, and the clients that do not.

As in `slow-backend`, 2,000 polls arrive at once. For each, dnsmasq, PostgreSQL or slapd is asked for the player's
record, with a client that blocks: by a handler that blocks the event loop, in threads of the server, or in a helper
process. The server is on this machine, or a round trip of 5 ms away. PostgreSQL accepts no more connections than there
are threads. One in ten players has no record, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import NamedTuple

from loadtest.hsu.player_records import HOST, PORT_VARIABLE, SERVICE_VARIABLE, SERVICES
from loadtest.hsu.real_servers import real_server
from loadtest.hsu.slow_backend import HELPERS, LONGEST, Backend, Outcome, ask, longest_waits
from loadtest.load.servers import LOAD_CORE, running
from loadtest.reports.results import Figure, Progress, Table, Value, percentile, shown

STRANGERS = 10
"""One in so many has no record."""


class Scale(NamedTuple):
    """`round_trips`: to the service, in seconds; `seconds`: the least time of a measurement."""

    polls: int
    round_trips: Sequence[float]
    seconds: float
    rounds: int


FULL = Scale(2000, (0.0, 0.005), 5.0, 3)
QUICK = Scale(200, (0.005,), 1.0, 1)


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    return measure(QUICK if quick else FULL)


def measure(scale: Scale, services: Sequence[str] = SERVICES) -> tuple[list[Table], list[Figure]]:
    """Each service at each distance, with each helper; medians of all rounds."""
    cases = [(service, trip, helper) for service in services for trip in scale.round_trips for helper in HELPERS]
    progress = Progress(scale.rounds * len(cases))
    found: dict[tuple[str, float, str], list[Outcome]] = {case: [] for case in cases}
    players = [number for number in range(scale.polls) if number % STRANGERS]
    for turn in range(scale.rounds):
        for service in services:
            with real_server(service, players) as port:
                for trip in scale.round_trips:
                    with _away(port, trip) as reached:
                        environment = {SERVICE_VARIABLE: service, PORT_VARIABLE: str(reached)}
                        backend = Backend("loadtest.hsu.player_records:may_poll", environment)
                        for helper in HELPERS[:: -1 if turn % 2 else 1]:
                            progress.step(f"{service}, {1e3 * trip:g} ms away, {helper}: {scale.polls} polls")
                            one = ask(helper, backend, scale.polls, scale.seconds)
                            found[service, trip, helper].append(one)
    progress.end()
    title = (
        f"{scale.polls:,} polls that need a service, and others' response delay meanwhile; medians of {scale.rounds}"
    )
    columns = (
        "service", "round trip ms", "helper", "polls", "answered rightly", "most concurrent calls", "polls' p50 s",
        "polls' p99 s", "ms a poll", "others' idle p99 ms", "others' p50 ms", "others' p99 ms", f"others' {LONGEST}",
        f"others' {LONGEST}, from to",
    )  # fmt: skip
    rows = [
        (service, 1e3 * trip, helper, *_row(found[service, trip, helper], scale)) for service, trip, helper in cases
    ]
    return [Table("service-requests", f"{title} (Hsu §4)", columns, rows)], []


def _row(rounds: Sequence[Outcome], scale: Scale) -> tuple[Value, ...]:
    longest = [1e3 * longest_waits(one.busy) for one in rounds]
    return (
        scale.polls, min(_right(one, scale.polls) for one in rounds), max(one.most_calls for one in rounds),
        *(median(percentile(one.waits, share) for one in rounds) for share in (0.5, 0.99)),
        1e3 * median(one.served for one in rounds) / scale.polls,
        1e3 * median(percentile(one.idle, 0.99) for one in rounds),
        *(1e3 * median(percentile(one.busy, share) for one in rounds) for share in (0.5, 0.99)),
        median(longest), f"{shown(min(longest))} {shown(max(longest))}",
    )  # fmt: skip


def _right(one: Outcome, polls: int) -> int:
    """How many polls were allowed or refused as the service says."""
    strangers = len(range(0, polls, STRANGERS))
    return min(one.statuses.get(200, 0), polls - strangers) + min(one.statuses.get(403, 0), strangers)


@contextmanager
def _away(port: int, round_trip: float) -> Iterator[int]:
    """The port at which a server is reached from this distance."""
    if not round_trip:
        yield port
        return
    flags = ("--target", f"{HOST}:{port}", "--delay", str(round_trip / 2))
    with running(*flags, module="loadtest.hsu.distance_server", core=LOAD_CORE) as relay:
        yield relay.port
