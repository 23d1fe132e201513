"""A simulated cluster with a written plan instead of a seed's (docs/internals/simulation.md), and its history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loadtest.history.events import Acknowledged, Answered
from tests.simulation.simulation import Result, Simulation, simulate
from tests.simulation.steps import Plan, Step

CLUSTER: dict[str, Any] = {
    "kind": "redis",
    "nodes": 2,
    "limits": "roomy",
    "appendfsync": "always",
    "replica": False,
    "delay": 0.0003,
    "slow_node": 0.0,
    "old_nodes": False,
    "many": 0,
    "expire_at_most": 1000,
}


def carry_out(*steps: Step, observe: Callable[[Simulation], None] | None = None, **cluster: Any) -> Result:
    """Simulate it. Whatever the steps do, no promise may be broken."""
    result = simulate(Plan("museum", CLUSTER | cluster, tuple(sorted(steps, key=lambda step: step.at))), observe)
    assert not result.broken, "\n".join(result.story)
    return result


def publish(at: float, *channels: str, node: int | None = None) -> Step:
    """Publish a message, on this node or through the load balancer."""
    target = "balancer" if node is None else "node"
    arguments = {"publisher": 0, "groups": [channels], "key": False, "ack": "accepted"}
    return Step(at, "publish", {**arguments, "target": target, "node": node or 0})


def subscribe(at: float, number: int, *channels: str, cursor: str = "now", direct: bool = False) -> Step:
    """Start the subscriber `s<number>`; a direct one uses the nodes in turn, without the load balancer."""
    arguments = {"number": number, "channels": channels, "cursor": cursor, "direct": direct}
    return Step(at, "subscribe", {**arguments, "timeout": 10, "limit": 100, "slow": 0.0, "pause": 0.0})


def acknowledged(result: Result) -> dict[str, Acknowledged]:
    """The acknowledgements, by the name of the publication."""
    return {event.publication: event for event in result.history if isinstance(event, Acknowledged)}


def answers(result: Result, subscriber: str) -> list[Answered]:
    """What a subscriber was told."""
    return [event for event in result.history if isinstance(event, Answered) and event.subscriber == subscriber]


def received_at(result: Result, subscriber: str) -> dict[str, float]:
    """When a subscriber received each message, by its id; in the order in which it received them."""
    return {message.id: answer.at for answer in answers(result, subscriber) for message in answer.messages}
