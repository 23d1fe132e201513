"""The tokens that a running server accepts: the verifier of its present settings, and the keys fetched for it."""

from __future__ import annotations

from collections.abc import Callable

from pushup.tokens.claims import Expected
from pushup.tokens.key_urls import KeyUrl
from pushup.tokens.signing_keys import keys_of_file, secret_keys
from pushup.tokens.token_settings import TokenSettings
from pushup.tokens.verifier import Issuer, Verifier


class Tokens(Verifier):
    """Accepts the tokens of the issuers in the settings, which can change while the server runs."""

    def __init__(
        self,
        settings: TokenSettings,
        *,
        lifetime: float,
        make_key_url: Callable[[str], KeyUrl],
        wall: Callable[[], float],
    ) -> None:
        """`lifetime`: the longest of a token, in seconds. `make_key_url`: makes what fetches the keys at a URL.

        Raises: ValueError, if a file with keys has changed since the settings were read.
        """
        super().__init__((), wall)
        self._lifetime = lifetime
        self._make_key_url = make_key_url
        self._key_urls: dict[str, KeyUrl] = {}
        self._is_running = False
        self.on_change: Callable[[], None] = lambda: None
        """Called when keys were fetched that differ from those before."""
        self.use(settings)

    def use(self, settings: TokenSettings) -> None:
        """Accept the tokens of these issuers from now on. Key files are read again, and keys at URLs fetched again.

        Raises: ValueError, and then nothing has changed.
        """
        urls = {each.jwks_url for each in settings.issuers if each.jwks_url}
        key_urls = {url: self._key_urls.get(url) or self._make_key_url(url) for url in urls}
        self._use_issuers(self._issuers_of(settings, key_urls))
        for url, old in self._key_urls.items():
            if url not in urls:
                old.stop()
        self._key_urls = key_urls
        for key_url in key_urls.values():
            key_url.on_change = self._changed
            if self._is_running:
                key_url.fetch()

    def _changed(self) -> None:
        self.forget()
        self.on_change()

    def _issuers_of(self, settings: TokenSettings, key_urls: dict[str, KeyUrl]) -> list[Issuer]:
        """Raises: ValueError."""
        found = []
        for issuer in settings.issuers:
            fixed_keys = (*secret_keys(issuer.secrets), *keys_of_file(issuer.keys_file))
            expected = Expected(
                audience=issuer.audience,
                claim=settings.token_claim,
                leeway=settings.token_leeway_seconds,
                lifetime=self._lifetime,
            )
            found.append(Issuer(issuer.issuer, expected, fixed_keys, key_urls.get(issuer.jwks_url)))
        return found

    def start(self) -> None:
        """Fetch the keys at URLs from now on."""
        self._is_running = True
        for key_url in self._key_urls.values():
            key_url.fetch()

    def stop(self) -> None:
        """Fetch no more keys."""
        self._is_running = False
        for key_url in self._key_urls.values():
            key_url.stop()
