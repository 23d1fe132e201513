"""`GET /v1/messages/{id}`: what became of a message, who may ask, and what only this node knows of it."""

from __future__ import annotations

from typing import Any

import pytest

from pushup.broadcast import Member
from pushup.core.commands import Continue, Entry
from pushup.core.limits import Limits
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import restore
from tests.core.builders import publish
from tests.net.api.publishing_node import TRACE
from tests.net.in_memory_node import AroundMemory, InMemoryNode

KEYS = (
    "ops key-of-this-test-to-operate operate",
    "app key-of-this-test-to-publish publish",
)
OPERATOR = {"Authorization": "Bearer key-of-this-test-to-operate"}
PUBLISHER = {"Authorization": "Bearer key-of-this-test-to-publish"}


class Cluster(AroundMemory):
    """A broadcast that knows of other nodes what a test says."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.reported: dict[str, str] = {}

    def members(self) -> list[Member]:
        return [Member(id_, f"name of {id_}", (), cursor, 0, "1") for id_, cursor in self.reported.items()]


@pytest.fixture
def node() -> InMemoryNode:
    return InMemoryNode(limits=Limits(retention_messages=1))


@pytest.fixture
def clustered() -> InMemoryNode:
    return InMemoryNode(broadcast=Cluster)


def say(node: InMemoryNode, *channels: str, **headers: str) -> str:
    """Publish; returns the id."""
    return str(node.publish(*channels, data=1, **headers).json["id"])


def why(node: InMemoryNode, id_: str, **headers: str) -> Any:
    result = node.call("GET", f"/v1/messages/{id_}", **headers)
    assert result.status == 200, result
    return result.json


def test_a_message_that_is_kept(node: InMemoryNode) -> None:
    now = node.clock.seconds()
    assert why(node, say(node, "a")) == {
        "id": "e-1",
        "fate": "kept",
        "channels": ["a"],
        "kept_by": ["a"],
        "time": now,
        "bytes": 1,
        "acknowledged": True,
        "nodes": [
            {
                "id": "1", "name": "", "cursor": "e-1", "seen_at": now, "is_alive": True, "applied": True, "by": now,
            }
        ],
    }  # fmt: skip


def test_a_message_that_was_dropped_and_a_client(node: InMemoryNode) -> None:
    """Why it was dropped, and that the client's next poll tells of it: as the poll then does."""
    first = say(node, "a")
    node.advance(2)
    say(node, "a")
    found = why(node, f"{first}?cursor=e-0")
    assert (found["fate"], found["dropped"]) == (
        "dropped", {"reason": "evicted", "time": node.clock.seconds(), "limit": "retention_messages"},
    )  # fmt: skip
    assert found["reader"] == {
        "cursor": "e-0", "has_passed": False, "channels": [{"channel": "a", "delivers": False, "gap": "evicted"}],
    }  # fmt: skip
    assert [gap.reason for gap in node.poll("channel=a&cursor=e-0").gaps] == ["evicted"]


def test_who_may_ask() -> None:
    """Operators only; the answer names the publisher's key."""
    node = InMemoryNode(publish_keys=KEYS)
    id_ = say(node, "a", **PUBLISHER)
    assert why(node, id_, **OPERATOR)["key"] == "app"
    statuses = [node.call("GET", f"/v1/messages/{id_}", **headers).status for headers in (PUBLISHER, {})]
    assert statuses == [403, 401]


@pytest.mark.parametrize(
    ("target", "status", "field"),
    [
        ("now", 400, "id"),
        ("e_1", 400, "id"),
        ("e-1?cursor=now", 400, "cursor"),
        ("e-1?cursor=e-1&cursor=e-1", 400, "cursor"),
        ("e-1?channel=a", 400, "channel"),
        ("f-1", 404, "id"),
        ("e-0", 404, "id"),
    ],
)
def test_what_cannot_be_asked(node: InMemoryNode, target: str, status: int, field: str) -> None:
    say(node, "a")
    result = node.call("GET", f"/v1/messages/{target}")
    assert (result.status, result.json["field"]) == (status, field)


def test_when_each_node_applied_it(clustered: InMemoryNode) -> None:
    """Between two of its reports; one that lags has not, and one that is gone is still listed."""
    node, reported = clustered, clustered.broadcast.reported  # type: ignore[union-attr]
    began = node.clock.seconds()
    first = say(node, "a")
    reported |= {"x": "e-1", "y": "e-0", "z": "e-1"}
    node.advance(2)
    second = say(node, "a")
    node.advance(0.5)
    del reported["z"]
    reported["x"] = "e-2"
    node.advance(1.5)
    noted = {entry["id"]: entry for entry in why(node, second)["nodes"]}
    x, y, z = noted["x"], noted["y"], noted["z"]
    assert (x["name"], x["applied"], x["is_alive"], x["cursor"]) == ("name of x", True, True, "e-2")
    assert x["seen_at"] == began + 4
    assert began < x["not_at"] <= began + 2 < x["by"] <= began + 3
    assert (y["applied"], y["is_alive"], y["cursor"], y["seen_at"]) == (False, True, "e-0", began + 4)
    assert "by" not in y
    assert (z["applied"], z["is_alive"], z["cursor"]) == (False, False, "e-1")
    assert z["seen_at"] <= began + 2
    assert [entry["applied"] for entry in why(node, first)["nodes"]] == [True, False, True]


