"""Writes a journal with something of everything that is stored, and reads one as JSON that can be compared.

This file is a part of each artifact: it goes with the code of its release, and imports nothing else. Whatever is stored
for the first time has to be added to `SAVED` and `ADDED`; `test_frozen.py` notices a command, a table or a field
that is not in the sample.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, structs

from pushup import __version__
from pushup.broadcast.formats import FORMAT
from pushup.broadcast.journal_file import JournalFile
from pushup.core.attendance import Attendance, Away, Gone, Here, Leave
from pushup.core.channel import Attributes, Unread
from pushup.core.commands import (
    Claim,
    Close,
    Command,
    Configure,
    Continue,
    Create,
    Draft,
    Entry,
    Erase,
    Expire,
    Producer,
    Publish,
    Read,
    Renew,
    Revoke,
    Told,
    Upgrade,
)
from pushup.core.cursor import Cursor
from pushup.core.limits import ChannelPolicy, Limits
from pushup.core.machine_rules import LATEST_VERSION
from pushup.core.snapshot import Snapshot, Tables, empty_head
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import restore

CLUSTER = "a1"

BEGAN = 1_700_000_000.0
"""The time of the first entry; each comes half a second after the one before."""

POLICY = ChannelPolicy(
    prefix="brief:",
    retention_seconds=100.0,
    retention_messages=2,
    retention_bytes=100_000,
    channel_ttl_seconds=200.0,
    presence=True,
    occupancy_webhooks=True,
    share=2.0,
)

LIMITS = Limits(retention_messages=3, channel_ttl_seconds=9.0, channels=(POLICY,))
"""Some messages are dropped, and one channel is closed by `Expire`."""

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

NUMBER = "1700000001000"
"""The id of the second channel, which follows from the time of its entry."""

SAVED: tuple[Command, ...] = (
    Create("kept", 1000.0),
    Create(None, 1000.0),
    Publish((Draft(("kept", NUMBER), Raw(b'{"n": 1.50}')), Draft(("other",), Raw(b'"\xc3\xa9"'))), key="one"),
    Publish((Draft(("kept",), Raw(b"[1]"), Attributes(event="moved")),)),
    *[Publish((Draft(("many", "kept"), Raw(b"%d" % number)),)) for number in range(4)],
    *[Publish((Draft(("brief:1",), Raw(b"%d" % number)),), owner="app") for number in range(3)],
    Continue("a2"),
    Publish((Draft(("closed",), Raw(b"null")),), key="two"),
    Close("closed"),
    Revoke("sub", "ann"),
    Revoke("jti", "one"),
    Publish((Draft(("kept", "other"), Raw(b'"erased"')),)),
    Erase("message", cursor=Cursor("a2", 18)),
    Publish((Draft(("new",), Raw(b"{}"), Attributes(event="typing", ephemeral=True)),)),
    Publish((Draft(("kept",), Raw(b"7")), Draft(("new",), Raw(b"8"))), owner="app", producer=Producer("outbox", 1, 7)),
    Publish((Draft(("kept",), Raw(b'"due"'), unread=Unread(0.5, ("ann", "ben"))),), traceparent=TRACEPARENT),
    Publish((Draft(("new",), Raw(b'"claimed"'), unread=Unread(0.5, ("ann",))),)),
    *[Expire() for _ in range(3)],
    Claim(("a2-24",)),
    Publish((Draft(("kept", "new"), Raw(b'"waits"'), unread=Unread(60.0, ("ann", "ben"))),)),
    Here("node 1", (Attendance("brief:1", "ann", Raw(b'{"name": "Ann"}')), Attendance("met", "ben"))),
    Away("node 1", (("brief:1", "ann"),), 30.0),
)
"""What the checkpoint contains: rows of every kind, with every field."""

ADDED: tuple[Command, ...] = (
    Here("node 2", (Attendance("brief:1", "ben", Raw(b'{"name": "Ben"}')), Attendance("met", "ann", Raw(b"1")))),
    Away("node 2", (("met", "ann"), ("brief:1", "ben")), 0.5, is_closed=True),
    Gone("node 1", 30.0),
    Leave((("met", "ann"), ("brief:1", "ann"))),
    Read("ann", ("a2-29",)),
    Told(("a2-24",)),
    Claim(("a2-23",)),
    Publish((Draft(("new",), Raw(b"9"), unread=Unread(60.0, ("ben",))),), traceparent=TRACEPARENT),
    Renew("kept", 2000.0),
    Revoke("sub", "ben", 1_600_000_000.0),
    Erase("channel", "many", Cursor("a2", 8)),
    Configure(structs.replace(LIMITS, retention_messages=5, channels=(structs.replace(POLICY, share=1.5),))),
    Continue("a3"),
    *[Expire() for _ in range(20)],
    Create("late", 3.0),
    Publish((Draft(("new", "kept"), Raw(b"true"), Attributes(event="added")),), key="three", owner="app"),
    Close(NUMBER),
    Publish((Draft(("new",), Raw(b"[]"), Attributes(ephemeral=True)),)),
    Publish((Draft(("kept",), Raw(b"7")), Draft(("new",), Raw(b"8"))), owner="app", producer=Producer("outbox", 2, 7)),
    Publish((Draft(("kept",), Raw(b"0")),), owner="app", producer=Producer("other", 1, 0)),
    Upgrade(LATEST_VERSION),
)
"""The entries after it: every command, with every field."""


def about() -> dict[str, Any]:
    """What this release calls itself."""
    return {"release": __version__, "format": FORMAT, "version": LATEST_VERSION}


def write(path: Path) -> None:
    """Write a new journal."""
    with closing(JournalFile(path)) as file:
        state = restore(Snapshot(empty_head(CLUSTER, LIMITS), Tables()))
        state.note_changes()
        file.save(state.changes())
        file.found(CLUSTER)
        for number, command in enumerate((*SAVED, *ADDED), 1):
            cursor = state.cursor
            entry = Entry(cursor.epoch, cursor.sequence + 1, BEGAN + number / 2, command)
            state.apply(entry)
            file.append((entry,))
            if number == len(SAVED):
                file.save(state.changes())
                state.note_changes()


def read(path: Path) -> dict[str, Any]:
    """The state of a journal: its cluster, its head, and its rows by their keys. Raises: what reading it raises."""
    with closing(JournalFile(path)) as file:
        snapshot = file.load()
        assert snapshot is not None
        state = restore(snapshot)
        for entry in file.entries():
            state.apply(entry)
        return {"cluster": file.cluster, "head": _plain(state.head), "rows": _rows(state)}


def _rows(state: ReplicatedState) -> dict[str, Any]:
    return {row.key: msgspec.json.decode(row.body) for row in state.rows(state.names())}


def _plain(value: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))
