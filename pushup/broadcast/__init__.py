"""Total-order broadcast: every node gets the same entries in the same order (PushUp §3.4; Mishra §2).

Every command that changes the replicated state goes through a broadcast, on a single node too. The broadcast gives the
command its place in the order, and every node applies the entry. The outcome goes back to the publisher, on the node
that appended the command.

| file | what it defines |
|---|---|
| `memory` | the broadcast of one process; messages are lost when it ends |
| `journal`, `journal_groups` | the broadcast of one machine, which survives restarts; what it commits together |
| `journal_file`, `journal_start` | its file; how it starts |
| `redis` | the broadcast of many machines: a log in Redis that each node follows |
| `hub` | the broadcast of many processes on one machine, which follow one of the first two |
| `formats` | the number of the format of all that is stored, and what was written by a newer PushUp |
| `journal_copy` | backups: written, verified, restored |
| `progress_mark` | how far this machine has followed the order, in a file of its own: it shows what is missing |
| `work_budget` | how long applying, restoring and the work of a link may go on before everything else gets its turn |
| `admission` | how many bytes of commands may wait |
| `outage_log` | the log lines while publishing is refused |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import Struct

from pushup.broadcast.formats import FORMAT
from pushup.core.channel import Channel
from pushup.core.commands import Ack, Command, Confirmation, Entry, Outcome
from pushup.core.cursor import Cursor
from pushup.core.errors import PushUpError
from pushup.core.grant import Grant
from pushup.core.members import ChannelPresence
from pushup.core.snapshot import Changes
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import Outgoing
from pushup.metrics import Metric


class Member(Struct, frozen=True, omit_defaults=True):
    """What the living nodes of a cluster tell each other about themselves (Mishra §2).

    Its id, name and addresses, the last entry it has applied (a cursor), its held polls, its version; `settings`:
    digests of those that all nodes should share; None: it is of an earlier release. `draining`: it sends its clients
    away. `answered`: it has answered all questions about members up to this entry; None: it is of an earlier release.
    """

    id: str
    name: str
    addresses: tuple[str, ...]
    cursor: str
    held_polls: int
    version: str
    settings: dict[str, str] | None = None
    draining: bool = False
    answered: int | None = None


class Follower(Protocol):
    """A node as seen by its broadcast: a replica of the state."""

    @property
    def cursor(self) -> Cursor:
        """The last entry applied; its epoch is empty while the node has no state."""

    def apply(self, entry: Entry) -> Outcome:
        """Apply the next entry. Raises: OutOfOrder if it is not the next one."""

    def start_from(self, state: ReplicatedState) -> None:
        """Continue from another state, which belongs to the follower from now on."""

    @property
    def state(self) -> ReplicatedState:
        """The state; only `apply` and `start_from` change it."""

    def note_changes(self, after: int | None = None) -> None:
        """Record changes after this sequence, by default from now on, and drop the record of earlier ones."""

    @property
    def changes_known_after(self) -> int:
        """`changes` knows of all changes after this sequence, and not of those before."""

    @property
    def changed_count(self) -> int:
        """The cost of `changes`: the number of sequences and channels recorded."""

    def changes(self, after: int | None = None) -> Changes:
        """The changes after this sequence, by default all recorded ones. O(changes)."""

    def member(self, id: str) -> Member:  # noqa: A002
        """What the other nodes are told about this one, under this id."""


class HoldsState:
    """What a node answers from its state."""

    state: ReplicatedState

    @property
    def cursor(self) -> Cursor:
        return self.state.cursor

    # Also for the HTTP interface.

    def channel(self, name: str) -> Channel:
        """The open channel with this name or id. Raises: UnknownChannel."""
        return self.state.channels.get(name)

    def channels(self, after: int, most: int) -> list[Channel]:
        """Open channels with an id above `after`, at most `most`, by id."""
        return self.state.channels.page(after, most)

    def name_of(self, channel: str) -> str:
        """As `Channels.name_of`."""
        return self.state.channels.name_of(channel)

    def channels_of(self, message: Cursor) -> tuple[str, ...]:
        """Those that the message with this id was published on; none if it is not kept here."""
        here = self.state.cursor.epoch
        cursor = self.state.past_epochs.translate(message, here)
        found = self.state.cache.get(cursor.sequence) if cursor.epoch == here else None
        return () if found is None else found.channels

    def members_of(self, channel: str) -> ChannelPresence:
        """As `ReplicatedState.presence`."""
        return self.state.presence(channel)

    def is_revoked(self, grant: Grant) -> bool:
        """As `ReplicatedState.is_revoked`."""
        return self.state.is_revoked(grant)

    # To hand the state over, or to back it up, while it goes on changing and the broadcast saves changes.

    outgoing: Outgoing | None = None
    """What reads the whole state, while something does: from `read_out` to `was_read`."""
    stored_format = FORMAT
    """That of the rows it reads."""
    _wanted: int | None = None  # meanwhile: the broadcast wants to know of changes after this sequence

    def read_out(self, take_out: Callable[[ReplicatedState], Outgoing] = Outgoing) -> Outgoing:
        """Begin to read the whole state. One at a time."""
        if self.state.change_log.is_on:
            self._wanted = self.state.change_log.start_sequence
        else:
            self._wanted = None
            self.state.note_changes()
        self.outgoing = take_out(self.state)
        return self.outgoing

    def was_read(self) -> None:
        """The state was read, or need not be any more."""
        self.outgoing = None
        if self._wanted is None:
            self.state.change_log.stop()
        else:
            self.state.note_changes(self._wanted)

    # For the broadcast.

    def note_changes(self, after: int | None = None) -> None:
        self._wanted = self.state.cursor.sequence if after is None else after
        self.state.note_changes(self._wanted if self.outgoing is None else min(self._wanted, self.outgoing.since))

    @property
    def changes_known_after(self) -> int:
        return self.state.change_log.start_sequence

    @property
    def changed_count(self) -> int:
        if self.outgoing is None or self._wanted is None:
            return self.state.changed_count
        return self.state.cursor.sequence - self._wanted  # more changes than those are recorded

    def changes(self, after: int | None = None) -> Changes:
        if after is None and self.outgoing is not None:
            after = self._wanted
        return self.state.changes(after)


OnOutcome = Callable[[Outcome], None]
"""Takes the outcome of a command. A callback and not a Deferred, because errors are outcomes already, and every message
takes this path (a Deferred with its callbacks took 6 us)."""

OnConfirmation = Callable[[Confirmation], None]

OnEnd = Callable[[Cursor], None]
"""Takes the last place of the order."""


class Broadcast(Protocol):
    """The order of entries, followed by one node in this process."""

    @property
    def node_id(self) -> str:
        """That of this node among its `members`."""

    def start(self, follower: Follower) -> None:
        """Give the follower its state, then every entry; called once. The state may come later (Redis).

        Raises: JournalError, NotUnderstood.
        """

    async def stop(self) -> None:
        """Finish the commands that were appended, refuse others, and close files and connections."""

    def append(self, command: Command, on_outcome: OnOutcome) -> None:
        """Append the command to the order.

        `on_outcome` is called once this node has applied the entry; or with `Unavailable` if the command was refused,
        or its outcome is not known.
        """

    def confirm(self, ack: Ack, cursor: Cursor, seconds: float, on_confirmation: OnConfirmation) -> None:
        """Wait up to this many seconds until the entry at `cursor` has reached `ack`; report what it reached."""

    def now(self) -> float:
        """The time that an entry appended now would get, as far as this node knows; seconds since the epoch.

        Never before the time of the last entry applied. What is due by it has expired, whatever this machine's own
        clock says. To be called after `start`.
        """

    def find_end(self, on_end: OnEnd) -> None:
        """Call back once with the last place of the order, as of some moment after this call.

        It is not called while the order cannot be reached, but then.
        """

    @property
    def is_current(self) -> bool:
        """Whether an answer made here now contains all messages that are known to be stable.

        If it may lack some, what is asked may wait for more, but is not told that there is nothing else.
        """

    @property
    def waiting_bytes(self) -> int:
        """The size of all commands that wait."""

    def awaits(self, epoch: str) -> bool:
        """Whether this may be a new epoch that this node does not know yet."""

    def members(self) -> list[Member]:
        """The nodes known to be alive; empty for a broadcast of one node."""

    def why_not_ready(self) -> PushUpError | None:
        """Why a command appended now would be refused, or why this node is behind; None if neither is the case."""

    def metrics(self) -> Iterable[Metric]:
        """What it has counted. It waits for nothing, and may be asked before `start`."""


class OneNode:
    """What the broadcasts of one node have in common."""

    is_current = True
    node_id = "1"
    _follower: Follower  # set by `start`

    def __init__(self, steady_time: Callable[[], float]) -> None:
        """`steady_time` returns seconds since the epoch (`pushup.clock`)."""
        self._steady_time = steady_time

    def now(self) -> float:
        return max(self._follower.state.time, self._steady_time())

    def find_end(self, on_end: OnEnd) -> None:
        on_end(self._follower.cursor)  # entries that are being written cannot be in any cursor yet

    def confirm(self, ack: Ack, cursor: Cursor, seconds: float, on_confirmation: OnConfirmation) -> None:
        # The only node has applied every entry that was acknowledged.
        on_confirmation(Confirmation("stable" if ack == "stable" else "accepted", nodes=1))

    def awaits(self, epoch: str) -> bool:
        return False

    def members(self) -> list[Member]:
        return []

    def metrics(self) -> Iterable[Metric]:
        return ()
