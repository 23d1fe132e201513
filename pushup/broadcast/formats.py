"""The number of the format of all that is stored, and how a reader tells another release from damage."""

from __future__ import annotations

import msgspec

FORMAT = 5
"""The format of what Redis and journals contain: names of keys, tables, and the JSON in them. Raise it whenever
that changes. It is part of the names of Redis' keys and stands in the journal, and a release uses one format only."""


class NotUnderstood(Exception):
    """This release does not know a part of what is stored; the text says what to do."""

    def __init__(self, what: str, problem: str, instead: str) -> None:
        super().__init__(
            f"{what} contains something that this release does not know ({problem}); nothing was changed. "
            f"Use the release that wrote it, or a newer one{instead}"
        )


_UNKNOWN = (
    "Object contains unknown field",
    "Expected `array` of at most length",
    "Invalid value",
    "Invalid enum value",
)
"""How msgspec's errors begin for a field, a type or a word that is not known."""


IN_REDIS = "; or remove PushUp's keys from Redis, and gaps are reported to every subscriber"
"""What else can be done about something in Redis."""

IN_A_JOURNAL = "; or move it away, and begin without its messages"


def check_known(what: str, error: Exception, instead: str) -> None:
    """Tell JSON with an unknown field, type or word from damage, by the error of decoding it.

    `instead`: what else an operator can do. Raises: NotUnderstood if it is not damage.
    """
    text = str(error)
    if isinstance(error, msgspec.ValidationError) and text.startswith(_UNKNOWN):
        raise NotUnderstood(what, text, instead) from None


def other_format(what: str, found: object) -> str:
    """The text of an error: this is of a format that this release does not use."""
    return (
        f"{what} has format {found}, and this release uses format {FORMAT}; nothing was changed. Use the release that "
        "wrote it"
    )
