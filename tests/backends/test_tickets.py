"""Tickets: sealed by whoever has the key, good for nothing else."""

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
def test_a_ticket_is_good_for_what_it_was_sealed_for(channels: list[str], expires: int) -> None:
    """Whatever the channels and the time, the ticket tells when it is over."""
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
    """A ticket is good for no other set of channels: not for fewer, not for more."""
    ticket = TICKETS.seal(channels, EXPIRES)
    for other in (others, channels[1:], [*channels, *others]):
        assert (TICKETS.expires(ticket, other) == EXPIRES) == (set(other) == set(channels))


@pytest.mark.parametrize(
    "channels",
    [(), ("author:John",), ("tag:c++",), ("author:John\ntag:c++",), ("author:Johntag:c++",), (*CHANNELS, "")],
)
def test_names_do_not_run_together(channels: tuple[str, ...]) -> None:
    """Names that read the same one after the other are not the same channels; one of several is not all."""
    given_names = Tickets(b"k").seal(("author:", "John"), 1)
    assert Tickets(b"k").expires(given_names, ("author", ":John")) is None
    if channels != ("author:John\ntag:c++",):  # no name has a line end
        assert TICKETS.expires(TICKET, channels) is None


@given(st.binary(min_size=1), st.binary(min_size=1))
def test_another_key(key: bytes, other: bytes) -> None:
    """Who has another key can seal nothing that is good here; who has the same can."""
    ticket = Tickets(key).seal(CHANNELS, EXPIRES)
    same = key.rstrip(b"\0") == other.rstrip(b"\0")  # HMAC pads short keys with zeros
    if max(len(key), len(other)) <= 64:
        assert (Tickets(other).expires(ticket, CHANNELS) == EXPIRES) == same
    assert Tickets(bytes(key)).expires(ticket, CHANNELS) == EXPIRES


@given(st.integers(0, len(TICKET) - 1), st.characters(codec="latin-1"))
def test_a_character_that_was_changed(place: int, character: str) -> None:
    """A ticket with any one character changed is not good, or says the same as before."""
    changed = TICKET[:place] + character + TICKET[place + 1 :]
    assert (TICKETS.expires(changed, CHANNELS) == EXPIRES) == (changed == TICKET)


@given(expiries)
def test_a_time_that_was_changed(expires: int) -> None:
    """Nobody can put off the end of a ticket: another time needs another seal."""
    _, seal = TICKET.split(".")
    assert (TICKETS.expires(f"{expires}.{seal}", CHANNELS) is not None) == (expires == EXPIRES)


@given(st.text())
def test_any_text(text: str) -> None:
    """Text that is no ticket is not good for anything, and breaks nothing."""
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
        TICKET.replace("1", "١"),  # a digit, but not ours
        TICKET.replace("1800000120", "9" * 5000),
        TICKET.upper(),
        f"{TICKET}, {TICKET}",
    ],
)
def test_what_is_almost_a_ticket(ticket: str) -> None:
    """A ticket is exactly what was sealed: nothing before, within or after."""
    assert TICKETS.expires(ticket, CHANNELS) is None


def test_its_form() -> None:
    """A ticket can stand in a header field and in JSON as it is, and is no longer for many channels."""
    many = TICKETS.seal([f"channel {n}" for n in range(1000)], EXPIRES)
    assert re.fullmatch(r"1800000120\.[A-Za-z0-9_-]{32}", TICKET)
    assert len(many) == len(TICKET)


def test_the_seal_is_the_same_on_every_node_and_in_every_version() -> None:
    """Nodes of different versions seal the same: this ticket was sealed by the first."""
    assert Tickets(b"key").seal(("b", "a", "é"), 1_800_000_000) == "1800000000.MaRP-1rPq4XeYn-Xw_niGAuHA53ibY-0"
