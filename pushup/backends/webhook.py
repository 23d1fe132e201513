"""Tells the application what it wants to know: `POST <webhook_url>`, signed as Standard Webhooks say.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md

| reply | |
|---|---|
| 2xx | it was told |
| 410 | it is not told about this message any more |
| anything else, or none | it is told again later |
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from hmac import digest
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct
from twisted.internet.defer import Deferred

from pushup import __version__
from pushup.backends.authorization import url_mistake
from pushup.backends.limited_service import RETRY_AFTER_SECONDS
from pushup.core.channel import Message
from pushup.core.errors import Unavailable
from pushup.core.webhooks import CLAIM_SECONDS, Webhook

if TYPE_CHECKING:
    from pushup.backends.service_requestor import Reply, ServiceRequestor

KEY_PREFIX = "whsec_"

TIMEOUT_LIMIT_SECONDS = CLAIM_SECONDS - 1
"""The longest call: one that takes longer would be made again while it runs."""

NO_DATA = Raw(b"null")


class WebhookSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether and how the application is called about messages and channels."""

    webhook_url: str = ""
    """URL at which the web application is told, with POST. Empty: publications cannot ask for it."""
    webhook_key: str = ""
    """Key that signs these calls: `whsec_` and 24 to 64 bytes in base64."""
    webhook_key_file: str = ""
    """File that contains this key."""
    webhook_at_most: int = 10
    """Maximum number of concurrent calls."""
    webhook_timeout_seconds: float = 10.0
    """Maximum time of a call, at most `TIMEOUT_LIMIT_SECONDS`."""

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """Each setting whose value cannot be used, and why."""
        text = url_mistake(self.webhook_url) if self.webhook_url else None
        if text is not None:
            yield "webhook_url", text
        if (self.webhook_url or self.webhook_key) and not 24 <= len(_secret(self.webhook_key)) <= 64:
            how = "echo whsec_$(openssl rand -base64 32)"
            yield "webhook_key", f"must be whsec_ and 24 to 64 bytes in base64; make one: {how}"
        if self.webhook_timeout_seconds > TIMEOUT_LIMIT_SECONDS:
            yield (
                "webhook_timeout_seconds",
                f"must be at most {TIMEOUT_LIMIT_SECONDS:g}; let a queue do what takes longer",
            )


def _secret(key: str) -> bytes:
    """The bytes of a key; none if it is not valid."""
    try:
        return b64decode(key.removeprefix(KEY_PREFIX), validate=True) if key.startswith(KEY_PREFIX) else b""
    except ValueError:
        return b""


class UnreadMessage(Struct, omit_defaults=True):
    """The message, and who has not read it. `published`: Unix time; `data`: null if it is no longer kept."""

    id: str
    channels: tuple[str, ...]
    subjects: tuple[str, ...]
    published: float
    data: Raw
    event: str = ""


def payload(row: Webhook, message: Message | None, now: int) -> bytes:
    """The body of a call, as JSON; `now`: seconds since the epoch."""
    data, event = NO_DATA, ""
    if message is not None:
        data, event = message.data, "" if message.attributes is None else message.attributes.event
    content: object = UnreadMessage(row.id, row.channels, row.subjects, row.time, data, event)
    if row.type != "message.unread":
        content = {"channel": row.channels[0], "since": row.time}
    timestamp = datetime.fromtimestamp(now, UTC).isoformat().replace("+00:00", "Z")
    return msgspec.json.encode({"type": row.type, "timestamp": timestamp, "data": content})


class WebhookSender:
    """Calls the application."""

    def __init__(self, settings: WebhookSettings, requestor: ServiceRequestor, wall: Callable[[], float]) -> None:
        """`wall` returns seconds since the epoch."""
        self._url = settings.webhook_url.encode()
        self._requestor = requestor
        self._wall = wall
        self.use_key(settings.webhook_key)

    def use_key(self, key: str) -> None:
        """Sign with this key from now on."""
        self._key = _secret(key)

    def __call__(self, row: Webhook, message: Message | None) -> Deferred[bool]:
        now = int(self._wall())
        body = payload(row, message, now)
        id_, seconds = row.id.encode(), b"%d" % now
        signature = b64encode(digest(self._key, b"%b.%b.%b" % (id_, seconds, body), sha256))
        headers = {
            b"content-type": b"application/json",
            b"user-agent": b"PushUp/" + __version__.encode(),
            b"webhook-id": id_,
            b"webhook-timestamp": seconds,
            b"webhook-signature": b"v1," + signature,
        }
        return self._requestor.post(self._url, headers, body).addCallback(_was_taken)

    def stop(self) -> Deferred[None]:
        return self._requestor.stop()


def _was_taken(reply: Reply) -> bool:
    """Raises: Unavailable."""
    if reply.status == 410:
        return False
    if not 200 <= reply.status < 300:
        raise Unavailable(f"webhook_url answered {reply.status}", retry_after=RETRY_AFTER_SECONDS)
    return True
