"""Whose tokens are accepted, and where their keys are (docs/guide/tokens.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from pushup.backends.authorization import url_mistake

LEEWAY_LIMIT_SECONDS = 60.0

_COOKIE = re.compile(r"__(Secure|Host)-[A-Za-z0-9_.-]+").fullmatch


class TokenIssuer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One issuer of tokens. The fields are as the settings `token_issuer` and so on."""

    issuer: str
    audience: str
    secrets: tuple[str, ...] = ()
    keys_file: str = ""
    jwks_url: str = ""


class TokenSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which signed tokens are accepted. Those of one issuer have settings of their own; more have tables."""

    token_issuer: str = ""
    """Who signs the tokens that are accepted: their `iss`. Empty: no tokens are accepted."""
    token_audience: str = ""
    """The `aud` that they must have or contain, so that tokens for another service are refused here."""
    token_secrets: tuple[str, ...] = ()
    """Secrets that sign tokens with HS256, of at least 32 characters. `KID SECRET` gives one a name, and
    `valid_until=2027-01-31T12:00:00Z` behind it an end."""
    token_secrets_file: str = ""
    """File that contains these secrets, one per line; `#` starts a comment."""
    token_keys_file: str = ""
    """File with public keys: in PEM, or a set of keys in JSON (JWKS). For RS256, ES256 and EdDSA."""
    token_jwks_url: str = ""
    """URL at which the issuer publishes its keys as a JWKS."""
    token_issuers: tuple[TokenIssuer, ...] = ()
    """More issuers; `[[token_issuers]]` tables with `issuer`, `audience`, and `secrets`, `keys_file` or `jwks_url`."""
    token_claim: str = "pushup"  # noqa: S105
    """Name of the claim that says what a token allows."""
    token_leeway_seconds: float = 10.0
    """By how much the clocks of issuers may differ from this machine's. At most a minute."""
    token_cookie: str = ""
    """Name of a cookie that may contain the token, such as `__Secure-pushup`; empty: none may."""
    token_url_tickets: bool = False
    """Whether a token can be exchanged for a ticket that an `EventSource` sends in its URL. Needs a `ticket_key`."""

    @property
    def issuers(self) -> tuple[TokenIssuer, ...]:
        """All of them."""
        if not (self.token_issuer or self.token_secrets or self.token_keys_file or self.token_jwks_url):
            return self.token_issuers
        first = TokenIssuer(
            issuer=self.token_issuer,
            audience=self.token_audience,
            secrets=self.token_secrets,
            keys_file=self.token_keys_file,
            jwks_url=self.token_jwks_url,
        )
        return (first, *self.token_issuers)

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """Each setting whose value cannot be used, and why."""
        named: set[str] = set()
        for number, issuer in enumerate(self.issuers, len(self.token_issuers) - len(self.issuers)):
            for name, text in _mistakes(issuer):
                yield (f"token_{name}" if number < 0 else f"token_issuers[{number}].{name}"), text
            if issuer.issuer in named:
                yield "token_issuers", f"the issuer {issuer.issuer!r} stands there twice; write its keys together"
            named.add(issuer.issuer)
        if not self.token_claim:
            yield "token_claim", "is empty; the name of a claim is needed, such as pushup"
        if self.token_leeway_seconds > LEEWAY_LIMIT_SECONDS:
            yield "token_leeway_seconds", f"must be at most {LEEWAY_LIMIT_SECONDS:.0f}"
        for name in () if self.issuers else ("token_audience", "token_cookie", "token_url_tickets"):
            if getattr(self, name):
                yield name, "tokens are accepted from nobody; set token_issuer and its keys, or remove this"
        if self.token_cookie and not _COOKIE(self.token_cookie):
            yield (
                "token_cookie",
                f"{self.token_cookie!r} must begin with __Secure- (or __Host-), so that browsers send it by https only",
            )


def _mistakes(issuer: TokenIssuer) -> Iterator[tuple[str, str]]:
    from pushup.tokens.signing_keys import keys_of_file, secret_keys  # PyJWT takes some MB: only if it is needed

    try:
        secret_keys(issuer.secrets)
    except ValueError as error:
        yield "secrets", str(error)
    try:
        keys_of_file(issuer.keys_file)
    except ValueError as error:
        yield "keys_file", str(error)
    if not issuer.issuer:
        yield "issuer", "set it to the `iss` of the tokens, such as https://app.example"
    if not issuer.audience:
        yield "audience", "set it to the `aud` of the tokens, such as pushup: others are for other services"
    if not (issuer.secrets or issuer.keys_file or issuer.jwks_url):
        yield "issuer", f"there is no key for {issuer.issuer!r}: set secrets, keys_file or jwks_url"
    if issuer.jwks_url and (text := url_mistake(issuer.jwks_url)) is not None:
        yield "jwks_url", text
