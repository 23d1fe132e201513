"""What is there before the load begins, and that every server must know later, whichever release it is."""

from __future__ import annotations

import time
from typing import Any

from tests.releases.clients import PATIENCE_SECONDS, sequence
from tests.server.caller import Caller, Reply, poll_path

LIFETIME_SECONDS = 3000

BODY: dict[str, Any] = {
    "messages": [
        {"channels": ["kept"], "data": {"exact": 1.50}, "event": "moved"},
        {"channels": ["kept", "other"], "data": "é"},
    ]
}
KEY = {"Idempotency-Key": "landmarks"}


class Landmarks:
    """A channel with a name and one without, two messages, their key, and a channel that was closed."""

    def __init__(self, address: str) -> None:
        """Make them through the server at this address."""
        with Caller(address) as caller:
            self._start = caller.cursor()
            created = [{"name": "kept", "ttl": LIFETIME_SECONDS}, {"ttl": LIFETIME_SECONDS}]
            made = [_expect(201, caller.call("POST", "/v1/channels", one)).value for one in created]
            self._published = _expect(201, caller.call("POST", "/v1/messages", BODY, KEY)).value
            caller.publish(["closed", str(made[1]["id"])], "gone")
            _expect(204, caller.call("DELETE", "/v1/channels/closed"))
            self._ids = [channel["id"] for channel in made]
            self._channels = self._channels_at(caller)
            self._answer = _in_the_end(caller, self._poll)
            assert [message["data"] for message in self._answer["messages"]] == [{"exact": 1.5}, "é", "gone"]
            assert self._answer["closed"] == ["closed"]

    @property
    def _poll(self) -> str:
        channels = "kept", "other", "closed", str(self._ids[1])
        return poll_path(*channels, cursor=self._start, timeout=0)

    def _channels_at(self, caller: Caller) -> list[dict[str, Any]]:
        found = [_in_the_end(caller, f"/v1/channels/{id_}") for id_ in self._ids]
        return [{name: channel[name] for name in ("id", "name", "expires")} for channel in found]

    def check(self, address: str) -> None:
        """Make sure that the server at this address knows them."""
        with Caller(address) as caller:
            _compare(self._channels, self._channels_at(caller))
            _compare(_comparable(self._answer), _comparable(_in_the_end(caller, self._poll)))
            deadline = time.monotonic() + PATIENCE_SECONDS
            while (reply := caller.call("POST", "/v1/messages", BODY, KEY)).status == 503:
                assert time.monotonic() < deadline, reply
                time.sleep(0.05)
            _compare(self._published, reply.value)


def _compare(before: object, now: object) -> None:
    assert now == before, f"before: {before}; now: {now}"


def _comparable(answer: dict[str, Any]) -> list[Any]:
    """What an answer says; cursors in it are of the present epoch."""
    gaps = [{**gap, "until": sequence(gap["until"])} for gap in answer["gaps"]]
    return [answer["messages"], gaps, answer["closed"]]


def _expect(status: int, reply: Reply) -> Reply:
    assert reply.status == status, reply
    return reply


def _in_the_end(caller: Caller, path: str) -> dict[str, Any]:
    """The answer to a GET, from a server that may have just started."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (reply := caller.call("GET", path)).status == 503:
        assert time.monotonic() < deadline, reply
        time.sleep(0.05)
    value: dict[str, Any] = _expect(200, reply).value
    return value
