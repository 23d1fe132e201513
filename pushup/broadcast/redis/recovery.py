"""What a node does when it has connected to Redis: a decision on values, without I/O. `catch_up` carries it out.

The first rule that applies decides:

0. The log is of another cluster than this node, which has followed its own before, or has its mark: refuse, and touch
   nothing. A log of no cluster is a new one, or was flushed: it is this node's.
1. The log has a version of the state machine that this release does not know: refuse, and touch nothing.
2. There is no log: begin an epoch.
3. The epoch is followed in this run of Redis, and the log contains the last entry that this node has applied: read on.
   Nothing was missed.
4. The contents of Redis are not known yet: load them.
5. A part of the log is missing: begin an epoch.
6. This node, or the mark that it keeps on its own disk, knows entries that the log does not contain: begin an epoch,
   because acknowledged entries are lost. (Not if the log is in a later epoch that continues nothing: all were told.)
7. Redis was restarted or replaced since the epoch was last followed. Is the log complete? Yes, if there is but one
   storage, which syncs each write (`durability`), or if every node vouches that may have acknowledged something: go
   on, under a new name of the epoch. If it is not known yet: wait for the others to vouch. If they do not: begin an
   epoch. A node that was started just now waits even if each write is synced, and then goes on: another one, whose
   mark is newer, may start.
8. Otherwise (this node is new, was away for long, or another node has begun an epoch): start from the checkpoint.

To *begin an epoch* makes the cursors of the old one invalid, and every client is told of gaps. So it is done only if
the log is not proven to be complete. To *continue an epoch* under a new name is one entry: cursors of the old name stay
valid up to where the log ended. A cursor beyond that has seen what this log does not contain, and is lost for good. No
epoch spans two runs of Redis, so a sequence never means two entries in one epoch.

While the log is followed, a loss is noticed by `replica` (the next entry does not follow) or `heartbeat` (the end of
the log is not in place). Both raise `Diverged`; the node then reconnects, and the rules above apply.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from pushup.broadcast.formats import FORMAT
from pushup.broadcast.progress_mark import lacks
from pushup.broadcast.redis.records import LastEntry, Tail
from pushup.core.cursor import Cursor, PastEpochs, order_of
from pushup.core.machine_rules import LATEST_VERSION


class Action(Enum):
    """What to do. The first three end recovery; the last two only find something out."""

    READ_ON = "read the log from the last entry applied"
    START_FROM_CHECKPOINT = "replace this node's state by the checkpoint, and apply the entries after it"
    REFUSE = "do not follow the log, and try again later"

    BEGIN_EPOCH = "begin a new epoch with the channels and keys of the log, or of this node if there is no log"
    CONTINUE_EPOCH = "continue the epoch in this run of Redis, under a new name"

    LOAD = "find out what is in Redis"
    ASK_OTHERS = "find out whether every node vouches for the log"


class Decision(Struct, frozen=True):
    """What to do, and why: a text for the operator."""

    action: Action
    reason: str


class Contents(Struct, frozen=True):
    """What is in Redis: the end of the order, and its former names.

    `is_whole`: the checkpoint is complete and the entries after it lead to the end of the log.
    """

    end: Cursor
    past: PastEpochs
    is_whole: bool

    def lacks(self, seen: Cursor) -> bool:
        """Whether somebody has seen this entry, and this order does not contain it and has told nobody so."""
        return lacks(seen, self.end, self.past)


class Situation(Struct, frozen=True, kw_only=True):
    """What is known when deciding. None: not known yet.

    `has_state`: this node knows which entry it has applied last; `last_entry`: what the log says of that entry (UNKNOWN
    without a state); `seen`: that entry, or the mark on this node's disk; None if there is neither. `tail`: the end of
    the log; `is_same_run`: its epoch is followed in the run of Redis that this node is connected to; `is_durable`:
    the storage of this Redis survives restarts complete. `cluster`: this node's (empty: it has none yet); `place`:
    where the log is; `mark`: the name of the file with this node's mark (empty: it has none). `others_vouch`: every
    node vouches (True), or somebody did not in time (False).
    """

    has_state: bool
    last_entry: LastEntry
    seen: Cursor | None
    tail: Tail
    is_same_run: bool
    is_durable: bool
    cluster: str = ""
    place: str = ""
    mark: str = ""
    contents: Contents | None = None
    others_vouch: bool | None = None

    @property
    def vouches(self) -> bool:
        """Whether this node has found all that it knows in the log."""
        is_lacking = self.contents is None or self.seen is None or self.contents.lacks(self.seen)
        return self.has_state and self.last_entry is not LastEntry.MISSING and not is_lacking


def decide(now: Situation) -> Decision:
    """The next step to where the log can be read on from."""
    tail, contents = now.tail, now.contents
    if now.cluster and tail.cluster and now.cluster != tail.cluster:
        return Decision(Action.REFUSE, _of_another_cluster(now))
    if tail.version > LATEST_VERSION:
        return Decision(
            Action.REFUSE,
            f"the message log has version {tail.version} of the state machine, and this release knows version "
            f"{LATEST_VERSION}; use a newer release for this node. If none was ever used with this log, its version is "
            f"damaged: remove the key that ends in :{FORMAT}:state; gaps are then reported to every subscriber",
        )
    if not tail.epoch:
        return Decision(Action.BEGIN_EPOCH, "there is no message log in Redis")
    if now.is_same_run and now.last_entry is LastEntry.CONTAINED and tail.cluster:
        return Decision(Action.READ_ON, "the log contains the last entry that this node has applied")
    if contents is None:
        return Decision(Action.LOAD, "what is in Redis is not known yet")
    if not contents.is_whole:
        return Decision(Action.BEGIN_EPOCH, "Redis has lost a part of the message log (was a key deleted or evicted?)")
    is_older = now.seen is not None and order_of(contents.end.epoch) <= order_of(now.seen.epoch)
    if (now.last_entry is LastEntry.MISSING and is_older) or (now.seen is not None and contents.lacks(now.seen)):
        return Decision(Action.BEGIN_EPOCH, f"Redis has lost acknowledged entries, up to {now.seen}")
    if not now.is_same_run:
        return _after_restart(now)
    return Decision(Action.START_FROM_CHECKPOINT, "the log is complete, and this node does not know its newest entries")


def _of_another_cluster(now: Situation) -> str:
    join = f"stop it, remove {now.mark}, and start it" if now.mark else "restart it"
    return (
        f"the message log at {now.place} is that of cluster {now.tail.cluster}, and this node belongs to cluster "
        f"{now.cluster}; nothing was changed. Check the address in `broadcast`, and redis_prefix. If this node is to "
        f"join that cluster, {join}. If that log is a copy, to be a cluster of its own, see `pushup new-cluster`"
    )


def _after_restart(now: Situation) -> Decision:
    """Whether the log is known to be complete."""
    if now.is_durable and (now.has_state or now.others_vouch is not None):
        return Decision(Action.CONTINUE_EPOCH, "Redis was restarted, and syncs each write")
    if now.others_vouch is None:
        return Decision(Action.ASK_OTHERS, "Redis was restarted, and other nodes may know entries that it has lost")
    if now.others_vouch:
        return Decision(Action.CONTINUE_EPOCH, "Redis was restarted, and every node has found all that it knows")
    return Decision(Action.BEGIN_EPOCH, "Redis was restarted, and nobody can tell whether it has lost entries")
