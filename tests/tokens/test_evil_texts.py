"""Texts that look like tokens: key confusion, headers, sizes, nesting, duplicates, base64, and every small change."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import example, given
from hypothesis import strategies as st

from pushup.core.errors import InvalidToken
from pushup.core.grant import Grant
from pushup.tokens.verifier import TOKEN_LIMIT_BYTES
from tests.tokens.evil_tokens import (
    SECRET,
    accept,
    base64url,
    claims,
    jwk,
    key,
    pem,
    private_key,
    signature,
    token,
    write,
)

CLAIMS = json.dumps(claims())
HEADER = '{"alg":"HS256","typ":"JWT"}'
PUBLIC = {"RS256": "RSA", "ES256": "ES256", "EdDSA": "EdDSA"}


def refused(text: str, *keys: Any) -> str:
    """Why the token is refused."""
    with pytest.raises(InvalidToken) as error:
        accept(text, *keys)
    assert len(error.value.detail) < 400
    return error.value.detail


@pytest.mark.parametrize("algorithm", PUBLIC)
@pytest.mark.parametrize("kid", ["", "one"])
def test_a_public_key_is_no_secret(algorithm: str, kid: str) -> None:
    """Everybody knows the issuer's public key: in whatever form it is used as an HMAC secret, it signs nothing."""
    public = private_key(PUBLIC[algorithm]).public_key()
    known = jwk(algorithm)
    secrets = [
        pem(private_key(PUBLIC[algorithm])),
        pem(private_key(PUBLIC[algorithm])).strip(),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        json.dumps(known),
        json.dumps(known, separators=(",", ":")),
        known.get("n", known.get("x")),
        "", "\x00", "null",
    ]  # fmt: skip
    for secret in secrets:
        for alg in ("HS256", algorithm):
            header = {"alg": alg} | ({"kid": kid} if kid else {})
            assert refused(write(header, claims(), secret or b""), key(algorithm, kid=kid))
            assert refused(write(header, claims(), secret or b""), key(algorithm, kid=kid), key("HS256"))


@pytest.mark.parametrize(
    "more",
    [
        '"crit":[]', '"crit":["exp"]', '"crit":["b64"],"b64":true', '"crit":null', '"b64":false', '"b64":true',
        '"kid":null', '"kid":1', '"kid":["one"]', '"kid":{"a":1}', '"typ":null', '"alg":"HS256"', '"alg":"none"',
        '"typ":"JWT"', '"x":{"a":1,"a":2}', '"x":[[{"b":{"c":1,"c":1}}]]', '"x":NaN', '"x":Infinity', '"x":-Infinity',
        '"\\u0061lg":"none"', '"x":' + "9" * 5000, '"x":"\n"', "x:1", '"x":1,', '"x":01', '"x":.5', '"x":\'a\'',
    ],
)  # fmt: skip
def test_headers_that_are_refused(more: str) -> None:
    """Extensions that must be understood, members that stand there twice, at any depth, and what is not JSON."""
    assert refused(write('{"alg":"HS256","typ":"JWT",' + more + "}", CLAIMS, SECRET))


@pytest.mark.parametrize(
    "header", ["", "{}", "[]", "null", '"HS256"', "1", "{", HEADER * 2, HEADER + "x", "\ufeff" + HEADER]
)
def test_headers_that_are_no_object(header: str) -> None:
    """They are refused as any other."""
    assert refused(write(header, CLAIMS, SECRET))


@pytest.mark.parametrize(
    "more",
    [
        '"sub":"8"', '"exp":1900000000', '"\\u0073ub":"8"', '"pushup":{"poll":["*"]}', '"x":{"y":1,"y":1}',
        '"x":[{"y":[{"z":1,"z":2}]}]', '"x":NaN', '"x":-Infinity', '"x":' + "1" * 4400,
    ],
)  # fmt: skip
def test_claims_that_stand_there_twice(more: str) -> None:
    """Parsers differ in which they take. So they are refused, however they are written, and so is what is no JSON."""
    assert refused(write(HEADER, CLAIMS[:-1] + "," + more + "}", SECRET))
    assert refused(write(HEADER, "{" + more + "," + CLAIMS[1:], SECRET))


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", f"[{CLAIMS}]", CLAIMS * 2, CLAIMS[:-1], "\ufeff" + CLAIMS])
def test_claims_that_are_no_object(text: str) -> None:
    """They are refused as any other."""
    assert refused(write(HEADER, text, SECRET))


