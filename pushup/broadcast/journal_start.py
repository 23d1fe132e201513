"""How a journal starts: its state is read, it is found out whether entries are missing, and the order gets a new name.

| what is known at the start | how the order goes on | what subscribers are told |
|---|---|---|
| the journal and the mark are of different clusters | the server does not start | |
| the file is new and empty | it begins | a cursor from before: `lost` |
| the mark is beyond the end of the journal | a new epoch without messages | `lost` |
| anything else | under a new name (`Continue`) | a cursor beyond the end of the journal: `lost` |

In the last case the journal is complete, or an older copy was put back together with its mark, or with one that could
not be read: nobody can know. A subscriber who had not reached the end of that copy is told nothing then.

If in the last case the journal can be read but not written, because the disk is full, the order keeps its old name
until the disk works (`NotSaved`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace
from twisted.logger import Logger

from pushup.broadcast.formats import IN_A_JOURNAL, NotUnderstood
from pushup.broadcast.journal_file import JournalError, JournalFile
from pushup.broadcast.progress_mark import Mark, lacks, mark_path
from pushup.core.commands import Command, Configure, Continue, Entry, Upgrade
from pushup.core.cursor import Cursor, is_of_one_cluster, order_of
from pushup.core.errors import OutOfOrder, VersionTooNew
from pushup.core.limits import Limits
from pushup.core.machine_rules import LATEST_VERSION
from pushup.core.snapshot import Changes, Snapshot, Tables, empty_head
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import head_of_new_epoch, restore, rows_of_new_epoch

BEHIND_SECONDS = 1.0
"""A clock that is behind the journal by at least this is logged at the start."""

_log = Logger()


class NotSaved(JournalError):
    """The journal was read but cannot be written. `file` is open, and `state` is what it contains.

    When it can be written, these `commands` come first.
    """

    def __init__(self, reason: str, file: JournalFile, state: ReplicatedState, commands: tuple[Command, ...]) -> None:
        super().__init__(reason)
        self.file = file
        self.state = state
        self.commands = commands


def open_journal(
    path: Path,
    limits: Limits,
    name_epoch: Callable[[str, str], str],
    mark: Mark | None,
    open_file: Callable[[Path], JournalFile] = JournalFile,
) -> tuple[JournalFile, ReplicatedState]:
    """Open a journal, or create it, and bring its checkpoint up to date.

    `name_epoch` returns a new name for the order, later than the first given one, in the cluster that is the second one
    (empty: it is founded now, and named by this epoch). `mark` is the last entry that this machine
    is known to have applied. Returns the file and its state, which goes on under these limits and records changes from
    now on. Raises: NotSaved, which leaves the file open; JournalError, NotUnderstood.
    """
    file = open_file(path)
    try:
        found = file.load()
        marked, cluster = ("", "") if mark is None else (mark.epoch, mark.cluster)
        own = file.cluster or ("" if found is None else found.head.epoch)  # a backup has no other name
        if cluster and own and not (own == cluster if file.cluster else is_of_one_cluster(own, cluster)):
            raise JournalError(_of_another_cluster(path, own, cluster))
        cluster = file.cluster or cluster or own
        state = followed(file, found or Snapshot(empty_head(name_epoch(marked, cluster), limits), Tables()))
        end = state.cursor
        name = name_epoch(max(end.epoch, marked, key=order_of), cluster)
        if found is None:
            file.save(state.changes())
        elif mark is not None and lacks(mark, end, state.past_epochs):
            _tell_loss(path, mark, end)
            state = _begin_again(file, state, name, limits)
        else:
            state = _continue(file, state, name, limits)
        if not file.cluster:
            file.found(cluster or state.cursor.epoch)
    except NotSaved:
        file.cluster = cluster
        raise
    except (JournalError, NotUnderstood):
        file.close()
        raise
    state.note_changes()
    return file, state


def _continue(file: JournalFile, state: ReplicatedState, name: str, limits: Limits) -> ReplicatedState:
    """The same order under this name, with the latest version and these limits."""
    # The name comes first: with a place under the old one, a cursor of what was lost there would look valid.
    commands: tuple[Command, ...] = (Continue(name),)
    if state.version < LATEST_VERSION:
        commands += (Upgrade(LATEST_VERSION),)
    if state.limits != limits:
        commands += (Configure(limits),)
    for command in commands:
        state.apply(Entry(state.cursor.epoch, state.cursor.sequence + 1, state.time, command))
    try:
        file.save(state.changes())
    except JournalError as error:
        found = file.load()
        assert found is not None
        raise NotSaved(str(error), file, followed(file, found), commands) from None
    return state


def followed(file: JournalFile, checkpoint: Snapshot) -> ReplicatedState:
    """The state after all entries of the file. Raises: JournalError, NotUnderstood."""
    state = restore(checkpoint)
    state.note_changes()
    try:
        state.rules.require(state.version)
        for entry in file.entries():
            state.apply(entry)
    except OutOfOrder as error:
        raise JournalError(file.damaged(str(error))) from None
    except VersionTooNew as error:
        raise NotUnderstood(str(file.path), str(error), IN_A_JOURNAL) from None
    return state


def _begin_again(file: JournalFile, state: ReplicatedState, name: str, limits: Limits) -> ReplicatedState:
    """An epoch that continues nothing: the open channels and the bounded tables stay, messages do not. O(all)."""
    head = replace(head_of_new_epoch(name, state), version=LATEST_VERSION, limits=limits)
    file.save(Changes(head, tuple(rows_of_new_epoch(state))), starts_over=True)
    beginning = file.load()
    assert beginning is not None
    return restore(beginning)


def _of_another_cluster(path: Path, found: str, marked: str) -> str:
    mark = mark_path(path)
    return (
        f"{path} is the journal of cluster {found}, and {mark} the mark of cluster {marked}: they do not belong "
        f"together, and nothing was changed. Restore the journal of {marked}; or, to continue with this one, "
        f"delete {mark}"
    )


def _tell_loss(path: Path, mark: Cursor, end: Cursor) -> None:
    _log.warn(
        "{path} ends at {end}, but this machine has followed it up to {mark}: it is an older copy, or the disk has "
        "lost writes. Entries are missing, so the server drops all messages, keeps channels and idempotency keys, and "
        "reports a gap (lost) to every subscriber. If you did not mean to use this copy: stop, restore the newer one, "
        "delete {mark_path}, and start again",
        path=path,
        end=end,
        mark=mark,
        mark_path=mark_path(path),
    )


def warn_if_behind(seconds: float) -> None:
    """Log that the clock is this many seconds behind the last entry of the journal, if that is much."""
    if seconds >= BEHIND_SECONDS:
        _log.warn(
            "the clock is {behind:.0f} s behind the last entry of the journal; until then nothing expires "
            "and new messages get the time of that entry; check the clock",
            behind=seconds,
        )
