"""Keys that are fetched: by a fake `get`, on a simulated clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from pushup.backends.service_requestor import Reply
from pushup.core.errors import InvalidToken, Overloaded, PushUpError, TokenExpired, Unavailable
from pushup.tokens.claims import Expected
from pushup.tokens.key_urls import AGAIN_SECONDS, REFRESH_SECONDS, RETRY_SECONDS, KeyUrl
from pushup.tokens.signing_keys import KEYS_LIMIT
from pushup.tokens.verifier import Issuer, Verifier
from tests.net.observed_log import logged_at
from tests.tokens.evil_tokens import (
    ISSUER,
    NOW,
    jwk,
    jwks,
    key,
    key_for,
    numbered,
    private_key,
    public_jwk,
    token,
    write,
)

URL = "https://app.example/jwks.json"
ONE, TWO = jwk("ES256", kid="one"), jwk("ES256", 1, kid="two")


class Keys:
    """The keys at a URL, what fetches them, and a verifier that uses them."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.requests: list[Deferred[Reply]] = []
        self.urls: list[bytes] = []
        self.cancelled = 0
        self.url = KeyUrl(URL, self._get, self.clock)
        self.verifier = Verifier([Issuer(ISSUER, Expected(audience="pushup"), key_url=self.url)], lambda: NOW)
        self.url.on_change = self.verifier.forget

    def _get(self, url: bytes) -> Deferred[Reply]:
        self.urls.append(url)
        self.requests.append(Deferred(self._cancel))
        return self.requests[-1]

    def _cancel(self, request: object) -> None:
        self.cancelled += 1

    @property
    def count(self) -> int:
        """How often they were asked for."""
        return len(self.requests)

    @property
    def names(self) -> list[str]:
        return [key.kid for key in self.url.keys]

    def reply(self, body: bytes, status: int = 200) -> None:
        self.requests[-1].callback(Reply(status, body))

    def fail(self, error: PushUpError | None = None) -> None:
        self.requests[-1].errback(error or Unavailable("no reply"))

    def why_not(self, text: str) -> type[PushUpError] | None:
        """The error that a token gets; None if it is accepted."""
        try:
            self.verifier.grant(text)
        except PushUpError as error:
            return type(error)
        return None


BY_ONE, BY_TWO = token("ES256", kid="one"), token("ES256", 1, kid="two")


@pytest.fixture
def keys() -> Keys:
    return Keys()


@pytest.fixture
def log() -> Iterator[list[str]]:
    """The lines at the levels info and warn, in the order in which they came."""
    with logged_at("info", "warn") as lines:
        yield lines


def taken(log: list[str]) -> list[str]:
    """What was logged since the last call."""
    lines = [*log]
    log.clear()
    return lines


def test_nobody_needs_to_be_told() -> None:
    """The keys change all the same."""
    requests: list[Deferred[Reply]] = [Deferred()]
    url = KeyUrl(URL, lambda _: requests[0], Clock())
    url.fetch()
    requests[0].callback(Reply(200, jwks(ONE)))
    assert [key.kid for key in url.keys] == ["one"]
    url.stop()


def test_keys_are_fetched_and_refreshed(keys: Keys) -> None:
    """At once, and again each five minutes after an answer, from the URL that is set."""
    keys.url.fetch()
    keys.reply(jwks(ONE))
    for count in (1, 2, 3):
        assert (keys.count, keys.names) == (count, ["one"])
        keys.clock.advance(REFRESH_SECONDS - 0.01)
        assert keys.count == count
        keys.clock.advance(0.01)
        assert keys.count == count + 1
        keys.clock.advance(100)  # this one takes its time
        keys.reply(jwks(ONE))
    assert set(keys.urls) == {URL.encode()}


def test_a_fetch_in_between(keys: Keys) -> None:
    """It counts: the next is five minutes after its answer."""
    keys.url.fetch()
    keys.reply(jwks(ONE))
    keys.clock.advance(REFRESH_SECONDS - 100)
    keys.url.fetch()
    keys.reply(jwks(ONE))
    keys.clock.advance(REFRESH_SECONDS - 0.01)
    assert keys.count == 2
    keys.clock.advance(0.01)
    assert keys.count == 3


def test_one_fetch_at_a_time(keys: Keys) -> None:
    """While one is under way nothing starts another: neither time, nor tokens, nor a reload."""
    keys.url.fetch()
    for _ in range(20):
        keys.url.fetch()
        assert keys.why_not(BY_ONE) is Unavailable
        keys.clock.advance(REFRESH_SECONDS)
    assert keys.count == 1
    keys.reply(jwks(ONE))
    assert keys.why_not(BY_ONE) is None


