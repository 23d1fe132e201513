"""What the parent process and its workers say to each other about the order: values, and their bytes (JSON)."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from pushup.broadcast import Member
from pushup.broadcast.admission import size_of
from pushup.core.commands import Command, Entry, own_data
from pushup.core.errors import PushUpError, Refusal
from pushup.core.snapshot import Changes
from pushup.core.state_transfer import Piece
from pushup.transport.framed_link import framed


class Append(Struct, frozen=True, tag="append", array_like=True, forbid_unknown_fields=True):
    """A worker asks for places in the order for these commands. The first has this number, each other the next one."""

    number: int
    commands: tuple[Command, ...]


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


class Welcome(Struct, frozen=True, tag="welcome", array_like=True, forbid_unknown_fields=True):
    """The state comes next. The worker numbers its commands from this on; each worker has numbers of its own."""

    number: int


class Part(Struct, frozen=True, tag="part", array_like=True, forbid_unknown_fields=True):
    """A piece of the state."""

    rows: Piece


class Last(Struct, frozen=True, tag="last", array_like=True, forbid_unknown_fields=True):
    """The last piece of the state; the next entry is the one after it."""

    changes: Changes


class Next(Struct, frozen=True, tag="next", array_like=True, forbid_unknown_fields=True):
    """The next entries, and for each the number of the command that it carried out; 0 if no worker asked for it."""

    entries: tuple[Entry, ...]
    numbers: tuple[int, ...]


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
        return Refusal[self.kind.upper()](self.operator_detail, detail=self.detail)


class Refused(Struct, frozen=True, tag="refused", array_like=True, forbid_unknown_fields=True):
    """This worker's command with this number was refused, or nobody knows what became of it."""

    number: int
    trouble: Trouble


class End(Struct, frozen=True, tag="end", array_like=True, forbid_unknown_fields=True):
    """The last place of the order, for the `FindEnd` that came first."""

    epoch: str
    sequence: int


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


BATCH_BYTES = 64 * 1024
"""Commands and entries of one batch of events go in frames that have hardly more than this."""

ToParent = Append | FindEnd | Confirm | Passed | Present
ToWorker = Welcome | Part | Last | Next | Refused | End | Mark | Confirmed | Beat

_encode = msgspec.json.Encoder().encode
_to_parent = msgspec.json.Decoder(ToParent)
_to_worker = msgspec.json.Decoder(ToWorker)


def frame(message: ToParent | ToWorker) -> bytes:
    """The bytes to send."""
    return framed(_encode(message))


class EntryBatch:
    """Entries that go in one frame (`Next`)."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.bytes = 0
        """Their approximate size."""
        self._numbers: list[int] = []

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.bytes += size_of(entry.command)
        self._numbers.append(0)

    def note_number(self, number: int) -> None:
        """The last entry, if it is still here, carried out the command with this number."""
        if self._numbers:
            self._numbers[-1] = number

    def frame(self) -> bytes:
        """The bytes to send."""
        return frame(Next(tuple(self.entries), tuple(self._numbers)))


def read_by_parent(body: bytes) -> ToParent:
    """Raises: msgspec.DecodeError."""
    message: ToParent = _to_parent.decode(body)
    if type(message) is Append:
        for command in message.commands:
            own_data(command)
    return message


def read_by_worker(body: bytes) -> ToWorker:
    """Raises: msgspec.DecodeError."""
    message: ToWorker = _to_worker.decode(body)
    if type(message) is Next:
        for entry in message.entries:
            own_data(entry.command)
    return message
