"""Requests of the clients, with a timeout, and never repeated: whoever sends one writes down what came of it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Http:
    """Requests to one of several addresses after the other, each on a connection that stays open."""

    def __init__(self, addresses: Sequence[str], key: str) -> None:
        self._connections = [http.client.HTTPConnection(address) for address in addresses]
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        self._turn = 0

    def ask(
        self, method: str, target: str, body: object = None, headers: Mapping[str, str] | None = None, *, timeout: float
    ) -> tuple[int, Any, str]:
        """The status, the body as JSON, and if it was an error or there was no answer (status 0), why."""
        status, text = self.text(method, target, body, headers, timeout=timeout)
        try:
            value = json.loads(text) if status else {}
        except ValueError:
            value = {}
        return status, value, "" if 200 <= status < 400 else f"{status} {text[:200]}"

    def text(
        self, method: str, target: str, body: object = None, headers: Mapping[str, str] | None = None, *, timeout: float
    ) -> tuple[int, str]:
        """The status and the body; or status 0, and why there was no answer."""
        self._turn += 1
        connection = self._connections[self._turn % len(self._connections)]
        data = None if body is None else json.dumps(body).encode()
        connection.timeout = timeout
        if connection.sock is not None:
            connection.sock.settimeout(timeout)
        try:
            connection.request(method, target, data, {**self._headers, **(headers or {})})
            response = connection.getresponse()
            return response.status, response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return 0, f"{type(error).__name__}: {error}"

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


class Target(NamedTuple):
    """Where the clients send requests: addresses as HOST:PORT, and the publish key."""

    addresses: Sequence[str]
    key: str

    def http(self, first: int = 0) -> Http:
        """A client that begins with this address."""
        first %= len(self.addresses)
        return Http([*self.addresses[first:], *self.addresses[:first]], self.key)
