"""`python -m loadtest echo`: its client, its servers as processes, its tables, and what it concludes."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from loadtest.libman import claims, experiment, idle_connections
from loadtest.libman.client import WINDOW, Measured, Stream, StreamFailed
from loadtest.libman.experiment import Scale
from loadtest.libman.runs import BEST, SYNCH, URING, Kind, Run, Runs, kinds, measure_kind, native_kinds
from loadtest.reports.results import Value
from tests.loadtest.readable import assert_readable

TINY = Scale(connections=(5,), seconds=0.2, rounds=2, sizes=(3000,), connections_of_sizes=5)


@contextmanager
def _answering(answer: Callable[[bytes], bytes | None]) -> Iterator[tuple[str, int]]:
    """A server for one connection, in a thread; it ends the connection instead of sending None."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            try:
                while data := connection.recv(65536):
                    answered = answer(data)
                    if answered is None:
                        return
                    connection.sendall(answered)
            except ConnectionError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()
        thread.join(10)


def test_the_client_counts_what_comes_back() -> None:
    """Bits in one direction, messages, and how long a message took."""
    with _answering(bytes) as address, Stream(address, connections=1, message_bytes=100) as stream:
        stream.begin(patience=5)
        measured = stream.measure(0.5)
    assert measured.messages == measured.received_bytes / 100 > 0
    assert measured.bits_per_second == pytest.approx(8 * measured.received_bytes / measured.seconds)
    assert (measured.stalled, measured.ended) == (0, 0)
    assert 0 < measured.trip(0.5) < measured.seconds
    assert 0 < max(measured.shares) <= 1.1
    assert WINDOW / 2 <= measured.messages_a_read < WINDOW + 0.1  # of the first read, a part came before


def test_no_more_than_the_window_is_under_way() -> None:
    """A server that never answers gets the window, and its connection counts as stalled."""
    got = bytearray()

    def swallow(data: bytes) -> bytes:
        got.extend(data)
        return b""

    with _answering(swallow) as address, Stream(address, connections=1, message_bytes=100) as stream:
        stream.begin(patience=0.2)
        measured = stream.measure(0.2)
    assert len(got) == 100 * WINDOW
    assert (measured.stalled, measured.messages) == (1, 0)


def test_the_client_sleeps_when_everything_is_sent() -> None:
    """What the socket does not take at once follows, and then it waits for the echo only."""
    count = 0

    def swallow(data: bytes) -> bytes:
        nonlocal count
        count += len(data)
        return b""

    size = 1_000_000
    with _answering(swallow) as address, Stream(address, connections=1, message_bytes=size) as stream:
        stream.begin(patience=0.0)
        for _ in range(100):
            if count < size * WINDOW:
                stream.measure(0.1)
        assert count == size * WINDOW
        assert max(stream.measure(0.3).shares) < 0.1


def test_a_wrong_byte_is_an_error() -> None:
    """One that is not what was sent, anywhere in the stream."""
    count = 0

    def spoil(data: bytes) -> bytes:
        nonlocal count
        count += len(data)
        return data if count < 5000 else data[:-1] + bytes([data[-1] ^ 1])

    with _answering(spoil) as address, Stream(address, connections=1, message_bytes=100) as stream:
        stream.begin(patience=0.0)
        with pytest.raises(StreamFailed, match="not those that were sent"):
            stream.measure(5.0)


def test_connections_that_the_server_closes_are_counted() -> None:
    count = 0

    def end(data: bytes) -> bytes | None:
        nonlocal count
        count += 1
        return data if count < 10 else None

    with _answering(end) as address, Stream(address, connections=1, message_bytes=100) as stream:
        stream.begin(patience=0.0)
        measured = stream.measure(0.5)
    assert (measured.ended, measured.stalled) == (1, 0)


