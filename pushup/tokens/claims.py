"""What a token says, as a grant. It comes here when its signature is verified.

    {"iss": "https://app.example", "aud": "pushup", "iat": 1700000000, "exp": 1700000300, "sub": "7",
     "pushup": {"poll": ["user:7", "team:3:*"], "publish": ["chat:3"], "presence": {"name": "Ann"}}}

`*` stands for all names that begin like this, and only at the end of one. `sub`, `jti`, `nbf` and the rights may be
missing. The other claims may not: without `iat`, nobody could revoke all tokens that were issued before some time.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

from msgspec import Struct

from pushup.core.errors import TokenExpired
from pushup.core.grant import Grant, Right, Scope, is_subject, scope_of
from pushup.net.api.bodies import TOO_DEEP, nests_too_deeply

_RIGHTS: dict[str, Right] = {"poll": "read", "publish": "publish"}
"""What the rights are called in a token."""

PRESENCE_LIMIT_BYTES = 1024
"""What a token may say for other members of a channel, as JSON."""

SHOWN = 40
"""Characters of what a token says that an error shows."""


class Expected(Struct, frozen=True, kw_only=True):
    """What the tokens of one issuer must say."""

    audience: str
    claim: str = "pushup"
    """The name of the claim with the rights."""
    leeway: float = 10.0
    """By how many seconds the issuer's clock may differ from this one."""
    lifetime: float = math.inf
    """The longest time from `iat` to `exp`, in seconds."""


def read_object(data: bytes, what: str) -> dict[str, Any]:
    """A JSON object in which no name stands twice, at any depth (RFC 7519 §4). `what` names it in errors.

    Raises: ValueError.
    """
    try:
        found = json.loads(data.decode(), object_pairs_hook=_once, parse_constant=_no_constant)
    except _Twice as error:
        raise ValueError(f"{what} has {str(error)[:SHOWN]!r} twice") from None
    except (ValueError, RecursionError):
        raise ValueError(f"{what} is not JSON") from None
    if not isinstance(found, dict):
        raise ValueError(f"{what} is not a JSON object")
    return found


class _Twice(ValueError):
    pass


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise _Twice(next(name for name, count in counts.items() if count > 1))
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def grant_of(claims: dict[str, Any], expected: Expected, now: float) -> Grant:
    """What these claims of a token allow. `now`: seconds since the epoch.

    Raises: TokenExpired; ValueError, which says what is wrong with the token.
    """
    leeway = expected.leeway
    _check_audience(claims.get("aud"), expected.audience)
    issued_at, expires = _time(claims, "iat"), _time(claims, "exp")
    not_before = _time(claims, "nbf") if "nbf" in claims else issued_at
    if expires + leeway <= now:
        raise TokenExpired("the token has expired")
    if max(not_before, issued_at) - leeway > now:
        raise ValueError("the token is not valid yet (`iat`, `nbf`); are the clocks of both machines right?")
    if expires - issued_at > expected.lifetime:
        raise ValueError(
            f"the token is valid for {expires - issued_at:.0f} s (from `iat` to `exp`), and may be for at most "
            f"{expected.lifetime:.0f} (token_lifetime_limit_seconds)"
        )
    given = claims.get(expected.claim, {})
    presence = given.pop("presence", None) if isinstance(given, dict) else None
    return Grant(
        _rights(given, expected.claim),
        _text(claims, "sub"),
        token_id=_text(claims, "jti"),
        issued_at=issued_at,
        valid_until=expires + leeway,
        presence=b"" if presence is None else _presence(presence),
        is_of_token=True,
    )


def age_of(claims: dict[str, Any], now: float) -> float:
    """For how many seconds the token has existed; infinity if it does not say that, and so is no grant."""
    try:
        return now - _time(claims, "iat")
    except ValueError:
        return math.inf


def _check_audience(given: object, wanted: str) -> None:
    audiences = given if isinstance(given, list) else [given]
    if wanted not in audiences or not all(isinstance(each, str) for each in audiences):
        raise ValueError(f"the token is for another audience; its `aud` must be or contain {wanted!r}")


def _time(claims: dict[str, Any], name: str) -> float:
    """Seconds since the epoch."""
    value = claims.get(name)
    if value is None:
        raise ValueError(f"the token has no `{name}`; it needs the times at which it was issued and expires")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        raise ValueError(f"the token's `{name}` must be a time in seconds since the epoch")
    return float(value)


def _text(claims: dict[str, Any], name: str) -> str:
    value = claims.get(name, "")
    if not isinstance(value, str) or not is_subject(value):
        raise ValueError(f"the token's `{name}` must be text of at most 255 bytes without control characters")
    return value


def _presence(given: object) -> bytes:
    try:
        text = json.dumps(given, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(errors="replace")
    except ValueError:  # 1e999 is JSON, and read as infinity
        raise ValueError("the token's `presence` has a number that is too large") from None
    if len(text) > PRESENCE_LIMIT_BYTES:
        raise ValueError(f"the token's `presence` has {len(text)} bytes, and can have {PRESENCE_LIMIT_BYTES}")
    if nests_too_deeply(text):
        raise ValueError(f"the token's `presence` {TOO_DEEP}")
    return text


def _rights(given: object, claim: str) -> dict[Right, Scope]:
    """One entry that cannot be used refuses the token as a whole: whoever wrote it meant something else."""
    if not isinstance(given, dict) or not all(isinstance(names, list) for names in given.values()):
        raise ValueError(f'the token\'s `{claim}` must be of the form {{"poll": ["user:7"], "publish": ["chat:3"]}}')
    unknown = next((name for name in given if name not in _RIGHTS), None)
    if unknown is not None:
        raise ValueError(f"the token's `{claim}` has the right {unknown[:SHOWN]!r}; there are {' and '.join(_RIGHTS)}")
    try:
        return {_RIGHTS[name]: scope_of(patterns) for name, patterns in given.items() if patterns}
    except ValueError as error:
        raise ValueError(f"the token's `{claim}` {error}") from None
