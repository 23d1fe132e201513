"""The two HTTP requests that this application sends to PushUp, with a timeout."""

from __future__ import annotations

import json
import urllib.request
from typing import Any
from urllib.error import HTTPError

TIMEOUT_SECONDS = 2.0
"""Longest wait for PushUp; then the page is served without its cursor."""


class PushUpClient:
    """PushUp at a URL; `key` is a publish key, or empty."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})

    def publish(self, channels: list[str], data: object, *, idempotency_key: str) -> None:
        """Publish on these channels. Tries twice; the idempotency key makes sure that it is published once.

        Raises: OSError if PushUp does not respond, or refuses.
        """
        body = json.dumps({"channels": channels, "data": data}).encode()
        headers = {**self._headers, "Idempotency-Key": idempotency_key}
        try:
            self._call("/v1/messages", body, headers)
        except OSError as error:
            if isinstance(error, HTTPError) and error.code < 500:
                raise  # a retry would fail in the same way
            self._call("/v1/messages", body, headers)

    def cursor(self) -> str:
        """The current cursor. Raises: OSError."""
        cursor: str = self._call("/v1/cursor")["cursor"]
        return cursor

    def _call(self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Any:
        request = urllib.request.Request(self._url + path, body, headers or {})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
                return json.load(response)
        except ValueError as error:
            raise OSError(f"PushUp sent an unexpected response: {error}") from None
