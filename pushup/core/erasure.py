"""Erasure: the messages that somebody wants gone before they expire. Each goes from all of its channels.

Readers who have not seen them get a gap (`deleted`) up to `Channel.erased_sequence`; ephemeral ones go without a trace.
"""

from __future__ import annotations

from collections.abc import Iterator

from pushup.core.channel import Message
from pushup.core.commands import Erase, Erased
from pushup.core.errors import BadRequest
from pushup.core.state_rows import StateRows


def erase(state: StateRows, command: Erase, most: int) -> Erased | BadRequest:
    """Remove what the command selects until `most` is reached: messages and readers, once for each channel."""
    last = state.cursor
    until = last if command.cursor is None else state.past_epochs.translate(command.cursor, last.epoch)
    if until.epoch != last.epoch:
        if command.by == "message":
            return Erased(0, last)
        return BadRequest("not a cursor of this order: use one from an answer, or leave it out", field="until")
    count = work = 0
    for message in _selected(state, command, until.sequence):
        state.erased_sequence = last.sequence
        if work >= most:
            return Erased(count, until, more=True)
        work += state.cache.drop(message, "deleted")
        readers = state.webhooks.remove(f"{state.past_epochs.at(message.sequence, last.epoch)}-{message.sequence}")
        work += readers if state.version > 1 else 0
        count += 1
    return Erased(count, until)


def _selected(state: StateRows, command: Erase, until: int) -> Iterator[Message]:
    """The messages to remove: this one, or those up to it. Each must be gone before the next is asked for."""
    cache = state.cache
    if command.by == "message":
        if (message := cache.get(until)) is not None:
            yield message
    elif command.by == "channel":
        channel = state.channels.find(command.name)
        while channel is not None and channel.messages and channel.messages[0].sequence <= until:
            yield channel.messages[0]
    else:
        for shelf in cache.shelves(command.name):
            while 0 < shelf.first <= until:
                first = cache.get(shelf.first)
                assert first is not None
                yield first
