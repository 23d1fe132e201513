"""The faults of `cluster-kills`: each happens, and what it breaks is noticed."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import hiredis
import pytest
from click.testing import CliRunner

from deploy.cluster import free_ports
from loadtest import __main__ as command_line
from loadtest.beyond.cluster_kills import experiment, faults, redis_faults, rounds
from loadtest.beyond.cluster_kills.clients import Record
from loadtest.beyond.cluster_kills.clocks import Clocks
from loadtest.beyond.cluster_kills.links import Links
from loadtest.beyond.cluster_kills.redis import ALWAYS, Redis
from loadtest.beyond.cluster_kills.rounds import Fault, Tally, kinds
from loadtest.beyond.cluster_kills.scene import Scene
from loadtest.beyond.cluster_kills.stage import Base
from loadtest.reports.results import Table

pytestmark = pytest.mark.xdist_group("cluster-kills")  # one cluster after the other: each needs much of the machine

MESSAGES = 1000
LONGEST = 3.0


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    server = Redis("redis", tmp_path, free_ports(1)[0], ALWAYS)
    server.start()
    yield server
    server.kill()


def measured(tmp_path: Path, *names: str) -> dict[str, dict[str, Any]]:
    """Two faults of each kind; the rows of the table by name. Nothing may be broken."""
    times = dict.fromkeys(names, 2)
    deadline = time.monotonic() + 600.0
    ((table,), _) = experiment.measure(
        times, longest=LONGEST, messages=MESSAGES, seed=1, deadline=deadline, histories=tmp_path
    )
    assert table.failed == ""
    rows = {str(row[0]): dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert list(rows) == list(names)
    for row in rows.values():
        assert (row["times"], row["lost"], row["repeated"], row["out of order"]) == (2, 0, 0, 0)
        assert int(row["acknowledged"]) > 0
    return rows


def test_nothing_is_lost_while_nodes_links_and_clocks_fail(tmp_path: Path) -> None:
    """Nor does anybody get a gap: the log is always complete."""
    names = ("node-killed", "node-stopped", "cut-to-redis", "cut-from-redis", "haproxy-reloaded", "node-clock")
    for row in measured(tmp_path, *names).values():
        assert (row["true gaps"], row["gaps without a loss"]) == (0, "0")


def test_nothing_is_lost_while_redis_or_a_disk_fails(tmp_path: Path) -> None:
    """Redis syncs each write, so nobody gets a gap."""
    names = ("redis-killed", "redis-disk-full", "older-save", "journal-killed", "journal-disk-full")
    for row in measured(tmp_path, *names).values():
        assert (row["true gaps"], row["gaps without a loss"]) == (0, "0")


def test_losses_of_redis_are_reported(tmp_path: Path) -> None:
    """There are gaps, and nothing that nobody is told of."""
    for row in measured(tmp_path, "failover", "older-snapshot", "older-file").values():
        assert row["true gaps"] > 0 or row["gaps without a loss"] != "0"


@pytest.mark.parametrize("inject", [redis_faults.put_back_snapshot, redis_faults.fail_over])
def test_a_loss_that_nothing_excuses_is_a_broken_promise(tmp_path: Path, inject: Any) -> None:
    """Faults that lose messages, taken for harmless ones: subscribers are told, and nothing can have been lost."""
    stage = {"with_spare": True} if inject is redis_faults.fail_over else {}
    tally = run_round(tmp_path, Fault(1, inject, stage=stage))
    assert any("nothing can have been" in line for line in tally.broken), tally


def test_a_message_that_does_not_arrive_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is not shown one of its messages has lost it."""
    whole = Record.answered
    hidden: list[object] = []

    def answered(record: Record, subscriber: str, body: Any) -> None:
        if body["messages"] and not hidden:
            hidden.append(body["messages"].pop())
        whole(record, subscriber, body)

    monkeypatch.setattr(Record, "answered", answered)
    tally = run_round(tmp_path, Fault(1, faults.reload_haproxy))
    assert hidden, tally
    assert (tally.lost, tally.repeated, tally.out_of_order) == (1, 0, 0)
    assert any("delivered or covered by a gap" in line for line in tally.broken)


