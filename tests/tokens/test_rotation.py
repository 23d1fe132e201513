"""Keys and settings that change while tokens are in use, and the memory of tokens that were accepted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from pushup.backends.service_requestor import Reply
from pushup.core.errors import InvalidToken, PushUpError, TokenExpired, Unavailable
from pushup.core.grant import Grant
from pushup.tokens.key_urls import KeyUrl
from pushup.tokens.signing_keys import secret_keys
from pushup.tokens.token_settings import TokenIssuer, TokenSettings
from pushup.tokens.tokens import Tokens
from pushup.tokens.verifier import SEEN_LIMIT, Verifier
from tests.tokens.evil_tokens import (
    ISSUER,
    NOW,
    OTHER_SECRET,
    SECRET,
    Now,
    issuer,
    jwk,
    jwks,
    key,
    key_for,
    pem,
    token,
)

LEEWAY = 10.0


@pytest.fixture
def now() -> Now:
    return Now()


def outcome(verifier: Verifier | Tokens, text: str) -> Grant | type[PushUpError]:
    try:
        return verifier.grant(text)
    except PushUpError as error:
        return type(error)


def test_two_secrets(now: Now) -> None:
    """While both are valid, tokens by both are accepted, with names and without; then only those by the new one."""
    keys = secret_keys((f"old {SECRET} valid_until=2027-01-15T08:01:00Z", f"new {OTHER_SECRET}"))
    verifier = Verifier([issuer(*keys)], now)
    texts = [
        token(),
        token(kid="old"),
        token(number=1),
        token(number=1, kid="new"),
        token(number=1, kid="old"),
        token(kid="new"),
    ]
    expected = [True, True, True, True, False, False]
    for _ in range(2):  # remembered the second time
        assert [isinstance(outcome(verifier, text), Grant) for text in texts] == expected
    now.seconds += 60
    found = [outcome(verifier, text) for text in texts]
    assert [isinstance(each, Grant) for each in found] == [False, False, True, True, False, False]
    assert found[0] is TokenExpired  # it was accepted until now: its client asks for another
    assert outcome(verifier, token(jti="not seen before")) is InvalidToken
    now.seconds += 60
    assert outcome(verifier, token(jti="nor this")) is InvalidToken


@pytest.mark.parametrize(
    ("names", "said", "is_good"),
    [
        ("", "", True),
        ("", "x", True),
        ("one", "", True),
        ("one", "one", True),
        ("one", "two", False),
        ("one", "One", False),
    ],
)
def test_names_of_keys(names: str, said: str, is_good: bool, now: Now) -> None:
    """They only choose among keys: a key without one may be that of any token, and a token without one by any key."""
    for algorithm in ("HS256", "ES256"):
        verifier = Verifier([issuer(key(algorithm, 1, kid="other"), key(algorithm, kid=names))], now)
        assert isinstance(outcome(verifier, token(algorithm, kid=said)), Grant) == is_good
        assert isinstance(outcome(verifier, token(algorithm, kid="other")), Grant) == (not names)


@given(st.integers(-60, 400), st.integers(1, 300), st.lists(st.integers(0, 120), max_size=5))
def test_a_grant_outlives_neither_its_token_nor_its_key(key_ends: int, token_ends: int, steps: list[int]) -> None:
    """Whichever ends first, and whether it is remembered or not."""
    now = Now()
    verifier = Verifier([issuer(key("HS256", valid_until=NOW + key_ends))], now)
    text = token(exp=NOW + token_ends)
    end = min(NOW + key_ends, NOW + token_ends + LEEWAY)
    for step in [0, *steps]:
        now.seconds += step
        found = outcome(verifier, text)
        if now.seconds < end:
            assert isinstance(found, Grant)
            assert found.valid_until == end
        else:
            assert isinstance(found, type)
            assert issubclass(found, InvalidToken)


def test_forgetting(now: Now) -> None:
    """What was accepted is checked again, by the keys of now."""
    url = KeyUrl(URL, lambda _: Deferred(), Clock())
    url.keys = (key("ES256"),)
    verifier = Verifier([replace(issuer(key("HS256")), key_url=url)], now)
    text, other = token("ES256"), token()
    assert {type(outcome(verifier, each)) for each in (text, other)} == {Grant}
    url.keys = (key("ES256", 1),)
    verifier.forget()
    assert outcome(verifier, text) is InvalidToken
    assert isinstance(outcome(verifier, other), Grant)


def test_a_refusal_is_not_remembered(now: Now) -> None:
    """A token that comes too early is accepted when its time has come."""
    verifier = Verifier([issuer(key("HS256"))], now)
    text = token(nbf=NOW + 100)
    assert outcome(verifier, text) is InvalidToken
    now.seconds += 100
    assert isinstance(outcome(verifier, text), Grant)


def test_the_memory_of_tokens_is_bounded(now: Now) -> None:
    """By bytes, also with many short names in each: the grants of these take ten times as much as their tokens."""
    import tracemalloc

    verifier = Verifier([issuer(key("HS256"))], now)
    names = [f"{number:03x}" for number in range(250)]
    says = {"poll": names, "publish": [f"{name}*" for name in names]}
    texts = [token(jti=str(number), pushup=says) for number in range(300)]
    tracemalloc.start()
    try:
        for text in texts:
            verifier.grant(text)
        assert tracemalloc.get_traced_memory()[0] < 6 * 2**20
    finally:
        tracemalloc.stop()


# The settings, in a running server.


class World:
    """The time, and what is at URLs."""

    def __init__(self) -> None:
        self.now = Now()
        self.clock = Clock()
        self.asked: list[str] = []
        self.requests: list[Deferred[Reply]] = []

    def tokens(self, settings: TokenSettings) -> Tokens:
        return Tokens(settings, lifetime=1000.0, make_key_url=self._key_url, wall=self.now)

    def _key_url(self, url: str) -> KeyUrl:
        return KeyUrl(url, self._get, self.clock)

    def _get(self, url: bytes) -> Deferred[Reply]:
        self.asked.append(url.decode())
        self.requests.append(Deferred())
        return self.requests[-1]

    def reply(self, *keys: dict[str, Any]) -> None:
        self.requests.pop(0).callback(Reply(200, jwks(*keys)))


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    assert not world.clock.getDelayedCalls()


def settings(*secrets: str, **others: Any) -> TokenSettings:
    return TokenSettings(token_issuer=ISSUER, token_audience="pushup", token_secrets=secrets, **others)


URL, OTHER_URL = "https://app.example/jwks", "https://other.example/jwks"


def test_reloading_secrets(world: World) -> None:
    """A secret that is gone is refused at once, also with tokens that were accepted before."""
    tokens = world.tokens(settings(SECRET))
    tokens.start()
    assert world.asked == []  # there is no URL
    assert isinstance(outcome(tokens, token()), Grant)
    tokens.use(settings(SECRET, OTHER_SECRET))
    assert [type(outcome(tokens, each)) for each in (token(), token(number=1))] == [Grant, Grant]
    tokens.use(settings(OTHER_SECRET))
    assert outcome(tokens, token()) is InvalidToken
    tokens.use(TokenSettings())
    assert outcome(tokens, token(number=1)) is InvalidToken


@pytest.mark.parametrize("broken", ["", "no key", None])
def test_reloading_a_file(world: World, tmp_path: Path, broken: str | None) -> None:
    """It is read again. One that cannot be used changes nothing, and no other setting either."""
    file = tmp_path / "keys.pem"
    file.write_text(pem(key_for("ES256")))
    tokens = world.tokens(settings(token_keys_file=str(file)))
    assert isinstance(outcome(tokens, token("ES256")), Grant)
    file.write_text(pem(key_for("ES256", 1)))
    tokens.use(settings(token_keys_file=str(file)))
    assert outcome(tokens, token("ES256")) is InvalidToken
    assert isinstance(outcome(tokens, token("ES256", 1)), Grant)
    if broken is None:
        file.unlink()
    else:
        file.write_text(broken)
    with pytest.raises(ValueError, match=r"keys\.pem"):
        tokens.use(settings(SECRET, token_keys_file=str(file)))
    assert isinstance(outcome(tokens, token("ES256", 1)), Grant)
    assert outcome(tokens, token()) is InvalidToken


def test_reloading_urls(world: World) -> None:
    """Keys at a URL that stays are kept, and fetched again; those at one that is gone are refused, and not fetched."""
    one, two = token("ES256"), token("ES256", 1)
    tokens = world.tokens(settings(token_jwks_url=URL))
    assert world.asked == []  # nothing before it is started
    assert outcome(tokens, one) is Unavailable
    assert world.asked == [URL]
    tokens.start()
    tokens.use(settings(token_jwks_url=URL))
    assert world.asked == [URL]  # that fetch goes on
    world.reply(jwk("ES256"))
    assert isinstance(outcome(tokens, one), Grant)
    tokens.use(settings(token_jwks_url=URL))
    assert world.asked == [URL, URL]
    assert isinstance(outcome(tokens, one), Grant)
    world.reply(jwk("ES256", 1))  # this must reach the new settings
    assert outcome(tokens, one) is InvalidToken
    assert isinstance(outcome(tokens, two), Grant)
    tokens.use(settings(token_jwks_url=OTHER_URL))
    assert outcome(tokens, two) is Unavailable
    assert world.asked == [URL, URL, OTHER_URL]
    world.reply(jwk("ES256"))
    world.clock.advance(10**6)
    assert set(world.asked[3:]) == {OTHER_URL}
    tokens.stop()
    asked = len(world.asked)
    tokens.use(settings(token_jwks_url=URL))
    assert len(world.asked) == asked


def test_keys_that_were_withdrawn(world: World) -> None:
    """They end at 0, the last hundred; those of an issuer whose URL has not answered yet may come back with it."""
    tokens = world.tokens(settings(SECRET, token_jwks_url=URL))
    tokens.start()
    world.reply(jwk("ES256"))
    secret, public = [tokens.grant(token(algorithm)).key_id for algorithm in ("HS256", "ES256")]
    assert tokens.key_ends() == {secret: math.inf, public: math.inf}
    tokens.use(settings(token_jwks_url=URL))
    assert tokens.key_ends() == {secret: 0, public: math.inf}
    world.reply(jwk("ES256", 1))
    assert [tokens.key_ends()[each] for each in (secret, public)] == [0, 0]
    tokens.use(settings(token_jwks_url=OTHER_URL))
    assert tokens.key_ends() == {}
    world.reply(jwk("ES256"))
    assert [tokens.key_ends()[each] for each in (secret, public)] == [0, math.inf]
    for number in range(SEEN_LIMIT):
        tokens.use(settings(SECRET, f"{SECRET}-{number}"))
    tokens.use(settings(OTHER_SECRET))
    ends = tokens.key_ends()
    assert (len(ends), ends[secret], set(ends.values())) == (SEEN_LIMIT, 0, {0, math.inf})
    assert public not in ends


def test_reloading_the_claim_and_the_leeway(world: World) -> None:
    """They hold for all issuers."""
    tokens = world.tokens(settings(SECRET, token_claim="x", token_leeway_seconds=3.0))
    grant = tokens.grant(token(x={"poll": ["a"]}))
    assert grant.allows("read", ("a",))
    assert not grant.allows("read", ("user:7",))
    assert grant.valid_until == NOW + 300 + 3
    tokens.use(settings(SECRET))
    assert tokens.grant(token(x={"poll": ["a"]})).allows("read", ("user:7",))


def test_a_url_that_cannot_be_used_does_not_stop_others(world: World) -> None:
    """Two issuers: while the keys of one cannot be fetched, the other's tokens are accepted."""
    others = (TokenIssuer(issuer="https://other.example", audience="pushup", jwks_url=OTHER_URL),)
    tokens = world.tokens(settings(SECRET, token_issuers=others))
    tokens.start()
    world.requests.pop().errback(Unavailable("no reply"))
    assert isinstance(outcome(tokens, token()), Grant)
    by_other = token("ES256", iss="https://other.example")
    assert outcome(tokens, by_other) is Unavailable
    assert outcome(tokens, token(iss="https://other.example")) is InvalidToken
    tokens.stop()


def test_the_lifetime_is_limited_for_every_issuer(world: World) -> None:
    """By the setting of the server, which decides for how long revocations are kept."""
    others = (TokenIssuer(issuer="https://other.example", audience="x", secrets=(OTHER_SECRET,)),)
    tokens = world.tokens(settings(SECRET, token_issuers=others))
    cases: list[dict[str, Any]] = [{}, {"iss": "https://other.example", "aud": "x", "number": 1}]
    for more in cases:
        assert isinstance(outcome(tokens, token(iat=NOW, exp=NOW + 1000, **more)), Grant)
        assert outcome(tokens, token(iat=NOW, exp=NOW + 1001, **more)) is InvalidToken
