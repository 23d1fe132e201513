"""Reading the log: entries, its end, the properties of Redis, and errors for data that PushUp did not write."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from pushup.broadcast.redis.log import BATCH, RedisLog
from pushup.broadcast.redis.records import PIECE_BYTES, LastEntry, Tail, Unreadable, Vouchers
from pushup.broadcast.redis.redis_errors import ErrorReply, Malformed
from pushup.core.commands import Continue, Create, Entry
from pushup.core.cursor import Cursor, order_of
from pushup.core.limits import Limits
from pushup.core.machine_rules import LATEST_VERSION
from pushup.core.snapshot import empty_head
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import restore
from tests.broadcast.redis.commands import SortedSet
from tests.broadcast.redis.fake_redis import TIMEOUT, FakeRedis
from tests.core.builders import batch, draft, publish


class ReadLog:
    """A log in an in-memory Redis, with an epoch."""

    def __init__(self, prefix: str = "pushup", timeout: float = TIMEOUT) -> None:
        self.clock = Clock()
        self.clock.advance(1e9)
        self.redis = FakeRedis(self.clock)
        self.log = RedisLog(self.redis.link(timeout).connection, prefix)
        self.now(self.log.prepare())
        head = empty_head("e1", Limits())
        assert self.now(self.log.begin("", head))

    def now(self, asked: Coroutine[Deferred[Any], Any, Any]) -> Any:
        results: list[Any] = []
        Deferred.fromCoroutine(asked).addBoth(results.append)
        self.redis.settle()
        (result,) = results
        return result.value if isinstance(result, Failure) else result

    def append(self, *commands: Any, epoch: str = "e1") -> list[Any]:
        replies: list[Any] = []
        for n, command in enumerate(commands):
            self.log.append(epoch, f"t{n}", command, replies.append)
        self.redis.settle()
        return replies

    def state(self) -> ReplicatedState:
        """The state as a node has it that has followed the log from its beginning."""
        state = ReplicatedState(Limits(), epoch="e1")
        state.note_changes()
        for logged in self.now(self.log.read("e1", 0)):
            state.apply(logged.entry)
        return state

    def save(self, state: ReplicatedState, saved: int = 0, keep_after: int = 0) -> bool:
        """Save it as a node that takes the checkpoint to be at `saved`."""
        tag = self.now(self.log.tail()).tag.decode()
        is_saved: bool = self.now(self.log.save(saved, state.changes(), tag, keep_after=keep_after))
        return is_saved

    def find(self, last: Cursor, tag: bytes) -> LastEntry:
        found: LastEntry = self.now(self.log.find(self.now(self.log.tail()), last, tag))
        return found

    def row(self, number: int = -1) -> dict[bytes, bytes]:
        """The fields of an entry as they are in Redis."""
        fields = self.redis.data[b"{%s}:5:log" % b"pushup"].rows[number][1]
        return dict(zip(fields[::2], fields[1::2], strict=True))


@pytest.fixture
def log() -> ReadLog:
    return ReadLog()


def test_an_entry_as_it_is_in_redis(log: ReadLog) -> None:
    """Literally: its time, the tags, and the command as JSON, with the data as it was written."""
    assert log.append(publish("é", data='{"a": 1.50}', key="k")) == [1]
    assert log.row() == {
        b"time": b"1000000000.000000",
        b"after": b"e1",
        b"tag": b"t0",
        b"command": '{"type":"publish","messages":[{"channels":["é"],"data":{"a": 1.50}}],"key":"k"}'.encode(),
    }
    (logged,) = log.now(log.log.read("e1", 0))
    assert logged.entry == Entry("e1", 1, 1e9, publish("é", data='{"a": 1.50}', key="k"))
    assert (logged.tag, logged.after) == (b"t0", b"e1")


def test_the_keys_in_redis_begin_with_the_prefix_in_braces() -> None:
    """So that all keys of a cluster are on the same node of a Redis Cluster."""
    log = ReadLog("x:é")
    log.append(publish("a"))
    assert all(key.startswith("{x:é}:".encode()) for key in log.redis.data)
    assert "{x:é}:5:log".encode() in log.redis.data


def test_the_names_of_the_keys(log: ReadLog) -> None:
    """They are the same in every release, or two of them would not find each other."""
    log.append(publish("a", key="k"))
    assert log.save(log.state())
    log.now(log.log.report("a", b"A", 100.0))
    log.now(log.log.vouch("a", ["a"]))
    Deferred.fromCoroutine(log.log.load("b")).addErrback(lambda failure: None)
    names = "state log rows leases members vouchers loads"
    log.redis.step()
    assert {key.decode() for key in log.redis.data} == {
        "{pushup}:state",
        *["{pushup}:5:" + name for name in names.split()],
    }
    log.redis.settle()


def test_an_entry_of_many_messages_starts_with_its_first_sequence(log: ReadLog) -> None:
    """The reply and its id in Redis are the last one; the data of each message is a separate copy."""
    assert log.append(publish("a"), batch(draft("a", data="1"), draft("b", data="[2]"), draft("a", data="3"))) == [1, 4]
    one, many = log.now(log.log.read("e1", 0))
    assert (one.entry.sequence, many.entry.sequence) == (1, 2)
    assert many.entry.command.width == 3
    assert [bytes(draft.data) for draft in many.entry.command.messages] == [b"1", b"[2]", b"3"]


def test_at_most_a_batch_is_read_at_a_time(log: ReadLog) -> None:
    log.append(*[publish("a")] * (BATCH + 5))
    first = list(log.now(log.log.read("e1", 0)))
    rest = log.now(log.log.read("e1", BATCH))
    assert [logged.entry.sequence for logged in (*first, *rest)] == list(range(1, BATCH + 6))
    assert len(first) == BATCH


def test_fewer_entries_are_read_at_a_time_if_they_are_large(log: ReadLog) -> None:
    """As many as make a piece, of the size of those that were read before."""
    large = publish("a", data='"%s"' % ("x" * (PIECE_BYTES // 4)))
    log.append(*[large] * BATCH)
    assert [len(list(log.now(log.log.read("e1", 0)))) for _ in range(3)] == [BATCH, 3, 3]


def test_reading_waits_for_an_entry_and_ends_without_one() -> None:
    """It ends after a second, although other replies must come sooner; an entry that arrives is returned at once."""
    log = ReadLog(timeout=0.5)
    received: list[Any] = []
    Deferred.fromCoroutine(log.log.read("e1", 0)).addCallback(received.append)
    log.clock.advance(0.9)
    log.redis.settle()
    assert received == []
    log.clock.advance(0.2)
    log.redis.settle()
    assert [list(entries) for entries in received] == [[]]
    other = RedisLog(log.redis.link().connection, "pushup")
    log.now(other.prepare())
    Deferred.fromCoroutine(log.log.read("e1", 0)).addCallback(received.append)
    log.redis.settle()
    other.append("e1", "t", publish("a"), lambda reply: None)
    log.redis.settle()
    assert [logged.entry.sequence for logged in received[1]] == [1]


def damage(log: ReadLog, number: int, field: bytes, value: bytes | None) -> None:
    """Change a field of an entry in Redis; None: remove it."""
    fields = log.row(number)
    fields.pop(field)
    if value is not None:
        fields[field] = value
    rows = log.redis.data[b"{pushup}:5:log"].rows
    rows[number] = (rows[number][0], [word for pair in fields.items() for word in pair])


@pytest.mark.parametrize(
    ("text", "problem"),
    [(b"{", "Input data was truncated"), (b"[]", "Expected `object`, got `array`"), (b"\xff", "")],
)
def test_an_unreadable_command_concerns_its_entry_only(log: ReadLog, text: bytes, problem: str) -> None:
    """Its place and the problem are known, and those before and after it are read as always."""
    log.append(publish("a"), publish("b"), publish("c"))
    damage(log, 1, b"command", text)
    for entries in (log.now(log.log.read("e1", 0)), log.now(log.log.load()).entries):
        before, unreadable, after = entries
        assert (before.entry.command, after.entry.command) == (publish("a"), publish("c"))
        assert isinstance(unreadable.entry, Unreadable)
        assert unreadable.entry.place == "e1-2"
        assert problem in unreadable.entry.problem
        assert (unreadable.last, unreadable.tag, unreadable.after) == (2, b"t1", b"t0")
    assert log.now(log.log.load()).is_whole


@pytest.mark.parametrize(("field", "value"), [(b"time", b"soon"), (b"time", None), (b"tag", None)])
def test_an_entry_without_a_place_is_an_error(log: ReadLog, field: bytes, value: bytes | None) -> None:
    """PushUp did not write it, so nothing is known of what follows, and the log is not whole."""
    log.append(publish("a"))
    damage(log, 0, field, value)
    with pytest.raises(Malformed, match="1-0 that PushUp did not write"):
        list(log.now(log.log.read("e1", 0)))
    assert not log.now(log.log.load()).is_whole


def test_entries_after_a_new_name_are_of_that_epoch(log: ReadLog) -> None:
    """The entry that says so is the last of the old one; the end of the log has the new name and run."""
    log.append(publish("a"))
    assert log.now(log.log.switch(b"t0", "s", Continue("e2"), epoch="e2", run="another")) is True
    replies: list[Any] = []
    log.log.append("e2", "t1", publish("b"), replies.append)
    log.redis.settle()
    assert replies == [3]
    for entries in (log.now(log.log.read("e1", 0)), log.now(log.log.load()).entries):
        assert [str(Cursor(each.entry.epoch, each.last)) for each in entries] == ["e1-1", "e1-2", "e2-3"]
    assert log.now(log.log.tail()) == Tail("e2", 3, b"t1", "another", LATEST_VERSION, "e1", log.redis.now())


def test_only_one_entry_follows_another(log: ReadLog) -> None:
    """A switch names the entry that it follows; if another was appended, nothing is changed."""
    log.append(publish("a"))
    before = log.redis.dump()
    assert log.now(log.log.switch(b"e1", "s", Continue("e2"), epoch="e2")) is False
    assert log.redis.data[b"{pushup}:5:state"] == before[b"{pushup}:5:state"]
    assert len(log.redis.data[b"{pushup}:5:log"].rows) == 1


def test_an_epoch_replaces_the_one_it_names(log: ReadLog) -> None:
    """If another node has replaced that meanwhile, nothing is changed."""
    head = empty_head("e2", Limits())
    assert log.now(log.log.begin("", head)) is False
    assert log.now(log.log.tail()).epoch == "e1"
    assert log.now(log.log.begin("e1", head)) is True


def test_an_epoch_replaces_no_entry_that_its_node_does_not_know(log: ReadLog) -> None:
    """Nothing is changed if there is one after that with the tag that the node names."""
    head = empty_head("e2", Limits())
    log.append(publish("a"), publish("a", key="k"))
    assert log.now(log.log.begin("e1", head, after=b"t0")) is False
    assert len(log.redis.data[b"{pushup}:5:log"].rows) == 2
    assert not [key for key in log.redis.data if b"begin" in key]
    assert log.now(log.log.begin("e1", head, after=b"t1")) is True


def test_the_rows_of_an_epoch_that_does_not_begin_expire(log: ReadLog) -> None:
    """Also if the connection ends before the reply to the first of them has come."""
    log.append(publish("a", key="k"))
    state = log.state()
    (link,) = log.redis.links
    begun = Deferred.fromCoroutine(log.log.begin("e1", empty_head("e2", Limits()), state.rows(state.names())))
    begun.addErrback(lambda failure: None)
    while link.execute_next():
        pass
    link.end(ConnectionDone())
    (key,) = [key for key in log.redis.data if b"begin" in key]
    assert key in log.redis.data.expires


def test_no_epoch_begins_beside_a_log_of_another_format(log: ReadLog) -> None:
    """It may have come between this node's look at the format and its request to begin."""
    head = empty_head("e2", Limits())
    log.redis.data[b"{pushup}:state"] = b"6"
    before = log.redis.data[b"{pushup}:5:state"].copy()
    reply = log.now(log.log.begin("e1", head))
    assert isinstance(reply, ErrorReply)
    assert str(reply) == "FORMAT the message log has format 6"
    assert (log.redis.data[b"{pushup}:state"], log.redis.data[b"{pushup}:5:state"]) == (b"6", before)


