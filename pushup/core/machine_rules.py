"""What entries are carried out by: the limits, and the version of the state machine. Entries change both."""

from __future__ import annotations

from pushup.core.commands import Command, Upgrade
from pushup.core.errors import VersionTooNew
from pushup.core.limits import Limits
from pushup.core.retention import Retention, retentions

LATEST_VERSION = 1
"""The newest version of the state machine that this release knows (decision 13)."""


class Rules:
    """The current limits and version, shared by all parts of one replicated state."""

    __slots__ = ("_retentions", "limits", "version")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.version = LATEST_VERSION
        self._retentions = retentions(limits)

    def set_limits(self, limits: Limits) -> None:
        """Continue with these limits."""
        for retention in self._retentions:
            retention.is_current = False
        self.limits = limits
        self._retentions = retentions(limits)

    def retention(self, name: str) -> Retention:
        """That of the channel, or of the class, with this name. O(policies)."""
        return next(retention for retention in self._retentions if name.startswith(retention.name))

    def check(self, command: Command) -> None:
        """Raises: VersionTooNew if this release cannot carry out the command."""
        needed = max(self.version, command.version) if type(command) is Upgrade else self.version
        if needed > LATEST_VERSION:
            text = f"the order has version {needed} of the state machine, and this PushUp knows {LATEST_VERSION}"
            raise VersionTooNew(text, needed=needed, version=LATEST_VERSION)
