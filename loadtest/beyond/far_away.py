"""How soon does a page far away get the tokens of a model's answer: by long polls, and by a stream of events?

| setting | value |
|---|---|
| round trip | 80 ms: a relay between subscribers and server holds each byte back for 40 ms in either direction |
| messages | 30 a second on each channel, as a language model writes |
| subscribers | one for each channel |

A long poll has to travel to the server before the next message can travel back. What is published meanwhile waits for
it.
"""

from __future__ import annotations

from deploy.cluster import HOST
from loadtest.beyond.browsers.proxies import Relay
from loadtest.load.servers import running
from loadtest.load.swarm import Measured, PushUpInterface, PushUpStreams, Swarm
from loadtest.reports.results import Figure, Progress, Table, Value

ONE_WAY_SECONDS = 0.04
TOKENS_PER_SECOND = 30.0
SUBSCRIBERS = 10


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    return measure(subscribers=SUBSCRIBERS, seconds=3.0 if quick else 30.0)


def measure(*, subscribers: int, seconds: float) -> tuple[list[Table], list[Figure]]:
    progress = Progress(2)
    rows: list[tuple[Value, ...]] = []
    for transport, streams in (("long polls", None), ("a stream", PushUpStreams())):
        progress.step(transport)
        with running() as server, Relay(server.address[1]) as relay:
            relay.delay = ONE_WAY_SECONDS
            swarm = Swarm(
                [(HOST, relay.port)],
                [server.address],
                subscribers=subscribers,
                channels=subscribers,
                publishers=subscribers,
                interface=PushUpInterface(),
                streams=streams,
            )
            try:
                swarm.begin()
                interval = 1 / TOKENS_PER_SECOND / subscribers
                swarm.measure(interval=interval, seconds=1.0)
                rows.append(_row(transport, swarm.measure(interval=interval, seconds=seconds)))
            finally:
                swarm.close()
    progress.end()
    title = f"{TOKENS_PER_SECOND:g} messages a second at a round trip of {2000 * ONE_WAY_SECONDS:g} ms"
    columns = ("transport", "trip p50 ms", "trip p99 ms", "received %", "faults")
    return [Table("far-away", title, columns, rows)], []


def _row(transport: str, m: Measured) -> tuple[Value, ...]:
    return (
        transport,
        1e3 * m.trip(0.5),
        1e3 * m.trip(0.99),
        100 * m.received_share,
        m.repeated + m.out_of_order + m.gaps,
    )
