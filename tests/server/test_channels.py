"""The lifecycle of channels (PushUp §3.3), over `http.client`."""

from __future__ import annotations

import time

from tests.server.caller import Caller, data_of
from tests.server.conftest import Serve
from tests.server.server_process import Server


def test_lifecycle_of_a_channel(caller: Caller, other: Caller, server: Server, channel: str) -> None:
    """A channel is created once, shown, listed, renewed and closed; subscribers are told when it closes."""
    created = caller.call("POST", "/v1/channels", {"name": channel, "ttl": 100})
    assert created.status == 201
    assert created.value["name"] == channel
    assert 0 < created.value["expires"] - time.time() <= 100
    again = caller.call("POST", "/v1/channels", {"name": channel})
    assert (again.status, again.value["field"]) == (409, "name")

    other.begin_poll(channel)
    server.wait_for_held(1)
    caller.publish([f"{channel}:x"], "beside it")
    shown = caller.call("GET", f"/v1/channels/{channel}").value
    assert (shown["id"], shown["messages"], shown["bytes"], shown["subscribers"]) == (created.value["id"], 0, 0, 1)
    listed = caller.call("GET", "/v1/channels").value["channels"]
    assert shown["name"] in [each["name"] for each in listed]

    renewed = caller.call("POST", f"/v1/channels/{channel}/renew", {"ttl": 1000})
    assert renewed.status == 200
    assert renewed.value["expires"] > created.value["expires"] + 800

    assert caller.call("DELETE", f"/v1/channels/{channel}").status == 204
    told = other.answer()
    assert told["closed"] == [channel]
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/renew")):
        assert caller.call(method, f"/v1/channels/{channel}{path}").status == 404


def test_channel_without_a_name_is_known_by_its_id(caller: Caller, channel: str) -> None:
    """A created channel has a unique id that can be used to publish and poll."""
    first, second = (caller.call("POST", "/v1/channels").value for _ in range(2))
    assert first["id"] != second["id"]
    caller.publish([str(first["id"])], "to an id")
    assert data_of(caller.poll(str(first["id"]))) == ["to an id"]
    assert data_of(caller.poll(str(second["id"]), timeout=0)) == []
    assert caller.call("GET", "/v1/poll?channel=123").status == 404


def test_idle_channel_closes(caller: Caller, other: Caller, channel: str) -> None:
    """A channel without publications for its ttl closes, and its subscribers are told."""
    cursor = other.cursor()  # if it closes before the poll arrives, its client is told all the same
    created = caller.call("POST", "/v1/channels", {"name": channel, "ttl": 1})
    assert created.status == 201
    assert other.poll(channel, cursor=cursor, timeout=10)["closed"] == [channel]
    assert caller.call("GET", f"/v1/channels/{channel}").status == 404


def test_strict_channels(serve: Serve) -> None:
    """With `strict_channels`, a name that was not created can be neither polled nor published to."""
    with serve(strict_channels="true") as server, server.caller() as caller:
        assert caller.call("GET", "/v1/poll?channel=a").status == 404
        assert caller.call("POST", "/v1/messages", {"channels": ["a"], "data": 1}).status == 404
        assert caller.call("POST", "/v1/channels", {"name": "a"}).status == 201
        caller.publish(["a"], 1)
        assert data_of(caller.poll("a")) == [1]
