"""The text of a token -> a grant."""

from __future__ import annotations

import binascii
import math
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pushup.core.errors import InvalidToken, TokenExpired, Unavailable
from pushup.core.grant import Grant
from pushup.core.memo import Memo
from pushup.tokens.claims import SHOWN, Expected, age_of, grant_of, read_object
from pushup.tokens.key_urls import KeyUrl
from pushup.tokens.signing_keys import PUBLIC_ALGORITHMS, SigningKey

TOKEN_LIMIT_BYTES = 6 * 1024
"""The longest token: some 150 names of channels. All header fields together have 8 KiB by default."""

KNOWN_BYTES = 4 * 1024 * 1024
"""The memory of tokens that were verified: some 3,000 with a few names each."""

GRANT_BYTES = 700
"""The memory of a grant, beside the names in it."""

NAME_BYTES = 120
"""The memory of a name in a grant, beside its characters, which are part of the token."""

SEEN_LIMIT = 100
"""Keys that are remembered, the newest, to know of one that is missing now that it was withdrawn."""

RETRY_AFTER_SECONDS = 1

_TYPES = ("jwt", "at+jwt")
"""Of a token in general, and of an access token (RFC 9068)."""

_COMPACT = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]*)", re.ASCII).fullmatch


class Issuer(Struct, frozen=True):
    """Whose tokens are accepted."""

    name: str
    """Its `iss`."""
    expected: Expected
    fixed_keys: tuple[SigningKey, ...] = ()
    """Those that change only with the settings."""
    key_url: KeyUrl | None = None
    """Where it publishes others."""

    @property
    def fetched_keys(self) -> Sequence[SigningKey]:
        """Those that it publishes, as far as they are known now."""
        return () if self.key_url is None else self.key_url.keys

    @property
    def keys(self) -> Sequence[SigningKey]:
        """All that are known now."""
        return (*self.fixed_keys, *self.fetched_keys)

    def id_of(self, key: SigningKey) -> str:
        """What the grants of tokens that this issuer has signed with this key name it."""
        return f"{self.name} {key.fingerprint}"


class Verifier:
    """Accepts the tokens of these issuers."""

    def __init__(self, issuers: Sequence[Issuer], wall: Callable[[], float]) -> None:
        """`wall` returns seconds since the epoch."""
        self._wall = wall
        self._seen: dict[str, str] = {}  # the id of a key, and the name of its issuer; the newest last
        self._use_issuers(issuers)

    def _use_issuers(self, issuers: Sequence[Issuer]) -> None:
        self._issuers = {issuer.name: issuer for issuer in issuers}
        self.forget()

    def forget(self) -> None:
        """The keys have changed: verify each token again."""
        self._known: Memo[bytes, Grant] = Memo(KNOWN_BYTES)
        for issuer in self._issuers.values():
            for key_id in map(issuer.id_of, issuer.keys):
                self._seen.pop(key_id, None)
                self._seen[key_id] = issuer.name
        while len(self._seen) > SEEN_LIMIT:
            del self._seen[next(iter(self._seen))]

    def key_ends(self) -> dict[str, float]:
        """Until when each key is valid: its `Grant.key_id`, and seconds since the epoch; 0: it was withdrawn.

        A key that is missing here may be one that was not fetched yet (`look_for_keys`).
        """
        waiting = {name for name, each in self._issuers.items() if each.key_url is not None and not each.fetched_keys}
        ends = {key_id: 0.0 for key_id, name in self._seen.items() if name not in waiting}
        return ends | {issuer.id_of(key): key.valid_until for issuer in self._issuers.values() for key in issuer.keys}

    def look_for_keys(self) -> None:
        """A key is missing among these. Raises: Unavailable while keys are being fetched."""
        _look_for_keys(*self._issuers.values())

    def grant(self, token: str) -> Grant:
        """What a token allows now.

        Raises: InvalidToken, whose text says what is wrong; TokenExpired; Unavailable while its key is looked for.
        """
        if len(token) > TOKEN_LIMIT_BYTES:
            raise InvalidToken(f"the token is longer than {TOKEN_LIMIT_BYTES} bytes")
        if not token.isascii():
            raise InvalidToken("the token has characters that are not ASCII")
        digest = sha256(token.encode()).digest()
        grant, now = self._known.get(digest), self._wall()
        if grant is None:
            try:
                grant = self._verify(token, now)
            except ValueError as error:
                raise InvalidToken(str(error)) from None
            names = sum([len(scope.names) + len(scope.prefixes) for scope in grant.rights.values()])
            self._known.add(digest, grant, GRANT_BYTES + NAME_BYTES * names + len(token))
        if now >= grant.valid_until:
            raise TokenExpired("the token has expired")
        return grant

    def _verify(self, token: str, now: float) -> Grant:
        """Raises: ValueError, TokenExpired; Unavailable."""
        match = _COMPACT(token)
        if match is None:
            raise ValueError("this is not a token; one has three parts with dots between them (RFC 7515 §7.1)")
        header = read_object(_decoded(match[1], "the token's header"), "the token's header")
        claims = read_object(_decoded(match[2], "what the token says"), "what the token says")
        signature = _decoded(match[3], "the token's signature")
        algorithm, kid = _checked_header(header)
        name = claims.get("iss")
        issuer = self._issuers.get(name) if isinstance(name, str) else None
        if issuer is None:
            raise ValueError("the token's `iss` is not one whose tokens are accepted here (token_issuer)")
        signed = token[: match.end(2)].encode()
        try:
            age = age_of(claims, now)
            key = _signer(issuer, algorithm, kid, now, age, lambda key: key.has_signed(signed, signature))
        except Unavailable:
            grant_of(claims, issuer.expected, now)  # one that has expired, for example, is refused by whatever key
            raise
        grant = grant_of(claims, issuer.expected, now)
        return replace(grant, valid_until=min(grant.valid_until, key.valid_until), key_id=issuer.id_of(key))


