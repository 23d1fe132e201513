"""The settings of tokens: where they come from, their mistakes, and that no secret is ever shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pushup.settings.settings import Settings, SettingsError, read_settings, reload_settings, shown_settings
from pushup.tokens.token_settings import TokenIssuer
from tests.tokens.evil_tokens import OTHER_SECRET, SECRET, jwk, jwks, key_for, numbered, pem, private_pem

ISSUER = "https://app.example"
GOOD = {"token_issuer": ISSUER, "token_audience": "pushup", "token_secrets": SECRET}


def in_file(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "pushup.toml"
    file.write_text(text)
    return file


def test_one_issuer(tmp_path: Path) -> None:
    """From the file, the environment and flags alike; secrets also from a file of their own."""
    text = "".join(f'{name} = "{value}"\n' for name, value in GOOD.items())
    environment = {f"PUSHUP_{name.upper()}": value for name, value in GOOD.items()}
    expected = TokenIssuer(issuer=ISSUER, audience="pushup", secrets=(SECRET,))
    for settings in (
        read_settings(in_file(tmp_path, text)),
        read_settings(environment=environment),
        read_settings(flags=GOOD),
    ):
        assert settings.tokens.issuers == (expected,)
        assert (settings.tokens.token_claim, settings.tokens.token_leeway_seconds) == ("pushup", 10.0)
    secrets = tmp_path / "secrets"
    secrets.write_text(f"# for rotation\nold {SECRET} valid_until=2027-01-15T08:00:00Z # soon\n\n{OTHER_SECRET}\n")
    flags = {name: value for name, value in GOOD.items() if name != "token_secrets"}
    settings = read_settings(flags={**flags, "token_secrets_file": str(secrets)})
    assert settings.tokens.issuers[0].secrets == (f"old {SECRET} valid_until=2027-01-15T08:00:00Z", OTHER_SECRET)


TABLES = f"""
token_claim = "https://app.example/pushup"
token_leeway_seconds = 0
token_cookie = "__Secure-pushup"

[[token_issuers]]
issuer = "{ISSUER}"
audience = "pushup"
secrets = ["{SECRET}"]

