"""The states of a connection: what each event changes, in two tables and two rules. All transitions are decided here.

A connection is in one `Phase`, which says what happens to its current request and response, and has one `Input`, which
says what happens to the bytes that the client sends. `after` says which follow an event.
"""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    """What happens to the current request and its response."""

    IDLE = "no request is open, and none waits"
    QUEUED = "no request is open; complete ones wait for their turn"
    OPEN = "the application has a request"
    HELD = "the application has a request that waits: a poll for a message, or for authorization"
    STREAMING = "the response is a stream; the output buffer has what the kernel has not accepted of it"
    SENDING = "the kernel has not accepted the whole response; the output buffer has the rest"
    LINGERING = "the last response is sent; the connection is read until the client closes it"
    CLOSED = "the socket is closed"

    __hash__ = object.__hash__  # by identity, in C: Enum's own is a Python function, and the tables are used often


class Input(Enum):
    """What happens to the bytes that the client sends."""

    READING = "they are read"
    PAUSED = "they stay in the kernel, because too many requests wait behind the open one"
    IGNORED = "they are read and dropped: no request can follow"
    ENDED = "none will come: the client has closed its side"

    __hash__ = object.__hash__


class Event(Enum):
    """What happens to a connection."""

    BEGUN = "a request begins"
    HELD = "the application holds the request; or holds it for something else, such as a message after authorization"
    STREAMED = "the application answers with a stream"
    SENT = "the response ends, and the kernel has accepted all of it"
    SENT_IN_PART = "a response ends, or `100 Continue` is sent, and the kernel has not accepted all of it"
    FLUSHED = "the kernel has accepted everything"
    FINISHED = "the response just sent was the last; or the node is stopping, and no request is open"
    LEFT = "the client has closed its side"
    LOST = "the connection broke, timed out, exceeds a limit, or is given up"

    # These are about the input alone.
    ARRIVED = "requests have arrived that may have to wait"
    FULL = "too many requests wait"
    NONE_WAITS = "all requests that waited have begun"
    LAST = "the last request has arrived, or one that is refused"

    __hash__ = object.__hash__


_OF_INPUT = frozenset((Event.ARRIVED, Event.FULL, Event.NONE_WAITS, Event.LAST))

PHASES: dict[Phase, dict[Event, Phase]] = {
    Phase.IDLE: {
        Event.BEGUN: Phase.OPEN,
        Event.SENT_IN_PART: Phase.SENDING,
        Event.FINISHED: Phase.LINGERING,
        Event.LEFT: Phase.CLOSED,
        Event.LOST: Phase.CLOSED,
    },
    Phase.QUEUED: {
        Event.BEGUN: Phase.OPEN,
        Event.FINISHED: Phase.LINGERING,
        Event.LEFT: Phase.QUEUED,
        Event.LOST: Phase.CLOSED,
    },
    Phase.OPEN: {
        Event.HELD: Phase.HELD,
        Event.STREAMED: Phase.STREAMING,
        Event.SENT: Phase.IDLE,
        Event.SENT_IN_PART: Phase.SENDING,
        Event.LEFT: Phase.OPEN,
        Event.LOST: Phase.CLOSED,
    },
    Phase.HELD: {
        Event.HELD: Phase.HELD,
        Event.STREAMED: Phase.STREAMING,
        Event.SENT: Phase.IDLE,
        Event.SENT_IN_PART: Phase.SENDING,
        Event.LEFT: Phase.CLOSED,
        Event.LOST: Phase.CLOSED,
    },
    Phase.STREAMING: {
        Event.SENT: Phase.IDLE,
        Event.SENT_IN_PART: Phase.SENDING,
        Event.LEFT: Phase.CLOSED,
        Event.LOST: Phase.CLOSED,
    },
    Phase.SENDING: {
        Event.FLUSHED: Phase.IDLE,
        Event.LEFT: Phase.SENDING,
        Event.LOST: Phase.CLOSED,
    },
    Phase.LINGERING: {
        Event.LEFT: Phase.CLOSED,
        Event.LOST: Phase.CLOSED,
    },
    Phase.CLOSED: {  # it may have been lost while something was sent
        Event.SENT_IN_PART: Phase.CLOSED,
        Event.FINISHED: Phase.CLOSED,
        Event.LOST: Phase.CLOSED,
    },
}
"""The phase after an event. One that is not in the row of the present phase cannot happen in it; if it does, that is a
defect. A client that has left gets the responses to what it has requested, but nobody is there to wait for a message.
"""

INPUTS: dict[Input, dict[Event, Input]] = {
    Input.READING: {
        Event.FULL: Input.PAUSED,
        Event.LAST: Input.IGNORED,
        Event.FINISHED: Input.IGNORED,
        Event.LEFT: Input.ENDED,
    },
    Input.PAUSED: {
        Event.NONE_WAITS: Input.READING,
        Event.LAST: Input.IGNORED,
        Event.FINISHED: Input.IGNORED,
    },
    Input.IGNORED: {
        Event.LEFT: Input.ENDED,
    },
    Input.ENDED: {},
}
"""The input after an event; any other event does not change it."""


def after(event: Event, phase: Phase, input: Input, *, waits: bool) -> tuple[Phase, Input]:  # noqa: A002
    """What follows an event; `waits`: whether requests wait. Raises: KeyError if the event cannot happen in `phase`."""
    if event not in _OF_INPUT:
        phase = PHASES[phase][event]
    input = INPUTS[input].get(event, input)  # noqa: A001
    if phase is Phase.IDLE and waits:
        phase = Phase.QUEUED
    if input is Input.ENDED:  # a client that has left has left whatever phase follows, too
        phase = PHASES[phase].get(Event.LEFT, phase)
    return phase, input


def _column(event: Event) -> dict[Phase, Phase]:
    return {phase: row[event] for phase, row in PHASES.items() if event in row}


# Columns of the table, for the usual events of a poll: while nothing waits and the input is read, no rule changes them.
AFTER_BEGUN, AFTER_HELD, AFTER_SENT = _column(Event.BEGUN), _column(Event.HELD), _column(Event.SENT)

ENDS = frozenset((Phase.LINGERING, Phase.CLOSED))
"""No request can begin any more."""

READS = frozenset((Input.READING, Input.IGNORED))
"""What arrives is taken from the kernel."""
