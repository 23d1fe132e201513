"""Sets of keys that an issuer publishes at a URL (`jwks_uri` of OpenID Connect). The URL is set, never in a token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from pushup.clock import Timer
from pushup.core.errors import PushUpError
from pushup.tokens.signing_keys import SigningKey, keys_of_set

if TYPE_CHECKING:  # an HTTP client takes 12 MB
    from pushup.backends.service_requestor import Reply

REFRESH_SECONDS = 300.0
"""How often the keys are fetched, so that one that the issuer has withdrawn is soon refused."""

RETRY_SECONDS = 10.0
"""The same after a failure."""

AGAIN_SECONDS = 60.0
"""The shortest time between two fetches that tokens cause by naming an unknown key: anybody can send such tokens."""

_log = Logger()


class KeyUrl:
    """The keys at one URL. While they cannot be fetched, the last ones stay."""

    def __init__(self, url: str, get: Callable[[bytes], Deferred[Reply]], clock: IReactorTime) -> None:
        """`get` sends a GET request to a URL; it fails with a PushUpError."""
        self.url = url
        self.keys: Sequence[SigningKey] = ()
        self.on_change: Callable[[], None] = lambda: None
        self._get = get
        self._clock = clock
        self._timer = Timer(clock, self.fetch)
        self._fetching: Deferred[None] | None = None
        self._asked_at = -AGAIN_SECONDS
        self._is_failing = False

    def fetch(self) -> None:
        """Fetch the keys now, unless that is under way."""
        if self._fetching is None:
            self._timer.stop()
            self._asked_at = self._clock.seconds()
            self._fetching = Deferred.fromCoroutine(self._fetch())
            self._fetching.addBoth(self._fetched)

    def stop(self) -> None:
        """Fetch them no more."""
        self._timer.stop()
        if self._fetching is not None:
            self._fetching.cancel()

    def looks_for_more(self, age: float) -> bool:
        """Fetch the keys, unless that was a moment ago, for one is missing; whether there may soon be others.

        There may while the last attempt has failed: what the issuer publishes now is not known. There may also be for
        a token of this age, in seconds, that is younger than the attempt: some issuers sign with a new key at once.
        """
        passed = self._clock.seconds() - self._asked_at
        if passed >= AGAIN_SECONDS:
            self.fetch()
        return self._fetching is not None or self._is_failing or not self.keys or age < passed

    async def _fetch(self) -> None:
        try:
            reply = await self._get(self.url.encode())
            if reply.status != 200:
                raise ValueError(f"answered {reply.status}; expected 200")
            keys = keys_of_set(reply.body)
        except (PushUpError, ValueError) as error:
            if not self._is_failing:
                self._is_failing = True
                stay = "tokens of other keys than before get 503" if self.keys else "tokens get 503 until they can"
                text = "token_jwks_url {url}: the keys cannot be fetched, so {stay}: {error}"
                _log.warn(text, url=self.url, stay=stay, error=str(error))
            return
        if self._is_failing:
            self._is_failing = False
            _log.info("token_jwks_url {url}: the keys can be fetched again", url=self.url)
        if keys != self.keys:
            _log.info(
                "token_jwks_url {url}: {count} keys: {names}",
                url=self.url,
                count=len(keys),
                names=", ".join(key.kid or "one without a name" for key in keys),
            )
            self.keys = keys
            self.on_change()

    def _fetched(self, result: object) -> None:
        self._fetching = None
        if isinstance(result, Failure):
            if isinstance(result.value, CancelledError):
                return
            _log.failure("token_jwks_url {url}: unexpected; please report this as a bug", result, url=self.url)
        self._timer.not_after(self._clock.seconds() + (RETRY_SECONDS if self._is_failing else REFRESH_SECONDS))
