"""Why a command is refused: a sentence that anybody may read, and specifics for the operator.

The specifics (`operator_detail`) name hosts, paths and errors of Redis or SQLite; the sentence names none of them.
"""

from __future__ import annotations

from pushup.core.errors import Unavailable

RETRY_AFTER_SECONDS = 1
"""`Retry-After` for publishers. At first, nodes retry the log more often than that."""


def unreachable(specifics: str) -> Unavailable:
    """There is no usable connection to the log."""
    return _unavailable("the message log cannot be reached", specifics)


def loading() -> Unavailable:
    """This node has reached the log for the first time, and has not caught up yet."""
    return _unavailable("this node is still loading the message log", "")


def outdated() -> Unavailable:
    """This node may lack messages of which publishers were told that they are stable."""
    return _unavailable("this node has not caught up with the message log, and may lack the newest messages", "")


def unusable(specifics: str) -> Unavailable:
    """The log can be reached, but this node cannot follow it."""
    return _unavailable("this node cannot follow the message log", specifics)


def unwritable(specifics: str) -> Unavailable:
    """The disk accepts no entries."""
    return _unavailable("the message log cannot be written", specifics)


def refused(specifics: str) -> Unavailable:
    """The log answered this command with an error, so it was not carried out."""
    return _unavailable("the message log refused this request", specifics)


def replaced() -> Unavailable:
    """The command was meant for an epoch that is over, so it was not carried out."""
    return _unavailable("the message log has started a new epoch; retry", "")


def unknown(specifics: str) -> Unavailable:
    """The command may or may not have been appended."""
    return _unavailable("this may or may not have been published; retry with the same Idempotency-Key", specifics)


def stopping() -> Unavailable:
    """This node accepts no more commands."""
    return _unavailable("the server is stopping", "")


def _unavailable(detail: str, specifics: str) -> Unavailable:
    return Unavailable(detail, retry_after=RETRY_AFTER_SECONDS, operator_detail=specifics)
