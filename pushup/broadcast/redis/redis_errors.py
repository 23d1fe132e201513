"""What can go wrong between a node and Redis, as types. An error reply is classified here, once, by its first word."""

from __future__ import annotations

from enum import Enum


class ErrorCode(Enum):
    """The first word of an error reply. Only what a node reacts to, or an operator meets often, has a name."""

    READ_ONLY = "READONLY"  # this server is a replica now
    NO_SCRIPT = "NOSCRIPT"  # the scripts were flushed, or Redis was restarted
    OUT_OF_MEMORY = "OOM"
    NO_PERMISSION = "NOPERM"
    AUTHENTICATION_REQUIRED = "NOAUTH"
    WRONG_PASSWORD = "WRONGPASS"  # noqa: S105  # no password, but what Redis says of one
    NO_REPLICAS = "NOREPLICAS"  # fewer than min-replicas-to-write are connected
    NOT_PERSISTING = "MISCONF"  # Redis cannot write to its disk, and takes no writes meanwhile
    LOADING = "LOADING"
    BUSY = "BUSY"  # a script, perhaps of another program, has run for long and still does
    WRONG_TYPE = "WRONGTYPE"  # a key of ours holds something else
    OTHER = ""


class ErrorReply(Exception):
    """Redis refused a command. The text is Redis' own."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = _CODES.get(text.partition(" ")[0], ErrorCode.OTHER)

    @property
    def reason(self) -> str:
        """The text as part of a sentence, without the script that Redis names at its end unless that may be the reason:
        if Redis takes no writes, it says so of whichever script comes first."""
        text = str(self)
        return (text if self.is_about_the_data else text.partition(" script: ")[0]).removesuffix(".")

    @property
    def ends_with_connection(self) -> bool:
        """Whether a new connection solves it: it leads to the new master, and loads the scripts."""
        return self.code in (ErrorCode.READ_ONLY, ErrorCode.NO_SCRIPT)

    @property
    def is_about_the_data(self) -> bool:
        """Whether what is in Redis may be the reason: a script failed at it, or a key is of another type."""
        return self.code in (ErrorCode.OTHER, ErrorCode.WRONG_TYPE)


class Lost(Exception):
    """The connection ended; Redis may or may not have carried out the command."""


class CannotConnect(Exception):
    """There is no usable Redis at the address; the text says why."""


class Malformed(Exception):
    """Something in Redis is not as PushUp writes it; the text says what."""


class Incomplete(Exception):
    """A part of the checkpoint is missing in Redis."""


_CODES = {code.value: code for code in ErrorCode}
