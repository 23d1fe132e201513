"""What entries are carried out by: the limits, and the version of the state machine. Entries change both."""

from __future__ import annotations

from pushup.core.commands import Command, Configure, Continue, Upgrade
from pushup.core.errors import VersionTooNew
from pushup.core.limits import Limits

LATEST_VERSION = 2
"""The newest version of the state machine that this release knows (docs/decisions/0013-...).

1: until 0.1. 2: what is due in one second has a canonical order; what one entry expires is counted in messages times
channels; `Continue` and `Configure`.
"""


class Rules:
    """The current limits and version, shared by all parts of one replicated state."""

    __slots__ = ("limits", "version")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.version = LATEST_VERSION

    def check(self, command: Command) -> None:
        """Raises: VersionTooNew if this release cannot carry out the command, or if it comes before its version."""
        version = self.version
        needed = max(version, command.version) if type(command) is Upgrade else version
        if needed > LATEST_VERSION:
            text = f"the order has version {needed} of the state machine, and this PushUp knows {LATEST_VERSION}"
            raise VersionTooNew(text, needed=needed, version=LATEST_VERSION)
        if version < 2 and type(command) in (Configure, Continue):
            text = f"{type(command).__name__} needs version 2 of the state machine, and the order has version {version}"
            raise VersionTooNew(text, needed=2, version=version)
