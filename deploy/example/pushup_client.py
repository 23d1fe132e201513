"""All that this application needs of PushUp: two plain HTTP requests, with a time limit."""

from __future__ import annotations

import json
import urllib.request
from typing import Any
from urllib.error import HTTPError

TIMEOUT_SECONDS = 2.0
"""A reader waits no longer for PushUp than this; then the page comes without."""


class PushUpClient:
    """PushUp at a URL; `key` is a publish key, or empty."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})

    def publish(self, channels: list[str], data: object, *, idempotency_key: str) -> None:
        """Tell all who follow one of these channels. Tried twice: with the key, it is published once all the same.

        Raises: OSError when PushUp does not answer, or says no.
        """
        body = json.dumps({"channels": channels, "data": data}).encode()
        headers = {**self._headers, "Idempotency-Key": idempotency_key}
        try:
            self._call("/v1/messages", body, headers)
        except OSError as error:
            if isinstance(error, HTTPError) and error.code < 500:
                raise  # it would say the same again
            self._call("/v1/messages", body, headers)

    def cursor(self) -> str:
        """Where the order of messages is now. Raises: OSError."""
        cursor: str = self._call("/v1/cursor")["cursor"]
        return cursor

    def _call(self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Any:
        request = urllib.request.Request(self._url + path, body, headers or {})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
                return json.load(response)
        except ValueError as error:
            raise OSError(f"PushUp answered nonsense: {error}") from None
