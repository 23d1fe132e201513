"""The decision of a node that has connected to Redis, and its reason, for each situation."""

from __future__ import annotations

from itertools import product
from typing import Any, cast

import pytest
from msgspec import structs

from pushup.broadcast.redis.catch_up import BEGIN_TRIES, EpochStarter
from pushup.broadcast.redis.log import RedisLog
from pushup.broadcast.redis.records import LastEntry, Tail
from pushup.broadcast.redis.recovery import Action, Contents, Decision, Situation, decide
from pushup.core.cursor import Cursor, PastEpoch, PastEpochs, order_of
from pushup.core.limits import Limits
from pushup.core.machine_rules import LATEST_VERSION
from pushup.core.state import ReplicatedState

NO_LOG = Tail("", 0, b"")
TAIL = Tail("e5", 20, b"t20", version=LATEST_VERSION, cluster="c1")

NEW = Situation(has_state=False, last_entry=LastEntry.UNKNOWN, seen=None, tail=TAIL, is_same_run=True, is_durable=False)
"""A node that was started just now, and has no mark."""

OLD = structs.replace(NEW, has_state=True, seen=Cursor("e5", 9))
"""A node that has followed the log up to `e5-9`. Whether the log still contains that entry, each case says."""

MARKED = structs.replace(NEW, seen=Cursor("e5", 9))
"""A node that was started just now on a machine that has seen `e5-9`."""

LOG = Contents(Cursor("e5", 20), PastEpochs(), is_whole=True)
RENAMED = Contents(Cursor("e6", 20), PastEpochs((PastEpoch("e5", 9),)), is_whole=True)
"""The epoch `e5` went on as `e6` after its sequence 9."""

TWICE = Contents(Cursor("e7", 30), PastEpochs((PastEpoch("e5", 9), PastEpoch("e6", 20))), is_whole=True)
"""The same, and then as `e7` after 20."""

REPLACED = Contents(Cursor("e6", 20), PastEpochs(), is_whole=True)
"""The epoch `e6` has begun, and continues nothing."""

OTHER = structs.replace(TAIL, cluster="c2")
"""The log of another cluster."""

HERE = structs.replace(OLD, cluster="c1", place="redis.internal:6379 (redis_prefix pushup)")
"""The same, of this cluster."""

NOT_KNOWN = "not known yet"
STRANGER = (
    "the message log at redis.internal:6379 (redis_prefix pushup) is that of cluster c2, and this node belongs to c"
)
COMPLETE = "the log is complete, and this node does not know its newest entries"
LOST = "Redis has lost acknowledged entries, up to e5-"
PART = "Redis has lost a part of the message log (was a key deleted or evicted?)"
UNPROVEN = "Redis was restarted, and nobody can tell whether it has lost entries"


def case(base: Situation, contents: Contents | None = None, **facts: object) -> Situation:
    """This situation with other facts; what is in Redis ends where the log does."""
    if contents is not None:
        tail = structs.replace(TAIL, epoch=contents.end.epoch, sequence=contents.end.sequence)
        facts = {"tail": tail, "contents": contents, **facts}
    return structs.replace(base, **facts)


def with_a_hole(contents: Contents) -> Contents:
    return structs.replace(contents, is_whole=False)


