"""Keys from secrets, PEM files and sets of keys in JSON, and the errors, which show no secret."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from pushup.secret_files import SecretFileError
from pushup.tokens.signing_keys import KEYS_LIMIT, keys_of_file, keys_of_set, secret_keys
from tests.tokens.evil_tokens import (
    NOW,
    OTHER_SECRET,
    SECRET,
    base64url,
    certificate,
    jwk,
    jwks,
    key_for,
    numbered,
    pem,
    private_key,
    private_pem,
    public_jwk,
    signature,
)

PUBLIC = ("RS256", "ES256", "EdDSA")


def der(private: Any, form: PublicFormat = PublicFormat.SubjectPublicKeyInfo) -> str:
    """The public key in base64, as it stands in PEM between its first line and its last."""
    return base64.b64encode(private.public_key().public_bytes(Encoding.DER, form)).decode()


def in_der(tag: int, size: int, more: int = 0, inside: int = 0x30) -> str:
    """A value of this size in DER, in base64, `more` bytes longer than it says; it begins with the tag `inside`."""
    number = size.to_bytes((size.bit_length() + 7) // 8, "big")
    length = number if size < 128 else bytes([0x80 + len(number)]) + number
    return base64.b64encode(bytes([tag]) + length + bytes([inside]) + bytes(size - 1 + more)).decode()


# Secrets.


@pytest.mark.parametrize(
    ("line", "kid", "until"),
    [
        (SECRET, "", math.inf),
        (f"  {SECRET}\t", "", math.inf),
        (f"one {SECRET}", "one", math.inf),
        (f"{SECRET} valid_until=2027-01-15T08:00:00Z", "", NOW),
        (f"one {SECRET} valid_until=2027-01-15T09:00:00+01:00", "one", NOW),
    ],
)
def test_secrets(line: str, kid: str, until: float) -> None:
    """A secret may have a name before it and an end behind it."""
    (key,) = secret_keys((line,))
    assert (key.algorithm, key.kid, key.valid_until) == ("HS256", kid, until)
    assert key.has_signed(b"x", signature(b"x", SECRET))
    assert not key.has_signed(b"x", signature(b"x", OTHER_SECRET))


BAD_SECRETS = [
    "",
    " \t",
    "short-secret",
    "valid_until=2027-01-15T08:00:00Z",  # on a line of its own: everybody could guess it
    "one valid_until=2027-01-15T08:00:00Z",
    f"one two {SECRET}",
    f"one {SECRET} valid_until=2027-01-15T08:00:00Z more",
    f"{SECRET} valid_until=",
    f"{SECRET} valid_until=tomorrow",
    f"{SECRET} valid_until=2027-01-15",
    f"{SECRET} valid_until=2027-01-15T08:00:00",
    f"{SECRET} valid_until={NOW}",
    f"{'k' * 256} {SECRET}",
    f"k\x07 {SECRET}",
    SECRET + "é",
    "ж" * 32,
    json.dumps(jwk("RS256"), separators=(",", ":")),
    json.dumps({"kty": "oct", "k": SECRET}, separators=(",", ":")),
    *[pem(key_for(each)).strip() for each in PUBLIC],
    *[der(key_for(each)) for each in PUBLIC],
    *[der(key_for(each)).rstrip("=") for each in PUBLIC],
    der(key_for("RS256"), PublicFormat.PKCS1),
    "".join(certificate(key_for("ES256")).splitlines()[1:-1]),
    *[in_der(0x30, size) for size in (30, 127, 128, 255, 256, 4000)],
]


SECRET_ERRORS = (
    "is not of the form KID SECRET", "is not valid; a secret has at least 32 ASCII", "is a public key or a certificate",
    "has a valid_until that is not a time", "has a name",
)  # fmt: skip


@pytest.mark.parametrize("line", numbered(BAD_SECRETS))
def test_what_is_no_secret(line: str) -> None:
    """The error says which of them it is, and shows no part of it.

    A public key is none, also without the lines around it, as some issuers show it: everybody could sign with it.
    """
    with pytest.raises(ValueError, match=f"^secret 2 of 2 ({'|'.join(SECRET_ERRORS)})") as error:
        secret_keys((OTHER_SECRET, line))
    shown = str(error.value)
    assert OTHER_SECRET not in shown
    assert SECRET not in shown
    assert not [word for word in line.split() if len(word) > 11 and word in shown]


def test_a_secret_that_stands_there_twice() -> None:
    """With two ends, it would depend on their order when tokens and what is held on them end; with one it may."""
    until = "valid_until=2027-01-15T08:00:00Z"
    for lines in ((f"old {SECRET} {until}", SECRET), (SECRET, f"{SECRET} {until}")):
        with pytest.raises(ValueError, match=r"^secret 3 of 3 stands there twice, with different ends"):
            secret_keys((OTHER_SECRET, *lines))
    assert [key.kid for key in secret_keys((f"old {SECRET}", f"new {SECRET}"))] == ["old", "new"]


@pytest.mark.parametrize(
    "secret",
    numbered(
        [
            "MA" + "x" * 40,
            "MCA" + "x" * 40,
            "MIIB" + "x" * 400,
            "MIIA" * 20,
            "MJY" + "A" * 29,
            base64url(bytes(32)),
            in_der(0x31, 100),
            in_der(0x2F, 100),
            in_der(0x30, 100, 1),
            in_der(0x30, 100, -1),
            in_der(0x30, 200, 1),
            in_der(0x30, 100, inside=0x31),
            in_der(0x30, 100)[:50] + "-" + in_der(0x30, 100)[50:],
        ]
    ),
)
def test_secrets_that_only_begin_like_public_keys(secret: str) -> None:
    """They are secrets as good as others: neither their length nor what comes next is that of a key."""
    (key,) = secret_keys((secret,))
    assert key.has_signed(b"x", signature(b"x", secret))


# Public keys.


def written(tmp_path: Path, text: str | bytes) -> str:
    file = tmp_path / "keys"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(file)


@pytest.mark.parametrize("form", [pem, certificate])
def test_pem_files(tmp_path: Path, form: Callable[[Any], str]) -> None:
    """Public keys and certificates, several in one file, with text around them; each is for one algorithm."""
    text = "".join(f"# {each}\n{form(key_for(each))}\n" for each in PUBLIC)
    keys = keys_of_file(written(tmp_path, text.replace("\n", "\r\n")))
    assert [key.algorithm for key in keys] == list(PUBLIC)
    for key, name in zip(keys, PUBLIC, strict=True):
        assert (key.kid, key.valid_until) == ("", math.inf)
        assert key.has_signed(b"x", signature(b"x", key_for(name)))
        assert not key.has_signed(b"y", signature(b"x", key_for(name)))
        assert not key.has_signed(b"x", signature(b"x", key_for(name, 1)))


UNSUPPORTED = """-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoEcz1UBgi0DQgAEAAAAAAAAAAAAAAAAAAAAAAAAAAAA
AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==
-----END PUBLIC KEY-----
"""
"""A key on the curve SM2, which the package cryptography does not have."""

GOOD = pem(key_for("ES256"))


@pytest.mark.parametrize(
    "text",
    numbered([
        "", "\n", "a secret", SECRET, GOOD[:-40], GOOD.replace("PUBLIC", "PUBLIX"), GOOD[28:],
        *[GOOD + private_pem(key_for(each)) for each in PUBLIC],
        private_pem(key_for("RS256")).replace("PRIVATE", "RSA PRIVATE"),
        private_pem(key_for("RS256")).replace("PRIVATE", "ENCRYPTED PRIVATE"),
        GOOD + "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n",
        GOOD + pem(private_key("RSA1024")), GOOD + pem(private_key("P-384")), GOOD + pem(private_key("Ed448")),
        GOOD + certificate(private_key("P-384")), GOOD + UNSUPPORTED,
        GOOD.replace("MFkw", "MFkx"), certificate(key_for("ES256")).replace("MII", "MIJ"),
        GOOD[: len(GOOD) // 2] + "\n" + GOOD, GOOD + GOOD[: len(GOOD) // 2],
    ]),
)  # fmt: skip
def test_pem_files_that_are_refused(tmp_path: Path, text: str) -> None:
    """One key in it that cannot be used refuses the file, and a private key does; the error names the file only."""
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match=r"contains|cannot") as error:
        keys_of_file(path)
    assert str(error.value).startswith(path)
    assert len(str(error.value)) < len(path) + 200
    assert ("contains a private key" in str(error.value)) == ("PRIVATE" in text)
    assert SECRET not in str(error.value)
    for line in text.splitlines():
        assert len(line) < 32 or line not in str(error.value)


def test_other_files(tmp_path: Path) -> None:
    """No file, a directory, no text, and more than a file with keys has."""
    assert keys_of_file("") == ()
    large = written(tmp_path, GOOD * 400)
    for path in (str(tmp_path), str(tmp_path / "missing"), large):
        with pytest.raises(SecretFileError):
            keys_of_file(path)
    with pytest.raises(SecretFileError):
        keys_of_file(written(tmp_path, b"\xff\xfe"))


# Sets of keys.


def test_sets_of_keys(tmp_path: Path) -> None:
    """In a file or from a URL, keys have names; each verifies what its private key signs."""
    data = jwks(*[jwk(each, kid=each, use="sig", alg=each, key_ops=["verify"], x5t="x") for each in PUBLIC])
    for keys in (keys_of_set(data), keys_of_file(written(tmp_path, b"\n " + data))):
        assert [(key.algorithm, key.kid) for key in keys] == [(each, each) for each in PUBLIC]
        assert all(key.has_signed(b"x", signature(b"x", key_for(key.algorithm))) for key in keys)


def test_sizes_and_names_at_their_borders() -> None:
    """A larger RSA key, the longest name, and a key without one."""
    keys = keys_of_set(jwks(public_jwk(private_key("RSA3072")), jwk("ES256", kid="x" * 255)))
    assert [(key.algorithm, key.kid) for key in keys] == [("RS256", ""), ("ES256", "x" * 255)]
    assert keys[0].has_signed(b"x", signature(b"x", private_key("RSA3072")))


ES256 = jwk("ES256")
BAD_KEYS: list[dict[str, Any]] = [
    {},
    {"kty": "oct", "k": base64url(SECRET)},
    {"kty": "oct", "k": base64url(SECRET), "alg": "RS256"},
    {**ES256, "d": base64url(bytes(31) + b"\x01")},
    {**jwk("RS256"), "d": base64url(SECRET)},
    {**jwk("EdDSA"), "d": base64url(SECRET)},
    {**ES256, "d": None},
    {**ES256, "alg": "HS256"},
    {**ES256, "alg": "none"},
    {**jwk("RS256"), "alg": "PS256"},
    {**ES256, "alg": None},
    {**ES256, "use": "enc"},
    {**ES256, "use": None},
    {**ES256, "key_ops": ["sign"]},
    {**ES256, "key_ops": "verify"},
    {**ES256, "kid": 1},
    {**ES256, "kid": None},
    {**ES256, "kid": "x" * 256},
    {**ES256, "kid": "x\n"},
    {**ES256, "x": 1},
    {**ES256, "x": ES256["x"] + "AA"},
    {**ES256, "y": None},
    {"kty": "EC", "crv": "P-256"},
    {**ES256, "kty": "RSA"},
    {**ES256, "kty": ["EC"]},
    public_jwk(private_key("P-384")),
    {**public_jwk(private_key("P-256K"))},
    public_jwk(private_key("Ed448")),
    public_jwk(private_key("RSA1024")),
    {**jwk("EdDSA"), "crv": "X25519"},
    {**jwk("EdDSA"), "x": "AA"},
    {**jwk("RS256"), "e": base64url(b"\x01")},
    {**jwk("RS256"), "e": ""},
    {**jwk("RS256"), "n": "A"},
    {**jwk("RS256"), "n": 65537},
]


@pytest.mark.parametrize("evil", numbered(BAD_KEYS))
def test_keys_in_sets_that_cannot_be_used(tmp_path: Path, evil: dict[str, Any]) -> None:
    """An issuer's are left out, for it publishes others as well; in the operator's own file they are a mistake."""
    data = jwks(evil, ES256)
    assert keys_of_set(data) == keys_of_set(jwks(ES256))
    with pytest.raises(ValueError, match="no key"):
        keys_of_set(jwks(evil))
    path = written(tmp_path, data)
    with pytest.raises(ValueError, match=r"contains|has a name") as error:
        keys_of_file(path)
    assert str(error.value).startswith(path)
    assert ("contains a private key" in str(error.value)) == ("d" in evil)
    assert ("write secrets to token_secrets" in str(error.value)) == (evil.get("kty") not in ("RSA", "EC", "OKP"))
    for secret in (SECRET, base64url(SECRET)):
        assert secret not in str(error.value)


@pytest.mark.parametrize(
    "data",
    numbered([
        b"", b"null", b"[]", b"{}", b'{"keys": []}', b'{"keys": {}}', b'{"keys": [1]}', b'{"keys": null}', b"\xff\xfe",
        b"<html></html>", json.dumps(ES256).encode(), jwks(ES256)[:-1], b'{"keys": ' + b"[" * 20000,
        b'{"keys": [{"kty": "EC", "x": ' + b"[" * 20000, b'{"keys": [{"kty": "EC", "x": ' + b"9" * 20000 + b"}]}",
        jwks(ES256).decode().encode("utf-16"), jwks(*[ES256] * (KEYS_LIMIT + 1)),
    ]),
)  # fmt: skip
def test_what_is_no_set_of_keys(data: bytes) -> None:
    """It is an error that says so, however deep or long it is. One with as many keys as may be is good."""
    with pytest.raises(ValueError, match=r"contains|is not a set of keys"):
        keys_of_set(data)
    assert len(keys_of_set(jwks(*[ES256] * KEYS_LIMIT))) == KEYS_LIMIT


def test_a_deep_key_is_no_unexpected_error() -> None:
    """Also where the stack just suffices to read it once: writing it for PyJWT takes a little more."""
    for depth in range(800, 1000):
        deep = b'{"keys": [{"kty": "EC", "x": ' + b"[" * depth + b"]" * depth + b"}]}"
        with pytest.raises(ValueError, match=r"contains no key|is not a set of keys"):
            keys_of_set(deep)
