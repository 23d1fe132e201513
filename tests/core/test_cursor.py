"""Cursors as text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushup.core.cursor import Cursor, Start, parse_cursor
from pushup.core.errors import BadRequest


@pytest.mark.parametrize(
    ("text", "cursor"),
    [
        ("k3f9-41", Cursor("k3f9", 41)),
        ("0-0", Cursor("0", 0)),
        ("z" * 32 + "-" + "9" * 18, Cursor("z" * 32, 10**18 - 1)),
        ("", Start.EARLIEST),
        ("earliest", Start.EARLIEST),
        ("now", Start.NOW),
    ],
)
def test_a_cursor_is_read(text: str, cursor: Cursor | Start) -> None:
    """Cursors from an answer are accepted, and so are the two words for where to start."""
    assert parse_cursor(text) == cursor


@pytest.mark.parametrize(
    "text",
    [
        "41", "-41", "k3f9-", "k3f9", "k3f9-041", "k3f9--1", "k3f9-+1", "k3f9-1.0", "K3F9-41", "k3f9-41 ", " k3f9-41",
        "k3f9-41\n", "k3f9_41", "k3f9-4-1", "k3f9-" + "9" * 19, "z" * 33 + "-1", "é-1", "k3f9-٤", "EARLIEST", "later",
        "\0", "NOW",
    ],
)  # fmt: skip
def test_an_invalid_cursor_is_refused(text: str) -> None:
    """Anything else is a bad request that names the field."""
    with pytest.raises(BadRequest) as caught:
        parse_cursor(text)
    assert caught.value.field == "cursor"


@settings(deadline=None, derandomize=True, database=None)
@given(st.from_regex(r"[0-9a-z]{1,32}", fullmatch=True), st.integers(0, 10**18 - 1))
def test_a_cursor_survives_the_round_trip_through_text(epoch: str, sequence: int) -> None:
    cursor = Cursor(epoch, sequence)
    assert str(cursor) == f"{epoch}-{sequence}"
    assert parse_cursor(str(cursor)) == cursor
