"""JSON Web Token Best Current Practices (RFC 8725), section 3, point by point.

| point | here |
|---|---|
| 3.1 perform algorithm verification | a key is for one algorithm, whatever the header says |
| 3.2 use appropriate algorithms | HS256, RS256, ES256 and EdDSA; no others, and never `none` |
| 3.3 validate all cryptographic operations | whichever part was changed, the signature is not valid |
| 3.4 validate cryptographic inputs | a point that is not on its curve is no key |
| 3.5 ensure cryptographic keys have sufficient entropy | secrets of 32 characters, RSA keys of 2048 bits |
| 3.6 avoid compression of encryption inputs | nothing is decompressed |
| 3.7 use UTF-8 | header and claims are UTF-8, and nothing else |
| 3.8 validate issuer and subject | an issuer has its own keys |
| 3.9 use and validate audience | `aud` is required |
| 3.10 do not trust received claims | no key, URL or file comes from a token |
| 3.11 use explicit typing | `typ` is JWT or at+jwt, or missing |
| 3.12 use mutually exclusive validation rules | ID tokens have another `typ` or `aud`, and no `pushup` |
"""

from __future__ import annotations

import json
import zlib
from itertools import permutations

import pytest

from pushup.core.errors import InvalidToken
from pushup.tokens.signing_keys import keys_of_set, secret_keys
from pushup.tokens.verifier import Verifier
from tests.tokens.evil_tokens import (
    ISSUER,
    NOW,
    SECRET,
    accept,
    base64url,
    claims,
    issuer,
    jwk,
    jwks,
    key,
    key_for,
    private_key,
    public_jwk,
    signature,
    token,
    write,
)

ALGORITHMS = ("HS256", "RS256", "ES256", "EdDSA")


@pytest.mark.parametrize(("real", "said"), list(permutations(ALGORITHMS, 2)))
def test_3_1_the_key_says_which_algorithm_and_not_the_token(real: str, said: str) -> None:
    """A key signs with its own algorithm only, also if there is a key for the one that the header names."""
    evil = write({"alg": said, "typ": "JWT"}, claims(), key_for(real))
    for known in ([key(real)], [key(said, 1)], [key(real), key(said, 1)]):
        with pytest.raises(InvalidToken):
            accept(evil, *known)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_3_2_these_algorithms_are_accepted(algorithm: str) -> None:
    """The control of all that follows: a token that is signed as it should be is accepted."""
    assert accept(token(algorithm), key(algorithm)).allows("read", ("user:7",))


@pytest.mark.parametrize(
    "alg",
    [
        "none", "None", "NONE", "nOnE", "none ", " none", "none\x00", "n\u043ene", "", None, 0, False, [],
        ["HS256"], {}, "hs256", "Hs256", "HS256 ", "HS384", "HS512", "RS384", "RS512", "PS256", "ES384",
        "ES512", "ES256K", "Ed25519",
        "Ed448", "dir", "A128GCM", "RSA-OAEP", "PBES2-HS256+A128KW",
    ],
)  # fmt: skip
def test_3_2_no_other_algorithm_is_accepted(alg: object) -> None:
    """Nor none, in whatever way it is written, with a signature, without one, or with that of another token."""
    header = {"alg": alg, "typ": "JWT"} if alg is not None else {"typ": "JWT"}
    good = token()
    unsigned = f"{write(header, claims(), SECRET).rpartition('.')[0]}."
    for evil in (write(header, claims(), SECRET), unsigned, unsigned + good.rpartition(".")[2], unsigned[:-1]):
        with pytest.raises(InvalidToken):
            accept(evil, *[key(each) for each in ALGORITHMS])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_3_3_every_byte_is_signed(algorithm: str) -> None:
    """A part of another good token, no signature, and a signature of another length are refused."""
    good, other = token(algorithm).split("."), token(algorithm, sub="8").split(".")
    known = key(algorithm)
    accept(".".join(good), known)
    accept(".".join(other), known)
    for evil in (
        [good[0], other[1], good[2]],
        [good[0], good[1], other[2]],
        [base64url('{"typ":"JWT","alg":"' + algorithm + '"}'), good[1], good[2]],
        [good[0], good[1], ""],
        [good[0], good[1], good[2][:-4]],
        [good[0], good[1], good[2] + "AAAA"],
        [good[0], good[1], base64url(bytes(64))],
    ):
        with pytest.raises(InvalidToken):
            accept(".".join(evil), known)


def test_3_3_a_signature_of_zeros() -> None:
    """For ES256, r = s = 0 was once valid for everything (CVE-2022-21449), as was s = 0 with r = 1."""
    unsigned = token("ES256").rpartition(".")[0]
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    for r, s in ((0, 0), (0, 1), (1, 0), (order, order), (1, order), (order, 1)):
        with pytest.raises(InvalidToken):
            accept(f"{unsigned}.{base64url(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}", key("ES256"))


def test_3_4_a_point_must_be_on_its_curve() -> None:
    """Of a set of keys, those with such a point are left out; if there is no other, the set is refused."""
    good = jwk("ES256")
    off = {**good, "y": good["x"]}
    assert keys_of_set(jwks(off, good)) == keys_of_set(jwks(good))
    for alone in (off, {**good, "x": base64url(bytes(32)), "y": base64url(bytes(32))}, {**good, "crv": "P-384"}):
        with pytest.raises(ValueError, match="no key"):
            keys_of_set(jwks(alone))


