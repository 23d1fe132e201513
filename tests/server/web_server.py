"""HTTP servers of applications in tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def web_server(handler: Callable[[Any, Any, ThreadingHTTPServer], BaseHTTPRequestHandler]) -> Iterator[int]:
    """Serves, each request in a thread, until the end of the block; yields its port on 127.0.0.1."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
