"""Nchan, a module for nginx, configured as in nginx.conf beside this package.

One message comes in an answer; its Last-Modified and Etag are the cursor (https://nchan.io/#long-polling). A poll that
ends without a message gets 304 or 408, and goes on from the cursor that it had.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from conformance.adapter import Answer, Message, Published, Request
from conformance.options import Options
from conformance.registry import Failed
from conformance.wire import Response

TIMEOUTS = (0, 1, 2, 20)
"""Seconds for which nginx.conf has a location."""

_HAS = frozenset(("resume", "http", "one node", "many channels", "several at once", "timeout"))

_WHY_NOT = {
    "native": "it is about PushUp's own calls, parameters and errors",
    "one message": "Nchan publishes on several channels as a message of its own on each",
    "gaps": "Nchan does not tell subscribers of messages that it has dropped",
    "keys": "Nchan has no idempotency keys",
    "acknowledgements": "Nchan has one kind of acknowledgement",
    "quick give-up": "how long nginx waits for a request is in its configuration",
    "second node": "one server, without Redis, was checked",
}


class Nchan:
    """The adapter for Nchan."""

    name = "nchan"

    def __init__(self, options: Options) -> None:
        self._options = options

    def why_not(self, capability: str) -> str:
        if capability in _HAS:
            return ""
        return _WHY_NOT.get(
            capability, "access is up to nginx and to an application that it asks, in its configuration"
        )

    def publish(self, channels: tuple[str, ...], data: Any) -> Request:
        headers = (("Content-Type", "application/json"),)
        return Request("POST", f"/pub/{_joined(channels)}", headers, json.dumps(data).encode())

    def read_published(self, response: Response) -> Published:
        if response.status not in (201, 202):
            raise Failed(f"expected 201 or 202 to a publication, and {response} came")
        return Published()

    def poll(self, channels: tuple[str, ...], cursor: str, timeout: float) -> Request:
        seconds = next((s for s in TIMEOUTS if s >= timeout), TIMEOUTS[-1])
        since, _, tag = cursor.partition("|")
        headers = (("If-Modified-Since", since), ("If-None-Match", tag)) if cursor else ()
        return Request("GET", f"/sub/{seconds}/{_joined(channels)}", headers)

    def read_answer(self, response: Response, cursor: str) -> Answer:
        if response.status in (304, 408):
            return Answer(cursor)
        if response.status != 200:
            raise Failed(f"expected 200, 304 or 408 to a poll, and {response} came")
        place = f"{response.headers.get('last-modified', '')}|{response.headers.get('etag', '')}"
        return Answer(place, (Message(response.json),))

    def create(self, channel: str) -> Request | None:
        return None


def _joined(channels: tuple[str, ...]) -> str:
    return ",".join(quote(channel, safe="") for channel in channels)
