"""Delivery: which held updates a member may deliver now, by order and atomicity.

The paper names three of each and defines none. Order, by our definition:

- none: as soon as it is held.
- total: by ordinals, which are the same at each member.
- time: likewise; and the decider gives ordinals to time-ordered updates by their time stamps only. One that comes after
  a younger one had its ordinal is refused, and its proposer told.

Atomicity is about what an update depends on: whatever its proposer had delivered when it proposed. It cannot be about
the update itself: in the paper's Table 1 a strict update is delivered after 2.6 ms, in Table 2 it is stable after 5.5.

- weak: no condition. Members that stay together deliver the same updates.
- strong: a majority of the team holds everything that the update depends on. No later group can lose that.
- strict: every member of the group holds everything that the update depends on.
"""

from __future__ import annotations

from loadtest.mishra.core.history import History
from loadtest.mishra.core.messages import Atomicity, Entry, Fate, Id, Order, Update
from loadtest.mishra.core.stability import Stability


class Delivery:
    """What was delivered of a history. `up_to`: everything up to this ordinal was delivered, or never will be."""

    def __init__(self, history: History, stability: Stability) -> None:
        self._history = history
        self._stability = stability
        self._next = 1
        self._delivered: set[Id] = set()
        self._waiting: dict[Id, Update] = {}
        self._new: list[Update] = []
        self._levels = (0, 0)
        self.up_to = 0

    def start(self) -> None:
        """Forget everything, with a history that has begun anew."""
        self._delivered.clear()
        self._waiting.clear()
        self._new.clear()
        self.up_to = self._history.base
        self._next = self.up_to + 1

    def hold(self, update: Update) -> None:
        """An update came, for the first time."""
        if update.order is Order.NONE and update.id not in self._delivered:
            self._waiting[update.id] = update
            self._new.append(update)

    def drop(self, update_id: Id) -> None:
        """This update will never be delivered."""
        self._waiting.pop(update_id, None)

    def take(self) -> list[Update]:
        """What can be delivered now, in this order; it counts as delivered. O(1) while nothing is new."""
        levels = (self._stability.stable, self._stability.majority)
        looked_at = list(self._waiting.values()) if levels != self._levels else self._new
        taken = [
            update
            for update in looked_at
            if update.id in self._waiting and self.allowed(update.atomicity, update.depends_on)
        ]
        self._levels, self._new = levels, []
        for update in taken:
            del self._waiting[update.id]
        while self._next <= self._history.end:
            entry = self._history.entry(self._next)
            if entry.fate is Fate.DELIVERED and entry.order is not Order.NONE:
                held = self._history.held(entry.id)
                if held is None or not self.allowed(entry.atomicity, entry.depends_on):
                    break
                taken.append(held)
            self._next += 1
        self._delivered.update(update.id for update in taken)
        while self.up_to < self._history.end and self._done(self._history.entry(self.up_to + 1)):
            self.up_to += 1
        return taken

    def allowed(self, atomicity: Atomicity, depends_on: int) -> bool:
        """Whether enough members hold what an update depends on."""
        if atomicity is Atomicity.STRICT:
            return self._stability.stable >= depends_on
        return atomicity is Atomicity.WEAK or self._stability.majority >= depends_on

    def forget(self, entry: Entry) -> None:
        """This entry is stable: it was delivered, and will not come again."""
        self._delivered.discard(entry.id)

    def _done(self, entry: Entry) -> bool:
        return entry.fate is not Fate.DELIVERED or entry.id in self._delivered