FAILURES = [
    Unavailable("no reply"),
    Overloaded("too many requests are waiting"),
    Reply(500, jwks(TWO)),
    Reply(404, b"not here"),
    Reply(301, jwks(TWO)),
    Reply(100, jwks(TWO)),
    Reply(204, b""),
    Reply(200, b"<html>"),
    Reply(200, b'{"keys": []}'),
    Reply(200, jwks(*[TWO] * (KEYS_LIMIT + 1))),
    Reply(200, jwks({"kty": "oct", "k": "c2VjcmV0"})),
    Reply(200, jwks({**TWO, "d": "AQ"})),
    Reply(200, jwks({**TWO, "alg": "ES384"}, public_jwk(private_key("P-384")))),
    Reply(200, jwks({**TWO, "use": "enc"})),
]


@pytest.mark.parametrize("failure", numbered(FAILURES))
def test_the_last_keys_stay_when_they_cannot_be_fetched(
    keys: Keys, log: list[str], failure: Reply | PushUpError
) -> None:
    """For as long as it takes. It is tried again each ten seconds, and logged once, as is that it works again."""
    keys.url.fetch()
    keys.reply(jwks(ONE))
    assert len(taken(log)) == 1
    keys.clock.advance(REFRESH_SECONDS)
    for count in range(2, 100):
        assert keys.count == count
        if isinstance(failure, Reply):
            keys.reply(failure.body, failure.status)
        else:
            keys.fail(failure)
        assert (keys.names, keys.why_not(BY_ONE)) == (["one"], None)
        keys.clock.advance(RETRY_SECONDS - 0.01)
        assert keys.count == count
        keys.clock.advance(0.01)
    (line,) = taken(log)
    assert URL in line
    assert "of other keys than before get 503" in line
    keys.reply(jwks(ONE))
    (line,) = taken(log)
    assert "can be fetched again" in line
    keys.clock.advance(REFRESH_SECONDS - 0.01)
    assert keys.count == 100


def test_a_key_that_is_not_known_while_they_cannot_be_fetched(keys: Keys) -> None:
    """Its tokens may be good: they get 503, also between two attempts, and the application is not asked for others."""
    keys.url.fetch()
    keys.reply(jwks(ONE))
    keys.clock.advance(REFRESH_SECONDS)
    keys.fail()
    assert [keys.why_not(each) for each in (BY_ONE, BY_TWO)] == [None, Unavailable]
    assert keys.why_not(token("ES256", 1, kid="two", exp=NOW - 100)) is TokenExpired  # whatever the key is
    assert keys.count == 2
    keys.clock.advance(RETRY_SECONDS)
    keys.reply(jwks(TWO))
    assert [keys.why_not(each) for each in (BY_ONE, BY_TWO)] == [InvalidToken, None]


def test_an_unexpected_failure_is_logged(keys: Keys, logged_failures: list[str]) -> None:
    """It is a bug, and ends nothing: the keys are fetched again later."""
    keys.url.fetch()
    keys.requests[-1].errback(RuntimeError("a bug"))
    (line,) = logged_failures
    assert URL in line
    logged_failures.clear()
    keys.clock.advance(REFRESH_SECONDS)
    keys.reply(jwks(ONE))
    assert keys.why_not(BY_ONE) is None


def test_before_the_first_keys(keys: Keys, log: list[str]) -> None:
    """Tokens get 503, for they may be good; one that can be by no public key is refused."""
    assert keys.why_not(BY_ONE) is Unavailable
    keys.fail()
    assert keys.why_not(BY_ONE) is Unavailable
    (line,) = taken(log)
    assert "503" in line
    for alg in ("none", "HS256", "PS256", ""):
        assert keys.why_not(write({"alg": alg}, {"iss": ISSUER}, b"")) is InvalidToken
    assert keys.count == 1


def test_an_unknown_name_fetches_at_most_once_a_minute(keys: Keys) -> None:
    """However many tokens name keys that nobody knows; while it is fetched they get 503, and then they are refused."""
    keys.url.fetch()
    keys.reply(jwks(ONE))
    unknown = [token("ES256", 1, kid=f"evil-{number}", iat=NOW - 100) for number in range(30)]
    for number in range(30):
        keys.clock.advance(1)
        assert keys.why_not(unknown[number]) is InvalidToken
    assert keys.count == 1
    keys.clock.advance(AGAIN_SECONDS - 30)
    for _ in range(2):
        assert [keys.why_not(each) for each in unknown] == [Unavailable] * 30
        assert keys.why_not(BY_ONE) is None
    assert keys.count == 2
    keys.reply(jwks(ONE, TWO))
    assert (keys.why_not(BY_TWO), keys.why_not(unknown[0])) == (None, InvalidToken)
    keys.clock.advance(AGAIN_SECONDS - 0.01)
    assert keys.why_not(unknown[0]) is InvalidToken
    assert keys.count == 2
    keys.clock.advance(0.01)
    assert keys.why_not(unknown[0]) is Unavailable


