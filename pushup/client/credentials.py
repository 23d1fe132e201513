"""What a client shows who it is with: a publish key, or a token, of which a new one is fetched before it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from pushup.client.http_connection import ClientError

REVOKED_PAUSE_SECONDS = 2.0
"""Servers refuse tokens from the second of a revocation, and clocks differ: a new token is fetched this much later."""


class Credentials:
    """Sent with each request."""

    def __init__(self, key: str | None, token: str | Callable[[], str] | None, stopped: threading.Event) -> None:
        """`token`: a token, or a function that returns a new one. `stopped` ends a pause.

        Raises: ValueError if there are both, or if the token cannot be one.
        """
        if key is not None and token is not None:
            raise ValueError("give either a key or a token, not both")
        self._fetch = token if callable(token) else None
        self._text = _checked(token) if isinstance(token, str) else key
        self._ends = float("inf")  # by the monotonic clock, as far as is known, and up to 1 s early
        self._was_accepted = False
        self._is_revoked = False  # the last one
        self._stopped = stopped

    def headers(self) -> dict[str, str]:
        """The header field to send now. Raises: ClientError if no token can be had; that may pass."""
        if self._fetch is not None and (self._text is None or time.monotonic() >= self._ends):
            try:
                self._text = _checked(self._fetch())
            except Exception as error:
                raise ClientError(f"cannot get a token: {error or type(error).__name__}") from error
            self._ends, self._was_accepted = float("inf"), False
        return {"Authorization": f"Bearer {self._text}"} if self._text else {}

    def accepted(self, expires_in: float | None = None) -> None:
        """The server has accepted it, and may have said for how many seconds it is still valid."""
        self._was_accepted, self._is_revoked = True, False
        if expires_in is not None:
            self._ends = time.monotonic() + expires_in

    def may_retry(self, error: ClientError) -> bool:
        """Whether a new token may help after this error: this one had been accepted, or is the first one revoked."""
        kind = error.problem.get("type")
        if self._fetch is None or error.status != 401 or kind == "urn:pushup:ticket-expired":
            return False
        was_accepted, self._was_accepted, self._text = self._was_accepted, False, None
        if kind != "urn:pushup:revoked":
            return was_accepted
        was_revoked, self._is_revoked = self._is_revoked, True
        return not (was_revoked or self._stopped.wait(REVOKED_PAUSE_SECONDS))


def _checked(token: str) -> str:
    """The token, without white space around it. Raises: ValueError, which does not show it."""
    token = token.strip()
    if not (token and token.isascii() and token.isprintable() and " " not in token):
        raise ValueError("the token is not valid; a token is printable ASCII without spaces")
    return token
