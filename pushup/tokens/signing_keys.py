"""The keys that tokens are signed with: secrets, PEM files, and sets of keys in JSON (RFC 7517).

Each key is for one algorithm, which is chosen when the key is read and never by a token (RFC 8725 §3.1). So a token
cannot have a public key taken for a secret, or no signature for a good one.
"""

from __future__ import annotations

import binascii
import json
import math
import re
from base64 import b64decode
from datetime import datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from jwt.algorithms import Algorithm, get_default_algorithms
from jwt.exceptions import PyJWTError
from msgspec import DecodeError, Struct
from msgspec import json as msgspec_json

from pushup.secret_files import read_text

MIN_SECRET_BYTES = 32
"""Of a secret for HS256: as long as its hash (RFC 7518 §3.2)."""

MIN_RSA_BITS = 2048
"""RFC 7518 §3.3."""

KEYS_LIMIT = 100
"""Keys of one issuer. A token that names none is tried with each of its algorithm."""

KEY_ID_LIMIT = 255
"""Characters of the name of a key (`kid`)."""

_ALGORITHM_OF_TYPE = {"RSA": "RS256", "EC": "ES256", "OKP": "EdDSA"}
"""By the type of a key in JSON (`kty`)."""

PUBLIC_ALGORITHMS = frozenset(_ALGORITHM_OF_TYPE.values())
"""Those of public keys."""

_UNTIL = "valid_until="

_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)


class SigningKey(Struct, frozen=True):
    """One key, for one algorithm."""

    algorithm: str
    key: Any
    """What PyJWT verifies with."""
    kid: str = ""
    """Its name; empty: it has none, and may be that of any token."""
    valid_until: float = math.inf
    """Seconds since the epoch, exclusive."""
    fingerprint: str = ""
    """Of the key alone, without its name and its end."""

    def may_be_of(self, algorithm: str, kid: str, now: float) -> bool:
        """Whether a token with this header may be signed with it."""
        is_named = not self.kid or not kid or self.kid == kid
        return is_named and self.algorithm == algorithm and now < self.valid_until

    def has_signed(self, signed: bytes, signature: bytes) -> bool:
        """Whether this is its signature of these bytes. A token's header is not looked at: it was read already."""
        return _algorithm(self.algorithm).verify(signed, self.key, signature)


# Secrets.


def secret_keys(lines: tuple[str, ...]) -> tuple[SigningKey, ...]:
    """Secrets for HS256, each as `SECRET`, or `KID SECRET`; `valid_until=2027-01-31T12:00:00Z` may follow.

    Raises: ValueError, whose text does not contain the secret.
    """
    found = []
    ends: dict[str, float] = {}
    for number, line in enumerate(lines, 1):
        try:
            key = _secret_key(line)
            if ends.setdefault(key.fingerprint, key.valid_until) != key.valid_until:
                raise ValueError("stands there twice, with different ends; remove one of them")
            found.append(key)
        except ValueError as error:
            raise ValueError(f"secret {number} of {len(lines)} {error}") from None
    return tuple(found)


def _secret_key(line: str) -> SigningKey:
    words = line.split()
    until = math.inf
    if words and words[-1].startswith(_UNTIL):
        until = _time(words.pop().removeprefix(_UNTIL))
    if len(words) not in (1, 2):
        raise ValueError("is not of the form KID SECRET valid_until=TIME, where KID and valid_until may be left out")
    kid, secret = words if len(words) == 2 else ("", words[0])
    if len(secret) < MIN_SECRET_BYTES or not secret.isascii():
        raise ValueError(f"is not valid; a secret has at least {MIN_SECRET_BYTES} ASCII characters, best random ones")
    if _is_public(secret):
        raise ValueError("is a public key or a certificate, which everybody may know; write it to token_keys_file")
    return SigningKey("HS256", secret.encode(), _checked_kid(kid), until, _fingerprint(secret.encode()))


def _is_public(secret: str) -> bool:
    """Whether this is a key in JSON, or the text of one in PEM without its first and last line, as some issuers show
    it. Whoever knows it could sign tokens if it were a secret.
    """
    if secret.startswith("{"):
        return True
    try:
        return _is_der(b64decode(secret + "=" * (-len(secret) % 4), validate=True))
    except binascii.Error:
        return False


def _is_der(data: bytes) -> bool:
    """Whether this is a public key or a certificate in DER (X.690 §8.1): a SEQUENCE that begins with a SEQUENCE, or
    with a number. One random secret in millions is as well.
    """
    start = 2 if data[1] < 0x80 else 2 + (data[1] & 0x7F)
    length = data[1] if start == 2 else int.from_bytes(data[2:start], "big")
    return data[0] == 0x30 and start + length == len(data) and data[start : start + 1] in (b"\x02", b"\x30")


