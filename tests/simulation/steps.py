"""What a plan consists of."""

from __future__ import annotations

from typing import Any, NamedTuple

FAULT_SECONDS = 40.0
"""For this long there are faults."""

NAMES = ("a", "b", "c", "tag:é")

CLUSTER: dict[str, Any] = {
    "kind": "redis", "nodes": 2, "limits": "roomy", "appendfsync": "always", "replica": False, "delay": 0.0003,
    "slow_node": 0.0, "many": 0, "expire_at_most": 1000, "old_nodes": False,
}  # fmt: skip
"""A small cluster, for plans that are not drawn at random, or only in part."""


class Step(NamedTuple):
    """Something that happens at a time, in seconds from the beginning.

    `kind` names the method `do_<kind>` of `Simulation`, `arguments` are what that is called with.
    """

    at: float
    kind: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.at:8.3f} {self.kind}({shown})"


class Plan(NamedTuple):
    """A cluster and what happens to it."""

    seed: str
    setup: dict[str, Any]
    steps: tuple[Step, ...]