def test_a_format_that_was_evicted_is_written_again(log: ReadLog) -> None:
    """Or a node of another format would not see that there is a log. One of another format stays."""
    del log.redis.data[b"{pushup}:state"]
    log.now(log.log.report("a", b"A", 100.0))
    assert log.redis.data[b"{pushup}:state"] == b"5"
    log.redis.data[b"{pushup}:state"] = b"6"
    log.now(log.log.report("a", b"A", 100.0))
    assert log.redis.data[b"{pushup}:state"] == b"6"


def test_nothing_is_appended_in_another_run_of_redis(log: ReadLog) -> None:
    """Through a connection that stays: the server was made a replica, or another took its place."""
    log.redis.follows = "another"
    assert log.append(publish("a")) == [0]
    assert log.now(log.log.tail()).sequence == 0


@pytest.mark.parametrize("how", ["goes on", "begins"])
def test_an_epoch_that_a_node_names_in_another_run_is_not_followed_there(log: ReadLog, how: str) -> None:
    """Before all have vouched, that is: it notes the run that the node knows. It fits only if nobody was faster."""
    old = log.log.run
    log.redis.follows = "another"
    here = RedisLog(log.redis.link().connection, "pushup")
    log.now(here.prepare())

    def name(by: RedisLog, epoch: str) -> bool:
        if how == "goes on":
            return bool(log.now(by.switch(b"e1", epoch, Continue(epoch), epoch=epoch, run=by.run)))
        return bool(log.now(by.begin("e1", empty_head(epoch, Limits()), cluster="e1", after=b"e1")))

    before = log.redis.dump()
    assert name(log.log, "e2")
    assert log.now(here.tail()).run == old != here.run
    assert isinstance(log.now(log.log.vouch("a", ["a"])), ErrorReply)
    assert log.append(publish("a"), epoch="e2") == [0]
    log.redis.data = before
    assert name(here, "e3")
    assert not name(log.log, "e2")
    assert log.now(here.tail()).run == here.run