def _time(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError("has a valid_until that is not a time with its zone, such as 2027-01-31T12:00:00Z")
    return moment.timestamp()


# Public keys.


def keys_of_file(path: str) -> tuple[SigningKey, ...]:
    """The public keys and certificates in PEM, or the set of keys in JSON, in this file; none if the path is empty.

    Raises: ValueError.
    """
    if not path:
        return ()
    text = read_text(Path(path))
    try:
        return keys_of_set(text.encode(), is_own=True) if text.lstrip().startswith("{") else _pem_keys(text)
    except ValueError as error:
        raise ValueError(f"{path} {error}") from None


def _pem_keys(text: str) -> tuple[SigningKey, ...]:
    """Raises: ValueError."""
    blocks = [(match[1], match[0]) for match in _PEM.finditer(text)]
    if len(blocks) < text.count("-----BEGIN "):
        raise ValueError("contains a key whose last line (-----END ...-----) is missing; is the file complete?")
    if not blocks:
        raise ValueError("contains neither a public key in PEM (-----BEGIN PUBLIC KEY-----) nor a set of keys in JSON")
    return tuple([_pem_key(kind, block.encode()) for kind, block in blocks])


def _pem_key(kind: str, block: bytes) -> SigningKey:
    _need_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from cryptography.x509 import load_pem_x509_certificate

    if "PRIVATE" in kind:
        raise ValueError("contains a private key; PushUp only verifies tokens: give it the public key, and keep this")
    try:
        key = load_pem_x509_certificate(block).public_key() if kind == "CERTIFICATE" else load_pem_public_key(block)
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError(f"contains a {kind} that cannot be read") from None
    return _public_key(key)


def _public_key(key: Any, kid: str = "") -> SigningKey:
    """Raises: ValueError if no algorithm is for this key."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < MIN_RSA_BITS:
            raise ValueError(f"contains an RSA key of {key.key_size} bits; it needs at least {MIN_RSA_BITS}")
        algorithm = "RS256"
    elif isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1):
        algorithm = "ES256"
    elif isinstance(key, ed25519.Ed25519PublicKey):
        algorithm = "EdDSA"
    else:
        raise ValueError("contains a key for another algorithm than RS256, ES256 (P-256) and EdDSA (Ed25519)")
    fingerprint = _fingerprint(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    return SigningKey(algorithm, key, kid, fingerprint=fingerprint)


def _fingerprint(key: bytes) -> str:
    return sha256(key).hexdigest()


class _KeySet(Struct):
    keys: list[dict[str, Any]]


def keys_of_set(data: bytes, *, is_own: bool = False) -> tuple[SigningKey, ...]:
    """The keys for signatures in a set of keys in JSON (RFC 7517).

    Issuers publish keys for other purposes and algorithms in one set: those are left out. But in a file of the
    operator's own (`is_own`) each must be one for signatures.
    Raises: ValueError.
    """
    _need_cryptography()
    try:
        keys = msgspec_json.decode(data, type=_KeySet).keys
    except (DecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError('is not a set of keys in JSON: {"keys": [{"kty": ...}, ...]}') from None
    if len(keys) > KEYS_LIMIT:
        raise ValueError(f"contains {len(keys)} keys, and may contain at most {KEYS_LIMIT}")
    found = []
    for key in keys:
        try:
            found.append(_key_of_json(key))
        except ValueError:
            if is_own:
                raise
    if not found:
        raise ValueError("contains no key for RS256, ES256 or EdDSA")
    return tuple(found)


def _key_of_json(key: dict[str, Any]) -> SigningKey:
    """Raises: ValueError."""
    algorithm = _ALGORITHM_OF_TYPE.get(str(key.get("kty")), "")
    if not algorithm:
        raise ValueError("contains a key whose `kty` is not RSA, EC or OKP; write secrets to token_secrets")
    if "d" in key:
        raise ValueError("contains a private key; PushUp only verifies tokens: give it the public key, and keep this")
    uses = key.get("key_ops", ["verify"])
    if key.get("use", "sig") != "sig" or not isinstance(uses, list) or "verify" not in uses:
        raise ValueError("contains a key that is not for signatures (`use`, `key_ops`)")
    if key.get("alg", algorithm) != algorithm:
        raise ValueError(f"contains a key for {key['alg']!r}; with `kty` {key['kty']} it must be {algorithm}")
    kid = _checked_kid(key.get("kid", ""))
    try:
        found = _algorithm(algorithm).from_jwk(json.dumps(key))
    except (PyJWTError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"contains a key that cannot be read: {error}") from None
    return _public_key(found, kid)


def _checked_kid(kid: object) -> str:
    if not isinstance(kid, str) or len(kid) > KEY_ID_LIMIT or not kid.isprintable():
        raise ValueError(f"has a name (`kid`) that is not text of at most {KEY_ID_LIMIT} characters")
    return kid


@cache
def _algorithm(name: str) -> Algorithm:
    return get_default_algorithms()[name]


def _need_cryptography() -> None:
    if "RS256" not in get_default_algorithms():
        raise ValueError("contains public keys, which need the extra packages: pip install '.[tls]' in a checkout")
