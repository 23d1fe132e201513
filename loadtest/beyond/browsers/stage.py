"""The stage of all scenes: a cluster with two nodes behind HAProxy, the site with the page, and who publishes."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from deploy.cluster import HOST, Cluster

SETTINGS = {"redis_timeout_seconds": 1, "drain_seconds": 1}
"""How soon nodes notice that Redis is gone, and how long they take to stop."""

SITE = Path(__file__).parent / "site"

ATTEMPT_SECONDS = 6.0
PUBLISH_SECONDS = 60.0
"""How long one message may take until it is acknowledged."""

RETRY_SECONDS = 0.1


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Two nodes, so that each fault of a node concerns half of all requests; the site is the application."""
    with Cluster(nodes=2, settings=SETTINGS, without=["example"]) as cluster, _site(cluster.ports["application"]):
        yield cluster


@contextmanager
def _site(port: int) -> Iterator[None]:
    with _Server((HOST, port), partial(_Handler, directory=str(SITE))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """HAProxy's checks do not wait for the page."""


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass


def held_polls(cluster: Cluster) -> int:
    """How many requests the nodes hold, streams and polls; nodes that do not answer hold none."""
    held = 0
    for name in cluster.nodes:
        with suppress(OSError, http.client.HTTPException):
            text = _get(cluster.address(name), "/metrics")
            found = re.search(r"^pushup_held_polls (\S+)$", text, re.MULTILINE)
            held += int(float(found[1])) if found else 0
    return held


def _get(address: str, path: str) -> str:
    connection = http.client.HTTPConnection(address, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


class Publisher(threading.Thread):
    """Publishes 0, 1, 2 ... to a channel, through HAProxy, each until it is acknowledged, and then the next.

    It begins one after each interval, or as soon as it can if it is late. It publishes within a `with` block, and ends
    with it at the latest.

    acknowledged: when each was, in seconds since the epoch
    failed: why it gave up
    """

    def __init__(self, cluster: Cluster, channel: str, *, messages: int, interval: float) -> None:
        super().__init__()
        self.acknowledged: list[float] = []
        self.failed = ""
        self._address = urlsplit(cluster.urls["inside"]).netloc
        self._key = cluster.publish_key
        self._channel = channel
        self._messages = messages
        self._interval = interval
        self._connection: http.client.HTTPConnection | None = None
        self._over = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
        self._close()

    def run(self) -> None:
        began = time.monotonic()
        for number in range(self._messages):
            if self._over.wait(max(0.0, began + number * self._interval - time.monotonic())):
                return
            deadline = time.monotonic() + PUBLISH_SECONDS
            while not self.publish(number):
                if time.monotonic() > deadline:
                    self.failed = f"message {number} was not acknowledged within {PUBLISH_SECONDS:g} s"
                    return
                if self._over.wait(RETRY_SECONDS):
                    return
            self.acknowledged.append(time.time())

    def publish(self, number: int) -> bool:
        """One attempt; whether it was acknowledged."""
        body = json.dumps({"channels": [self._channel], "data": number})
        headers = {"Authorization": f"Bearer {self._key}", "Idempotency-Key": f"{self._channel}-{number}"}
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection(self._address, timeout=ATTEMPT_SECONDS)
            self._connection.request("POST", "/v1/messages", body, headers)
            response = self._connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            self._close()
            return False
        return response.status == 201

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