def test_a_node_that_does_not_come_back_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The round goes on, and is judged by what the others have done."""
    monkeypatch.setattr("loadtest.beyond.cluster_kills.scene.LIVE_SECONDS", 12.0)

    def inject(scene: Scene) -> list[str]:
        scene.begins("node2")
        scene.cluster.kill_part("node2")
        return scene.nodes

    tally = run_round(tmp_path, Fault(1, inject))
    assert any("for node2 to be ready" in line for line in tally.broken), tally
    assert tally.lost == 0


def run_round(tmp_path: Path, fault: Fault) -> Tally:
    """A round with one fault."""
    tally = Tally()
    one = rounds.Round("planted", fault, seed="1", history=tmp_path / "history.jsonl")
    one.run(Base(tmp_path, MESSAGES), 1, time.monotonic() + 300.0, tally)
    return tally


def test_a_link_stops_in_one_direction(redis: Redis) -> None:
    """To Redis: nothing is done. From it: it is done, and nobody is told. Both: nothing. Then all of it arrives."""
    (port,) = free_ports(1)
    with closing(Links(redis.port, [port])) as links, closing(socket.create_connection(("127.0.0.1", port))) as client:

        def send(*words: str) -> None:
            client.sendall(bytes(hiredis.pack_command(words)))  # type: ignore[arg-type]  # one word, say the stubs

        def answers() -> bytes:
            client.settimeout(0.5)
            try:
                return client.recv(1000)
            except TimeoutError:
                return b""

        send("INCR", "a")
        assert answers() == b":1\r\n"
        for direction, arrives in (("to", b"1"), ("from", b"3"), ("both", b"3")):
            links.cut(0, direction)
            send("INCR", "a")
            assert answers() == b""
            assert redis.ask("GET", "a") == arrives
            links.mend(0)
            assert answers() == b":%d\r\n" % (int(redis.ask("GET", "a")))
        links.lead_to(port + 1)
        assert client.recv(1000) == b"", "its connection has ended"


def test_a_clock_jumps_and_the_monotonic_one_does_not(tmp_path: Path) -> None:
    """Of one process only, while it runs."""
    clocks = Clocks(tmp_path)
    server = Redis("redis", tmp_path, free_ports(1)[0], ALWAYS, clocks.environment("redis"))
    server.start()
    try:
        for offset in (0, 3600, -3600, 0):
            clocks.set("redis", offset)
            assert abs(int(server.ask("TIME")[0]) - time.time() - offset) < 60
        assert b"uptime_in_seconds:-" not in server.ask("INFO", "server")
    finally:
        server.kill()


def test_the_faults_are_shared_out() -> None:
    """As many as asked for, in proportion; in rounds of each kind in turn."""
    all_ = kinds(longest=60.0)
    assert sum(fault.share for fault in all_.values()) == 1000
    for number in (1, 17, 333, 1000):
        assert sum(experiment.counts(all_, number).values()) == number
    times = experiment.counts(all_, 50, ["failover", "node-killed"])
    assert times == {"node-killed": 37, "failover": 13}
    assert experiment.planned(times, all_) == [
        ("node-killed", 20), ("failover", 10), ("node-killed", 17), ("failover", 3),
    ]  # fmt: skip


def test_times_are_spread() -> None:
    """From the shortest to the longest, half of them below the geometric mean."""
    rng = random.Random(1)
    times = sorted(faults.spread(rng, 1.0, 60.0) for _ in range(1001))
    assert 1.0 <= times[0] < 1.1
    assert 54.0 < times[-1] <= 60.0
    assert 6.0 < times[500] < 10.0


def test_broken_promises_fail_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the exit status 1, after the table; its options are refused elsewhere."""
    given: list[dict[str, Any]] = []

    def run(**arguments: Any) -> Any:
        given.append(arguments)
        return [Table("cluster-kills", "T", ("a",), [(1,)], failed="one order: x" if len(given) == 1 else "")], []

    monkeypatch.setattr(experiment, "run", run)
    words = ["cluster-kills", "--quick", "--faults", "7", "--fault", "failover", "--out", str(tmp_path)]
    broken = CliRunner().invoke(command_line.main, words)
    assert (broken.exit_code, "one order: x" in broken.output) == (1, True)
    assert given[0] == {"quick": True, "out": tmp_path, "faults": 7, "only": ("failover",)}
    assert CliRunner().invoke(command_line.main, words).exit_code == 0
    assert CliRunner().invoke(command_line.main, ["kills", "--seed", "1"]).exit_code == 2
