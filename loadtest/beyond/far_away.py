"""How soon does a reader far away get the tokens of a model's answer: by long polls, and by a stream of events?

| setting | value |
|---|---|
| round trip | 80 ms: a relay between subscribers and server holds each byte back for 40 ms in either direction |
| messages | 30 a second on each channel, as a language model writes |
| subscribers | one for each channel |

A long poll has to travel to the server before the next message can travel back. What is published meanwhile waits for
it. Beside that, `client.answer` writes an answer near the server, 50 tokens a second, and `follow_answer` reads it far
away.
"""

from __future__ import annotations

import threading
import time

from deploy.cluster import HOST
from loadtest.beyond.browsers.proxies import Relay
from loadtest.load.servers import running
from loadtest.load.swarm import Measured, PushUpInterface, PushUpStreams, Swarm
from loadtest.reports.results import Figure, Progress, Table, Value
from pushup.client import Client

ONE_WAY_SECONDS = 0.04
TOKENS_PER_SECOND = 30.0
SUBSCRIBERS = 10

ANSWER_TOKENS_PER_SECOND = 50.0
COALESCE_SECONDS = (0.05, 0.015)
"""The default of `client.answer`, and what keeps 60 ms."""


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    seconds = 3.0 if quick else 30.0
    tables, figures = measure(subscribers=SUBSCRIBERS, seconds=seconds)
    return [*tables, answers(seconds)], figures


def answers(seconds: float) -> Table:
    """How long a token takes from `write` to a reader far away."""
    progress = Progress(len(COALESCE_SECONDS))
    rows: list[tuple[Value, ...]] = []
    for coalesce in COALESCE_SECONDS:
        progress.step(f"coalesce={coalesce:g}")
        with running() as server, Relay(server.address[1]) as relay:
            relay.delay = ONE_WAY_SECONDS
            trips = sorted(
                _answer(f"http://{HOST}:{server.address[1]}", f"http://{HOST}:{relay.port}", coalesce, seconds)
            )
        rows.append((f"{coalesce:g}", 1e3 * trips[len(trips) // 2], 1e3 * trips[int(len(trips) * 0.99)]))
    progress.end()
    rate, trip = ANSWER_TOKENS_PER_SECOND, 2e3 * ONE_WAY_SECONDS
    title = f"An answer of {rate:g} tokens a second, read at a round trip of {trip:g} ms"
    return Table("far-away-answers", title, ("coalesce s", "trip p50 ms", "trip p99 ms"), rows)


def _answer(near: str, far: str, coalesce: float, seconds: float) -> list[float]:
    """The seconds that each token took."""
    written: list[float] = []
    read: list[float] = []

    def follow() -> None:
        with Client(far) as reader:
            for part in reader.follow_answer("answer"):
                read.extend([time.monotonic()] * part.count(" "))

    reading = threading.Thread(target=follow)
    with Client(near) as writer, writer.answer("answer", coalesce=coalesce) as answer:
        reading.start()
        time.sleep(1.0)  # until it follows
        for number in range(int(seconds * ANSWER_TOKENS_PER_SECOND)):
            written.append(time.monotonic())
            answer.write(f"{number} ")
            time.sleep(max(0.0, written[0] + (number + 1) / ANSWER_TOKENS_PER_SECOND - time.monotonic()))
    reading.join()
    return [there - here for here, there in zip(written, read, strict=True)]


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
