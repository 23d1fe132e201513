"""An application that signs tokens with HS256."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from typing import Any

from tests.tokens.evil_tokens import write

SECRET = "the-secret-of-tests-that-sign-tokens"

SETTINGS: Mapping[str, Any] = {
    "token_issuer": "app", "token_audience": "pushup", "token_secrets": SECRET, "token_leeway_seconds": "0s",
}  # fmt: skip
"""Those of a server that accepts its tokens."""


class TokenIssuer:
    """Signs tokens of one user."""

    def __init__(self, seconds: float, user: str = "7", **rights: Any) -> None:
        """The tokens are valid for so many seconds."""
        self.seconds = seconds
        self.user = user
        self.count = 0
        """How many it has signed."""
        self.issued_at = 0
        """If set, the tokens say that they are of this time, as if from a store."""
        self._rights = rights

    def token(self) -> str:
        self.count += 1
        now = time.time()
        claims = {
            "iss": "app", "aud": "pushup", "sub": self.user,
            "iat": self.issued_at or int(now), "exp": now + self.seconds, "pushup": self._rights,
        }  # fmt: skip
        return write({"alg": "HS256"}, claims, SECRET)


def is_valid(token: str) -> bool:
    """Whether a token has not ended."""
    ends: float = json.loads(urlsafe_b64decode(token.split(".")[1] + "==="))["exp"]
    return ends > time.time()