def _look_for_keys(*issuers: Issuer, age: float = math.inf) -> None:
    """A key of one of these is missing, of a token of this age. Raises: Unavailable while keys are being fetched."""
    answers = [issuer.key_url.looks_for_more(age) for issuer in issuers if issuer.key_url is not None]  # each is asked
    if any(answers):
        raise Unavailable("the token's key is not known yet", retry_after=RETRY_AFTER_SECONDS)


def _decoded(part: str, what: str) -> bytes:
    """The bytes of one part of a token.

    Raises: ValueError, also if these bytes are written in another way than issuers write them: the last character may
    have bits that count for nothing, and then one token would have several texts (RFC 4648 §3.5).
    """
    try:
        data = urlsafe_b64decode(part + "==")  # more than enough
    except binascii.Error:
        data = b""
    if urlsafe_b64encode(data).rstrip(b"=") != part.encode():
        raise ValueError(f"{what} is not in base64url")
    return data


def _checked_header(header: dict[str, Any]) -> tuple[str, str]:
    """The algorithm, and the name of the key, if there is one. Raises: ValueError."""
    algorithm, kid, kind = header.get("alg"), header.get("kid", ""), header.get("typ", "JWT")
    if "crit" in header or "b64" in header:
        raise ValueError("the token's header has `crit` or `b64`, which PushUp does not know")
    if not isinstance(algorithm, str) or not isinstance(kid, str) or not isinstance(kind, str):
        raise ValueError("the token's header needs `alg`, as text; `kid` and `typ` must be text, too")
    if kind.lower().removeprefix("application/") not in _TYPES:
        raise ValueError(f"the token's header has the `typ` {kind[:SHOWN]!r}; it must be JWT")
    return algorithm, kid


def _signer(
    issuer: Issuer, algorithm: str, kid: str, now: float, age: float, has_signed: Callable[[SigningKey], bool]
) -> SigningKey:
    """The key that has signed a token. Raises: ValueError; Unavailable if it is looked for."""
    candidates = [key for key in issuer.keys if key.may_be_of(algorithm, kid, now)]
    signer = next(filter(has_signed, candidates), None)
    if signer is not None:
        return signer
    # A key without a name may be that of any token. If it is of the settings, the right one may yet be at the URL.
    if kid:
        is_found = any(key.kid == kid for key in candidates)
    else:
        is_found = any(key.may_be_of(algorithm, kid, now) for key in issuer.fetched_keys)
    if algorithm in PUBLIC_ALGORITHMS and not is_found:
        _look_for_keys(issuer, age=age)
    if candidates:
        raise ValueError("the token's signature is not valid")
    if algorithm not in {key.algorithm for key in issuer.keys}:
        raise ValueError(f"the token's `alg` is {algorithm[:SHOWN]!r}, and there is no key for it here")
    name = kid[:SHOWN]
    raise ValueError(f"the token's `kid` is {name!r}, and there is no key with this name here, or it has expired")