def test_3_5_keys_that_can_be_guessed_are_refused() -> None:
    """A short secret and a short RSA key, and an exponent with which anybody can sign."""
    with pytest.raises(ValueError, match="at least 32"):
        secret_keys(("x" * 31,))
    for weak in (public_jwk(private_key("RSA1024")), {**jwk("RS256"), "e": base64url(b"\x01")}):
        with pytest.raises(ValueError, match="no key"):
            keys_of_set(jwks(weak))


def test_3_6_nothing_is_decompressed() -> None:
    """Claims that are compressed (`zip`) are not JSON, and an encrypted token has five parts."""
    compressed = zlib.compress(b'{"iss": "' + ISSUER.encode() + b'"}')
    for evil in (write({"alg": "HS256", "zip": "DEF"}, compressed, SECRET), f"{token()}.e30.e30"):
        with pytest.raises(InvalidToken):
            accept(evil)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32-be", "latin-1", "utf-8-sig"])
def test_3_7_header_and_claims_are_utf8(encoding: str) -> None:
    """Python's JSON would guess UTF-16 and UTF-32."""
    for part in (0, 1):
        parts = [json.dumps({"alg": "HS256", "typ": "JWT"}), json.dumps(claims(sub="Zoë"), ensure_ascii=False)]
        encoded = [each.encode(encoding if place == part else "utf-8") for place, each in enumerate(parts)]
        if encoded[part] == parts[part].encode():
            continue  # the header in Latin-1 and UTF-7 is the same bytes
        signed = ".".join(map(base64url, encoded))
        with pytest.raises(InvalidToken):
            accept(f"{signed}.{base64url(signature(signed.encode(), SECRET))}")


OTHER_ISSUER = "https://other.example"


@pytest.mark.parametrize(
    "iss",
    [
        OTHER_ISSUER, ISSUER + "/", ISSUER.upper(), "HTTPS://app.example", " " + ISSUER, ISSUER + "\x00", "app.example",
        "https://app.example.evil.example", "https://app.ex\u0430mple", "", None, [ISSUER], {"iss": ISSUER}, 0, True,
    ],
)  # fmt: skip
def test_3_8_an_issuer_signs_only_for_itself(iss: object) -> None:
    """Its key is no good with another's `iss`, which is compared as it is written; nor is another's with its own."""
    issuers = [issuer(key("HS256")), issuer(key("HS256", 1), name=OTHER_ISSUER)]
    verifier = Verifier(issuers, lambda: NOW)
    assert verifier.grant(token()).subject == "7"
    for evil in (token(iss=iss), token(number=1)):
        with pytest.raises(InvalidToken):
            verifier.grant(evil)


@pytest.mark.parametrize(
    "aud",
    [
        None, "", "Pushup", "pushup ", "pushup2", "push", ["other"], [], [["pushup"]], {"pushup": 1}, 1, True,
        ["pushup", 1], ["pushup", None], "other pushup", "other,pushup", "*",
    ],
)  # fmt: skip
def test_3_9_a_token_for_another_audience_is_refused(aud: object) -> None:
    """It is text or a list of texts, and contains this server's exactly as it is set."""
    with pytest.raises(InvalidToken, match="audience"):
        accept(token(aud=aud))
    assert accept(token(aud=["other", "pushup"])).subject == "7"


@pytest.mark.parametrize(
    "more",
    [
        {"jwk": public_jwk(private_key("RSA", 1))},
        {"jku": "https://evil.example/jwks.json"},
        {"x5u": "https://evil.example/cert.pem"},
        {"x5c": ["MIIB"]},
        {"kid": "../../../../dev/null"},
        {"kid": "/proc/self/environ"},
        {"kid": "' UNION SELECT 'secret"},
        {"kid": "http://evil.example/key"},
        {"kid": "k" * 4000},
    ],
)
def test_3_10_no_key_comes_from_a_token(more: dict[str, object]) -> None:
    """What it says about keys in its header is ignored, but for the name of one that is known."""
    header = {"alg": "RS256", "typ": "JWT", **more}
    with pytest.raises(InvalidToken):
        accept(write(header, claims(), private_key("RSA", 1)), key("RS256", kid="one"))
    if "kid" not in more:  # the rest changes nothing for a token that is signed as it should be
        assert accept(write(header, claims(), private_key("RSA")), key("RS256")).subject == "7"


@pytest.mark.parametrize("typ", ["JWT", "jwt", "at+jwt", "application/at+JWT", "application/jwt", None])
def test_3_11_a_token_says_what_it_is(typ: str | None) -> None:
    """JWT, an access token (RFC 9068), or nothing."""
    assert accept(write({"alg": "HS256"} | ({"typ": typ} if typ else {}), claims(), SECRET)).subject == "7"


@pytest.mark.parametrize(
    "typ",
    [
        "logout+jwt", "secevent+jwt", "dpop+jwt", "JOSE", "JWE", "id_token", "", "jwt ", "application/application/jwt",
        "text/jwt", ["JWT"], None, 1, {},
    ],
)  # fmt: skip
def test_3_11_and_other_kinds_of_token_are_refused(typ: object) -> None:
    """A token that an issuer signs for another purpose has another `typ` (RFC 9449, RFC 8417)."""
    with pytest.raises(InvalidToken):
        accept(write({"alg": "HS256", "typ": typ}, claims(), SECRET))


def test_3_12_an_id_token_gives_no_rights() -> None:
    """OpenID Connect's have the client as `aud`, and no claim with rights; a nested token is no claims."""
    with pytest.raises(InvalidToken):
        accept(token(aud="client-id", nonce="n", pushup=None))
    assert not accept(token(nonce="n", pushup=None)).rights
    with pytest.raises(InvalidToken):
        accept(write({"alg": "HS256", "cty": "JWT"}, token(), SECRET))
