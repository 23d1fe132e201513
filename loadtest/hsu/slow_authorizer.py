"""The authorizer of `slow-backend`: it takes five seconds for each poll of a `slow:` channel, and records the maximum
number of concurrent calls.
"""

from __future__ import annotations

import os
import threading
import time

SLEEP_SECONDS = float(os.environ.get("LOADTEST_SLEEP_SECONDS", "5"))

_lock = threading.Lock()
_busy = 0
_most = 0


def may_poll(channels: tuple[str, ...], headers: dict[str, str]) -> bool:
    global _busy, _most
    with _lock:
        _busy += 1
        if _busy > _most:
            _most = _busy
            with open(os.environ["LOADTEST_MOST_FILE"], "w") as file:
                file.write(str(_most))
    if channels[0].startswith("slow:"):
        time.sleep(SLEEP_SECONDS)
    with _lock:
        _busy -= 1
    return True
