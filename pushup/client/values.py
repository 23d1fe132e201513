"""What calls return, and what they raise. Times are float seconds since the epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NotRequired, TypedDict, TypeVar
from urllib.parse import quote

Value = TypeVar("Value")


class ClientError(Exception):
    """The server cannot be reached, or refused; then `status` is the HTTP status and `problem` the response's body.

    `retry_after` is the number of seconds for which the server asks clients to wait.
    """

    def __init__(
        self, text: str, status: int = 0, problem: Mapping[str, Any] | None = None, retry_after: float = 0.0
    ) -> None:
        super().__init__(text)
        self.status = status
        self.problem = problem or {}
        self.retry_after = retry_after

    @property
    def type(self) -> str:
        """The type of the problem, such as `urn:pushup:forbidden`; or empty."""
        return str(self.problem.get("type", ""))

    @property
    def may_pass(self) -> bool:
        """Whether a retry may succeed. Proxies have 5xx of their own, such as 520 to 530."""
        return self.status in (0, 408, 429) or self.status >= 500


class NotSent(ClientError):
    """No request has been sent, so nothing can have happened."""


class NoResponse(ClientError):
    """A request was sent, and nothing came back in time."""


class Duplicate(ClientError):
    """A producer's messages were published earlier, before its last publication; their ids are no longer known."""

    def __init__(self) -> None:
        super().__init__("the producer has published these messages before its last publication", 200)


class Stopped(ClientError):
    """The client was stopped."""

    def __init__(self) -> None:
        super().__init__("the client was stopped")

    @property
    def may_pass(self) -> bool:
        return False


_ForReaders = TypedDict("_ForReaders", {"unread_after": float, "for": Sequence[str]}, total=False)


class NewMessage(_ForReaders):
    """A message for `publish_many`. `unread_after` and `for` go together."""

    channels: list[str]
    data: Any
    event: NotRequired[str]
    ephemeral: NotRequired[bool]


class Producer(TypedDict):
    """A publisher that counts its messages (docs/guide/publishing.md); `sequence` is the number of the first one."""

    name: str
    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Published:
    """A message that was published. `cursor` is the place just after it; the rest is there if `ack` was given.

    `after_loss`: the server does not know all of the producer's earlier numbers.
    """

    id: str
    time: float
    cursor: str
    ack: str | None = None
    replicas: int | None = None
    nodes: int | None = None
    after_loss: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """A message, with those of its channels that were asked for. To continue after it, begin at `cursor`.

    Of several messages in the answer to a poll, only the last has the cursor after it. The others have the one before
    the answer: who continues there gets a message again rather than never.
    """

    id: str
    time: float
    channels: list[str]
    data: Any
    cursor: str
    event: str | None = None
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages of `channel` up to the cursor `until` may be missing.

    `reason` is expired, evicted, closed or lost; there may be others.
    """

    channel: str
    reason: str
    until: str
    cursor: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The channel was closed."""

    channel: str
    cursor: str


Item = Message | Gap | Closed
"""What `follow` yields."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a poll. The next poll begins at `cursor`, and at once if there is `more`."""

    cursor: str
    messages: list[Message]
    gaps: list[Gap]
    closed: list[Closed]
    more: bool

    @property
    def items(self) -> list[Item]:
        """All of them, in the order in which `follow` yields them."""
        return [*self.gaps, *self.closed, *self.messages]


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel. Some calls leave out the optional fields."""

    id: int
    name: str
    expires: float
    ttl: float | None = None
    messages: int | None = None
    bytes: int | None = None
    subscribers: int | None = None


def value_of(kind: type[Value], given: Any, **more: Any) -> Value:
    """A dataclass from JSON. Fields that it does not have are ignored. Raises: ClientError if it lacks one."""
    if isinstance(given, Mapping):
        names = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # each kind is a dataclass
        try:
            return kind(**{name: given[name] for name in names if name in given} | more)
        except TypeError:
            pass
    raise unexpected(kind.__name__)


def answer_of(given: dict[str, Any], before: str) -> Answer:
    """The answer to a poll from the cursor `before`. Raises: ClientError if it is not one."""
    try:
        cursor, more = str(given["cursor"]), bool(given["more"])
        gaps, closed, messages = given["gaps"], given["closed"], given["messages"]
        at = iter([before] * (len(gaps) + len(closed) + len(messages) - 1) + [cursor])
    except (KeyError, TypeError):
        raise unexpected("Answer") from None
    return Answer(
        gaps=[value_of(Gap, gap, cursor=next(at)) for gap in gaps],
        closed=[Closed(channel, next(at)) for channel in closed],
        messages=[value_of(Message, message, cursor=next(at)) for message in messages],
        cursor=cursor,
        more=more,
    )


def item_of(kind: str | None, data: Any, cursor: str) -> Item | None:
    """What an event of a stream yields, if it is an event that yields something. Raises: ClientError."""
    if kind == "gap":
        return value_of(Gap, data, cursor=cursor)
    if kind == "closed":
        return value_of(Closed, data, cursor=cursor)
    return value_of(Message, data, cursor=cursor) if kind is None and data is not None else None


def unexpected(what: str) -> ClientError:
    return ClientError(f"the response is not one of PushUp ({what}); is the URL right?", 200)


def names_of(channels: str | Sequence[str]) -> list[str]:
    return [channels] if isinstance(channels, str) else list(channels)


def path_of(channel: str | int) -> str:
    return f"/v1/channels/{quote(str(channel), safe='')}"


def given_of(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
