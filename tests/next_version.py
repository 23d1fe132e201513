"""A next version of the state machine, which only tests have: channels live twice as long by default.

So replicas that go over to it at different entries have channels that end at different times.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType

from pushup.broadcast import journal_start
from pushup.broadcast.redis import heartbeat, recovery
from pushup.core import machine_rules, snapshot
from pushup.core.channel import Channel
from pushup.core.channels import Channels
from pushup.core.machine_rules import LATEST_VERSION

NEXT_VERSION = LATEST_VERSION + 1

SOURCE_CHANGES = {
    "core/machine_rules.py": (f"LATEST_VERSION = {LATEST_VERSION}", f"LATEST_VERSION = {NEXT_VERSION}"),
    "core/channels.py": (
        "else self.retention(channel).channel_ttl",
        f"else self.retention(channel).channel_ttl * (2 if self._rules.version >= {NEXT_VERSION} else 1)",
    ),
}
"""The same as changes to the files of the package: what makes a copy of it the next release."""


def know(version: int) -> None:
    """Make this the latest version of the state machine that the code knows."""
    for module in (machine_rules, snapshot, journal_start, recovery, heartbeat):
        module.LATEST_VERSION = version  # type: ignore[attr-defined]


@contextmanager
def next_version() -> Iterator[None]:
    """This process knows the next version meanwhile. Compiled classes cannot be changed: there it is only a number."""
    original = Channels.open

    def open_(self: Channels, name: str | None, ttl: float | None, time: float) -> Channel:
        if ttl is None and self._rules.version >= NEXT_VERSION:
            ttl = self._rules.limits.channel_ttl_seconds * 2
        return original(self, name, ttl, time)

    can_change = isinstance(original, FunctionType)
    if can_change:
        Channels.open = open_  # type: ignore[method-assign]
    know(NEXT_VERSION)
    try:
        yield
    finally:
        know(LATEST_VERSION)
        if can_change:
            Channels.open = original  # type: ignore[method-assign]