def test_who_vouches(log: ReadLog) -> None:
    """In this run, and until the epoch goes on; whoever does not vouch only looks."""
    log.now(log.log.report("a", b"A", 100.0))
    log.now(log.log.report("b", b"B", 100.0))

    def vouchers(node: str, known: list[str] | None) -> Vouchers:
        seen: Vouchers = log.now(log.log.vouch(node, known))
        return seen

    assert vouchers("c", None) == Vouchers(log.redis.whole_run, frozenset("ab"), {})
    one = vouchers("a", ["a", "b"])
    assert (one.by_node, one.are_all) == ({"a": frozenset("ab")}, False)
    both = vouchers("b", ["b", "c"])
    assert (set(both.by_node), both.are_all) == (set("ab"), False)  # b knows of c
    assert vouchers("c", ["c"]).are_all
    run, log.log.run = log.log.run, "a later one"
    assert vouchers("d", None).by_node == {}
    log.log.run = run
    del log.redis.data[b"{pushup}:5:leases"]
    assert vouchers("d", None).members == frozenset("ab")
    assert log.now(log.log.switch(b"e1", "s", Continue("e2"), epoch="e2")) is True
    assert vouchers("d", None).by_node == {}


def test_nobody_vouches_for_nothing() -> None:
    """A list of no nodes is not one of all."""
    assert not Vouchers("r", frozenset(), {}).are_all


