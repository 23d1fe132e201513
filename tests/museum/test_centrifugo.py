"""Centrifugo: a node that is healthy and silent, and clients that are told of a loss that was none."""

from __future__ import annotations

import pytest

from pushup.core.commands import Continue
from tests.museum.following import Follower
from tests.museum.simulated import acknowledged, carry_out, publish, received_at, subscribe
from tests.net.in_memory_node import InMemoryNode
from tests.simulation.simulation import Simulation
from tests.simulation.steps import Step

PATIENCE_SECONDS = 4.0
"""How long after its acknowledgement a message may take to a node that is ready all the time."""

SAMPLE_SECONDS = 0.1


@pytest.mark.usefixtures("faults_may_be_logged")
def test_a_failover_that_refuses_the_first_connection() -> None:
    """While a node calls itself ready, its subscribers get every message; and it is ready again in the end."""
    ready: dict[str, list[float]] = {"n0": [], "n1": []}

    def observe(simulation: Simulation) -> None:
        def pin() -> None:
            """Each subscriber uses one node only."""
            for number, server in enumerate(simulation.servers):
                simulation.subscribers[number].hosts = [server.name]

        def sample() -> None:
            for server in simulation.servers:
                if server.is_up and server.node.why_not_ready() is None:
                    ready[server.name].append(simulation.record.now)
            simulation.world.later(SAMPLE_SECONDS, sample)

        simulation.world.later(0.6, pin)
        sample()

    result = carry_out(
        subscribe(0.5, 0, "a"),
        subscribe(0.5, 1, "a"),
        Step(10.0, "redis_failover", {"seconds": 3.0}),
        *(publish(2.0 + 0.5 * number, "a", node=number % 2) for number in range(70)),
        replica=True,
        observe=observe,
    )
    assert "refused" in "\n".join(result.story), "the first connections were to be refused"
    messages = acknowledged(result).values()
    assert sum(event.at > 14.0 for event in messages) > 40
    for number, name in enumerate(("n0", "n1")):
        received = received_at(result, f"s{number}")
        silent = []
        for event in messages:
            samples = sum(event.at <= at <= event.at + PATIENCE_SECONDS for at in ready[name])
            was_ready = samples >= PATIENCE_SECONDS / SAMPLE_SECONDS - 1
            if was_ready and received.get(event.ids[0], 1000.0) > event.at + PATIENCE_SECONDS:
                silent.append(event)
        assert not silent, f"{name} was ready and delivered nothing: {silent[:3]}"
        assert max(received.values()) > 40.0
        assert ready[name][-1] > 40.0


def test_nothing_was_missed() -> None:
    """A client that has read everything, or for whom there was nothing, is told of no loss, however late it is."""
    node = InMemoryNode()
    reader, idle = Follower(node, "a", timeout=0), Follower(node, "b", timeout=0)
    node.publish("a", data=1)
    reader.poll()
    idle.poll()
    node.advance(301)  # the message expires
    node.publish("c")
    for follower, received in ((reader, [1]), (idle, [])):
        follower.poll()
        assert (follower.received, follower.gaps) == (received, [])


def test_something_was_missed() -> None:
    """The nearest thing to it: one message more, which expires before it is read, is reported."""
    node = InMemoryNode()
    reader = Follower(node, "a", timeout=0)
    node.publish("a", data=1)
    reader.poll()
    node.publish("a", data=2)
    node.advance(301)
    node.publish("c")
    reader.poll()
    assert (reader.received, reader.gaps) == ([1], [("a", "expired")])


@pytest.mark.parametrize("limit", [1, 2, 100])
@pytest.mark.parametrize("renamed", ["before it comes back", "while it catches up", "after it has caught up"])
def test_a_client_that_has_caught_up_goes_on(renamed: str, limit: int) -> None:
    """With a position that is written otherwise by now: neither what it missed nor the next message is a loss."""
    node = InMemoryNode()
    reader = Follower(node, "a", "b", timeout=5)

    def rename(when: str) -> None:
        if when == renamed:
            node.node.submit(Continue("f"), lambda outcome: None)
            node.run()

    node.publish("a", data=1)
    reader.poll()
    for number in (2, 3, 4):
        node.publish("ab"[number % 2], data=number)
    rename("before it comes back")
    reader.poll(limit)
    rename("while it catches up")
    while reader.answers[-1].more:
        reader.poll(limit)
    assert reader.received == [1, 2, 3, 4]
    assert reader.poll() is None
    rename("after it has caught up")
    for number in (5, 6):
        node.publish("a", data=number)
        assert reader.waited()
        assert reader.poll() is None
    assert (reader.received, reader.gaps) == ([1, 2, 3, 4, 5, 6], [])