@pytest.mark.parametrize("depth", [*range(20, 2200, 97), *range(930, 1000)])
def test_deep_nesting_is_no_unexpected_error(depth: int) -> None:
    """However deep a part is, also where the stack just ends: it is refused, or what is nested is ignored."""
    nested = "[" * depth + "]" * depth
    for evil in (
        write('{"alg":"HS256","x":' + nested + "}", CLAIMS, SECRET),
        write('{"alg":"HS256","x":' + nested + "}", CLAIMS, "not the key"),
        write(HEADER, CLAIMS[:-1] + ',"x":' + nested + "}", SECRET),
        write(HEADER, CLAIMS[:-1] + ',"x":' + nested[:depth], SECRET),
    ):
        with suppress(InvalidToken):
            accept(evil)


def test_the_longest_token() -> None:
    """At the limit it is accepted, and a byte more is refused before anything is read."""
    texts = [
        write(HEADER + " " * spaces, claims(pad="x" * n), SECRET) for spaces in range(3) for n in range(4350, 4480)
    ]
    assert {TOKEN_LIMIT_BYTES, TOKEN_LIMIT_BYTES + 1} <= set(map(len, texts))
    for text in texts:
        if len(text) <= TOKEN_LIMIT_BYTES:
            assert accept(text).subject == "7"
        else:
            assert "longer" in refused(text)
    assert "longer" in refused("x" * 10**6)
    assert "longer" in refused("é" * 10**6)


GOOD = token()


@pytest.mark.parametrize(
    "text",
    [
        "", ".", "..", "...", "a", "a.b", "a.b.c.d", "=.=.=", GOOD + "=", GOOD + "==", GOOD + "\n", "\n" + GOOD,
        GOOD + " ", " " + GOOD, GOOD.replace(".", ". "), GOOD.replace(".", "=."), GOOD.replace(".", ".."),
        GOOD + ".", "." + GOOD,
        GOOD.replace(".", ".A", 1), GOOD.replace("e", "\u0435", 1), GOOD.replace("e", "\uff45", 1), GOOD + "\x00",
        GOOD + "\udcff", "\ud800", GOOD + "\u200b", GOOD.replace(".", "\u3002"), f"Bearer {GOOD}", f'"{GOOD}"',
        GOOD.replace("-", "+").replace("_", "/") + "+", "%" + GOOD, GOOD.replace(".", "%2E"), "ё.ё.ё", "eyJ.eyJ.eyJ",
    ],
)  # fmt: skip
def test_texts_that_are_no_tokens(text: str) -> None:
    """Padding, white space, other alphabets, dots and characters are refused, and are no unexpected error."""
    assert refused(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a.b", "three parts"),
        ("A.AA.AA", "the token's header is not in base64url"),
        (f"{GOOD.split('.')[0]}.A.AA", "what the token says is not in base64url"),
        (f"{GOOD.rpartition('.')[0]}.A", "signature is not in base64url"),
        (token(number=1), "signature is not valid"),
        (token(kid="two"), "`kid` is 'two', and there is no key with this name here, or it has expired"),
        (write({"alg": "PS256", "kid": "x"}, claims(), SECRET), "`alg` is 'PS256', and there is no key for it here"),
        (write({"alg": "x" * 99}, claims(), SECRET), f"`alg` is {'x' * 40!r}, and"),
        (token(kid="x" * 99), f"`kid` is {'x' * 40!r}, and"),
        (token(iss="https://other.example"), "`iss` is not one"),
        (token(aud="x"), "must be or contain 'pushup'"),
    ],
)
def test_errors_say_what_is_wrong(text: str, says: str) -> None:
    """To developers whose tokens are refused."""
    assert says in refused(text, key("HS256", kid="one"))


ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@pytest.mark.parametrize("algorithm", ["HS256", "RS256", "ES256", "EdDSA"])
def test_a_token_has_one_text(algorithm: str) -> None:
    """The last character of a part may have bits that count for nothing; all of them must be 0."""
    known = key(algorithm)
    # An "8" at the end is 60 in base64url, and the "-" with more bits comes before it in ASCII.
    good = next(text for n in range(1000) if (text := token(algorithm, jti=str(n))).endswith("8" if n < 900 else ""))
    accept(good, known)
    parts = good.split(".")
    for place, part in enumerate(parts):
        for letter in ALPHABET:
            changed = [*parts[:place], part[:-1] + letter, *parts[place + 1 :]]
            if ".".join(changed) != good:
                refused(".".join(changed), known)