def test_the_log_contains_its_own_entries_only(log: ReadLog) -> None:
    """It finds its last entry, earlier ones and sequences within a batch, but no missing one and no other node's."""
    log.append(publish("a"), batch(draft("a"), draft("a"), draft("a")), publish("a"))
    for sequence, tag, found in (
        (5, b"t2", LastEntry.CONTAINED),
        (4, b"t1", LastEntry.CONTAINED),
        (1, b"t0", LastEntry.CONTAINED),
        (0, b"e1", LastEntry.CONTAINED),
        (5, b"other", LastEntry.MISSING),
        (4, b"other", LastEntry.MISSING),
        (3, b"t1", LastEntry.CONTAINED),  # the tag decides
        (3, b"other", LastEntry.MISSING),
        (1, b"other", LastEntry.MISSING),
        (0, b"other", LastEntry.MISSING),
        (6, b"t2", LastEntry.MISSING),
        (9, b"other", LastEntry.MISSING),
    ):
        assert log.find(Cursor("e1", sequence), tag) is found, (sequence, tag)


def test_earlier_and_later_epochs(log: ReadLog) -> None:
    """If the log is in an earlier epoch it went back; if it is in a later one, the entry may or may not be in it."""
    for epoch in ("e0", "e"):
        assert log.find(Cursor(epoch, 1), b"t") is LastEntry.UNKNOWN, epoch
    for epoch in ("e2", "e10", "d10"):
        assert log.find(Cursor(epoch, 1), b"t") is LastEntry.MISSING, epoch
    assert sorted(["e10", "e2", "f", "e1"], key=order_of) == ["f", "e1", "e2", "e10"]


