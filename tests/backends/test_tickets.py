"""Tickets: sealed with the key, and valid for nothing else."""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushup.backends.tickets import Tickets
from pushup.core.grant import SUBJECT_LIMIT_BYTES, Grant, Scope

TICKETS = Tickets(b"a key of all nodes")
EXPIRES = 1_800_000_120
CHANNELS = ("author:John", "tag:c++")
ISSUED_AT = 1_800_000_000


def seal(channels: Iterable[str], expires: int = EXPIRES, subject: str = "", tickets: Tickets = TICKETS) -> str:
    return tickets.seal(channels, issued_at=ISSUED_AT, expires=expires, subject=subject)


def expiry(ticket: str, channels: Iterable[str], tickets: Tickets = TICKETS) -> float | None:
    """When a ticket for these channels expires; None if it is not one."""
    grant = tickets.open(ticket, tuple(channels))
    return None if grant is None else grant.valid_until


TICKET = seal(CHANNELS)

names = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)
channel_sets = st.lists(names, min_size=1, max_size=6)
expiries = st.integers(0, 10**12 - 1)
subjects = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=SUBJECT_LIMIT_BYTES // 4)


@given(channel_sets, expiries)
def test_a_ticket_is_valid_for_its_channels(channels: list[str], expires: int) -> None:
    """Whatever the channels and the time, the ticket gives its expiry."""
    assert expiry(seal(channels, expires), channels) == expires


@given(channel_sets, st.randoms(use_true_random=False))
def test_order_and_repetition_do_not_matter(channels: list[str], draw: object) -> None:
    """A ticket is for a set of channels, in whatever order and however often a poll names them."""
    ticket = seal(channels)
    shuffled = [*channels, *channels]
    draw.shuffle(shuffled)  # type: ignore[attr-defined]
    assert expiry(ticket, shuffled) == EXPIRES
    assert seal(shuffled) == ticket


@given(channel_sets, channel_sets)
def test_a_ticket_for_other_channels(channels: list[str], others: list[str]) -> None:
    """A ticket is not valid for any other set of channels, whether fewer or more."""
    ticket = seal(channels)
    for other in (others, channels[1:], [*channels, *others]):
        assert (expiry(ticket, other) == EXPIRES) == (set(other) == set(channels))


@pytest.mark.parametrize(
    "channels",
    [(), ("author:John",), ("tag:c++",), ("author:John\ntag:c++",), ("author:Johntag:c++",), (*CHANNELS, "")],
)
def test_names_are_not_concatenated(channels: tuple[str, ...]) -> None:
    """Names with the same concatenation are different channels, and one of several names is not all of them."""
    assert expiry(seal(("author:", "John")), ("author", ":John")) is None
    if channels != ("author:John\ntag:c++",):  # no name has a line end
        assert expiry(TICKET, channels) is None


@given(st.binary(min_size=1), st.binary(min_size=1))
def test_another_key(key: bytes, other: bytes) -> None:
    """A ticket sealed with another key is not valid; one sealed with the same key is."""
    ticket = seal(CHANNELS, tickets=Tickets(key))
    same = key.rstrip(b"\0") == other.rstrip(b"\0")  # HMAC pads short keys with zeros
    if max(len(key), len(other)) <= 64:
        assert (expiry(ticket, CHANNELS, Tickets(other)) == EXPIRES) == same
    assert expiry(ticket, CHANNELS, Tickets(bytes(key))) == EXPIRES


@given(st.integers(0, len(TICKET) - 1), st.characters(codec="latin-1"))
def test_a_changed_character(place: int, character: str) -> None:
    """A ticket with one character changed is invalid, or means the same as before."""
    changed = TICKET[:place] + character + TICKET[place + 1 :]
    assert (expiry(changed, CHANNELS) == EXPIRES) == (changed == TICKET)


@given(expiries, expiries, st.text("ab", max_size=2))
def test_other_times_and_subjects(issued_at: int, expires: int, subject: str) -> None:
    """Neither the times of a ticket nor its subject can be changed: others need another seal."""
    name, made = urlsafe_b64encode(subject.encode()).decode(), TICKET.rpartition(".")[2]
    is_same = (issued_at, expires, subject) == (ISSUED_AT, EXPIRES, "")
    assert (TICKETS.open(f"{issued_at}.{expires}.{name}.{made}", CHANNELS) is not None) == is_same
    assert expiry(f"{ISSUED_AT}.{expires}..{made}", CHANNELS) == (EXPIRES if expires == EXPIRES else None)
    assert expiry(f"{issued_at}.{EXPIRES}..{made}", CHANNELS) == (EXPIRES if issued_at == ISSUED_AT else None)
    assert expiry(f"{ISSUED_AT}.{EXPIRES}.{name}.{made}", CHANNELS) == (None if subject else EXPIRES)


@given(channel_sets, st.integers(0, 10**12 - 1), expiries, subjects)
def test_a_ticket_is_a_grant(channels: list[str], issued_at: int, expires: int, subject: str) -> None:
    """It gives back what was sealed: the right to read exactly these channels, for whom, since when and until when."""
    ticket = TICKETS.seal(channels, issued_at=issued_at, expires=expires, subject=subject)
    names = tuple(channels)
    assert TICKETS.open(ticket, names) == Grant(
        {"read": Scope(names)}, subject, issued_at=issued_at, valid_until=expires, key_id=TICKETS.key_id
    )
    assert re.fullmatch(r"[A-Za-z0-9_=.-]+", ticket)


