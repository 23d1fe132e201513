"""An application that signs tokens with HS256, by hand."""

from __future__ import annotations

import hmac
import json
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

SECRET = "the-secret-of-tests-that-sign-tokens"

SETTINGS: Mapping[str, Any] = {
    "token_issuer": "app", "token_audience": "pushup", "token_secrets": SECRET, "token_leeway_seconds": "0s",
}  # fmt: skip
"""Those of a server that accepts its tokens."""


class TokenIssuer:
    """Signs tokens of the user 7."""

    def __init__(self, seconds: float, **rights: list[str]) -> None:
        """The tokens are valid for so many seconds."""
        self.seconds = seconds
        self.count = 0
        """How many it has signed."""
        self.issued_at = 0
        """If set, the tokens say that they are of this time, as if from a store."""
        self._rights = rights

    def token(self) -> str:
        self.count += 1
        now = time.time()
        claims = {
            "iss": "app", "aud": "pushup", "sub": "7", "iat": self.issued_at or int(now), "exp": now + self.seconds,
            "pushup": self._rights,
        }  # fmt: skip
        text = f"{_base64(json.dumps({'alg': 'HS256'}).encode())}.{_base64(json.dumps(claims).encode())}"
        return f"{text}.{_base64(hmac.digest(SECRET.encode(), text.encode(), 'sha256'))}"


def is_valid(token: str) -> bool:
    """Whether a token has not ended."""
    ends: float = json.loads(urlsafe_b64decode(token.split(".")[1] + "==="))["exp"]
    return ends > time.time()


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