def test_a_hole_is_a_loss_and_a_log_that_begins_later_is_not(log: ReadLog) -> None:
    """If the log has entries before a sequence but not the sequence it was lost; otherwise it was trimmed."""
    log.append(*[publish("a")] * 6)
    rows = log.redis.data[b"{pushup}:5:log"].rows
    del rows[2:4]
    assert log.find(Cursor("e1", 3), b"t2") is LastEntry.MISSING
    assert log.find(Cursor("e1", 4), b"t3") is LastEntry.CONTAINED
    del rows[:3]
    assert log.find(Cursor("e1", 2), b"t1") is LastEntry.UNKNOWN
    assert log.find(Cursor("e1", 5), b"t4") is LastEntry.CONTAINED
    assert log.find(Cursor("e1", 5), b"other") is LastEntry.MISSING
    rows.clear()
    assert log.find(Cursor("e1", 5), b"t4") is LastEntry.UNKNOWN
    assert log.find(Cursor("e1", 6), b"t5") is LastEntry.CONTAINED
    assert log.find(Cursor("e1", 6), b"other") is LastEntry.MISSING
    assert log.find(Cursor("e1", 7), b"t6") is LastEntry.MISSING


def test_what_a_log_that_begins_later_says(log: ReadLog) -> None:
    """That an entry of another chain is at a place, or right after it; nothing of the places before that."""
    log.append(*[publish("a")] * 3, batch(draft("a"), draft("a"), draft("a")), publish("a"))
    rows = log.redis.data[b"{pushup}:5:log"].rows
    del rows[:3]  # it begins with the batch, 4 to 6
    for sequence, found in ((1, LastEntry.UNKNOWN), (2, LastEntry.UNKNOWN), (3, LastEntry.MISSING),
                            (4, LastEntry.MISSING), (5, LastEntry.MISSING), (6, LastEntry.MISSING)):  # fmt: skip
        assert log.find(Cursor("e1", sequence), b"other") is found, sequence
    assert log.find(Cursor("e2", 1), b"other") is LastEntry.MISSING
    log.redis.data[b"{pushup}:5:state"].clear()
    assert log.find(Cursor("e1", 1), b"other") is LastEntry.UNKNOWN


def test_an_entry_that_cannot_be_read_says_nothing_of_its_place(log: ReadLog) -> None:
    """The entries before it do."""
    log.append(*[publish("a")] * 4)
    damage(log, 1, b"command", b"{}")
    assert log.find(Cursor("e1", 2), b"other") is LastEntry.MISSING
    del log.redis.data[b"{pushup}:5:log"].rows[0]
    assert log.find(Cursor("e1", 1), b"other") is LastEntry.UNKNOWN
    assert log.find(Cursor("e1", 1), b"t0") is LastEntry.CONTAINED


def test_the_checkpoint_is_the_state_that_was_saved(log: ReadLog) -> None:
    """It has the limits of that state, the tag of its last entry, and the entries after it."""
    limits = Limits(retention_messages=3)
    log.append(publish("a", key="k"), Create("é", 5.0))
    state = ReplicatedState(limits, epoch="e1")
    state.note_changes()
    for logged in log.now(log.log.read("e1", 0)):
        state.apply(logged.entry)
    assert log.now(log.log.save(0, state.changes(), "t1", keep_after=0)) is True
    log.append(publish("b"))
    loaded = log.now(log.log.load())
    assert (loaded.tail.epoch, loaded.tail.sequence, loaded.tail.tag) == ("e1", 3, b"t0")
    assert (loaded.tail.run, loaded.tail.version) == (log.redis.whole_run, LATEST_VERSION)
    assert (loaded.saved.tag, loaded.saved.head.limits, loaded.complete) == ("t1", limits, True)
    assert restore(loaded.snapshot).snapshot() == state.snapshot()
    assert [logged.entry.command for logged in loaded.entries] == [publish("b")]


@pytest.mark.parametrize(("keep_after", "kept"), [(0, [1, 2, 3, 4, 5]), (2, [3, 4, 5]), (3, [4, 5]), (4, [4, 5])])
def test_a_save_trims_the_log(log: ReadLog, keep_after: int, kept: list[int]) -> None:
    """As far as it is asked to, and not beyond what is saved."""
    log.append(*[publish("a")] * 3)
    state = log.state()
    log.append(*[publish("a")] * 2)
    assert log.save(state, keep_after=keep_after) is True
    assert [number for number, _ in log.redis.data[b"{pushup}:5:log"].rows] == kept


def test_a_report_says_where_the_checkpoint_is(log: ReadLog) -> None:
    """At the beginning it is at 0, and so it is where there is none."""
    log.append(*[publish("a")] * 3)
    saved = [log.now(log.log.report("a", b"A", 3.0)).saved]
    assert log.save(log.state()) is True
    saved.append(log.now(log.log.report("a", b"A", 3.0)).saved)
    log.redis.data.clear()
    report = log.now(log.log.report("a", b"A", 3.0))
    assert (*saved, report.saved, report.tail.epoch) == (0, 3, 0, "")