@given(st.text())
def test_any_text(text: str) -> None:
    """Text that is not a ticket is not valid, and does no harm."""
    assert expiry(text, CHANNELS) is None


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
    assert expiry(ticket, CHANNELS) is None


def test_the_format() -> None:
    """A ticket needs no escaping in a header field or in JSON, and its length does not depend on the channels."""
    many = seal([f"channel {n}" for n in range(1000)])
    assert re.fullmatch(r"1800000000\.1800000120\.\.[A-Za-z0-9_-]{32}", TICKET)
    assert len(many) == len(TICKET)


def test_the_seal_is_the_same_on_every_node_and_in_every_version() -> None:
    """Nodes of different versions seal alike. A ticket of the form before this one is not valid."""
    ticket = seal(("b", "a", "é"), 1_800_000_060, "mei", Tickets(b"key"))
    assert ticket == "1800000000.1800000060.bWVp.24Z39zRa2Upi8PMn-P_hTGDR0YGp93fJ"
    assert expiry("1800000000.MaRP-1rPq4XeYn-Xw_niGAuHA53ibY-0", ("b", "a", "é"), Tickets(b"key")) is None


def test_the_longest_subject() -> None:
    """It fits into a ticket."""
    grant = TICKETS.open(seal(CHANNELS, subject="x" * SUBJECT_LIMIT_BYTES), CHANNELS)
    assert grant is not None
    assert grant.subject == "x" * SUBJECT_LIMIT_BYTES


# URL tickets.

PAGE = "https://app.example"


def token(**others: Any) -> Grant:
    """What a signed token allows."""
    said = {"subject": "7", "token_id": "one", "issued_at": 100.75, "valid_until": 400.75, "key_id": "a key"}
    return Grant({"read": Scope(prefixes=("",)), "publish": Scope(("a",))}, is_of_token=True, **{**said, **others})


@given(channel_sets, subjects, subjects, st.floats(0, 10**12, exclude_max=True), st.floats(0, 10**12, exclude_max=True))
def test_a_url_ticket_stands_for_a_token(
    channels: list[str], subject: str, token_id: str, issued_at: float, valid_until: float
) -> None:
    """It gives back whose token it was, its name and times, rounded down; of its rights only to read the channels."""
    said = {"subject": subject, "token_id": token_id, "issued_at": issued_at, "valid_until": valid_until}
    ticket = TICKETS.seal_for_url(channels, PAGE, token(**said))
    opened = TICKETS.open_of_url(ticket, tuple(channels), PAGE)
    assert opened is not None
    assert (opened.subject, opened.token_id) == (subject, token_id)
    assert (opened.issued_at, opened.valid_until) == (int(issued_at), int(valid_until))
    assert (opened.rights, opened.is_of_token) == ({"read": Scope(tuple(channels))}, True)
    assert re.fullmatch(r"[A-Za-z0-9_=.-]+", ticket)


@given(st.integers(0, 200), st.characters(codec="latin-1"))
def test_a_changed_character_of_a_url_ticket(place: int, character: str) -> None:
    """It is invalid then."""
    ticket = TICKETS.seal_for_url(CHANNELS, PAGE, token())
    place %= len(ticket)
    changed = ticket[:place] + character + ticket[place + 1 :]
    assert (TICKETS.open_of_url(changed, CHANNELS, PAGE) is not None) == (changed == ticket)


@given(st.text(), st.text())
def test_any_text_as_a_url_ticket(text: str, origin: str) -> None:
    """Text that is not a ticket is not valid, and does no harm; nor does any origin."""
    assert TICKETS.open_of_url(text, CHANNELS, PAGE) is None
    ticket = TICKETS.seal_for_url(CHANNELS, PAGE, token())
    assert (TICKETS.open_of_url(ticket, CHANNELS, origin) is not None) == (origin == PAGE)


def test_the_key_of_the_token_of_a_url_ticket() -> None:
    """Its end is known by the same name, which both keys decide on."""
    opened = TICKETS.open_of_url(TICKETS.seal_for_url(CHANNELS, PAGE, token()), CHANNELS, PAGE)
    assert opened is not None
    assert TICKETS.url_key_ends({"a key": 5.0, "another": 6.0})[opened.key_id] == 5.0
    assert opened.key_id not in TICKETS.url_key_ends({"another": 6.0})
    assert opened.key_id not in Tickets(b"another key").url_key_ends({"a key": 5.0})


def test_the_seal_of_a_url_ticket_is_the_same_on_every_node() -> None:
    """And in every version."""
    ticket = Tickets(b"key").seal_for_url(("b", "a", "é"), PAGE, token())
    assert ticket == "100.400.Nw==.b25l.j6Oqsvqpt54K.Lwr1T4AicWNL43C2Zw37fb4wOVei13E8"
    longest = token(subject="x" * SUBJECT_LIMIT_BYTES, token_id="x" * SUBJECT_LIMIT_BYTES)
    assert TICKETS.open_of_url(TICKETS.seal_for_url(CHANNELS, PAGE, longest), CHANNELS, PAGE) is not None
