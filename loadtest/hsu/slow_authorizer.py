"""The authorizer of `slow-backend`: it takes a while for each poll of a `slow:` channel, and records the maximum
number of concurrent calls.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

SLEEP_VARIABLE = "LOADTEST_SLEEP_SECONDS"
MOST_VARIABLE = "LOADTEST_MOST_FILE"

_lock = threading.Lock()
_busy = 0
_most = 0


def may_poll(channels: tuple[str, ...], headers: dict[str, str]) -> bool:
    with counted():
        if channels[0].startswith("slow:"):
            time.sleep(float(os.environ[SLEEP_VARIABLE]))
        return True


@contextmanager
def counted() -> Iterator[None]:
    """A call, which counts as running until the end of the block."""
    global _busy, _most
    with _lock:
        _busy += 1
        if _busy > _most:
            _most = _busy
            with open(os.environ[MOST_VARIABLE], "w") as file:
                file.write(str(_most))
    try:
        yield
    finally:
        with _lock:
            _busy -= 1
