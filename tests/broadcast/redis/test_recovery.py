"""The decision of a node that has connected to Redis, and its reason, for each situation."""

from __future__ import annotations

from itertools import product

import pytest
from msgspec import structs

from pushup.broadcast.epochs import order_of
from pushup.broadcast.redis.records import LastEntry
from pushup.broadcast.redis.recovery import Action, Contents, Decision, Situation, decide
from pushup.core.cursor import Cursor
from pushup.core.limits import Limits

OURS = Limits()
OTHERS = Limits(retention_messages=5, strict_channels=True)

NEW = Situation(
    has_state=False,
    last_entry=LastEntry.UNKNOWN,
    cursor=Cursor("", 0),
    limits=OURS,
    run="run1",
    is_durable=False,
)
"""A node that has just been started, and has not loaded anything yet."""

OLD = structs.replace(NEW, has_state=True, cursor=Cursor("e5", 9))
"""A node that has followed the log up to `e5-9`. Whether the log still contains that entry, each case says."""

NOTHING = Contents("", is_whole=False, run="", limits=OURS)
LOG = Contents("e5", is_whole=True, run="run1", limits=OURS)
"""A complete log in the epoch `e5`, found to be complete in the present run of Redis."""

UNPROVEN = structs.replace(LOG, run="run0")
"""The same after a restart of Redis: no node has found its last entry in it yet."""

LOST = "Redis has lost acknowledged entries, up to e5-9"
PART = "Redis has lost a part of the message log (was a key deleted or evicted?)"
DIFFER = "this node and the running cluster differ in retention_messages, strict_channels"


def case(base: Situation, contents: Contents | None = None, **facts: object) -> Situation:
    return structs.replace(base, contents=contents, **facts)


