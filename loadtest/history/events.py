"""The events of a history (docs/internals/histories.md). In a file, each is a JSON object; `event` names its kind.

`at`: when it happened, in seconds; all events of a history count from the same zero. They are in the order in which the
recorder saw them, so that a request always comes before its response.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, convert

from loadtest.kit.values import Limits

FORMAT = 1
"""The version of the format. It is raised when histories of before would be judged differently."""


class BrokenPromise(AssertionError):
    """A promise of PushUp did not hold; the text says which, to whom, and when."""


class BadHistory(ValueError):
    """This is not a history: the text says why."""


class _Event(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="event"):
    at: float


class Begin(_Event, frozen=True, tag="begin"):
    """The first event. `limits`: those settings of the cluster; what is left out has its default."""

    format: int
    limits: Limits = Limits()


class LimitsChange(_Event, frozen=True, tag="limits"):
    """From now on these limits may be in force. Of several values the checker assumes the smallest."""

    limits: Limits


class Draft(Struct, frozen=True, omit_defaults=True):
    """A message that is published. `data`: different from that of any other message in the history."""

    channels: tuple[str, ...]
    data: str
    ephemeral: bool = False


class Publish(_Event, frozen=True, tag="publish"):
    """A publication was sent, for the first time. `publication`: a name for it; `key`: its idempotency key."""

    publication: str
    messages: tuple[Draft, ...]
    key: str | None = None
    ack: str = "accepted"


class Acknowledged(_Event, frozen=True, tag="acknowledged"):
    """The publisher got a 201. `ids`: one for each message; `ack`: what was reached."""

    publication: str
    ids: tuple[str, ...]
    ack: str = "accepted"


class Refused(_Event, frozen=True, tag="refused"):
    """The only attempt to publish was answered with an error that says that nothing was published (4xx)."""

    publication: str
    why: str = ""


class GivenUp(_Event, frozen=True, tag="given_up"):
    """The publisher stopped trying. Nobody told it whether its messages were published."""

    publication: str
    why: str = ""


class Poll(_Event, frozen=True, tag="poll"):
    """A subscriber polled. `cursor`: the one of its last answer; `timeout`: in seconds, as it was asked for."""

    subscriber: str
    channels: tuple[str, ...]
    cursor: str
    timeout: float | None = None


class Delivered(Struct, frozen=True):
    """A message in an answer. Other fields that a server may send are ignored."""

    id: str
    channels: tuple[str, ...]
    data: str


class Gap(Struct, frozen=True):
    """A gap in an answer. `until`: the cursor of its end; empty if the server did not say."""

    channel: str
    reason: str
    until: str = ""


class Answered(_Event, frozen=True, tag="answered"):
    """The subscriber's poll got a 200, and this."""

    subscriber: str
    cursor: str
    messages: tuple[Delivered, ...] = ()
    gaps: tuple[Gap, ...] = ()
    closed: tuple[str, ...] = ()


class Failed(_Event, frozen=True, tag="failed"):
    """The subscriber's poll got no response, or an error; or the subscriber broke it off."""

    subscriber: str
    why: str = ""


class Fork(_Event, frozen=True, tag="fork"):
    """From now on `subscriber` goes on from where `of` is, and has received the same."""

    subscriber: str
    of: str


class Left(_Event, frozen=True, tag="left"):
    """The subscriber polls no more."""

    subscriber: str


class Fault(_Event, frozen=True, tag="fault"):
    """Something was done to the cluster. `on`: to which part; `seconds`: for how long.

    `may_lose`: from now on, acknowledged entries may be gone. `moves_clock`: from now on, the clock that orders
    everything may be wrong, so that things expire at any time.
    """

    what: str
    on: str = ""
    seconds: float | None = None
    may_lose: bool = False
    moves_clock: bool = False


class Erased(_Event, frozen=True, tag="erased"):
    """A call that deletes these messages was answered with 200. `ids`: theirs, as their publishers were told."""

    ids: tuple[str, ...]


class PutBack(_Event, frozen=True, tag="put_back"):
    """The log was put back, and nothing that is left can know: no node that runs, and no mark. `end`: where it ends."""

    end: str


class Begun(_Event, frozen=True, tag="begun"):
    """An epoch began, and has an earlier name than `after`, the one before it. Nobody has heard of it yet.

    Whoever named it could not know of the other one, whose name is from a clock that was ahead.
    """

    epoch: str
    after: str


class End(_Event, frozen=True, tag="end"):
    """The last event. All faults have ended, and whoever has not left has everything.

    `cursor`: how far each of them must have got; empty if that cannot be said.
    """

    cursor: str = ""


Event = (
    Begin | LimitsChange | Publish | Acknowledged | Refused | GivenUp
    | Poll | Answered | Failed | Fork | Left | Fault | Erased | PutBack | Begun | End
)  # fmt: skip


def acknowledged(at: float, publication: str, body: Any) -> Acknowledged:
    """The event of a 201 with this body, which has been decoded. Raises: KeyError."""
    ids = [body["id"]] if "id" in body else body["ids"]
    return Acknowledged(at=at, publication=publication, ids=tuple(ids), ack=body.get("ack", "accepted"))


def answered(at: float, subscriber: str, body: Any) -> Answered:
    """The event of a poll's 200 with this body, which has been decoded. Raises: KeyError, msgspec.ValidationError."""
    return Answered(
        at=at,
        subscriber=subscriber,
        cursor=body["cursor"],
        messages=convert(body["messages"], tuple[Delivered, ...]),
        gaps=convert(body["gaps"], tuple[Gap, ...]),
        closed=tuple(body["closed"]),
    )