[[token_issuers]]
issuer = "https://other.example"
audience = "other"
jwks_url = "http://127.0.0.1/jwks"
"""


def test_more_issuers(tmp_path: Path) -> None:
    """In tables, beside the one that has settings of its own."""
    first = 'token_issuer = "https://first.example"\ntoken_audience = "a"\ntoken_jwks_url = "http://127.0.0.1/k"\n'
    settings = read_settings(in_file(tmp_path, first + TABLES)).tokens
    assert [each.issuer for each in settings.issuers] == ["https://first.example", ISSUER, "https://other.example"]
    assert read_settings(in_file(tmp_path, TABLES)).tokens.issuers == settings.token_issuers
    assert (settings.token_claim, settings.token_leeway_seconds) == ("https://app.example/pushup", 0)
    assert read_settings().tokens.issuers == ()


def test_secrets_are_never_shown(tmp_path: Path) -> None:
    """Neither those of settings nor those in tables; the rest is shown."""
    shown = str(shown_settings(read_settings(in_file(tmp_path, TABLES), {}, GOOD | {"token_issuer": "x"})))
    assert SECRET not in shown
    for text in (ISSUER, "https://other.example", "__Secure-pushup", "http://127.0.0.1/jwks"):
        assert text in shown


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"token_issuer": None}, "token_issuer"),
        ({"token_audience": None}, "token_audience"),
        ({"token_secrets": None}, "token_issuer"),
        ({"token_secrets": None, "token_issuer": None, "token_jwks_url": "http://127.0.0.1/"}, "token_issuer"),
        ({"token_secrets": None, "token_issuer": None, "token_keys_file": __file__}, "token_keys_file"),
        ({"token_secrets": "short"}, "token_secrets"),
        ({"token_secrets": [""]}, "token_secrets"),
        ({"token_secrets": [SECRET, "valid_until=2027-01-15T08:00:00Z"]}, "token_secrets"),
        ({"token_secrets": f"{SECRET} valid_until=tomorrow"}, "token_secrets"),
        ({"token_secrets": f"one two {SECRET}"}, "token_secrets"),
        ({"token_secrets": [f"{SECRET}\n{OTHER_SECRET}"]}, "token_secrets"),
        ({"token_secrets": [SECRET, 5]}, "token_secrets"),
        ({"token_keys_file": "/nowhere/at/all"}, "token_keys_file"),
        ({"token_jwks_url": "ftp://app.example/jwks"}, "token_jwks_url"),
        ({"token_jwks_url": f"https://user:{SECRET}@app.example/jwks"}, "token_jwks_url"),
        ({"token_jwks_url": "file:///etc/passwd"}, "token_jwks_url"),
        ({"token_claim": ""}, "token_claim"),
        ({"token_leeway_seconds": 61}, "token_leeway_seconds"),
        ({"token_leeway_seconds": -1}, "token_leeway_seconds"),
        ({"token_leeway_seconds": "nan"}, "token_leeway_seconds"),
        ({"token_cookie": "pushup"}, "token_cookie"),
        ({"token_cookie": "__secure-pushup"}, "token_cookie"),
        ({"token_cookie": "__Secure-"}, "token_cookie"),
        ({"token_cookie": "__Secure-a b"}, "token_cookie"),
        ({"token_cookie": "__Secure-a=b;c"}, "token_cookie"),
        ({"token_url_tickets": True}, "token_url_tickets"),
        ({"token_url_tickets": True, "ticket_key": "short"}, "ticket_key"),
        (dict.fromkeys(GOOD) | {"token_url_tickets": True, "ticket_key": SECRET}, "token_url_tickets"),
        ({"token_issuer": None, "token_secrets": None}, "token_audience"),
        (dict.fromkeys(GOOD) | {"token_cookie": "__Secure-a"}, "token_cookie"),
        ({"token_lifetime_limit_seconds": 0}, "token_lifetime_limit_seconds"),
        ({"token_secrets": None, "token_secrets_file": "/nowhere"}, "token_secrets_file"),
    ],
)
def test_mistakes(changes: dict[str, object], name: str) -> None:
    """The error names the setting, and shows no secret; None: it is left out."""
    flags = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    with pytest.raises(SettingsError, match=rf"(^|: ){name}( =|:)") as error:
        read_settings(flags=flags)
    assert SECRET not in str(error.value)
    assert OTHER_SECRET not in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        (f'"{SECRET}"', '"short"', r"token_issuers\[0\].secrets"),
        (f'["{SECRET}"]', f'"{SECRET},short"', r"token_issuers\[0\].secrets"),
        (f'["{SECRET}"]', f'[["{SECRET}"]]', r"token_issuers\[0\].secrets"),
        (f'["{SECRET}"]', f'{{a = "{SECRET}"}}', r"token_issuers\[0\].secrets"),
        ("secrets =", "secret =", r"token_issuers\[0\]"),
        ("secrets =", "token_secrets =", r"token_issuers\[0\]"),
        (f'secrets = ["{SECRET}"]', "", r"token_issuers\[0\].issuer"),
        (f'secrets = ["{SECRET}"]', 'keys_file = "/nowhere"', r"token_issuers\[0\].keys_file"),
        ('audience = "other"', "", r"token_issuers\[1\]"),
        ('audience = "other"', 'audience = ""', r"token_issuers\[1\].audience"),
        ('audience = "other"', 'audience = ["other"]', r"token_issuers\[1\].audience"),
        (f'issuer = "{ISSUER}"', 'issuer = ""', r"token_issuers\[0\].issuer"),
        ("https://other.example", ISSUER, "token_issuers"),
        ("http://127.0.0.1/jwks", "127.0.0.1/jwks", r"token_issuers\[1\].jwks_url"),
    ],
)
def test_mistakes_in_tables(tmp_path: Path, old: str, new: str, name: str) -> None:
    """The error names the table by its number, and shows no secret."""
    text = TABLES.replace(old, new, 1)
    assert text != TABLES
    with pytest.raises(SettingsError, match=rf": {name}( =|:)") as error:
        read_settings(in_file(tmp_path, text))
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    "text",
    numbered([
        private_pem(key_for("ES256")), private_pem(key_for("RS256")), SECRET,
        jwks(jwk("ES256", d="c2VjcmV0LXRoYXQtbm9ib2R5LW1heS1zZWU")).decode(),
        jwks({"kty": "oct", "k": SECRET}).decode(),
    ]),
)  # fmt: skip
def test_secrets_in_a_file_for_public_keys(tmp_path: Path, text: str) -> None:
    """They are refused, and not shown."""
    file = tmp_path / "keys"
    file.write_text(text)
    flags = {**GOOD, "token_secrets": OTHER_SECRET, "token_keys_file": str(file)}
    with pytest.raises(SettingsError, match="token_keys_file") as error:
        read_settings(flags=flags)
    assert not [word for word in text.replace('"', " ").split() if len(word) > 25 and word in str(error.value)]
    file.write_text(pem(key_for("ES256")))
    assert read_settings(flags=flags).tokens.token_keys_file == str(file)
    alone = {"token_issuer": ISSUER, "token_audience": "x", "token_leeway_seconds": 60, "token_keys_file": str(file)}
    assert read_settings(flags=alone).tokens.issuers == (TokenIssuer(issuer=ISSUER, audience="x", keys_file=str(file)),)


def test_a_pem_file_is_no_file_of_secrets(tmp_path: Path) -> None:
    """Its lines are long enough to be secrets, and everybody knows them."""
    file = tmp_path / "key.pem"
    file.write_text(pem(key_for("RS256")))
    flags: dict[str, Any] = {**GOOD, "token_secrets_file": str(file)}
    del flags["token_secrets"]
    with pytest.raises(SettingsError, match="token_secrets"):
        read_settings(flags=flags)


def test_reloading() -> None:
    """All settings of tokens change in a running server, but not for how long they may be valid."""
    old = read_settings(flags=GOOD)
    wanted = read_settings(
        flags={**GOOD, "token_secrets": OTHER_SECRET, "token_claim": "x", "token_cookie": "__Secure-a"}
    )
    reloaded = reload_settings(old, wanted)
    assert set(reloaded.applied) == {"token_secrets", "token_claim", "token_cookie"}
    assert reloaded.settings.tokens == wanted.tokens
    longer = replace(old, queue=replace(old.queue, token_lifetime_limit_seconds=99.0))
    assert reload_settings(old, longer).left == ("token_lifetime_limit_seconds",)
    assert reload_settings(old, Settings()).settings.tokens.issuers == ()
