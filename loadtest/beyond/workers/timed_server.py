"""`pushup serve` whose processes time their turns: the parent, and the workers (`timed_worker_server`)."""

from __future__ import annotations

from loadtest.beyond.stalls_server import time_turns
from loadtest.kit.server import main, worker_process

if __name__ == "__main__":
    worker_process.MODULE = "loadtest.beyond.workers.timed_worker_server"
    time_turns()
    main()