@pytest.mark.parametrize(("until", "waits"), [(-1, False), (20, True), (1000, False)])
def test_a_save_waits_for_a_node_that_loads(log: ReadLog, until: float, *, waits: bool) -> None:
    """Reports say so, too. A lease that lasts long is from before the clock of Redis was set back."""
    log.append(publish("a"))
    log.redis.data[b"{pushup}:5:loads"] = SortedSet({b"other": log.redis.now() + until})
    assert log.now(log.log.report("a", b"A", 3.0)).is_loading is waits
    assert log.save(log.state()) is not waits


def test_a_save_that_another_came_before_changes_nothing(log: ReadLog) -> None:
    """Two nodes save on top of the same checkpoint: the second one is told, and the first one's is kept."""
    log.append(publish("a"))
    late = log.state()
    log.append(publish("b"))
    assert log.save(log.state()) is True
    before = log.redis.dump()
    assert log.save(late) is False
    assert log.redis.data == before


def test_a_save_adds_what_has_changed_only(log: ReadLog) -> None:
    log.append(publish("a", key="k"))
    state = log.state()
    assert log.save(state) is True
    before = log.redis.data[b"{pushup}:5:rows"].copy()
    state.note_changes()
    log.append(Create("b"))
    for logged in log.now(log.log.read("e1", 1)):
        state.apply(logged.entry)
    assert log.save(state, 1) is True
    rows = log.redis.data[b"{pushup}:5:rows"]
    assert rows.pop(b"channels/b")
    assert rows == before
    assert set(rows) == {b"channels/a", b"messages/1", b"keys/k"}


def test_a_save_of_an_epoch_that_is_over_changes_nothing(log: ReadLog) -> None:
    """Both epochs have the checkpoint that they began with."""
    log.append(publish("a"))
    late = log.state()
    assert log.now(log.log.begin("e1", empty_head("e2", Limits()))) is True
    before = log.redis.dump()
    assert log.save(late) is False
    assert log.redis.data == before


@pytest.mark.parametrize(("seconds", "milliseconds"), [(2.0, b"2000"), (0.0125, b"12"), (0.0001, b"1"), (0.0, b"1")])
def test_how_long_a_replica_is_waited_for(seconds: float, milliseconds: bytes) -> None:
    """Never with a timeout of 0, which Redis takes for ever. The connection stays open while Redis waits."""
    log = ReadLog(timeout=0.5)
    told: list[Any] = []
    Deferred.fromCoroutine(log.log.replicas(seconds)).addBoth(told.append)
    log.redis.settle()
    ((_, words),) = log.redis.links[0].requests
    assert words == [b"WAIT", b"1", milliseconds]
    for _ in range(300):
        log.clock.advance(0.01)
        log.redis.settle()
    assert [replicas for _, replicas in told] == [0]


@pytest.mark.parametrize(
    ("info", "appendfsync", "durable"),
    [
        ({"aof_enabled": "1", "second_repl_offset": "-1"}, b"always", True),
        ({"aof_enabled": "1"}, b"always", True),
        ({"aof_enabled": "1", "second_repl_offset": "-1"}, b"everysec", False),
        ({"aof_enabled": "1", "second_repl_offset": "-1"}, None, True),
        ({"aof_enabled": "1", "connected_slaves": "1"}, b"always", False),
        ({"aof_enabled": "1", "second_repl_offset": "700"}, b"always", False),
        ({"aof_enabled": "0", "second_repl_offset": "-1"}, b"always", False),
        ({}, b"always", False),
    ],
)
def test_what_survives_a_restart(info: dict[str, str], appendfsync: bytes | None, durable: bool) -> None:
    """Everything does only if each write is synced, by a server that reports this and never was a replica."""
    log = ReadLog()
    log.redis.info, log.redis.appendfsync = info, appendfsync
    assert log.now(log.log.prepare()) is None
    assert (log.log.syncs_each_write and not log.log.replica_seen) is durable
    assert log.log.run == "run1.history-of-run1"


def test_a_refused_publication_has_no_sequence(log: ReadLog) -> None:
    """Refused because of another epoch or by Redis itself: both are values."""
    replies: list[Any] = []
    log.log.append("e2", "t", publish("a"), replies.append)
    log.redis.settle()
    assert replies == [0]
    log.redis.denies = "OOM full"
    assert [str(reply) for reply in log.append(publish("a"))] == ["OOM full"]
    assert log.now(log.log.tail()).sequence == 0
