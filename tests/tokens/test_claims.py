"""What a token says: times at their borders, the subject, and rights; never more than what is written there."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushup.core.errors import InvalidToken, TokenExpired
from pushup.core.grant import Grant, Right
from pushup.net.api.bodies import NESTING_LIMIT
from pushup.tokens.claims import Expected, grant_of
from tests.tokens.evil_tokens import NOW, SECRET, accept, claims, token, write

LEEWAY = 10.0


def grant_at(now: float, **others: Any) -> str:
    """How a token with these claims is received at this time."""
    try:
        accept(token(**others), now=now, leeway=LEEWAY)
    except TokenExpired:
        return "expired"
    except InvalidToken as error:
        return "early" if "not valid yet" in error.detail else error.detail
    return "good"


@pytest.mark.parametrize(
    ("name", "at", "before", "after"),
    [
        ("exp", NOW + LEEWAY, "good", "expired"),
        ("iat", NOW - LEEWAY, "early", "good"),
        ("nbf", NOW - LEEWAY, "early", "good"),
    ],
)
@pytest.mark.parametrize("more", [{}, {"nbf": NOW - 90}])
def test_times_at_their_borders(name: str, at: float, before: str, after: str, more: dict[str, int]) -> None:
    """A token is good from `iat` and `nbf` until just before `exp`, with the leeway on both sides."""
    times = {"iat": NOW - 100, "exp": NOW + 100} | more | {name: NOW}
    assert [grant_at(at + step, **times) for step in (-0.001, 0, 0.001)] == [before, after, after]


def test_the_first_and_the_last_time() -> None:
    """Any time is one, from 1970 on, as long as floats have whole seconds."""
    grant = accept(token(iat=0, exp=2**53 - 1))
    assert (grant.issued_at, grant.valid_until) == (0, 2**53 - 1 + LEEWAY)


def test_an_expired_token_is_no_grant() -> None:
    """So it takes no place among those that are remembered."""
    expected = Expected(audience="pushup", leeway=LEEWAY)
    for late in (0, 5):
        with pytest.raises(TokenExpired):
            grant_of(claims(exp=NOW), expected, NOW + LEEWAY + late)
    assert grant_of(claims(exp=NOW), expected, NOW + LEEWAY - 0.001).valid_until == NOW + LEEWAY


def test_a_grant_ends_with_its_token() -> None:
    """At `exp` and the leeway; fractions of seconds count, and `nbf` does not change when it was issued."""
    grant = accept(token(iat=NOW - 0.5, exp=NOW + 2.5, nbf=NOW - 0.25), leeway=LEEWAY)
    assert (grant.issued_at, grant.valid_until, grant.is_of_token) == (NOW - 0.5, NOW + 2.5 + LEEWAY, True)


@pytest.mark.parametrize("leeway", [0.0, 10.0])
@pytest.mark.parametrize(("seconds", "is_good"), [(600.0, True), (600.001, False), (10**9, False)])
def test_the_longest_lifetime(leeway: float, seconds: float, is_good: bool) -> None:
    """It is counted from `iat` to `exp`; the leeway does not stretch it."""
    text = token(iat=NOW, exp=NOW + seconds)
    if is_good:
        assert accept(text, lifetime=600.0, leeway=leeway).valid_until == NOW + seconds + leeway
    else:
        with pytest.raises(InvalidToken, match="token_lifetime_limit_seconds"):
            accept(text, lifetime=600.0, leeway=leeway)


@pytest.mark.parametrize("name", ["iat", "exp", "nbf"])
@pytest.mark.parametrize(
    "value",
    [
        "null", "true", "false", '"1800000000"', '""', "[]", "[1800000000]", "{}", "-1", "-1e9", "1e16", "1e400",
        "-1e400", "9007199254740992", "9" * 100, "9" * 5000, "NaN", "Infinity", "1_800", "0x6b",
        '"2027-01-15T08:00:00Z"',
    ],
)  # fmt: skip
def test_what_is_no_time(name: str, value: str) -> None:
    """Text, true, negative and endless numbers are refused, in whichever of the three."""
    written = json.dumps({**claims(), name: "HERE"}).replace('"HERE"', value)
    with pytest.raises(InvalidToken):
        accept(write({"alg": "HS256"}, written, SECRET))


@pytest.mark.parametrize("name", ["iat", "exp"])
def test_times_that_are_missing(name: str) -> None:
    """Without `exp` a token would be good for ever, and without `iat` it could not be revoked."""
    with pytest.raises(InvalidToken, match=f"no `{name}`"):
        accept(write({"alg": "HS256"}, claims(**{name: None}), SECRET))


@pytest.mark.parametrize("name", ["sub", "jti"])
def test_subject_and_name(name: str) -> None:
    """Text of at most 255 bytes; missing is none. Anything else would be somebody else, or could not be revoked."""

    def grant_with(value: object) -> Grant:
        return accept(write({"alg": "HS256"}, {**claims(), name: value}, SECRET))

    for good in ("7", "ж" * 127, "a:b c", "*", "a,b"):
        grant = grant_with(good)
        assert (grant.subject if name == "sub" else grant.token_id) == good
    evils: list[object] = [7, True, [], {}, ["7"], "x" * 256, "ж" * 128, "a\x00", "a\nb", "\x7f", "\ud800", "\u0085"]
    for evil in (*evils, None):  # null is not the same as missing
        with pytest.raises(InvalidToken, match=f"`{name}`"):
            grant_with(evil)


def rights(says: object) -> Grant:
    """What a token allows whose claim says this."""
    return accept(write({"alg": "HS256"}, {**claims(), "pushup": says}, SECRET))


@pytest.mark.parametrize("number", ["1e999", "-1e400"])
def test_a_number_of_presence_that_is_too_large(number: str) -> None:
    """It is JSON, but would be written as Infinity, which is none: nobody could read the order that contains it."""
    for text in (number, f'{{"a": [{{"n": {number}}}]}}'):
        says = json.dumps(claims(pushup={"presence": "HERE"})).replace('"HERE"', text)
        with pytest.raises(InvalidToken, match="`presence` has a number that is too large"):
            accept(write({"alg": "HS256"}, says, SECRET))


def test_presence_nests_as_deeply_as_a_publication() -> None:
    """The decoder of a client, or of another node, may take less than the one that has read the token."""

    def nested(levels: int) -> dict[str, object]:
        return {"presence": json.loads("[" * levels + "]" * levels)}

    assert rights(nested(NESTING_LIMIT)).presence == b"[" * NESTING_LIMIT + b"]" * NESTING_LIMIT
    assert rights({"presence": "[" * 500}).presence
    with pytest.raises(InvalidToken, match="`presence` nests arrays and objects more than 64 levels deep"):
        rights(nested(NESTING_LIMIT + 1))


def test_presence_is_json() -> None:
    """Whatever is taken can be read from the order."""
    shown = {"n": [1.7e308, -0.0, 10**100], "ж": "\ud800\x00"}
    presence = rights({"presence": shown}).presence
    (kept,) = msgspec.json.decode(b"[%b]" % presence, type=tuple[msgspec.Raw])
    assert json.loads(bytes(kept)) == {**shown, "ж": "?\x00"}


@pytest.mark.parametrize(
    "evil",
    [
        "", "user:*:x", "*user", "**", "user:**", "u*r:*", "*,*", "a,b", "a,*", "a\x00", "a\n*", "\x7f", "\ud800",
        "x" * 256, "x" * 256 + "*", "ж" * 128, "\u0085", None, 1, True, [], ["a"], {}, {"name": "a"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("right", ["poll", "publish"])
def test_one_malformed_name_refuses_all(right: str, evil: object) -> None:
    """Wherever it stands: whoever wrote it meant something else, and perhaps with the others, too."""
    for names in ([evil], ["good", evil], [evil, "good"], ["*", evil], [evil, "*"]):
        with pytest.raises(InvalidToken, match="pushup"):
            rights({right: names, "poll" if right == "publish" else "publish": ["good"]})


@pytest.mark.parametrize(
    "says",
    [
        None, [], "", "poll", 1, True, ["poll"], {"poll": "user:7"}, {"poll": None}, {"poll": {"user:7": True}},
        {"read": ["a"]}, {"Poll": ["a"]}, {"poll ": ["a"]}, {"operate": ["*"]},
        {"channels": ["*"]},
        {"p\u043ell": ["a"]}, {"subscribe": []}, {"": []},
        {"poll": ["a"], "see details": ["*"]}, {"poll": ["a"], "x" * 500: ["a"]},
    ],
)  # fmt: skip
def test_other_forms_are_refused(says: object) -> None:
    """Rights that there are not, also those that publish keys have, and values of another form; the error is short."""
    with pytest.raises(InvalidToken) as error:
        rights(says)
    assert len(error.value.detail) < 200


def test_no_rights() -> None:
    """A token without the claim allows nothing, and neither does an empty list."""
    for grant in (accept(token(pushup=None)), rights({}), rights({"poll": [], "publish": []})):
        assert not grant.rights


def test_the_claim_has_the_name_that_is_set() -> None:
    """Identity providers force a URL. The usual name means nothing then."""
    url = "https://app.example/pushup"
    grant = accept(write({"alg": "HS256"}, {**claims(), url: {"publish": ["b"]}}, SECRET), claim=url)
    assert set(grant.rights) == {"publish"}
    assert grant.allows("publish", ("b",))
    assert not grant.allows("read", ("user:7",))


@pytest.mark.parametrize(
    ("names", "inside", "outside"),
    [
        (["user:1"], ["user:1"], ["user:10", "user:", "user:1*", "USER:1", "user:1 ", "use", "user:1\u200b"]),
        (["user:1*"], ["user:1", "user:10", "user:1:x"], ["user:2", "user:", "user:"]),
        (["user:"], ["user:"], ["user:1"]),
        (["*"], ["a", "\u0436", "1", "*"], []),
        (["caf\u00e9"], ["caf\u00e9"], ["cafe\u0301", "CAF\u00c9", "cafe"]),
        (["cafe\u0301*"], ["cafe\u0301x"], ["caf\u00e9x", "cafe"]),
        (["\u0430dmin"], ["\u0430dmin"], ["admin"]),
        (["\uff41"], ["\uff41"], ["a"]),
        (["\u212b"], ["\u212b"], ["\u00c5", "A\u030a"]),
        (["\ufb01le", "stra\u00dfe"], ["\ufb01le"], ["file", "strasse", "STRASSE"]),
        (["a.b", "a?c"], ["a.b", "a?c"], ["axb", "abc"]),
        (["a%2A", "a\\*"], ["a%2A", "a\\anything"], ["a", "a*"]),
    ],
)
def test_names_are_compared_by_their_characters(names: list[str], inside: list[str], outside: list[str]) -> None:
    """They are never normalized or folded: a look-alike is another channel. `*` is a pattern at the end only.

    A prefix ends where it ends, not at a colon: `user:1*` is `user:10`, too.
    """
    grant = rights({"poll": names})
    assert [name for name in inside if not grant.allows("read", (name,))] == []
    assert [name for name in outside if grant.allows("read", (name,))] == []
    assert not any(grant.allows("publish", (name,)) for name in inside)


# Never more than claimed.

LETTERS = "a1:*,\u00e9\u0301\u0436 "
NAMES = st.text(LETTERS, max_size=5)
ANYTHING: st.SearchStrategy[Any] = st.one_of(NAMES, st.none(), st.integers(0, 1), st.lists(NAMES, max_size=1))
LISTS = st.lists(st.one_of(NAMES, NAMES, NAMES, ANYTHING), max_size=4)
CLAIMED = st.one_of(
    st.dictionaries(st.sampled_from(["poll", "publish"]), LISTS, max_size=2),
    st.dictionaries(
        st.sampled_from(["poll", "publish", "read", "operate", ""]), st.one_of(LISTS, ANYTHING), max_size=3
    ),
    ANYTHING,
)
RIGHTS: dict[Right, str] = {"read": "poll", "publish": "publish"}


def is_well_formed(says: Any) -> bool:
    """A naive reading of docs/guide/tokens.md."""
    return isinstance(says, dict) and all(
        name in ("poll", "publish") and isinstance(names, list) and all(map(is_name, names))
        for name, names in says.items()
    )


def is_name(text: Any) -> bool:
    if text == "*":
        return True
    return isinstance(text, str) and text not in ("",) and "*" not in text[:-1] and "," not in text


def is_claimed(says: dict[str, list[str]], word: str, channel: str) -> bool:
    for name in says.get(word, []):
        if name[-1] == "*" and channel[: len(name) - 1] == name[:-1]:
            return True
        if list(name) == list(channel) and name[-1] != "*":
            return True
    return False


@given(CLAIMED, st.lists(NAMES.filter(bool), min_size=1, max_size=4))
def test_never_more_than_claimed(says: Any, channels: list[str]) -> None:
    """A grant allows exactly what a naive reading of the claim does, for each channel and for several together."""
    if not is_well_formed(says):
        with pytest.raises(InvalidToken):
            rights(says)
        return
    grant = rights(says)
    assert set(grant.rights) <= set(RIGHTS)
    for right, word in RIGHTS.items():
        each = [is_claimed(says, word, channel) for channel in channels]
        assert [grant.allows(right, (channel,)) for channel in channels] == each
        assert grant.allows(right, tuple(channels)) == all(each)


@given(
    st.dictionaries(
        st.sampled_from(["iss", "aud", "iat", "exp", "nbf", "sub", "jti", "pushup", "x"]),
        st.recursive(
            st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.just(NOW)),
            lambda inner: st.one_of(
                st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=2), inner, max_size=2)
            ),
            max_leaves=4,
        ),
        max_size=4,
    )
)
def test_no_claim_is_an_unexpected_error(others: dict[str, Any]) -> None:
    """Whatever JSON a claim is: the token is refused, or its grant is for whom it says, and ends when it says."""
    said = {**claims(), **others}
    try:
        grant = accept(write({"alg": "HS256"}, said, SECRET))
    except InvalidToken:
        return
    assert (grant.subject, grant.token_id) == (said.get("sub", ""), said.get("jti", ""))
    assert (grant.issued_at, grant.valid_until) == (said["iat"], said["exp"] + LEEWAY)
    assert math.isfinite(grant.valid_until)
    assert grant.valid_until > NOW