def test_a_token_that_is_younger_than_the_keys(keys: Keys) -> None:
    """Its issuer may sign with a new key as soon as it publishes that: until the next fetch the token gets 503."""
    keys.url.fetch()
    keys.reply(jwks(ONE))
    keys.clock.advance(30)
    young, old = [token("ES256", 1, kid="two", iat=NOW - age) for age in (29, 30)]
    assert [keys.why_not(each) for each in (young, old)] == [Unavailable, InvalidToken]
    assert keys.why_not(token("ES256", 1, kid="two", iat="now")) is InvalidToken
    assert keys.count == 1
    keys.clock.advance(AGAIN_SECONDS - 30)
    assert keys.why_not(young) is Unavailable
    keys.reply(jwks(ONE, TWO))
    assert keys.why_not(young) is None


@pytest.mark.parametrize(
    "evil",
    numbered(
        [
            token("ES256", 1, kid="one"),
            token("ES256", 1),
            token("ES256", 1, kid="two", iss="https://evil.example"),
            token("HS256", kid="two"),
            write({"alg": "none", "kid": "two"}, {"iss": ISSUER}, b""),
        ]
    ),
)
def test_what_fetches_nothing(keys: Keys, evil: str) -> None:
    """A bad signature of a key that is known, another issuer, and an algorithm that no such key has."""
    keys.url.fetch()
    keys.reply(jwks(ONE))
    keys.clock.advance(AGAIN_SECONDS + 1)
    assert keys.why_not(evil) is InvalidToken
    assert keys.count == 1


def test_a_key_that_is_withdrawn_is_forgotten(keys: Keys, log: list[str]) -> None:
    """With all that was accepted with it; its name does not come back, and the change is logged."""
    keys.url.fetch()
    keys.reply(jwks(ONE, TWO))
    assert [keys.why_not(each) for each in (BY_ONE, BY_TWO)] == [None, None]
    keys.clock.advance(REFRESH_SECONDS)
    keys.reply(jwks(TWO))
    assert [keys.why_not(each) for each in (BY_ONE, BY_TWO)] == [InvalidToken, None]
    assert [line.partition("keys: ")[2] for line in taken(log)] == ["one, two", "two"]
    keys.clock.advance(REFRESH_SECONDS)
    keys.reply(jwks({**ONE, "kid": "two"}))  # the name of another key
    assert [keys.why_not(each) for each in (BY_ONE, BY_TWO)] == [InvalidToken, InvalidToken]


def test_stopping(keys: Keys) -> None:
    """Nothing is fetched any more: what is under way is cancelled, and no timer is left."""
    keys.url.fetch()
    keys.url.stop()
    assert keys.cancelled == 1
    assert not keys.clock.getDelayedCalls()
    keys.url.fetch()
    keys.reply(jwks(ONE))
    keys.url.stop()
    keys.url.stop()
    assert not keys.clock.getDelayedCalls()
    keys.clock.advance(10 * REFRESH_SECONDS)
    assert keys.count == 2


def test_an_issuer_with_fixed_keys_as_well(keys: Keys) -> None:
    """While keys cannot be fetched, tokens by the fixed ones are accepted."""
    fixed = (key("RS256", kid="fixed"),)
    verifier = Verifier([Issuer(ISSUER, Expected(audience="pushup"), fixed, keys.url)], lambda: NOW)
    assert verifier.grant(token("RS256", kid="fixed")).subject == "7"
    keys.verifier = verifier
    assert keys.why_not(BY_ONE) is Unavailable
    assert keys.why_not(write({"alg": "RS256", "kid": "fixed"}, {"iss": ISSUER}, key_for("RS256", 1))) is InvalidToken


def test_a_fixed_key_without_a_name_hides_none_at_the_url(keys: Keys) -> None:
    """As a PEM file has it. Other tokens get 503 before the first keys, and later their names are looked for."""
    keys.verifier = Verifier([Issuer(ISSUER, Expected(audience="pushup"), (key("ES256", 2),), keys.url)], lambda: NOW)
    by_one_without_a_name = token("ES256")
    assert [keys.why_not(each) for each in (token("ES256", 2), token("ES256", 2, kid="x"))] == [None, None]
    assert [keys.why_not(each) for each in (BY_ONE, by_one_without_a_name)] == [Unavailable, Unavailable]
    keys.reply(jwks(ONE))
    keys.clock.advance(AGAIN_SECONDS)
    assert [keys.why_not(each) for each in (BY_ONE, by_one_without_a_name)] == [None, None]
    assert keys.why_not(token("ES256", 1)) is InvalidToken
    assert keys.count == 1
    assert keys.why_not(BY_TWO) is Unavailable
    keys.reply(jwks(ONE, TWO))
    assert keys.why_not(BY_TWO) is None


def test_a_key_of_any_issuer_is_looked_for_at_each() -> None:
    """One whose URL does not answer hides no other."""
    asked: list[bytes] = []

    def get(url: bytes) -> Deferred[Reply]:
        asked.append(url)
        return Deferred()

    urls = [KeyUrl(f"https://{name}.example/", get, Clock()) for name in "ab"]
    issuers = [Issuer(url.url, Expected(audience="pushup"), key_url=url) for url in urls]
    with pytest.raises(Unavailable):
        Verifier(issuers, lambda: NOW).look_for_keys()
    assert asked == [b"https://a.example/", b"https://b.example/"]
