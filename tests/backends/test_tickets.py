"""Tickets: sealed with the key, and valid for nothing else."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushup.backends.tickets import Tickets

TICKETS = Tickets(b"a key of all nodes")
EXPIRES = 1_800_000_120
CHANNELS = ("author:John", "tag:c++")
TICKET = TICKETS.seal(CHANNELS, EXPIRES)

names = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)
channel_sets = st.lists(names, min_size=1, max_size=6)
expiries = st.integers(0, 10**12 - 1)


@given(channel_sets, expiries)
def test_a_ticket_is_valid_for_its_channels(channels: list[str], expires: int) -> None:
    """Whatever the channels and the time, the ticket gives its expiry."""
    assert TICKETS.expires(TICKETS.seal(channels, expires), channels) == expires


@given(channel_sets, st.randoms(use_true_random=False))
def test_order_and_repetition_do_not_matter(channels: list[str], draw: object) -> None:
    """A ticket is for a set of channels, in whatever order and however often a poll names them."""
    ticket = TICKETS.seal(channels, EXPIRES)
    shuffled = [*channels, *channels]
    draw.shuffle(shuffled)  # type: ignore[attr-defined]
    assert TICKETS.expires(ticket, shuffled) == EXPIRES
    assert TICKETS.seal(shuffled, EXPIRES) == ticket


@given(channel_sets, channel_sets)
def test_a_ticket_for_other_channels(channels: list[str], others: list[str]) -> None:
    """A ticket is not valid for any other set of channels, whether fewer or more."""
    ticket = TICKETS.seal(channels, EXPIRES)
    for other in (others, channels[1:], [*channels, *others]):
        assert (TICKETS.expires(ticket, other) == EXPIRES) == (set(other) == set(channels))


@pytest.mark.parametrize(
    "channels",
    [(), ("author:John",), ("tag:c++",), ("author:John\ntag:c++",), ("author:Johntag:c++",), (*CHANNELS, "")],
)
def test_names_are_not_concatenated(channels: tuple[str, ...]) -> None:
    """Names with the same concatenation are different channels, and one of several names is not all of them."""
    given_names = Tickets(b"k").seal(("author:", "John"), 1)
    assert Tickets(b"k").expires(given_names, ("author", ":John")) is None
    if channels != ("author:John\ntag:c++",):  # no name has a line end
        assert TICKETS.expires(TICKET, channels) is None


@given(st.binary(min_size=1), st.binary(min_size=1))
def test_another_key(key: bytes, other: bytes) -> None:
    """A ticket sealed with another key is not valid; one sealed with the same key is."""
    ticket = Tickets(key).seal(CHANNELS, EXPIRES)
    same = key.rstrip(b"\0") == other.rstrip(b"\0")  # HMAC pads short keys with zeros
    if max(len(key), len(other)) <= 64:
        assert (Tickets(other).expires(ticket, CHANNELS) == EXPIRES) == same
    assert Tickets(bytes(key)).expires(ticket, CHANNELS) == EXPIRES


@given(st.integers(0, len(TICKET) - 1), st.characters(codec="latin-1"))
def test_a_changed_character(place: int, character: str) -> None:
    """A ticket with one character changed is invalid, or means the same as before."""
    changed = TICKET[:place] + character + TICKET[place + 1 :]
    assert (TICKETS.expires(changed, CHANNELS) == EXPIRES) == (changed == TICKET)


@given(expiries)
def test_a_changed_expiry(expires: int) -> None:
    """The expiry of a ticket cannot be extended: another time needs another seal."""
    _, seal = TICKET.split(".")
    assert (TICKETS.expires(f"{expires}.{seal}", CHANNELS) is not None) == (expires == EXPIRES)


@given(st.text())
def test_any_text(text: str) -> None:
    """Text that is not a ticket is not valid, and does no harm."""
    assert TICKETS.expires(text, CHANNELS) is None


@pytest.mark.parametrize(
    "ticket",
    [
        "",
        ".",
        "1.",
        f"{EXPIRES}",
        TICKET[:-1],
        TICKET + "A",
        TICKET + "\n",
        TICKET + " ",
        " " + TICKET,
        "-" + TICKET,
        "+" + TICKET,
        TICKET.replace(".", ","),
        TICKET.replace(".", ".."),
        TICKET.replace("1800000120", "1_800_000_120"),
        TICKET.replace("1800000120", "1800000120.0"),
        TICKET.replace("1", "١"),  # a digit, but not an ASCII one
        TICKET.replace("1800000120", "9" * 5000),
        TICKET.upper(),
        f"{TICKET}, {TICKET}",
    ],
)
def test_near_misses(ticket: str) -> None:
    """A ticket is exactly what was sealed, with nothing before, within or after it."""
    assert TICKETS.expires(ticket, CHANNELS) is None


def test_the_format() -> None:
    """A ticket needs no escaping in a header field or in JSON, and its length does not depend on the channels."""
    many = TICKETS.seal([f"channel {n}" for n in range(1000)], EXPIRES)
    assert re.fullmatch(r"1800000120\.[A-Za-z0-9_-]{32}", TICKET)
    assert len(many) == len(TICKET)


def test_the_seal_is_the_same_on_every_node_and_in_every_version() -> None:
    """Nodes of different versions seal alike: this ticket was sealed by the first version."""
    assert Tickets(b"key").seal(("b", "a", "é"), 1_800_000_000) == "1800000000.MaRP-1rPq4XeYn-Xw_niGAuHA53ibY-0"
