"""`presence`: the list of members, and how the messages of the channel keep it."""

from __future__ import annotations

from typing import Any

import pytest

from pushup.client import ClientError, Closed, Gap, Member, Members, Message
from tests.client.both_clients import MakeClient
from tests.client.simulated_driver import SimulatedDriver, answer

ANN = {"subject": "ann", "since": 1.0, "data": {"name": "Ann"}}
BOB = {"subject": "bob", "since": 2.0, "data": None}
CEM = {"subject": "cem", "since": 3.0, "data": 1}


def snapshot(*members: dict[str, Any]) -> Members:
    return Members({"channel": "room:1", "cursor": "e-1", "count": len(members), "members": list(members)})


def told(count: int, channel: str = "room:1", event: str | None = "presence", **lists: list[Any]) -> Message:
    return Message("e-2", 1.0, [channel], {"count": count, **lists}, "e-2", event)


def test_the_call(make: MakeClient) -> None:
    given = {"channel": "room:1", "cursor": "e-1", "count": 2, "members": [ANN, BOB]}
    driver = SimulatedDriver(a=[answer(200, given), answer(200, {"channel": "x", "cursor": "e-1", "count": 900})])
    client = make("unix:a", driver=driver)
    found = client.presence("room:1&")
    assert driver.sent[0].target == "/v1/presence?channel=room%3A1%26"
    assert (found.channel, found.cursor, found.count) == ("room:1", "e-1", 2)
    assert found.members == {"ann": Member("ann", 1.0, {"name": "Ann"}), "bob": Member("bob", 2.0, None)}
    many = client.presence("x")
    assert (many.count, many.members) == (900, None)


def test_an_answer_of_something_else(make: MakeClient) -> None:
    with pytest.raises(ClientError, match="is the URL right"):
        make("unix:a", driver=SimulatedDriver(a=[answer(200, {"hello": 1})])).presence("a")


def test_messages_about_members() -> None:
    """Other items change nothing."""
    members = snapshot(ANN, BOB)
    for item in (
        told(5, channel="room:2", leaves=["ann"]),
        told(5, event=None, leaves=["ann"]),
        Closed("room:1", "e-2"),
        Gap("room:2", "expired", "e-2", "e-2"),
        told(3, joins=[CEM]),
        told(3, updates=[{**ANN, "data": 7}]),
        told(2, leaves=["bob"]),
        told(2, leaves=["bob"]),  # a message may come again
    ):
        assert members.update(item)
    assert members.count == 2
    assert members.members == {"ann": Member("ann", 1.0, 7), "cem": Member("cem", 3.0, 1)}
    assert list(members.members) == ["ann", "cem"]


def test_what_is_not_enough() -> None:
    assert not snapshot(ANN).update(Gap("room:1", "expired", "e-2", "e-2"))
    assert not snapshot(ANN).update(told(5, joins=[BOB]))
    assert not snapshot(ANN).update(told(5, leaves=["ann"]))


def test_more_than_the_server_lists() -> None:
    """There is only the number. When the lists come again, it is time for another snapshot."""
    members = snapshot(ANN, BOB)
    assert members.update(told(300))
    assert (members.count, members.members) == (300, None)
    assert members.update(told(310))
    assert not members.update(told(200, leaves=["bob"]))
