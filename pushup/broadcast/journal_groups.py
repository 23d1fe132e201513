"""Which of the commands that wait for the disk are committed together."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from pushup.broadcast import OnOutcome
from pushup.broadcast.work_budget import ENTRY_UNITS, units_of
from pushup.core.commands import Command, Continue, Entry
from pushup.core.cursor import Cursor

GROUP_LIMIT = 256
"""A group with this many messages is full: applying it takes about 10 ms of the reactor."""

GROUP_UNITS = 1600
"""So is one whose messages on all their channels would be more than this, unless it is a single command."""

GROUP_BYTES = 4 * 1024 * 1024
"""A group with this many bytes is full, too: writing it takes a copy of all of them."""


class Waiting(NamedTuple):
    """A command that waits for the disk, the callback for its outcome, and its size in the waiting room."""

    command: Command
    on_outcome: OnOutcome
    size: int


def next_group(waiting: deque[Waiting], group: deque[Waiting], last: Cursor, time: float) -> tuple[Entry, ...]:
    """The next group of commands as entries after `last`; their publishers move to `group`."""
    epoch, sequence = last.epoch, last.sequence + 1
    entries: list[Entry] = []
    end = sequence + GROUP_LIMIT
    size = units = 0
    while waiting and sequence < end and size < GROUP_BYTES:
        units += units_of(waiting[0].command) - ENTRY_UNITS
        if entries and units > GROUP_UNITS:
            break
        first = waiting.popleft()
        group.append(first)
        entries.append(Entry(epoch, sequence, time, first.command))
        sequence += first.command.width
        if type(first.command) is Continue:
            epoch = first.command.epoch
        size += first.size
    return tuple(entries)
