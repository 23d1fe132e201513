"""Tiny versions of the experiments with a swarm or a cluster, with real nodes, Redis and HAProxy."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest

from loadtest.beyond import far_away, nchan, peers, raw_events, redis_delay
from loadtest.liu import nodes
from loadtest.load.servers import running
from loadtest.load.shares import why_not
from loadtest.load.swarm import PushUpStreams, Swarm
from loadtest.load.witnesses import Witnesses
from loadtest.reports.results import Table
from pushup.client import ClientError
from tests.loadtest.readable import assert_readable
from tests.server.server_process import wait_until


def test_a_swarm_counts_what_it_receives() -> None:
    """Each subscriber gets each message of its channel once, and its trip time is recorded."""
    with running() as server:
        swarm = Swarm(
            [server.address],
            [server.address],
            subscribers=40,
            channels=4,
            publishers=2,
            watched={"server": [server.pid]},
        )
        swarm.begin()
        measured = swarm.measure(interval=0.05, seconds=1.0)
        swarm.close()
    assert measured.published == 20
    assert measured.expected == measured.delivered == 20 * 10
    assert (measured.repeated, measured.out_of_order, measured.gaps, measured.reconnected) == (0, 0, 0, 0)
    assert len(measured.trips) == 200
    assert measured.mean_trip > 0
    assert len(measured.acknowledgements) == 20
    assert measured.received_share == 1.0


def test_a_swarm_does_not_count_the_warm_up() -> None:
    """A message that was due before, and is published late, is neither expected nor counted as delivered."""
    with running() as server:
        swarm = Swarm([server.address], [server.address], subscribers=5)
        try:
            swarm.begin()
            swarm._loop.at(time.time() + 0.05, partial(swarm._publish, time.time() - 1))
            m = swarm.measure(interval=0.1, seconds=0.3)
        finally:
            swarm.close()
    assert (m.published, m.expected, m.delivered, len(m.trips)) == (3, 15, 15, 15)
    assert max(m.trips) < 1


@pytest.mark.parametrize("subscribers", [0, 5])
def test_a_closed_loop_keeps_a_number_of_messages_under_way(subscribers: int) -> None:
    """The next is published when one has reached all its subscribers; where there are none, when it is acknowledged."""
    with running() as server:
        swarm = Swarm([server.address], [server.address], subscribers=subscribers)
        publish, most = swarm._publish, 0.0

        def counting(due: float) -> None:
            nonlocal most
            publish(due)
            most = max(most, swarm._under_way)

        swarm._publish = counting  # type: ignore[method-assign]
        try:
            swarm.begin()
            m = swarm.measure(window=4, seconds=0.3)
        finally:
            swarm.close()
    assert 4 <= most < 5  # one that has reached some of its subscribers counts in part
    assert m.published > 20
    assert len(m.acknowledgements) >= m.published - (0 if subscribers else 4)
    assert m.delivered == m.expected == subscribers * m.published


def test_a_swarm_detects_missing_messages() -> None:
    """A message evicted before a subscriber could get it counts as not received."""
    with running("--set", "retention_messages=1") as server:
        swarm = Swarm([server.address], [server.address], subscribers=1)
        swarm.begin()
        swarm.measure(interval=0.1, seconds=0.3)
        (subscriber,) = swarm._subscribers
        assert subscriber.connection is not None
        swarm._loop.unwatch(subscriber.connection)  # stop reading for a while
        measured = swarm.measure(interval=0.05, seconds=0.5, drain=0.2)
        subscriber.connection.close()
        swarm.close()
    assert measured.published == 10
    assert measured.received_share < 0.5


def test_a_witness_that_ends_too_early_is_an_error() -> None:
    """The publishers have no key: what they did not publish must not count as nothing lost."""
    with running(environment={"PUSHUP_PUBLISH_KEYS": "0123456789abcdef"}) as server:
        witnesses = Witnesses([f"http://{server.host}:{server.port}"], publishers=1)
        witnesses.begin()
        wait_until(lambda: not witnesses._publishers[0].is_alive(), "the publisher ended")
        with pytest.raises(ClientError) as raised:
            witnesses.end()
    assert raised.value.status == 401


def test_nodes_behind_haproxy_deliver_everything(tmp_path: Path) -> None:
    """A single node and two behind HAProxy deliver everything; costs are measured for each part."""
    ((table, derived), figures) = nodes.measure((1, 2), (100,), seconds=1.0, rounds=1)
    alone, _, two = table.rows
    assert (alone[0], two[0]) == ("1 node, alone", "2 nodes")
    assert (alone[5], two[5]) == (100.0, 100.0)
    assert (alone[8], alone[9]) == (0.0, 0.0)
    assert float(two[8]) > 0
    assert [figure.name for figure in figures] == ["nodes-trip-time", "nodes-received", "nodes-a-core-each"]
    _check_derived(derived)
    full = nodes.measure_full_core(derived, (100,), (0.3,), seconds=1.0, rounds=1)
    ((connections, load, due, delivered, _, received, *_, faults, _),) = full.rows
    assert (connections, load, received, faults) == (100, 0.3, 100, 0)
    assert float(delivered) == pytest.approx(float(due), rel=0.5)
    assert_readable("nodes", [table, derived, full], tmp_path)


def _check_derived(derived: Table) -> None:
    """With a core each, nodes would deliver as much as the busiest one could, by what a delivery costs."""
    for row in derived.rows:
        name, _, cost, of_a_poll, of_each, kernel, busiest, rate, times, haproxy, _, _ = row
        count = 2 if name == "2 nodes" else 1
        assert float(rate) == pytest.approx(1e6 * count / float(cost) / float(busiest))
        assert float(of_a_poll) == pytest.approx(float(cost) * float(of_each))
        assert 0 < float(kernel) < 100
        assert 1 <= float(busiest) < 2
        assert (float(haproxy) > 0) == ("alone" not in str(name))
        assert times == 1 or count == 2


def test_a_node_with_a_share_of_a_processor(tmp_path: Path) -> None:
    """Nodes with more work than their shares allow use no more than their shares, and deliver in order, only later.

    Whether two nodes are faster than one depends on the machine at so small a size, so that is left to the experiment.
    """
    if reason := why_not():
        assert "Root and a cgroup are needed" in reason
        return
    share = 0.02
    ((table,), figures) = nodes.measure_shares((1, 2), (2000,), seconds=2.4, rounds=1, share=share)
    assert_readable("nodes", [table], tmp_path)
    for count, row in zip((1, 2), table.rows, strict=True):
        name, connections, mean_trip, _, received, deliveries, used, faults, _, cost, of_a_poll, of_each = row
        assert float(of_a_poll) == pytest.approx(float(cost) * float(of_each))
        assert (name, connections, faults) == (f"{count} node{'s' if count > 1 else ''}", 2000, 0)
        assert 0 < float(used) < 1.5 * count * share  # without a share: six times as much
        assert 0 < float(received) <= 100
        assert float(deliveries) > 0
        assert [figure.lines[str(name)] for figure in figures] == [[(2000, mean_trip)], [(2000, received)]]
    assert [figure.name for figure in figures] == ["nodes-with-shares-trip-time", "nodes-with-shares-received"]


def test_the_delay_of_redis() -> None:
    """Publications are received with it and without; what it adds is too little to be seen beside other tests."""
    ((delay, rate), _) = redis_delay.measure((200,), (200,), seconds=1.5, rounds=1)
    memory, redis = delay.rows
    assert (memory[1], redis[1]) == ("memory", "redis")
    assert (memory[5], redis[5]) == (100.0, 100.0)
    assert all(0 < float(p50) <= float(p99) for _, _, p50, p99, *_ in delay.rows)
    ((asked, published, _, _, received, keeps_up, *_),) = rate.rows
    assert (asked, received, keeps_up) == (200, 100.0, "yes")
    assert float(published) == pytest.approx(200, rel=0.05)


def test_a_swarm_counts_what_streams_deliver() -> None:
    """The same as by polls."""
    with running() as server:
        swarm = Swarm(
            [server.address], [server.address], subscribers=40, channels=4, publishers=2, streams=PushUpStreams()
        )
        swarm.begin()
        measured = swarm.measure(interval=0.05, seconds=1.0)
        swarm.close()
    assert measured.expected == measured.delivered == 20 * 10
    assert (measured.repeated, measured.out_of_order, measured.gaps, measured.reconnected) == (0, 0, 0, 0)


def test_a_page_far_away() -> None:
    """A message of a stream travels one way. A poll may have to travel to the server first, so polls take longer."""
    ((table,), _) = far_away.measure(subscribers=3, seconds=2.0)
    polls, stream = (
        {name: float(value) for name, value in zip(table.columns[1:], row[1:], strict=True)} for row in table.rows
    )
    assert polls["received %"] == stream["received %"] == 100
    assert polls["faults"] == stream["faults"] == 0
    assert 1e3 * far_away.ONE_WAY_SECONDS <= stream["trip p50 ms"] < polls["trip p50 ms"]


def test_an_answer_far_away() -> None:
    """Every token comes, and has travelled one way."""
    rows = far_away.answers(1.0).rows
    assert [row[0] for row in rows] == ["0.05", "0.015"]
    assert all(1e3 * far_away.ONE_WAY_SECONDS <= float(row[1]) <= float(row[2]) for row in rows)


def test_raw_events_beside_json() -> None:
    """Every message comes, in both formats."""
    ((table,), _) = raw_events.measure(subscribers=20, seconds=1.0, rounds=1)
    assert [(row[0], row[-1]) for row in table.rows] == [("fan-out", 0), ("spread", 0)]


def test_peers_do_the_same_work() -> None:
    """PushUp, and Nchan if installed, deliver everything; costs are measured for each kind of work."""
    works = [*peers.table_works(60), *peers.stream_works(60)]
    ((table,), _) = peers.measure(works, memory=("", peers.EVENTS), subscribers=60, seconds=1.0, rounds=1)
    servers = ["PushUp", "Nchan"] if nchan.is_installed() else ["PushUp"]
    names = [*dict.fromkeys(work.name + work.client for work in works), "memory", "memory, events"]
    assert [(row[0], row[1]) for row in table.rows] == [(name, server) for name in names for server in servers]
    for row in table.rows:
        if not str(row[0]).startswith("memory"):
            # Processor time is counted in ticks of 10 ms, which a few messages a second may not take.
            assert float(row[3]) > 0 or "a second" in str(row[0]), row
            assert 0 <= float(row[6]) <= 1.001 * float(row[3]), row
            assert row[10] == 0, row
            if str(row[0]).startswith("publish"):
                assert row[9] == "", row
            else:  # 5,000 a second may be more than a busy machine can do
                assert float(row[9]) > 0 if "5,000 a second" in str(row[0]) else row[9] == 100.0, row


def test_a_swarm_that_is_late_publishes_everything() -> None:
    """If this machine stops it while a message is due, the message is published and counted afterwards."""
    with running() as server:
        swarm = Swarm([server.address], [server.address], subscribers=5)
        try:
            swarm.begin()
            swarm._loop.at(time.time() + 0.05, lambda: time.sleep(0.7))
            measured = swarm.measure(interval=0.1, seconds=0.5, drain=10.0)
        finally:
            swarm.close()
    assert (measured.published, measured.expected, measured.delivered) == (5, 25, 25)
