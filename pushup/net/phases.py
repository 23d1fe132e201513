"""The phases of a connection: every phase and every transition, in two tables.

A connection is in one `Phase`, which says what happens to its current request and response, and has one `Input`, which
says what happens to the bytes that the client sends. The two change independently, with two exceptions: a lingering
connection ignores its input, and the input of a closed one no longer means anything.

Each transition in the tables has the event that causes it. Any other transition is a defect: `Connection` asserts it.
"""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    """What happens to the current request and its response."""

    IDLE = "no request is open"
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


PHASES: dict[Phase, dict[Phase, str]] = {
    Phase.IDLE: {
        Phase.OPEN: "a request begins",
        Phase.SENDING: "the kernel does not accept all of a `100 Continue`",
        Phase.LINGERING: "the response just sent was the last; or the node is stopping",
        Phase.CLOSED: "the connection broke or was idle for too long; or the client has ended and all is answered",
    },
    Phase.OPEN: {
        Phase.HELD: "the application holds the request",
        Phase.STREAMING: "the application answers with a stream",
        Phase.IDLE: "the response is sent",
        Phase.SENDING: "the kernel does not accept all of the response",
        Phase.CLOSED: "the connection broke, the client has left and the application would hold its poll, or the "
        "response exceeds the output limit",
    },
    Phase.HELD: {
        Phase.HELD: "the poll is authorized and waits for a message now",
        Phase.STREAMING: "the stream is authorized and begins",
        Phase.IDLE: "the response is sent",
        Phase.SENDING: "the kernel does not accept all of the response",
        Phase.CLOSED: "the client has left, the connection broke, or the response exceeds the output limit",
    },
    Phase.STREAMING: {
        Phase.IDLE: "the stream ends, and all of it is sent",
        Phase.SENDING: "the stream ends, and the kernel has not accepted all of it",
        Phase.CLOSED: "the client has left, the connection broke, or the client lags by more than the output limit",
    },
    Phase.SENDING: {
        Phase.IDLE: "the kernel has accepted all of it",
        Phase.CLOSED: "the connection broke, the client read nothing for too long, or the output limit is exceeded",
    },
    Phase.LINGERING: {
        Phase.CLOSED: "the client has closed its side, or its time is over",
    },
    Phase.CLOSED: {},
}
"""From each phase, the phases that may follow, and the event that leads there.

A connection is IDLE as soon as a response is sent. What comes next is decided there: the next request, lingering after
the last response, or closing.
"""

INPUTS: dict[Input, dict[Input, str]] = {
    Input.READING: {
        Input.PAUSED: "the pipeline is full",
        Input.IGNORED: "the last request has arrived, or one that is refused; or the node is stopping",
        Input.ENDED: "the client closes its side",
    },
    Input.PAUSED: {
        Input.READING: "no request waits any more",
        Input.IGNORED: "the input budget is exceeded, or a response is the last because the node is stopping",
    },
    Input.IGNORED: {
        Input.ENDED: "the client closes its side before its last request is answered",
    },
    Input.ENDED: {},
}
"""From each state of the input, those that may follow, and the event that leads there."""
