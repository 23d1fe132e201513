"""What the parent and its workers say to each other about the order: every value arrives as it was."""

from __future__ import annotations

import sys
from random import Random

import pytest
from msgspec import DecodeError, Raw

from pushup.broadcast import Member
from pushup.broadcast.hub.frames import (
    Append,
    Beat,
    Confirm,
    Confirmed,
    End,
    FindEnd,
    Last,
    Mark,
    Next,
    Part,
    Passed,
    Present,
    Refused,
    ToParent,
    ToWorker,
    Trouble,
    Welcome,
    frame,
    read_by_parent,
    read_by_worker,
)
from pushup.core.commands import (
    Close,
    Command,
    Configure,
    Continue,
    Create,
    Entry,
    Expire,
    Producer,
    Publish,
    Renew,
    Upgrade,
)
from pushup.core.errors import Refusal
from pushup.core.limits import Limits
from pushup.core.snapshot import Changes
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import Outgoing
from pushup.transport.framed_link import LENGTH_BYTES
from tests.core.builders import batch, draft, publish
from tests.core.random_entries import random_entries

MEMBER = Member("1", 'a "name"', ("[::1]:80", "unix:/a"), "e1-2", 3, "1.0")

COMMANDS: list[Command] = [
    publish("a"),
    batch(draft("a", "tag:é", data='{"x": [1.50, "\\u00e9"]}'), draft("b"), key="k"),
    Publish((draft("a"),), "k", "ci"),
    Publish((draft("a", event="e"), draft("b", ephemeral=True)), owner="ci"),
    Publish((draft("a"), draft("b")), None, "ci", Producer("outbox", 2, 7)),
    Create("a", 2.5),
    Create(),
    Renew("a"),
    Close("a"),
    Expire(),
    Continue("e2"),
    Upgrade(2),
    Configure(Limits(retention_seconds=3.0, strict_channels=True)),
]


def body(message: ToParent | ToWorker) -> bytes:
    framed = frame(message)
    assert int.from_bytes(framed[:LENGTH_BYTES], "big") == len(framed) - LENGTH_BYTES
    return framed[LENGTH_BYTES:]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_a_command_arrives_as_it_was(command: Command) -> None:
    """At the parent, and as an entry at a worker: also how its data was written, and its times."""
    asked = Append(7, (command, publish("b")))
    assert read_by_parent(body(asked)) == asked
    entries = tuple(Entry("e1", 2**53 + place, 1_800_000_000.000001, each) for place, each in enumerate(asked.commands))
    assert read_by_worker(body(Next(entries, (7, 0)))) == Next(entries, (7, 0))


@pytest.mark.parametrize("message", [FindEnd(), Confirm(1), Passed(2), Present(MEMBER)], ids=repr)
def test_what_a_worker_says(message: ToParent) -> None:
    assert read_by_parent(body(message)) == message


TROUBLE = Trouble("unwritable", "no", "disk full")


@pytest.mark.parametrize(
    "message",
    [
        Welcome(1 << 62),
        Refused(2, TROUBLE),
        End("e1", 3),
        Mark(4),
        Confirmed(5, 2),
        Beat(-1.5, None, ()),
        Beat(1e9, TROUBLE, (MEMBER, MEMBER)),
    ],
    ids=repr,
)
def test_what_the_parent_says(message: ToWorker) -> None:
    assert read_by_worker(body(message)) == message


def test_the_pieces_of_a_state_arrive_as_they_were() -> None:
    """All of a state with channels, messages, keys and producers, and its last piece."""
    state = ReplicatedState(Limits(), epoch="e1")
    state.note_changes()
    for entry in random_entries(Random(3), 60):
        state.apply(entry)
    outgoing = Outgoing(state)
    tables = set()
    while not isinstance(piece := outgoing.next(), Changes):
        assert read_by_worker(body(Part(piece))) == Part(piece)
        tables |= {row.key.partition("/")[0] for row in piece}
    assert tables == {"channels", "messages", "keys", "producers", "webhooks", "members"}
    assert read_by_worker(body(Last(piece))) == Last(piece)


def test_what_is_kept_of_a_message_does_not_keep_its_frame() -> None:
    """A small message in a large frame would keep all of it in memory."""
    command = batch(draft("a"), draft("b", data=f'"{"x" * 100_000}"'))
    entry = Entry("e", 1, 1.0, command)
    for read, message in ((read_by_parent, Append(1, (command,))), (read_by_worker, Next((entry,), (0,)))):
        received = body(message)
        before = sys.getrefcount(received)
        kept = read(received)
        assert kept == message
        assert sys.getrefcount(received) == before


@pytest.mark.parametrize("refusal", Refusal)
def test_errors_are_told_with_all_they_say(refusal: Refusal) -> None:
    """With the operator's details, and a sentence that says more than that of the table."""
    for error in (refusal(), refusal("/var/lib: disk full", detail="not now")):
        told = Trouble.of(error).error
        assert type(told) is type(error)
        assert vars(told) == vars(error)
    assert vars(error)["detail"] == "not now"


@pytest.mark.parametrize("nonsense", [b"", b"{}", b"[]", b'["next"]', b'["append",1]', b'["nobody"]', b'["mark","x"]'])
def test_nonsense_is_an_error(nonsense: bytes) -> None:
    """For both sides; so is what the other side would say."""
    for read in (read_by_parent, read_by_worker):
        with pytest.raises(DecodeError):
            read(nonsense)
    with pytest.raises(DecodeError):
        read_by_parent(body(Mark(1)))
    with pytest.raises(DecodeError):
        read_by_worker(body(Confirm(1)))


def test_data_is_passed_on_and_not_read() -> None:
    read = read_by_parent(body(Append(1, (publish("a", data="1.0e2"),))))
    assert isinstance(read, Append)
    assert read.commands == (publish("a", data="1.0e2"),)
    assert read.commands != (publish("a", data="100.0"),)
    assert isinstance(publish("a").messages[0].data, Raw)
