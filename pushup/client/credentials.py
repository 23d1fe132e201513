"""What a client shows who it is with: a publish key, or a token, of which a new one is fetched before it ends."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

from pushup.client.driver import Driver
from pushup.client.values import ClientError, NotSent

REVOKED_PAUSE_SECONDS = 2.0
"""Servers refuse tokens from the second of a revocation, and clocks differ: a new token is fetched this much later."""

YOUNG_SECONDS = 10.0
"""A token that is older may have ended although no server has accepted it: it was fetched while none could be
reached."""

Token = str | Callable[[], str | Awaitable[str]]


class Credentials:
    """Sent with each request."""

    def __init__(self, key: str | None, token: Token | None, driver: Driver) -> None:
        """`token`: one, or a function that returns a new one. Raises: ValueError for both, or for an invalid one."""
        if key is not None and token is not None:
            raise ValueError("give either a key or a token, not both")
        self._fetch = token if callable(token) else None
        self._text = checked(token, "token") if isinstance(token, str) else checked(key, "key") if key else None
        self._driver = driver
        self._fetching: Future[Any] | None = None
        self._process = os.getpid()  # the one that began to fetch it
        self._ends = float("inf")  # by the driver's clock, as far as is known, and up to 1 s early
        self._was_accepted = False
        self._since = 0.0  # when it was fetched
        self._is_revoked = False  # the last one

    async def get(self, until: float) -> str | None:
        """The one to send now. Raises: NotSent if no token can be had; that may pass."""
        token = self._text  # read once: another thread forgets it when it is refused
        if self._fetch is not None and (token is None or self._driver.now() >= self._ends):
            try:
                if self._process != os.getpid():  # the thread that fetches it is only in the parent
                    self._process, self._fetching = os.getpid(), None
                # One call serves all who wait, also those whose time is up before it returns.
                fetching = self._fetching
                is_late = fetching is not None and fetching.done()
                # One that ended with its event loop, or failed when nobody waited any more, says nothing of now.
                if fetching is None or fetching.cancelled() or (is_late and fetching.exception()):
                    fetching, is_late = self._driver.start(self._fetch), False
                    self._fetching = fetching
                try:
                    token = checked(await self._driver.wait(fetching, until), "token")
                finally:
                    if fetching.done():
                        self._fetching = None
            except ClientError:
                raise
            except Exception as error:
                text = str(error) or ("token() did not return in time" if isinstance(error, TimeoutError) else "")
                raise NotSent(f"cannot get a token: {text or type(error).__name__}") from error
            # A token that came too late for its caller may have expired since: if it is refused, fetch another.
            self._since = self._driver.now()
            self._text, self._ends, self._was_accepted = token, float("inf"), is_late
        return token

    def accepted(self, sent: str | None, expires_in: float | None = None) -> None:
        """The server has accepted it, and may have said for how many seconds it is still valid."""
        if sent != self._text:  # it has been replaced since
            return
        self._was_accepted, self._is_revoked = True, False
        if expires_in is not None:
            self._ends = self._driver.now() + expires_in

    def retry_pause(self, error: ClientError, sent: str | None) -> float | None:
        """After how many seconds a new token may help; None if none can, because the server refuses what it gets.

        A new one helps if the one that was `sent` had been accepted, is not young, is the first one revoked, or has
        been replaced. It does not if a ticket has expired.
        """
        if self._fetch is None or error.status != 401 or error.type == "urn:pushup:ticket-expired":
            return None
        if sent != self._text:
            return 0.0
        was_accepted, self._was_accepted, self._text = self._was_accepted, False, None
        if error.type != "urn:pushup:revoked":
            return 0.0 if was_accepted or self._driver.now() >= self._since + YOUNG_SECONDS else None
        was_revoked, self._is_revoked = self._is_revoked, True
        return None if was_revoked else REVOKED_PAUSE_SECONDS


def checked(text: object, what: str) -> str:
    """The text, without white space around it. Raises: ValueError, which does not show it."""
    text = text.strip() if isinstance(text, str) else ""
    if not (text and text.isascii() and text.isprintable() and " " not in text):
        raise ValueError(f"the {what} is not valid; a {what} is printable ASCII without spaces")
    return text