CASES: dict[str, tuple[Situation, Action, str]] = {
    # 0. The log is that of another cluster.
    "another cluster": (case(HERE, tail=OTHER), Action.REFUSE, STRANGER),
    "the same, at a node without a mark": (case(HERE, tail=OTHER), Action.REFUSE, ", restart it. If that"),
    "another cluster, at a node with a mark": (
        case(HERE, has_state=False, mark="/m/a.mark", tail=OTHER), Action.REFUSE, "stop it, remove /m/a.mark, and"),
    "another cluster, whose version this release does not know": (
        case(HERE, tail=structs.replace(OTHER, version=LATEST_VERSION + 1)), Action.REFUSE, STRANGER),
    "another cluster, whose log is said to contain the last entry": (
        case(HERE, tail=OTHER, last_entry=LastEntry.CONTAINED), Action.REFUSE, STRANGER),
    "another cluster, after a restart, with a part missing": (
        case(HERE, with_a_hole(LOG), tail=OTHER, is_same_run=False), Action.REFUSE, STRANGER),
    "this cluster": (case(HERE, last_entry=LastEntry.CONTAINED), Action.READ_ON, "contains"),
    "a node of no cluster": (case(NEW, tail=OTHER), Action.LOAD, NOT_KNOWN),
    "a node of this cluster, and Redis is empty": (case(HERE, tail=NO_LOG), Action.BEGIN_EPOCH, "no message log"),
    "Redis has lost whose log it is": (
        case(HERE, last_entry=LastEntry.CONTAINED, tail=structs.replace(TAIL, cluster="")), Action.LOAD, NOT_KNOWN),
    # 1. The log has a newer version of the state machine than this release knows.
    "a version that this release does not know": (
        case(OLD, last_entry=LastEntry.CONTAINED, tail=structs.replace(TAIL, version=LATEST_VERSION + 1)),
        Action.REFUSE, "use a newer release for this node"),
    "the same, at a new node": (
        case(NEW, tail=structs.replace(TAIL, version=LATEST_VERSION + 1)), Action.REFUSE,
        f"the message log has version {LATEST_VERSION + 1} of the state machine, and this release knows version "
        f"{LATEST_VERSION}"),
    "the same, after a restart, with a part missing": (
        case(OLD, with_a_hole(LOG), tail=structs.replace(TAIL, version=LATEST_VERSION + 1), is_same_run=False),
        Action.REFUSE, "use a newer release"),
    "a version before this release's": (
        case(OLD, last_entry=LastEntry.CONTAINED, tail=structs.replace(TAIL, version=1)),
        Action.READ_ON, "contains the last entry"),
    # 2. There is no log.
    "a new node, and Redis is empty": (case(NEW, tail=NO_LOG), Action.BEGIN_EPOCH, "there is no message log in Redis"),
    "an old node, and Redis is empty": (
        case(OLD, tail=NO_LOG, is_same_run=False, is_durable=True), Action.BEGIN_EPOCH, "there is no message log"),
    # 3. The log contains the last entry of this node, in this run.
    "the log contains its last entry": (
        case(OLD, last_entry=LastEntry.CONTAINED), Action.READ_ON, "the log contains the last entry"),
    "the same, and the epoch has a new name": (
        case(OLD, last_entry=LastEntry.CONTAINED, tail=structs.replace(TAIL, epoch="e6")), Action.READ_ON, "contains"),
    # 4. Otherwise it has to look at the whole log.
    "a new node": (NEW, Action.LOAD, NOT_KNOWN),
    "a node with a mark": (MARKED, Action.LOAD, NOT_KNOWN),
    "its last entry is missing": (case(OLD, last_entry=LastEntry.MISSING), Action.LOAD, NOT_KNOWN),
    "the log does not reach back to its last entry": (OLD, Action.LOAD, NOT_KNOWN),
    "the log contains its last entry, and Redis was restarted": (
        case(OLD, last_entry=LastEntry.CONTAINED, is_same_run=False), Action.LOAD, NOT_KNOWN),
    # 5. A part is missing.
    "a part is missing": (case(NEW, with_a_hole(LOG)), Action.BEGIN_EPOCH, PART),
    "a part is missing, in a later epoch": (case(OLD, with_a_hole(REPLACED)), Action.BEGIN_EPOCH, PART),
    "a part is missing, after a restart, though Redis is durable": (
        case(OLD, with_a_hole(LOG), last_entry=LastEntry.CONTAINED, is_same_run=False, is_durable=True),
        Action.BEGIN_EPOCH, PART),
    # 6. This node, or its mark, knows entries that the log does not contain.
    "its last entry is not in the log": (
        case(OLD, LOG, last_entry=LastEntry.MISSING), Action.BEGIN_EPOCH, LOST + "9"),
    "the same, though Redis is durable": (
        case(OLD, LOG, last_entry=LastEntry.MISSING, is_same_run=False, is_durable=True), Action.BEGIN_EPOCH, LOST),
    "the same, though the others vouch": (
        case(OLD, LOG, last_entry=LastEntry.MISSING, is_same_run=False, others_vouch=True), Action.BEGIN_EPOCH, LOST),
    "the log went back to an earlier epoch": (
        case(OLD, structs.replace(LOG, end=Cursor("e4", 90)), last_entry=LastEntry.MISSING), Action.BEGIN_EPOCH, LOST),
    "the log went back to an earlier epoch, with a shorter name": (
        case(NEW, LOG, seen=Cursor("e10", 3)), Action.BEGIN_EPOCH, "up to e10-3"),
    "the mark is beyond the end of the log": (
        case(NEW, LOG, seen=Cursor("e5", 21)), Action.BEGIN_EPOCH, LOST + "21"),
    "the mark is beyond the end of the log, though Redis is durable": (
        case(NEW, LOG, seen=Cursor("e5", 21), is_same_run=False, is_durable=True), Action.BEGIN_EPOCH, LOST + "21"),
    "the mark is of a former name, beyond its end": (
        case(NEW, RENAMED, seen=Cursor("e5", 10)), Action.BEGIN_EPOCH, LOST + "10"),
    "its last entry is of a former name, beyond its end": (
        case(OLD, RENAMED, seen=Cursor("e5", 10)), Action.BEGIN_EPOCH, LOST + "10"),
    "the mark is of a later epoch that nobody knows": (
        case(NEW, LOG, seen=Cursor("e7", 1)), Action.BEGIN_EPOCH, "up to e7-1"),
    # Not if everybody was told already, or nothing is missing.
    "missing, and another node has begun a later epoch": (
        case(OLD, REPLACED, last_entry=LastEntry.MISSING), Action.START_FROM_CHECKPOINT, COMPLETE),
    "missing, and the later epoch has a longer name": (
        case(OLD, structs.replace(REPLACED, end=Cursor("e10", 20)), last_entry=LastEntry.MISSING),
        Action.START_FROM_CHECKPOINT, COMPLETE),
    "the mark is of an earlier epoch that was given up": (
        case(NEW, REPLACED, seen=Cursor("e5", 900)), Action.START_FROM_CHECKPOINT, COMPLETE),
    "the mark is at the end of the log": (
        case(NEW, LOG, seen=Cursor("e5", 20)), Action.START_FROM_CHECKPOINT, COMPLETE),
    "the mark is at the end of a former name": (
        case(NEW, RENAMED, seen=Cursor("e5", 9)), Action.START_FROM_CHECKPOINT, COMPLETE),
    # 7. Redis was restarted.
    "after a restart that keeps everything": (
        case(OLD, LOG, last_entry=LastEntry.CONTAINED, is_same_run=False, is_durable=True),
        Action.CONTINUE_EPOCH, "Redis was restarted, and syncs each write"),
    "after a restart that keeps everything, at a new node": (
        case(NEW, LOG, is_same_run=False, is_durable=True), Action.ASK_OTHERS, "other nodes may know"),
    "the same, and no other node was alive, or none has started in time with a newer mark": (
        case(NEW, LOG, is_same_run=False, is_durable=True, others_vouch=False),
        Action.CONTINUE_EPOCH, "syncs each write"),
    "after a restart, nothing is proven": (
        case(OLD, LOG, last_entry=LastEntry.CONTAINED, is_same_run=False), Action.ASK_OTHERS,
        "Redis was restarted, and other nodes may know entries that it has lost"),
    "the same, at a node with a mark": (case(MARKED, LOG, is_same_run=False), Action.ASK_OTHERS, "other nodes"),
    "after a restart, every node vouches": (
        case(OLD, LOG, last_entry=LastEntry.CONTAINED, is_same_run=False, others_vouch=True),
        Action.CONTINUE_EPOCH, "Redis was restarted, and every node has found all that it knows"),
    "the same, at a new node, which the others need not wait for": (
        case(NEW, LOG, is_same_run=False, others_vouch=True), Action.CONTINUE_EPOCH, "every node has found all"),
    "after a restart, somebody did not vouch in time": (
        case(OLD, LOG, last_entry=LastEntry.CONTAINED, is_same_run=False, others_vouch=False),
        Action.BEGIN_EPOCH, UNPROVEN),
    "after a restart, somebody did not vouch in time, at a new node": (
        case(NEW, LOG, is_same_run=False, others_vouch=False), Action.BEGIN_EPOCH, UNPROVEN),
    "after a restart, in a later epoch than this node's": (
        case(OLD, REPLACED, is_same_run=False), Action.ASK_OTHERS, "other nodes"),
    # 8. A complete log.
    "a new node and a complete log": (case(NEW, LOG), Action.START_FROM_CHECKPOINT, COMPLETE),
    "a node that was away for long": (case(OLD, LOG), Action.START_FROM_CHECKPOINT, COMPLETE),
    "a node that was away when an epoch began": (case(OLD, REPLACED), Action.START_FROM_CHECKPOINT, COMPLETE),
    "a node that was away when the epoch got a new name": (
        case(OLD, RENAMED), Action.START_FROM_CHECKPOINT, COMPLETE),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_situation_decides(name: str) -> None:
    """Each row has the situation, the decision, and what is logged."""
    situation, action, reason = CASES[name]
    decision = decide(situation)
    assert decision.action is action
    assert reason in decision.reason


def all_situations() -> list[Situation]:
    """Every combination of facts, those that cannot be together included."""
    past = (PastEpochs(), PastEpochs((PastEpoch("e5", 9),)))
    ends = (Cursor("e4", 20), Cursor("e5", 8), Cursor("e5", 20), Cursor("e6", 20))
    contents = [Contents(end, names, is_whole=is_whole) for end, names, is_whole in product(ends, past, (True, False))]
    seen = (None, Cursor("e5", 9), Cursor("e5", 10), Cursor("e5", 21), Cursor("e7", 1))
    return [
        case(
            structs.replace(NEW, has_state=has_state, seen=last),
            each,
            last_entry=last_entry,
            is_same_run=same,
            is_durable=durable,
            others_vouch=vouch,
            tail=structs.replace(TAIL, epoch=each.end.epoch if each else epoch, version=version, cluster=found),
            cluster=cluster,
        )
        for each, has_state, last, last_entry, same, durable, vouch, epoch, version, (cluster, found) in product(
            (None, *contents), (True, False), seen, LastEntry, (True, False), (True, False), (None, True, False),
            ("", "e5"), (1, LATEST_VERSION, LATEST_VERSION + 1), (("c1", "c1"), ("", "c1"), ("c1", ""), ("c1", "c2")),
        )
        if has_state or last_entry is LastEntry.UNKNOWN  # without a state there is no last entry to look for
        if last is not None or not has_state
        if epoch or each is None
    ]  # fmt: skip


def is_told_already(now: Situation) -> bool:
    """Whether the log is in a later epoch, by which everybody is told of what this node knows."""
    assert now.contents is not None
    assert now.seen is not None
    return order_of(now.contents.end.epoch) > order_of(now.seen.epoch)


def test_invariants_of_every_decision() -> None:
    """No node follows a log that may be incomplete or in another run, or ends an epoch that it knows to be complete."""
    reached: set[Action] = set()
    for now in all_situations():
        decision: Decision = decide(now)
        action, contents = decision.action, now.contents
        reached.add(action)
        assert decision.reason
        is_strange = (now.cluster, now.tail.cluster) == ("c1", "c2")
        assert (action is Action.REFUSE) == (is_strange or now.tail.version > LATEST_VERSION)
        assert ("cluster" in decision.reason) == is_strange
        if action is Action.READ_ON:
            assert now.is_same_run
            assert now.last_entry is LastEntry.CONTAINED
            assert now.tail.cluster
        lacks = contents is not None and now.seen is not None and contents.lacks(now.seen)
        missing = now.last_entry is LastEntry.MISSING
        if action in (Action.START_FROM_CHECKPOINT, Action.CONTINUE_EPOCH):
            assert contents is not None
            assert contents.is_whole
            assert now.tail.epoch
            assert not lacks
            assert not missing or is_told_already(now)
            assert now.is_same_run == (action is Action.START_FROM_CHECKPOINT)
            assert now.is_same_run or now.is_durable or now.others_vouch is True
        if action is Action.BEGIN_EPOCH and now.tail.epoch:
            assert contents is not None, "nothing is given up unseen"
            unproven = not now.is_same_run and not now.is_durable and now.others_vouch is False
            assert lacks or missing or unproven or not contents.is_whole
        if now.vouches:
            assert contents is not None
            assert now.has_state
            assert not lacks
            assert not missing
    assert reached == set(Action)


@pytest.mark.parametrize(
    ("contents", "seen", "lacks"),
    [
        (LOG, "e5-20", False),
        (LOG, "e5-21", True),
        (LOG, "e6-1", True),
        (LOG, "e10-1", True),
        (LOG, "e4-99", False),
        (RENAMED, "e6-21", True),
        (RENAMED, "e5-9", False),
        (RENAMED, "e5-10", True),
        (RENAMED, "e4-99", False),
        (Contents(Cursor("e7", 30), PastEpochs((PastEpoch("e5", 9),)), is_whole=True), "e6-12", True),
        (TWICE, "e5-10", True),
        (TWICE, "e6-20", False),
    ],
)  # fmt: skip
def test_what_a_log_lacks(contents: Contents, seen: str, lacks: bool) -> None:
    """What was seen in it, or under a former name of it, and is not in it; or in a later epoch."""
    epoch, _, sequence = seen.partition("-")
    assert contents.lacks(Cursor(epoch, int(sequence))) is lacks


class BusyLog:
    """A log that gets entries all the time; `after`: what it was told of the last one, each time."""

    def __init__(self) -> None:
        self.after: list[bytes] = []

    async def begin(self, *changes: object, after: bytes) -> bool:
        self.after.append(after)
        return not after


class KnowsNothing:
    """A replica that has applied nothing."""

    def __init__(self) -> None:
        self.follower = self
        self.state = ReplicatedState(Limits(), epoch="")
        self.cursor = self.state.cursor


def test_an_epoch_begins_in_the_end_although_entries_come_all_the_time() -> None:
    """The keys of the very last ones may then be lost, instead of everybody waiting."""
    replica = cast(Any, KnowsNothing())
    starter = EpochStarter(node_id="n", replica=replica, mark=None, wall=lambda: 1e9, random=lambda: 0.5)
    busy = BusyLog()
    for _ in range(BEGIN_TRIES + 2):
        begun = starter.begin(cast(RedisLog, busy), "e1", "c1", replica.state, "lost", after=b"tag")
        with pytest.raises(StopIteration):
            begun.send(None)
    assert busy.after == [*[b"tag"] * BEGIN_TRIES, b"", b"tag"]
