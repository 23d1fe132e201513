"""What a node does when it has connected to Redis: a decision on values, without I/O. `catch_up` carries it out.

The first rule that applies decides:

1. The log contains the last entry that this node has applied: read on. Nothing was missed.
2. The contents of Redis are not known yet: load them.
3. There is no log, or a part of it is missing: begin an epoch.
4. The last entry that this node has applied is missing, and the log is in this node's epoch or an earlier one: begin an
   epoch, because Redis has lost acknowledged entries. (If the log is in a later epoch, another node has begun that.)
5. This node has no state, Redis was restarted, and writes to Redis are not durable: wait for a witness, a node that
   finds its last entry in the log. If none comes, begin an epoch.
6. The log has other limits than this node: see whether other nodes are alive. If so, refuse; else change its limits.
7. Otherwise (this node is new, was away for long, or another node has begun an epoch): start from the checkpoint.

A new epoch makes the cursors of the old one invalid, and every client gets gaps. So it is begun only if the log
is not known to be complete. Reading on, starting from the checkpoint and refusing end recovery; after anything else
there is another decision, with what is then known.

While the log is followed, a loss is noticed by `replica` (the next entry does not follow) or `reporting` (the end of
the log is not in place). Both raise `Diverged`; the node then reconnects, and the rules above apply.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from pushup.broadcast.redis.epochs import order_of
from pushup.broadcast.redis.records import LastEntry
from pushup.core.cursor import Cursor
from pushup.core.limits import Limits


class Action(Enum):
    """What to do. The first three end recovery; the last three only find something out."""

    READ_ON = "read the log from the last entry applied"
    START_FROM_CHECKPOINT = "replace this node's state by the checkpoint, and apply the entries after it"
    REFUSE = "do not follow the log, and try again later"

    BEGIN_EPOCH = "begin a new epoch with the channels of the log, or of this node if there is no log"
    CHANGE_LIMITS = "save a checkpoint with this node's limits"

    LOAD = "find out what is in Redis"
    WAIT_FOR_WITNESS = "find out whether another node finds its last entry in this run of Redis"
    LIST_NODES = "find out whether other nodes are alive"


class Decision(Struct, frozen=True):
    """What to do, and why: a text for the operator."""

    action: Action
    reason: str


class Contents(Struct, frozen=True):
    """What is in Redis. `epoch` is empty if there is no log.

    `is_whole`: the checkpoint is complete and the entries after it lead to the end of the log; `run`: the run of Redis
    in which a node last found the log to be complete; `limits`: those under which the entries were applied.
    """

    epoch: str
    is_whole: bool
    run: str
    limits: Limits


class Situation(Struct, frozen=True, kw_only=True):
    """What is known when deciding. None: not known yet.

    `has_state`: this node knows which entry it has applied last; `last_entry`: what the log says of that entry (UNKNOWN
    without a state); `cursor`: that entry; `limits`: those of this node; `run`, `is_durable`: of the Redis
    it is connected to; `waited_in_vain`: no witness came in time; `others_alive`: whether there are other nodes.
    """

    has_state: bool
    last_entry: LastEntry
    cursor: Cursor
    limits: Limits
    run: str
    is_durable: bool
    contents: Contents | None = None
    waited_in_vain: bool = False
    others_alive: bool | None = None


def decide(now: Situation) -> Decision:
    """The next step to where the log can be read on from."""
    contents = now.contents
    if now.last_entry is LastEntry.CONTAINED:
        return Decision(Action.READ_ON, "the log contains the last entry that this node has applied")
    if contents is None:
        return Decision(Action.LOAD, "what is in Redis is not known yet")
    if not contents.epoch:
        return Decision(Action.BEGIN_EPOCH, "there is no message log in Redis")
    if not contents.is_whole:
        return Decision(Action.BEGIN_EPOCH, "Redis has lost a part of the message log (was a key deleted or evicted?)")
    if now.last_entry is LastEntry.MISSING and order_of(contents.epoch) <= order_of(now.cursor.epoch):
        return Decision(Action.BEGIN_EPOCH, f"Redis has lost acknowledged entries, up to {now.cursor}")
    if not now.has_state and contents.run != now.run and not now.is_durable:
        if now.waited_in_vain:
            return Decision(Action.BEGIN_EPOCH, "Redis was restarted, and no node knows whether it has lost entries")
        return Decision(Action.WAIT_FOR_WITNESS, "Redis was restarted, and this node cannot tell what it has lost")
    if contents.limits != now.limits:
        return _on_other_limits(now, contents)
    return Decision(Action.START_FROM_CHECKPOINT, "the log is complete, and this node does not know its newest entries")


def _on_other_limits(now: Situation, contents: Contents) -> Decision:
    """Outcomes depend on the limits, so all nodes that follow the log must have the same ones."""
    names = [n for n in Limits.__struct_fields__ if getattr(now.limits, n) != getattr(contents.limits, n)]
    differ = f"this node and the running cluster differ in {', '.join(names)}"
    if now.others_alive is None:
        return Decision(Action.LIST_NODES, differ)
    if now.others_alive:
        return Decision(Action.REFUSE, f"{differ}; use the same settings, or stop all nodes to change them")
    return Decision(Action.CHANGE_LIMITS, f"the log and this node differ in {', '.join(names)}")
