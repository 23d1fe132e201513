"""PushUp's own protocol."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from conformance.adapter import Answer, Message, Published, Request
from conformance.options import Options
from conformance.registry import Failed
from conformance.wire import Response

FOREIGN_CURSOR = "0-7"
"""A cursor that PushUp can read, but has not made."""

ANSWER_FIELDS = {"cursor", "messages", "more", "gaps", "closed"}

QUICK_EXPIRY_SECONDS = 5

QUICK_GIVE_UP_SECONDS = 12


class PushUp:
    """The adapter for servers of the protocol."""

    name = "pushup"

    def __init__(self, options: Options) -> None:
        self._options = options
        self._key = (("Authorization", f"Bearer {options.publish_key}"),) if options.publish_key else ()
        # Of several nodes behind one address any may get the next poll; after `stable` each has the message (ACK-2).
        self._ack = {"ack": "stable"} if options.several_nodes else {}

    def why_not(self, capability: str) -> str:
        options = self._options
        return {
            "second node": "" if len(options.urls) > 1 else "no second node was given (--second URL)",
            "one node": "the address leads to several nodes (--several-nodes)" if options.several_nodes else "",
            "publish key": "" if options.publish_key else "the server has no publish keys (--publish-key KEY)",
            "no publish key": "the server has publish keys" if options.publish_key else "",
            "origin": "" if options.origin else "no allowed origin was given (--origin ORIGIN)",
            "credentials": "" if options.credentials else "polls need no authorization (--credentials 'Name: value')",
            "token": "" if options.token[0] else "the server takes no tokens (--token ISSUER AUDIENCE SECRET)",
            "URL tickets": "" if options.url_tickets else "the server issues no URL tickets (--url-tickets)",
            "webhooks": "" if options.webhooks else "the server calls no application (--webhooks)",
            "no webhooks": "the server calls an application" if options.webhooks else "",
            "presence": "" if options.presence else "no channel was said to have presence (--presence PREFIX)",
            "strict": "" if options.strict else "the server is not strict (--strict)",
            "not strict": "the server is strict" if options.strict else "",
            "quick expiry": ""
            if options.limits["retention_seconds"] <= QUICK_EXPIRY_SECONDS
            else f"messages are kept for too long (--limit retention_seconds={QUICK_EXPIRY_SECONDS} or less)",
            "quick give-up": ""
            if options.limits["request_timeout_seconds"] <= QUICK_GIVE_UP_SECONDS
            else f"the server waits for too long (--limit request_timeout_seconds={QUICK_GIVE_UP_SECONDS} or less)",
        }.get(capability, "")

    def publish(self, channels: tuple[str, ...], data: Any) -> Request:
        return self.publication({"channels": list(channels), "data": data})

    def publication(self, fields: dict[str, Any]) -> Request:
        """A publication of one message or a list, which the next poll finds whichever node it reaches."""
        return self.call("POST", "/v1/messages", {**fields, **self._ack})

    def call(self, method: str, target: str, body: Any = None, *, headers: tuple[tuple[str, str], ...] = ()) -> Request:
        """Any call, with the publish key and the credentials; a body of bytes is sent as it is."""
        given = {name.lower() for name, _ in headers}
        added = tuple(pair for pair in (*self._key, *self._options.credentials) if pair[0].lower() not in given)
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return Request(method, target, (*headers, *added), data)

    def read_published(self, response: Response) -> Published:
        value = response.json if response.status == 201 else None
        if not isinstance(value, dict):
            raise Failed(f"expected 201 to a publication, and {response} came")
        try:
            ids = value["ids"] if "ids" in value else [value["id"]]
            return Published(tuple(ids), value["time"], value["cursor"])
        except (KeyError, TypeError):
            raise Failed(f"expected id, time and cursor of a publication, and {response} came") from None

    def poll(self, channels: tuple[str, ...], cursor: str, timeout: float) -> Request:
        pairs = [("channel", channel) for channel in channels]
        pairs += [("cursor", cursor)] if cursor else []
        return self.call("GET", f"/v1/poll?{urlencode([*pairs, ('timeout', f'{timeout:g}')])}")

    def stream(
        self,
        channels: tuple[str, ...],
        cursor: str,
        method: str = "GET",
        form: str = "",
        *,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> Request:
        """Open an event stream, with GET or POST."""
        given = {name: value for name, value in (("cursor", cursor), ("format", form)) if value}
        if method == "POST":
            return self.call("POST", "/v1/events", {"channels": list(channels), **given}, headers=headers)
        pairs = [*(("channel", channel) for channel in channels), *given.items()]
        return self.call("GET", f"/v1/events?{urlencode(pairs)}", headers=headers)

    def read_answer(self, response: Response, cursor: str) -> Answer:
        value = response.json if response.status == 200 else None
        if not isinstance(value, dict):
            raise Failed(f"expected 200 to a poll, and {response} came")
        try:
            return Answer(
                value["cursor"],
                tuple(map(read_message, value["messages"])),
                value["more"],
                tuple((gap["channel"], gap["reason"]) for gap in value["gaps"]),
                tuple(value["closed"]),
                value,
            )
        except (KeyError, TypeError):
            raise Failed(f"expected an answer with {', '.join(sorted(ANSWER_FIELDS))}, and {response} came") from None

    def create(self, channel: str) -> Request | None:
        return self.call("POST", "/v1/channels", {"name": channel}) if self._options.strict else None


def read_message(value: Any) -> Message:
    """A message of an answer, or the data of an event. Raises: KeyError, TypeError."""
    optional = {name: value[name] for name in ("event", "ephemeral") if name in value}
    return Message(value["data"], value["id"], tuple(value["channels"]), value["time"], **optional)