def test_connections_get_their_own_bytes_back() -> None:
    """Two connections whose echoes are swapped are noticed, as they began at other places of the message."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with Stream(listener.getsockname(), connections=2, message_bytes=100) as stream:
            ends = [listener.accept()[0] for _ in range(2)]
            stream.begin(patience=0.1)
            first, second = (end.recv(65536) for end in ends)
            ends[0].sendall(second)
            ends[1].sendall(first)
            with pytest.raises(StreamFailed, match="not those that were sent"):
                stream.measure(1.0)
        for end in ends:
            end.close()


SERVERS = [(kind, False) for kind in kinds()] + [(kind, True) for kind in native_kinds()]


@pytest.mark.parametrize(("kind", "native"), SERVERS, ids=lambda value: getattr(value, "name", str(value)))
def test_each_server_echoes_to_many(kind: Kind, native: bool) -> None:
    """As a process: everything comes back right, on every connection, and its processor time is measured."""
    run = measure_kind(kind, 20, 500, 0.6, native=native)
    # A reactor with edges reads until nothing is left; while the client refills one connection, another may wait.
    expected = ("the client is at its limit", "disturbed by other work", "got nothing")
    assert not run.problem or any(text in run.problem for text in expected)
    assert run.measured is not None
    assert run.measured.stalled < 10
    assert run.measured.messages > 20
    assert run.cost > 0 or run.problem  # a busy machine may leave too little time for the kernel to count any
    assert run.cost >= run.kernel_cost


def test_a_server_that_does_not_start_is_a_result() -> None:
    """The rest of the experiment goes on, and the command fails at the end."""
    run = measure_kind(Kind("reactor", "poll", threads=2), 1, 100, 0.1)
    assert run.measured is None
    assert "failed" in run.problem
    table = experiment._table("t", "T", {(run.kind, 1): [run]})
    assert "failed" in table.failed


@pytest.mark.parametrize("kind", [SYNCH, BEST, URING])
def test_no_answer_waits_for_an_acknowledgement(kind: Kind) -> None:
    """The client reads when half of its messages are back: if the system held one of them, that would take 40 ms."""
    measured = measure_kind(kind, 1, 1024, 0.5).measured
    assert measured is not None
    assert measured.messages > 500


@pytest.mark.parametrize("native", [False, True])
def test_the_experiment_has_a_row_for_each_kind(native: bool, tmp_path: Path) -> None:
    """With each number of connections, and each size of message; claims; and the paper's figures."""
    name, all_kinds = ("echo-native", native_kinds()) if native else ("echo", kinds())
    tables, figures = experiment.measure(TINY, all_kinds, name, native=native)
    by_name = {table.name: table for table in tables}
    assert by_name.keys() == {f"{name}-claims", name, f"{name}-sizes"}
    echo = by_name[name]
    assert len(echo.rows) == len(all_kinds)
    for row in echo.rows:
        seen = dict(zip(echo.columns, row, strict=True))
        # On a busy machine a connection may get nothing in so short a time.
        assert {text for text in str(seen["what was seen"]).split(", ") if not text.endswith("got nothing")} <= {
            "all is well", "disturbed by other work", "the client is at its limit",
        }  # fmt: skip
        assert float(seen["lowest"]) <= float(seen["Mbit/s"]) <= float(seen["highest"])
    assert {row[1] for row in by_name[f"{name}-sizes"].rows} == {3000}
    assert not any(table.failed for table in tables)
    assert all(row[-1] != claims.UNKNOWN for row in by_name[f"{name}-claims"].rows if row[3] == "bits/s")
    assert [figure.name for figure in figures] == [
        f"{name}-{which}" for which in ("figure-1", "figure-2", "cost", *(() if native else ("pushup",)))
    ]
    assert all(figure.log_x for figure in figures)
    assert set(figures[2].lines) == {kind.name for kind in all_kinds}
    by_processor_time = ("true_is_best", "no_overhead")  # of so few messages it may be 0
    if native:  # all readings of the other's tables are about both
        assert_readable(name, tables, tmp_path, but=("select_for_few", "epoll_for_many", *by_processor_time))


def test_select_is_not_tried_with_more_than_it_can() -> None:
    """It can have 1,000 connections, and a few descriptors of its own."""
    assert SYNCH.can_have(1000)
    assert not SYNCH.can_have(1010)
    assert experiment.in_rounds([SYNCH, BEST], 2000, TINY) == [BEST, BEST]


def test_each_round_goes_the_other_way() -> None:
    """So that what changes slowly on the machine favours nobody."""
    scale = TINY._replace(rounds=3)
    assert experiment.in_rounds([SYNCH, BEST, URING], 1, scale) == [
        *(SYNCH, BEST, URING),
        *(URING, BEST, SYNCH),
        *(SYNCH, BEST, URING),
    ]


# What is concluded, from made-up measurements.


def _run(
    kind: Kind, connections: int, rate: float, *, trip: float = 0.01, cpu: float = 1.0, others: float = 0.0
) -> Run:
    """`rate`: messages of one byte in one second."""
    measured = Measured(1.0, rate, int(rate), {trip: 1}, 0, 0, (0.5,), 1)
    return Run(kind, connections, 1, measured, cpu, cpu / 2, others, "")


def _verdicts(runs: Runs) -> dict[tuple[str, ...], tuple[Value, Value]]:
    """Of each row, by its claim (without the numbers), the two kinds and the measure: ours, and the verdict."""
    rows = claims.table_of_claims(runs).rows
    return {(str(row[0]).split(" (")[0], *map(str, row[1:4])): (row[5], row[-1]) for row in rows}


REACTOR = Kind("reactor", BEST.wait)
COSTS = ("emulation costs nothing", BEST.name, REACTOR.name, "bits/s")
GAIN = ("faster than ACE's reactor", BEST.name, SYNCH.name, "bits/s")


