"""The multithreaded server on a system that allows only 21 threads for its clients."""

from __future__ import annotations

import threading

from loadtest.liu.thread_per_request import main

THREADS = 21
"""Including the one for the publisher."""


class _Thread(threading.Thread):
    def start(self) -> None:
        if threading.active_count() > THREADS:
            raise RuntimeError("can't start new thread")
        super().start()


if __name__ == "__main__":
    threading.Thread = _Thread  # type: ignore[misc]
    main()
