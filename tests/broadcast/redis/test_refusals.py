"""Whatever refuses publications shows: in readiness, at once and with its reason, and in a counter."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher
from zope.interface import implementer

from pushup.broadcast.redis.heartbeat import REPORT_SECONDS
from pushup.core.errors import Unavailable
from tests.broadcast.redis.following_nodes import Cluster, FollowingNode
from tests.core.builders import publish

FULL = "OOM command not allowed when used memory > 'maxmemory'."
REFUSALS = {
    "OOM": FULL,
    "MISCONF": "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "NOREPLICAS": "NOREPLICAS Not enough good replicas to write.",
    "READONLY": "READONLY You can't write against a read only replica.",
    "BUSY": "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
}


@pytest.fixture
def lines(log: list[str]) -> Iterator[list[str]]:
    """What is logged."""
    lines: list[str] = []

    @implementer(ILogObserver)
    class Observer:
        def __call__(self, event: LogEvent) -> None:
            lines.append(formatEvent(event))

    observer = Observer()
    globalLogPublisher.addObserver(observer)
    yield lines
    globalLogPublisher.removeObserver(observer)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(1)
    cluster.advance(1.0)
    yield cluster
    cluster.end()


def reason(node: FollowingNode) -> str:
    """Why a node is not ready; empty if it is."""
    error = node.node.why_not_ready()
    return "" if error is None else error.operator_detail or error.detail


@pytest.mark.parametrize("code", REFUSALS)
def test_a_node_whose_publications_are_refused_is_not_ready(cluster: Cluster, lines: list[str], code: str) -> None:
    """From the first refusal on, for as long as it lasts, and not longer, although nobody publishes meanwhile."""
    (node,) = cluster.nodes
    state = node.state
    cluster.redis.denies = REFUSALS[code]
    outcomes = node.append(publish("a"))
    while not outcomes:
        assert cluster.redis.step()
    assert isinstance(outcomes[0], Unavailable)
    assert code in reason(node)
    for _ in range(50):
        cluster.advance(0.1)
        assert reason(node)
    assert not any("works again" in line for line in lines)
    cluster.redis.denies = ""
    cluster.advance(3.0 if code != "OOM" else 2 * REPORT_SECONDS)
    assert reason(node) == ""
    assert sum("works again" in line for line in lines) == 1
    assert node.state is state, "it was not loaded again"
    cluster.publish(node, "a")


def test_a_redis_that_is_full_when_a_node_comes(cluster: Cluster, lines: list[str]) -> None:
    """The node is not ready until Redis takes publications, and no publication is needed to find that out."""
    cluster.redis.denies = FULL
    node = cluster.start()
    cluster.advance(1.0)
    assert "OOM" in reason(node)
    cluster.redis.denies = ""
    cluster.advance(2 * REPORT_SECONDS)
    assert reason(node) == ""


def test_refused_publications_are_counted_by_reason(cluster: Cluster, lines: list[str]) -> None:
    """With a word for each reason, whatever Redis says."""
    (node,) = cluster.nodes
    for text in ("OOM full", "OOM full of something", "MISCONF disk", "ERR what is this 1", "ERR what is this 2"):
        cluster.redis.denies = text
        cluster.do(node, publish("a"))
    cluster.redis.denies = ""
    cluster.redis.refuses = "no"
    cluster.redis.cut()
    cluster.advance(0.5)
    cluster.do(node, publish("a"))
    counted = {
        sample.labels["reason"]: sample.value
        for metric in node.metrics.collect()
        if metric.name == "pushup_publications_refused"
        for sample in metric.samples
    }
    assert counted["OOM"] == 2
    assert counted["unreachable"] >= 1
    assert {reason for reason in counted if counted[reason]} <= {"OOM", "MISCONF", "refused", "unreachable", "unusable"}
    assert sum(counted.values()) == 6


@pytest.mark.parametrize("seed", range(6))
def test_a_node_is_not_ready_while_the_log_says_that_publishing_is_refused(seed: int, lines: list[str]) -> None:
    """At every moment, whatever happens to Redis: a line and readiness come from the same fact."""
    random = Random(seed)
    cluster = Cluster(1)
    (node,) = cluster.nodes
    refused = ready = 0
    for _ in range(120):
        what = random.random()
        if what < 0.15:
            cluster.redis.denies = random.choice([*REFUSALS.values(), ""])
        elif what < 0.3:
            cluster.redis.refuses = random.choice(["", "", "no"])
            cluster.redis.cut()
        elif what < 0.35:
            cluster.redis.hangs = not cluster.redis.hangs
        elif what < 0.4:
            cluster.redis.restart()
        elif what < 0.5:
            cluster.redis.denies = cluster.redis.refuses = ""
        elif what < 0.8:
            node.append(publish("a"))
        for _ in range(random.randrange(1, 12)):
            cluster.clock.advance(0.05)
            while True:
                told = [line for line in lines if "publishing is refused" in line or "works again" in line]
                if told and "publishing is refused" in told[-1]:
                    assert reason(node), told[-1]
                    refused += 1
                ready += not reason(node)
                if not (cluster.redis.step() or node.turn()):
                    break
    cluster.end()
    assert refused > 20
    assert ready > 20