CASES: dict[str, tuple[Situation, Action, str]] = {
    # A node that reconnects after a short time.
    "the log contains its last entry": (
        case(OLD, last_entry=LastEntry.CONTAINED), Action.READ_ON, "the log contains the last entry"),
    "the log contains its last entry, and Redis was restarted": (
        case(OLD, last_entry=LastEntry.CONTAINED, run="run2"), Action.READ_ON, "the log contains the last entry"),
    # In any other case it examines the whole log.
    "a new node": (case(NEW), Action.LOAD, "not known yet"),
    "its last entry is missing": (case(OLD, last_entry=LastEntry.MISSING), Action.LOAD, "not known yet"),
    "the log does not reach back to its last entry": (case(OLD), Action.LOAD, "not known yet"),
    # There is no complete log: that ends the epoch for every node.
    "a new node, and Redis is empty": (case(NEW, NOTHING), Action.BEGIN_EPOCH, "there is no message log in Redis"),
    "an old node, and Redis is empty": (case(OLD, NOTHING), Action.BEGIN_EPOCH, "there is no message log in Redis"),
    "a new node, and a part is missing": (
        case(NEW, structs.replace(LOG, is_whole=False)), Action.BEGIN_EPOCH, PART),
    "an old node, and a part is missing, in a later epoch": (
        case(OLD, structs.replace(LOG, epoch="e6", is_whole=False)), Action.BEGIN_EPOCH, PART),
    "a part is missing, after a restart, with other limits": (
        case(NEW, structs.replace(UNPROVEN, is_whole=False, limits=OTHERS)), Action.BEGIN_EPOCH, PART),
    # An entry that this node has applied is missing.
    "missing in the same epoch": (case(OLD, LOG, last_entry=LastEntry.MISSING), Action.BEGIN_EPOCH, LOST),
    "missing, and the log went back to an earlier epoch": (
        case(OLD, structs.replace(LOG, epoch="e4"), last_entry=LastEntry.MISSING), Action.BEGIN_EPOCH, LOST),
    "missing, and another node has begun a later epoch": (
        case(OLD, structs.replace(LOG, epoch="e6"), last_entry=LastEntry.MISSING),
        Action.START_FROM_CHECKPOINT, "the log is complete"),
    "missing, and a later epoch has a longer name": (
        case(OLD, structs.replace(LOG, epoch="e10"), last_entry=LastEntry.MISSING),
        Action.START_FROM_CHECKPOINT, "the log is complete"),
    "missing, though Redis is durable": (
        case(OLD, LOG, last_entry=LastEntry.MISSING, is_durable=True), Action.BEGIN_EPOCH, LOST),
    "missing, with other limits": (
        case(OLD, structs.replace(LOG, limits=OTHERS), last_entry=LastEntry.MISSING), Action.BEGIN_EPOCH, LOST),
    # Redis was restarted, and this node cannot tell whether the log is complete.
    "a new node after a restart": (
        case(NEW, UNPROVEN), Action.WAIT_FOR_WITNESS, "Redis was restarted, and this node cannot tell"),
    "a new node after a restart, and no witness came": (
        case(NEW, UNPROVEN, waited_in_vain=True), Action.BEGIN_EPOCH, "Redis was restarted, and no node knows"),
    "a new node after a restart, and Redis is durable": (
        case(NEW, UNPROVEN, is_durable=True), Action.START_FROM_CHECKPOINT, "the log is complete"),
    "a new node after a restart, and a witness came": (case(NEW, LOG), Action.START_FROM_CHECKPOINT, "complete"),
    "a new node after a restart, with other limits": (
        case(NEW, structs.replace(UNPROVEN, limits=OTHERS)), Action.WAIT_FOR_WITNESS, "cannot tell"),
    "a node whose state is not known after a failure": (
        case(OLD, UNPROVEN, has_state=False), Action.WAIT_FOR_WITNESS, "cannot tell"),
    "a node that was away for long needs no witness": (
        case(OLD, UNPROVEN), Action.START_FROM_CHECKPOINT, "the log is complete"),
    # The limits of the log differ from this node's.
    "other limits": (case(NEW, structs.replace(LOG, limits=OTHERS)), Action.LIST_NODES, DIFFER),
    "other limits, and other nodes": (
        case(NEW, structs.replace(LOG, limits=OTHERS), others_alive=True), Action.REFUSE,
        f"{DIFFER}; use the same settings, or stop all nodes to change them"),
    "other limits, and no other nodes": (
        case(NEW, structs.replace(LOG, limits=OTHERS), others_alive=False), Action.CHANGE_LIMITS,
        "the log and this node differ in retention_messages, strict_channels"),
    "an old node and other limits": (
        case(OLD, structs.replace(LOG, limits=OTHERS), others_alive=True), Action.REFUSE, DIFFER),
    # A complete log.
    "a new node and a complete log": (case(NEW, LOG), Action.START_FROM_CHECKPOINT, "the log is complete"),
    "a node that was away for long": (case(OLD, LOG), Action.START_FROM_CHECKPOINT, "the log is complete"),
    "a node that was away when an epoch began": (
        case(OLD, structs.replace(LOG, epoch="e6")), Action.START_FROM_CHECKPOINT, "the log is complete"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_situation_decides(name: str) -> None:
    """Each row has the situation, the decision, and what is logged."""
    situation, action, reason = CASES[name]
    decision = decide(situation)
    assert decision.action is action
    assert reason in decision.reason


def all_situations() -> list[Situation]:
    contents = [
        Contents(epoch, is_whole=whole, run=run, limits=limits)
        for epoch, whole, run, limits in product(("e4", "e5", "e6"), (True, False), ("run0", "run1"), (OURS, OTHERS))
    ]
    return [
        case(base, each, last_entry=last_entry, is_durable=durable, waited_in_vain=waited, others_alive=others)
        for base, each, last_entry, durable, waited, others in product(
            (NEW, OLD), (None, NOTHING, *contents), LastEntry, (True, False), (True, False), (None, True, False)
        )
        if base.has_state or last_entry is LastEntry.UNKNOWN  # without a state there is no last entry to look for
    ]


def test_invariants_of_every_decision() -> None:
    """No node uses a log that may be incomplete or has other limits, or ends an epoch that it knows to be complete."""
    seen: set[Action] = set()
    for now in all_situations():
        decision: Decision = decide(now)
        seen.add(decision.action)
        contents, knows_loss = now.contents, now.last_entry is LastEntry.MISSING
        assert decision.reason
        assert (decision.action is Action.READ_ON) == (now.last_entry is LastEntry.CONTAINED)
        if decision.action is Action.START_FROM_CHECKPOINT:
            assert contents is not None
            assert contents.epoch
            assert contents.is_whole
            assert contents.limits == now.limits
            assert now.has_state or now.is_durable or contents.run == now.run
            assert not knows_loss or order_of(contents.epoch) > order_of(now.cursor.epoch)
        if decision.action is Action.BEGIN_EPOCH and contents is not None and contents.epoch and contents.is_whole:
            assert knows_loss or (now.waited_in_vain and contents.run != now.run and not now.is_durable)
        if decision.action is Action.CHANGE_LIMITS:
            assert now.others_alive is False
    assert seen == set(Action)
