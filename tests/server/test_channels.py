"""The lifecycle of channels (PushUp §3.3), over `http.client`."""

from __future__ import annotations

import time

from tests.server.caller import Caller
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


def test_idle_channel_closes(caller: Caller, other: Caller, channel: str) -> None:
    cursor = other.cursor()  # if it closes before the poll arrives, its client is told all the same
    created = caller.call("POST", "/v1/channels", {"name": channel, "ttl": 1})
    assert created.status == 201
    assert other.poll(channel, cursor=cursor, timeout=10)["closed"] == [channel]
    assert caller.call("GET", f"/v1/channels/{channel}").status == 404
