"""The number of the format of all that is stored, and how a reader tells a newer PushUp from damage."""

from __future__ import annotations

import msgspec

FORMAT = 3
"""The format of what Redis, journals and marks contain: names of keys, tables, and the JSON in them. Raise it whenever
that changes. It is part of the names of Redis' keys and stands in the journal, and a release uses one format only."""


class NotUnderstood(Exception):
    """This release does not know a part of what is stored; the text says what to do."""

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"{what} was written by a newer PushUp ({problem}); nothing was changed; use a newer release")


def check_known(what: str, error: Exception) -> None:
    """Tell JSON with an unknown field or kind of value from damage, by the error of decoding it.

    Raises: NotUnderstood if it is the former.
    """
    text = str(error)
    if isinstance(error, msgspec.ValidationError) and ("unknown field" in text or text.startswith("Invalid value")):
        raise NotUnderstood(what, text) from None


def other_format(what: str, found: object) -> str:
    """The text of an error: this is of a format that this release does not use."""
    return (
        f"{what} has format {found}, and this release uses format {FORMAT}; nothing was changed. Use the release that "
        "wrote it"
    )