def test_a_node_that_is_long_gone(clustered: InMemoryNode) -> None:
    """It is not mentioned for later messages, and forgotten after an hour without a report."""
    node, reported = clustered, clustered.broadcast.reported  # type: ignore[union-attr]
    reported |= {"x": "e-0", "y": "e-0"}
    first = say(node, "a")
    assert [entry["id"] for entry in why(node, first)["nodes"]] == ["x", "y"]
    del reported["x"]
    node.clock.advance(9)
    assert [entry["id"] for entry in why(node, say(node, "a"))["nodes"]] == ["x", "y"]
    node.clock.advance(3591)
    assert [entry["id"] for entry in why(node, say(node, "a"))["nodes"]] == ["y"]
    assert [entry["id"] for entry in why(node, first)["nodes"]] == ["x", "y"]
    node.clock.advance(1)
    assert [entry["id"] for entry in why(node, say(node, "a"))["nodes"]] == ["y"]


def test_reports_of_another_order_and_of_a_former_name(clustered: InMemoryNode) -> None:
    """A node that has no state yet, or another order, says nothing of this one."""
    node, reported = clustered, clustered.broadcast.reported  # type: ignore[union-attr]
    reported |= {"loading": "-0", "newer": "", "other": "f-7", "another": "d-7", "x": "e-1"}
    assert [entry["id"] for entry in why(node, say(node, "a"))["nodes"]] == ["x"]


def test_many_reports_of_one_node(clustered: InMemoryNode) -> None:
    """The oldest are forgotten: then it is only known by when the node had applied the message."""
    node, reported = clustered, clustered.broadcast.reported  # type: ignore[union-attr]
    ids = []
    for number in range(1, 2003):
        ids.append(say(node, "a"))
        reported["x"] = f"e-{number}"
        why(node, ids[-1])
        node.clock.advance(0.01)
    began = why(node, ids[0])["nodes"][0]
    assert "not_at" not in began
    assert began["by"] == why(node, ids[2])["nodes"][0]["by"]
    assert "not_at" in why(node, ids[3])["nodes"][0]


def test_a_node_that_goes_on_from_another_state(node: InMemoryNode) -> None:
    """Of the same order: what it remembers stays. What was dropped meanwhile is not known, and it says so."""
    ids = [say(node, "a") for _ in range(3)]
    cursor = node.state.cursor
    node.node.start_from(restore(node.state.snapshot()))
    assert [why(node, id_)["fate"] for id_ in ids] == ["dropped", "dropped", "kept"]
    assert why(node, ids[0])["acknowledged"] is True
    assert why(node, ids[0])["nodes"]
    ahead = restore(node.state.snapshot())
    for number in (1, 2):
        ahead.apply(Entry("e", cursor.sequence + number, ahead.time + 5, publish("a")))
    node.node.start_from(ahead)
    assert why(node, ids[1])["fate"] == "dropped"
    found = why(node, ids[2])
    assert (found["fate"], found["dropped_before"]) == ("forgotten", ahead.time)
    assert found["acknowledged"] is True


def test_a_node_that_goes_on_with_another_order(node: InMemoryNode) -> None:
    """It forgets everything, for the same sequences are other messages now; also if the order is named earlier."""
    ids = [say(node, "a") for _ in range(4)]
    for epoch, sequence in (("f", 3), ("d", 2)):
        why(node, ids[-1])
        node.node.start_from(ReplicatedState(Limits(), epoch=epoch, sequence=sequence, time=5.0))
        assert [node.call("GET", f"/v1/messages/{id_}").status for id_ in ids] == [404] * len(ids)
        ids = [f"{epoch}-{sequence}"]
        found = why(node, *ids)
        assert (found["fate"], found["dropped_before"], found.get("acknowledged")) == ("forgotten", 5.0, None)
        assert [entry["cursor"] for entry in found["nodes"]] == ids
        assert why(node, f"{epoch}-{sequence + 1}")["fate"] == "ahead"


def test_an_order_that_goes_on_without_it(node: InMemoryNode) -> None:
    """The message is lost; nothing else is known of it."""
    say(node, "a")
    node.node.apply(Entry("e", 2, node.state.time, Continue("f")))
    assert why(node, "e-2") == {"id": "e-2", "fate": "lost"}


def test_the_trace_of_a_publication(node: InMemoryNode) -> None:
    """Each message of a publication has the `traceparent` of its request; of a repeated one, that of the first try."""
    body = {"messages": [{"channels": ["a"], "data": number} for number in range(3)]}
    for head in ({"Traceparent": TRACE}, {"Traceparent": TRACE.replace("4bf9", "5bf9")}, {}):
        result = node.call("POST", "/v1/messages", body, Idempotency_Key="k", **head)
        assert result.json["ids"] == ["e-1", "e-2", "e-3"]
    others = say(node, "a", Traceparent="nonsense"), say(node, "a")
    found = [why(node, id_).get("traceparent") for id_ in ("e-1", "e-2", "e-3", *others)]
    assert found == [TRACE, TRACE, TRACE, None, None]