def test_header_and_claims_in_base64_that_is_not_canonical() -> None:
    """Also if they are signed like this: an issuer that writes them so is broken, or is none."""
    for pad in ("", " ", "  "):
        for place in (0, 1):
            parts = [base64url(HEADER[:-1] + pad + "}"), base64url(CLAIMS[:-1] + pad + "}")]
            if len(parts[place]) % 4 == 0:
                continue  # all bits count
            parts[place] = parts[place][:-1] + ALPHABET[ALPHABET.index(parts[place][-1]) + 1]
            signed = ".".join(parts)
            assert "base64url" in refused(f"{signed}.{base64url(signature(signed.encode(), SECRET))}")


def test_the_error_names_what_stands_there_twice() -> None:
    """By the first of such names, cut where it is long."""
    for name in ("b", "x" * 2000):
        text = f'{{"a": 1, "{name}": 2, "c": 3, "{name}": 4, "d": 5, "c": 6}}'
        assert refused(write(HEADER, text, SECRET)) == f"what the token says has {name[:40]!r} twice"
        assert refused(write(text, CLAIMS, SECRET)) == f"the token's header has {name[:40]!r} twice"


CHANGES = st.one_of(
    st.tuples(st.just("set"), st.integers(0, 400), st.sampled_from(ALPHABET + ".=+/ \n\x00é")),
    st.tuples(st.just("insert"), st.integers(0, 400), st.sampled_from(ALPHABET + ".=+/ \n\x00é")),
    st.tuples(st.just("cut"), st.integers(0, 400), st.integers(1, 60)),
    st.tuples(st.just("double"), st.integers(0, 400), st.integers(1, 60)),
    st.tuples(st.just("swap"), st.integers(0, 2), st.integers(0, 2)),
)
TOKENS = {each: (token(each), key(each)) for each in ("HS256", "RS256", "ES256", "EdDSA")}


def changed(text: str, change: tuple[str, int, Any]) -> str:
    kind, place = change[:2]
    what: Any = change[2]
    if kind == "swap":
        parts = text.split(".")
        if len(parts) > max(place, what):
            parts[place], parts[what] = parts[what], parts[place]
        return ".".join(parts)
    place %= len(text) + 1
    if kind == "cut":
        return text[:place] + text[place + what :]
    if kind == "double":
        return text[:place] + text[place : place + what] * 2 + text[place + what :]
    return f"{text[:place]}{what}{text[place + (kind == 'set') :]}"


@given(st.sampled_from(sorted(TOKENS)), st.lists(CHANGES, min_size=1, max_size=4))
@example("HS256", [("set", 399, "B")])
def test_no_change_of_a_token_is_accepted(algorithm: str, changes: list[tuple[str, int, Any]]) -> None:
    """Whatever is flipped, cut, inserted, doubled or swapped: unless it is the same text again, it is refused."""
    good, known = TOKENS[algorithm]
    text = good
    for change in changes:
        text = changed(text, change)
    if text == good:
        assert isinstance(accept(text, known), Grant)
    else:
        with pytest.raises(InvalidToken):
            accept(text, known)


@given(st.text(max_size=60))
def test_no_text_is_an_unexpected_error(text: str) -> None:
    """Neither is a text in any part of a token."""
    part = text.encode(errors="replace")
    for evil in (text, f"{text}.{GOOD}", write(part, CLAIMS, SECRET), write(HEADER, part, SECRET)):
        with pytest.raises(InvalidToken):
            accept(evil)
