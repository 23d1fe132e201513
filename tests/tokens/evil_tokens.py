"""Writes tokens, good ones and others: each part is whatever a test wants it to be. Nothing here is the product's."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

from pushup.core.grant import Grant
from pushup.tokens.claims import Expected
from pushup.tokens.signing_keys import SigningKey, keys_of_set, secret_keys
from pushup.tokens.verifier import Issuer, Verifier

NOW = 1_800_000_000
ISSUER = "https://app.example"
SECRET = "a-secret-of-at-least-32-characters"
OTHER_SECRET = "another-secret-of-32-characters-x"

Private = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey


def base64url(data: bytes | str) -> str:
    return base64.urlsafe_b64encode(data.encode() if isinstance(data, str) else data).rstrip(b"=").decode()


def private_key(kind: str, number: int = 0) -> Any:
    """A key pair of this kind, each `number` another one."""
    return _private_key(kind, number)


@cache
def _private_key(kind: str, number: int) -> Any:
    if kind.startswith("RSA"):
        return rsa.generate_private_key(65537, int(kind.removeprefix("RSA") or 2048))
    if kind == "Ed448":
        return ed448.Ed448PrivateKey.generate()
    if kind == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    curves = {"ES256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-256K": ec.SECP256K1()}
    return ec.generate_private_key(curves[kind])


def key_for(algorithm: str, number: int = 0) -> Any:
    """What signs with this algorithm."""
    if algorithm == "HS256":
        return (SECRET, OTHER_SECRET)[number]
    return private_key("RSA" if algorithm == "RS256" else algorithm, number)


def signature(signed: bytes, key: Any) -> bytes:
    """A signature of these bytes: with HMAC if the key is text or bytes."""
    if isinstance(key, str | bytes):
        return hmac.new(key.encode() if isinstance(key, str) else key, signed, hashlib.sha256).digest()
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(signed, padding.PKCS1v15(), SHA256())
    if isinstance(key, ec.EllipticCurvePrivateKey):
        size = (key.key_size + 7) // 8
        return b"".join(n.to_bytes(size, "big") for n in decode_dss_signature(key.sign(signed, ec.ECDSA(SHA256()))))
    signed_by: bytes = key.sign(signed)
    return signed_by


def write(header: str | bytes | dict[str, Any], claims: str | bytes | dict[str, Any], key: Any) -> str:
    """A token; a header or claims that are text are written as they are."""
    parts = [base64url(part if isinstance(part, str | bytes) else json.dumps(part)) for part in (header, claims)]
    signed = ".".join(parts)
    return f"{signed}.{base64url(signature(signed.encode(), key))}"


def claims(**others: Any) -> dict[str, Any]:
    """Good claims, but for the `others`; None leaves one out."""
    good = {
        "iss": ISSUER, "aud": "pushup", "iat": NOW - 60, "exp": NOW + 300, "sub": "7", "pushup": {"poll": ["user:7"]},
    }  # fmt: skip
    return {name: value for name, value in {**good, **others}.items() if value is not None}


def token(algorithm: str = "HS256", number: int = 0, kid: str = "", **others: Any) -> str:
    """A token that is good for who has this key."""
    header = {"alg": algorithm, "typ": "JWT"} | ({"kid": kid} if kid else {})
    return write(header, claims(**others), key_for(algorithm, number))


def jwk(algorithm: str, number: int = 0, **others: Any) -> dict[str, Any]:
    """The public key, as a set of keys contains it (RFC 7518 §6, RFC 8037)."""
    return {**public_jwk(key_for(algorithm, number)), **others}


def public_jwk(private: Any) -> dict[str, Any]:
    public = private.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        numbers = public.public_numbers()
        return {"kty": "RSA", "n": _number(numbers.n), "e": _number(numbers.e)}
    if isinstance(public, ec.EllipticCurvePublicKey):
        point = public.public_numbers()
        size = (public.key_size + 7) // 8
        name = {"secp256r1": "P-256", "secp384r1": "P-384", "secp256k1": "secp256k1"}[public.curve.name]
        return {"kty": "EC", "crv": name} | {
            axis: base64url(value.to_bytes(size, "big")) for axis, value in (("x", point.x), ("y", point.y))
        }
    name = "Ed25519" if isinstance(public, ed25519.Ed25519PublicKey) else "Ed448"
    return {"kty": "OKP", "crv": name, "x": base64url(public.public_bytes(Encoding.Raw, PublicFormat.Raw))}


def _number(value: int) -> str:
    return base64url(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def jwks(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def pem(private: Private) -> str:
    return private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def private_pem(private: Private) -> str:
    return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def certificate(private: Private) -> str:
    """A certificate of this key, by itself."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "app.example")])
    builder = x509.CertificateBuilder(name, name, private.public_key(), 1)
    builder = builder.not_valid_before(datetime(2026, 1, 1, tzinfo=UTC)).not_valid_after(
        datetime(2036, 1, 1, tzinfo=UTC)
    )
    signs_with = None if isinstance(private, ed25519.Ed25519PrivateKey) else SHA256()
    return builder.sign(private, signs_with).public_bytes(Encoding.PEM).decode()


def key(algorithm: str, number: int = 0, kid: str = "", valid_until: float | None = None) -> SigningKey:
    """The key as the product keeps it."""
    if algorithm == "HS256":
        (found,) = secret_keys((f"{kid} {key_for('HS256', number)}",))
    else:
        (found,) = keys_of_set(jwks(jwk(algorithm, number, **({"kid": kid} if kid else {}))))
    if valid_until is None:
        return found
    return SigningKey(found.algorithm, found.key, found.kid, valid_until)


def issuer(*keys: SigningKey, name: str = ISSUER, **expected: Any) -> Issuer:
    return Issuer(name, Expected(**{"audience": "pushup"} | expected), keys)


def numbered(values: Iterable[Any]) -> list[Any]:
    """The parameters of a test, by number: processes that share the tests do not share the keys in their texts."""
    return [pytest.param(value, id=str(number)) for number, value in enumerate(values)]


class Now:
    """The time, which a test can change."""

    def __init__(self, seconds: float = NOW) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds


def accept(text: str, *keys: SigningKey, now: float = NOW, **expected: Any) -> Grant:
    """What the token allows, by a verifier that knows these keys. Raises: as `Verifier.grant`."""
    return Verifier([issuer(*(keys or (key("HS256"),)), **expected)], lambda: now).grant(text)
