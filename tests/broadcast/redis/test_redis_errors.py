"""Error replies are classified by their first word, and nothing else of their text."""

from __future__ import annotations

import pytest

from pushup.broadcast.redis.redis_errors import ErrorCode, ErrorReply


@pytest.mark.parametrize(
    ("text", "code", "ends"),
    [
        ("READONLY You can't write against a read only replica.", ErrorCode.READ_ONLY, True),
        ("NOSCRIPT No matching script. Please use EVAL.", ErrorCode.NO_SCRIPT, True),
        ("OOM command not allowed when used memory > 'maxmemory'.", ErrorCode.OUT_OF_MEMORY, False),
        ("NOPERM this user has no permissions to run the 'evalsha' command", ErrorCode.NO_PERMISSION, False),
        ("NOAUTH Authentication required.", ErrorCode.AUTHENTICATION_REQUIRED, False),
        ("MISCONF Redis is configured to save RDB snapshots", ErrorCode.NOT_PERSISTING, False),
        ("BUSY Redis is busy running a script.", ErrorCode.BUSY, False),
        ("ERR READONLY is not the first word", ErrorCode.OTHER, False),
        ("READONLYISH", ErrorCode.OTHER, False),
        ("a new epoch has begun", ErrorCode.OTHER, False),
        ("", ErrorCode.OTHER, False),
    ],
)
def test_the_first_word_is_the_code(text: str, code: ErrorCode, ends: bool) -> None:
    """The text is kept; only some errors are solved by a new connection."""
    error = ErrorReply(text)
    assert (str(error), error.code, error.ends_with_connection) == (text, code, ends)


def test_the_reason_names_the_script_only_where_that_may_be_it() -> None:
    """So one outage has one reason, whichever script Redis refuses."""
    assert ErrorReply("OOM not allowed. script: c055ce, on @user_script:12.").reason == "OOM not allowed"
    failed = "ERR attempt to index a nil value script: c055ce, on @user_script:12."
    assert ErrorReply(failed).reason == failed.removesuffix(".")


@pytest.mark.parametrize(
    ("text", "may_be"),
    [
        ("ERR attempt to index a nil value", True),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", True),
        ("OOM command not allowed when used memory > 'maxmemory'.", False),
        ("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", False),
    ],
)
def test_what_is_in_redis_may_be_the_reason(text: str, *, may_be: bool) -> None:
    """Then a node loads all of it again, which a Redis that is busy or full would feel."""
    assert ErrorReply(text).is_about_the_data == may_be
