"""A worker that times its turns; each writes to a file of its own, whose name ends with its number and its process."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from loadtest.beyond.stalls_probe import LongestTurn, TimedPoller
from loadtest.beyond.stalls_server import TURNS_FILE
from loadtest.kit.server import worker_main


def time_turns(number: str) -> None:
    from twisted.internet import reactor as any_reactor

    reactor: Any = any_reactor
    path = Path(f"{os.environ[TURNS_FILE]}.{number}.{os.getpid()}")
    reactor._poller = TimedPoller(reactor._poller, LongestTurn(path))


if __name__ == "__main__":
    time_turns(sys.argv[1])
    worker_main(*sys.argv[1:])
