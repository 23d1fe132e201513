"""Until when this node may answer as if it knew everything that a publisher was told is `stable`.

`stable` counts the nodes whose leases Redis knows. So a node without a lease, or with one that Redis may have ended,
must not say "there is nothing else": a message that it lacks may be stable. It says so only while two things hold:

1. Its lease has not ended. Redis ends it LEASE_SECONDS after it has carried out a report, so not before that time has
   passed since the report was sent.
2. It has applied everything up to where the log ended when that lease began. What came later is stable only once
   this node has reported it.

The time is `uptime`, which goes on while the process is stopped or the machine suspended. A virtual machine whose clock
is stopped with it cannot notice (docs/internals/reliability.md).
"""

from __future__ import annotations

from collections.abc import Callable

from pushup.broadcast.redis.log import LEASE_SECONDS
from pushup.core.cursor import Cursor, order_of

MARGIN_SECONDS = 0.5
"""How much earlier a lease ends here than in Redis. The clock of Redis may be corrected by less than that meanwhile;
and the rates of two clocks differ, by 2 ms in LEASE_SECONDS while NTP adjusts one."""


class Lease:
    """This node's lease, as far as it knows."""

    def __init__(self, uptime: Callable[[], float]) -> None:
        """`uptime`: see `pushup.clock`."""
        self._uptime = uptime
        self._until = 0.0
        self._end: Cursor | None = None  # where the log ended when it began; None: not known yet
        self.is_behind = True
        """Whether this node has yet to apply what the log contained when its lease began."""

    @property
    def is_current(self) -> bool:
        return not self.is_behind and self._uptime() < self._until

    def lapse(self) -> None:
        """It counts no more; another begins with the next report. What this node has now, it has not reported yet."""
        self._end, self.is_behind = None, True

    def renewed(self, asked_at: float, end: Cursor, applied: Cursor, *, was_living: bool) -> None:
        """A report that was sent at `asked_at`, by `uptime`, has been answered: the log ended at `end`.

        `was_living`: the lease had not ended before. `applied`: the last entry that this node has applied.
        """
        if not was_living:
            self.lapse()
        if self._end is None:
            self._end = end
        self._until = asked_at + LEASE_SECONDS - MARGIN_SECONDS
        self.applied(applied)

    def applied(self, last: Cursor) -> None:
        """This node has applied the log up to here."""
        if (end := self._end) is not None and self.is_behind:
            self.is_behind = (order_of(last.epoch), last.sequence) < (order_of(end.epoch), end.sequence)
