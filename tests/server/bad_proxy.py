"""A reverse proxy that makes an application's calls to PushUp as slow and unreliable as calls can be.

- `/v1/cursor` takes its time, before and after PushUp is asked. Of data that an application reads on the wrong side of
  this call, some is never seen.
- Of six publications one is lost on its way to PushUp, after a while, and the answer to another one on its way back.
  One that is tried again, with the same `Idempotency-Key`, gets through.
- While PushUp does not run, the answer is 500.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CURSOR_SECONDS = 0.4
"""Before and after."""

LOST_SECONDS = 0.5
"""Until it is known. Others overtake the publication."""


@contextmanager
def bad_proxy(address: str) -> Iterator[str]:
    """Yields its URL. `address`: that of PushUp."""
    keys: list[str | None] = []

    def fate(key: str | None) -> int:
        """2: the call is lost, 5: its answer is lost."""
        if key is not None and key in keys:
            return 0
        keys.append(key)
        return len(keys) % 6

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(CURSOR_SECONDS)
            status, answer = self._forward()
            time.sleep(CURSOR_SECONDS)
            self._answer(status, answer)

        def do_POST(self) -> None:
            lost = fate(self.headers["Idempotency-Key"])
            if lost == 2:
                time.sleep(LOST_SECONDS)
                return
            status, answer = self._forward()
            if lost != 5:
                self._answer(status, answer)

        def _forward(self) -> tuple[int, bytes]:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            connection = http.client.HTTPConnection(address, timeout=10)
            try:
                connection.request(self.command, self.path, body, dict(self.headers))
                response = connection.getresponse()
                return response.status, response.read()
            except (OSError, http.client.HTTPException):
                return 500, b""
            finally:
                connection.close()

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
