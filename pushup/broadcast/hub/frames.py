"""What the parent process and its workers say to each other about the order: values, and their bytes (JSON)."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from pushup.broadcast import Member
from pushup.core.commands import Command, Entry, Publish
from pushup.core.cursor import Cursor
from pushup.core.errors import PushUpError, Refusal
from pushup.core.snapshot import Changes
from pushup.core.state_transfer import Piece
from pushup.transport.framed_link import framed


class Append(Struct, frozen=True, tag="append", array_like=True, forbid_unknown_fields=True):
    """A worker asks for a place in the order for a command, whose `number` is its own."""

    number: int
    command: Command


class FindEnd(Struct, frozen=True, tag="find end", array_like=True, forbid_unknown_fields=True):
    """A worker asks for the last place of the order."""


class Confirm(Struct, frozen=True, tag="confirm", array_like=True, forbid_unknown_fields=True):
    """A worker asks to be told when all that serve clients have applied what has a place in the order by now."""

    number: int


class Passed(Struct, frozen=True, tag="passed", array_like=True, forbid_unknown_fields=True):
    """A worker has applied everything that came before the `Mark` of this number."""

    number: int


class Present(Struct, frozen=True, tag="present", array_like=True, forbid_unknown_fields=True):
    """What a worker reports about itself, once a second. The first one says that it has restored the state."""

    member: Member


class Part(Struct, frozen=True, tag="part", array_like=True, forbid_unknown_fields=True):
    """A piece of the state."""

    rows: Piece


class Last(Struct, frozen=True, tag="last", array_like=True, forbid_unknown_fields=True):
    """The last piece of the state; the next entry is the one after it."""

    changes: Changes


class Next(Struct, frozen=True, tag="next", array_like=True, forbid_unknown_fields=True):
    """The next entry."""

    entry: Entry


class Told(Struct, frozen=True, tag="told", array_like=True, forbid_unknown_fields=True):
    """The last entry carried out this worker's command with this number."""

    number: int


class Trouble(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Why commands are refused: what a `Refusal` says."""

    kind: str
    detail: str
    operator_detail: str

    @classmethod
    def of(cls, error: PushUpError) -> Trouble:
        return cls(error.kind, error.detail, error.operator_detail)

    @property
    def error(self) -> PushUpError:
        refusal = Refusal.__members__.get(self.kind.upper(), Refusal.REFUSED)  # or a word of Redis
        return refusal(self.operator_detail, detail=self.detail, kind=self.kind)


class Refused(Struct, frozen=True, tag="refused", array_like=True, forbid_unknown_fields=True):
    """This worker's command with this number was refused, or nobody knows what became of it."""

    number: int
    trouble: Trouble


class End(Struct, frozen=True, tag="end", array_like=True, forbid_unknown_fields=True):
    """The last place of the order, for the `FindEnd` that came first."""

    epoch: str
    sequence: int

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.epoch, self.sequence)


class Mark(Struct, frozen=True, tag="mark", array_like=True, forbid_unknown_fields=True):
    """Answer with `Passed` when everything before this is applied."""

    number: int


class Confirmed(Struct, frozen=True, tag="confirmed", array_like=True, forbid_unknown_fields=True):
    """All that serve have, and there are so many."""

    number: int
    workers: int


class Beat(Struct, frozen=True, tag="beat", array_like=True, forbid_unknown_fields=True):
    """Once a second, to workers that serve or may begin to: by how much the order's time is ahead of the machine's
    uptime, why commands are refused, if they are, and all workers."""

    ahead: float
    trouble: Trouble | None
    members: tuple[Member, ...]


ToParent = Append | FindEnd | Confirm | Passed | Present
ToWorker = Part | Last | Next | Told | Refused | End | Mark | Confirmed | Beat

_encode = msgspec.json.Encoder().encode
_to_parent = msgspec.json.Decoder(ToParent)
_to_worker = msgspec.json.Decoder(ToWorker)


def frame(message: ToParent | ToWorker) -> bytes:
    """The bytes to send."""
    return framed(_encode(message))


def read_by_parent(body: bytes) -> ToParent:
    """Raises: msgspec.DecodeError."""
    message: ToParent = _to_parent.decode(body)
    return Append(message.number, _own(message.command)) if type(message) is Append else message


def read_by_worker(body: bytes) -> ToWorker:
    """Raises: msgspec.DecodeError."""
    message: ToWorker = _to_worker.decode(body)
    if type(message) is not Next:
        return message
    entry = message.entry
    return Next(Entry(entry.epoch, entry.sequence, entry.time, _own(entry.command)))


def _own(command: Command) -> Command:
    """The command with copies of its messages, which would keep the whole frame alive."""
    return command.copy() if type(command) is Publish else command
