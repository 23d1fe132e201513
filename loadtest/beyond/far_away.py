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

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from loadtest.load.servers import running
from loadtest.load.swarm import Measured, PushUpInterface, PushUpStreams, Swarm
from loadtest.reports.results import Figure, Progress, Table, Value

ONE_WAY_SECONDS = 0.04
TOKENS_PER_SECOND = 30.0
SUBSCRIBERS = 10
READ_BYTES = 64 * 1024


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    return measure(subscribers=SUBSCRIBERS, seconds=5.0 if quick else 30.0)


def measure(*, subscribers: int, seconds: float) -> tuple[list[Table], list[Figure]]:
    progress = Progress(2)
    rows: list[tuple[Value, ...]] = []
    for transport, streams in (("long polls", None), ("a stream", PushUpStreams())):
        progress.step(transport)
        with running() as server, relay(server.address, ONE_WAY_SECONDS) as far:
            swarm = Swarm(
                [far],
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


@contextmanager
def relay(target: tuple[str, int], one_way: float) -> Iterator[tuple[str, int]]:
    """A relay to a server, in a thread: it passes on each byte after `one_way` seconds. Yields its address."""
    loop = asyncio.new_event_loop()
    writers: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*target)
        writers.extend((writer, back))
        await asyncio.gather(_pass_on(reader, back, one_way), _pass_on(there, writer, one_way))

    server = loop.run_until_complete(asyncio.start_server(accept, "127.0.0.1", 0, backlog=1000))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        host, port = server.sockets[0].getsockname()[:2]
        yield host, port
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.run_until_complete(_abort(writers))
        loop.close()


async def _abort(writers: list[asyncio.StreamWriter]) -> None:
    """End all connections, and then the tasks that serve them."""
    for writer in writers:
        writer.transport.abort()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, one_way: float) -> None:
    loop = asyncio.get_running_loop()
    try:
        while data := await reader.read(READ_BYTES):
            loop.call_later(one_way, writer.write, data)
    except ConnectionError:
        pass
    loop.call_later(one_way, writer.close)