@pytest.mark.parametrize(
    ("rates", "mean", "verdict"),
    [
        ((100, 100), 1.0, claims.AGREES),
        ((98, 100), 0.98, claims.AGREES),
        ((90, 100), 0.9, claims.DISAGREES),
        ((150, 100), 1.5, claims.AGREES),
    ],
)
def test_emulation_may_be_faster_but_not_slower(rates: tuple[float, float], mean: float, verdict: str) -> None:
    runs = {(BEST, 1): [_run(BEST, 1, rates[0])], (REACTOR, 1): [_run(REACTOR, 1, rates[1])]}
    found, said = _verdicts(runs)[COSTS]
    assert found == pytest.approx(mean)
    assert said == verdict


@pytest.mark.parametrize(
    ("rate", "verdict"),
    [(109, claims.DISAGREES), (110, claims.AGREES), (135, claims.AGREES), (136, "agrees, and more")],
)
def test_the_papers_gain_is_a_range(rate: float, verdict: str) -> None:
    """10 to 35 % over ACE's reactor."""
    runs = {(BEST, 1): [_run(BEST, 1, rate)], (SYNCH, 1): [_run(SYNCH, 1, 100)]}
    assert _verdicts(runs)[GAIN][1] == verdict


def test_ratios_are_taken_within_a_round() -> None:
    """Whatever slows the machine in one round slows both."""
    runs = {
        (BEST, 1): [_run(BEST, 1, 120), _run(BEST, 1, 12)],
        (SYNCH, 1): [_run(SYNCH, 1, 100), _run(SYNCH, 1, 10)],
    }
    assert claims.ratios(runs, BEST, SYNCH, claims.rate) == pytest.approx([1.2, 1.2])


def test_less_time_is_better() -> None:
    """Half the response time and half the processor time are ratios of two."""
    one, two = _run(BEST, 1, 100, trip=0.01, cpu=1), _run(SYNCH, 1, 100, trip=0.02, cpu=2)
    runs = {(BEST, 1): [one], (SYNCH, 1): [two]}
    for metric in (claims.quickness, claims.thrift, claims.thrift_in_kernel):
        assert claims.ratios(runs, BEST, SYNCH, metric) == pytest.approx([2.0])


def test_what_was_not_measured_is_said_so() -> None:
    """Without io_uring, or if a server failed."""
    runs = {(BEST, 1): [_run(BEST, 1, 100)], (SYNCH, 1): [Run(SYNCH, 1, 1, None, 0.0, 0.0, 0.0, "failed")]}
    verdicts = _verdicts(runs)
    assert verdicts[GAIN] == ("-", claims.UNKNOWN)
    assert verdicts["true asynchronous I/O is best", URING.name, BEST.name, "bits/s"] == ("-", claims.UNKNOWN)


def test_a_busy_machine_is_told() -> None:
    """In the title of what is concluded, as it concerns all of it."""
    quiet, busy = _run(BEST, 1, 100), _run(SYNCH, 1, 100, others=0.5)
    assert "disturbed" not in claims.table_of_claims({(BEST, 1): [quiet]}).title
    assert "disturbed 1 of 2" in claims.table_of_claims({(BEST, 1): [quiet], (SYNCH, 1): [busy]}).title


def test_few_and_many_connections_are_told_apart() -> None:
    """select against epoll counts with up to ten connections, epoll against poll with the most only."""
    select, poll = Kind("emulated", "select"), Kind("emulated", "poll")
    runs = {
        (select, 1): [_run(select, 1, 120)],
        (BEST, 1): [_run(BEST, 1, 100)],
        (select, 1000): [_run(select, 1000, 10)],
        (BEST, 1000): [_run(BEST, 1000, 100)],
        (poll, 1): [_run(poll, 1, 1000)],
        (poll, 1000): [_run(poll, 1000, 50)],
    }
    verdicts = _verdicts(runs)
    few = verdicts["select may be better for few", select.name, BEST.name, "bits/s"]
    many = verdicts["what the kernel remembers is best for many", BEST.name, poll.name, "bits/s"]
    assert few[0] == pytest.approx(1.2)
    assert many[0] == pytest.approx(2.0)
    assert few[1] == many[1] == claims.AGREES


def test_idle_connections_cost_select_and_poll(tmp_path: Path) -> None:
    """Beside 900 connections that do nothing, a message costs select and poll several times as much, but not epoll."""
    tables, (figure,) = idle_connections.measure(idle_connections.Scale((0, 900), 0.2, 1))
    assert_readable("idle-connections", tables, tmp_path)
    assert not tables[0].failed
    ratios = {wait: points[1][1] / points[0][1] for wait, points in figure.lines.items()}
    assert ratios["epoll"] < min(ratios["select"], ratios["poll"]) / 1.5
