"""Publish keys: one line of the setting `publish_keys`, or of its file -> a key, and what it allows.

    KEY                                          publish, create and close channels, and operate, everywhere
    NAME KEY                                     the same, and logs and metrics name it
    NAME KEY publish=chat:* channels=chat:*      only these rights, each for these channels
    NAME KEY backup                              a copy of everything; no other key can have that
    NAME sha256:HASH read                        its SHA-256 in hexadecimal, so that nobody can read the key here

`*` at the end stands for all names that begin like this; a right without channels is for all.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import cast

from pushup.core.grant import EVERYTHING, Grant, Right, Scope, scope_of
from pushup.secret_files import MIN_KEY_LENGTH, parts_of_key

UNNAMED = "publish_keys"
"""The name of a key that was given none: that of its setting."""

HASHED = "sha256:"

USUAL: dict[Right, Scope] = dict.fromkeys(("publish", "channels", "operate", "revoke", "drain"), EVERYTHING)
"""What a key without rights behind it may do, and without keys everybody; some of them also see details."""

_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.:@-]{{0,{MIN_KEY_LENGTH - 2}}}").fullmatch
"""Shorter than a key, so that two keys on one line are an error: names are shown, keys are not."""

_HASH = re.compile(r"[0-9a-f]{64}").fullmatch


def digest_of(key: str) -> bytes:
    """What identifies a key. One that is sent is ISO-8859-1, as all header fields."""
    return sha256(key.encode("latin-1")).digest()


def read_key(line: str) -> tuple[bytes, Grant]:
    """The digest of the key in a line, and what it allows.

    Raises: ValueError, which does not contain the key: "is not valid; ...".
    """
    name, key, rights = parts_of_key(line)
    if name and not _NAME(name):
        raise ValueError(
            f"has a name that is not valid; a name has at most {MIN_KEY_LENGTH - 1} letters, digits and _ . : @ -, the "
            "first not a sign; write each key on its own, as NAME KEY or KEY"
        )
    digest = _digest(key)
    key_id = " ".join(("publish", digest.hex(), *rights))  # with other rights it is another one
    return digest, Grant(_rights(rights), key_name=name or UNNAMED, key_id=key_id)


def _digest(key: str) -> bytes:
    if key.startswith(HASHED):
        text = key.removeprefix(HASHED)
        if not _HASH(text):
            raise ValueError("is not valid; behind sha256: it has 64 digits in lower-case hexadecimal")
        return bytes.fromhex(text)
    if len(key) < MIN_KEY_LENGTH or not key.isascii() or not key.isprintable():
        raise ValueError(
            f"is not valid; a key has at least {MIN_KEY_LENGTH} characters, printable ASCII without spaces, and may "
            "have a name before it: NAME KEY"
        )
    return digest_of(key)


def _rights(words: tuple[str, ...]) -> dict[Right, Scope]:
    """`words`: as `parts_of_key` finds them. Raises: ValueError."""
    if not words:
        return {**USUAL, "see details": EVERYTHING}
    channels: dict[Right, list[str]] = {}
    for word in words:
        name, equals, pattern = word.partition("=")
        if equals and name in ("operate", "backup"):
            raise ValueError(f"has {name} for some channels; it is for the whole server: write {name} alone")
        channels.setdefault(cast(Right, name), []).append(pattern if equals else "*")
    found = {right: scope_of(patterns) for right, patterns in channels.items()}
    if "operate" in found:
        found["revoke"] = found["drain"] = found["see details"] = EVERYTHING
    return found
