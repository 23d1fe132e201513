"""Why a command gets no place: a sentence that anybody may read, and the specifics for the operator.

The specifics (`operator_detail`) name hosts, paths and what Redis or SQLite said; the sentence names none of them.
"""

from __future__ import annotations

from pushup.core.errors import Unavailable

RETRY_AFTER_SECONDS = 1
"""When a publisher is told to try again: the log itself is tried at least that often at first."""


def unreachable(specifics: str) -> Unavailable:
    """There is no usable connection to the log."""
    return _unavailable("the message log cannot be reached", specifics)


def loading() -> Unavailable:
    """This node has reached the log, for the first time, and is not where it can follow it yet."""
    return _unavailable("this node is still loading the message log", "")


def unusable(specifics: str) -> Unavailable:
    """The log can be reached, but this node cannot follow it."""
    return _unavailable("this node cannot follow the message log", specifics)


def unwritable(specifics: str) -> Unavailable:
    """The disk does not take entries."""
    return _unavailable("the message log cannot be written", specifics)


def refused(specifics: str) -> Unavailable:
    """The log has answered this command with an error: it has no place."""
    return _unavailable("the message log refused this", specifics)


def replaced() -> Unavailable:
    """The command was meant for an epoch that is over: it has no place."""
    return _unavailable("the message log has started a new epoch", "")


def unknown(specifics: str) -> Unavailable:
    """The command may have a place or not."""
    return _unavailable("it is not known whether this was published", specifics)


def stopping() -> Unavailable:
    """This node takes no more commands."""
    return _unavailable("the server is stopping", "")


def _unavailable(detail: str, specifics: str) -> Unavailable:
    return Unavailable(detail, retry_after=RETRY_AFTER_SECONDS, operator_detail=specifics)
