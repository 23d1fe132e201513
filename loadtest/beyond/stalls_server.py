"""The server of `stalls`: PushUp with its default reactor, whose turns are timed. Otherwise it is `pushup serve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from loadtest.beyond.stalls_probe import LongestTurn, TimedPoller
from loadtest.kit.server import main

TURNS_FILE = "LOADTEST_TURNS_FILE"
"""Environment variable: path of the file for the longest turn."""


def time_turns() -> None:
    """Time the turns of this process's reactor from now on."""
    from twisted.internet import reactor as any_reactor

    reactor: Any = any_reactor
    reactor._poller = TimedPoller(reactor._poller, LongestTurn(Path(os.environ[TURNS_FILE])))


if __name__ == "__main__":
    time_turns()
    main()
