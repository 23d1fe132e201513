"""What a check may ask of any server. An adapter turns it into requests of that server, and its responses into answers.

| capability | what a check needs it for |
|---|---|
| `native` | PushUp's own calls, parameters and errors |
| `resume` | publish, poll, continue from a cursor, on any connection |
| `http` | HTTP itself, with any request |
| `many channels` | one poll for several channels |
| `several at once` | one publication on several channels |
| `one message` | the same, as one message that a subscriber of several of them gets once |
| `timeout` | a poll that is answered within its timeout, with a cursor or without |
| `gaps`, `keys`, `acknowledgements` | subscribers are told of losses; idempotency keys; stronger acknowledgements |
| `second node` | another node of the same service |
| `one node` | all connections lead to the same node |
| `publish key`, `no publish key`, `origin`, `credentials`, `token`, `URL tickets` | a server configured like that |
| `webhooks`, `no webhooks`, `presence`, `strict`, `not strict` | the same |
| `quick expiry`, `quick give-up` | a short `retention_seconds`, a short `request_timeout_seconds` |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from conformance.wire import Response


@dataclass(frozen=True)
class Request:
    """A request."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def encode(self, host: str) -> bytes:
        """Its bytes."""
        lines = [f"{self.method} {self.target} HTTP/1.1"]
        headers = self.headers
        if not any(name.lower() == "host" for name, _ in headers):
            headers = (("Host", host), *headers)
        if self.body or self.method in ("POST", "PUT"):
            headers = (*headers, ("Content-Length", str(len(self.body))))
        lines += [f"{name}: {value}" for name, value in headers]
        return "\r\n".join((*lines, "", "")).encode("latin-1") + self.body


class Published(NamedTuple):
    """What a publisher is told; fields that the server does not have are empty."""

    ids: tuple[str, ...] = ()
    time: float = 0.0
    cursor: str = ""


class Message(NamedTuple):
    """A message as a subscriber gets it; `channels` is empty where the server does not say, `event` if it has none."""

    data: Any
    id: str = ""
    channels: tuple[str, ...] = ()
    time: float = 0.0
    event: str = ""
    ephemeral: bool = False


@dataclass(frozen=True)
class Answer:
    """What a poll gets. `gaps`: channel and reason."""

    cursor: str
    messages: tuple[Message, ...] = ()
    more: bool = False
    gaps: tuple[tuple[str, str], ...] = ()
    closed: tuple[str, ...] = ()
    value: dict[str, Any] = field(default_factory=dict)

    @property
    def data(self) -> list[Any]:
        return [message.data for message in self.messages]


class Adapter(Protocol):
    """A kind of server."""

    name: str

    def why_not(self, capability: str) -> str:
        """Why a check that needs this is not applicable; empty if it is."""

    def publish(self, channels: tuple[str, ...], data: Any) -> Request: ...

    def read_published(self, response: Response) -> Published:
        """Raises: Failed if it was not published."""

    def poll(self, channels: tuple[str, ...], cursor: str, timeout: float) -> Request:
        """An empty cursor: from the oldest message."""

    def read_answer(self, response: Response, cursor: str) -> Answer:
        """`cursor`: that of the poll. Raises: Failed if it is no answer."""

    def create(self, channel: str) -> Request | None:
        """What has to be sent before a channel can be used."""
