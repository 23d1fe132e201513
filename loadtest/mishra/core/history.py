"""What a member knows of the order: its entries that are not stable, and the updates it holds.

An update is `loose` while it has no ordinal. Ordinals go on from view to view; within a view a later decision only adds
to an earlier one. A new view can change the fate of entries that were not stable.
"""

from __future__ import annotations

from collections.abc import Iterator

from loadtest.mishra.core.messages import BOOT_BITS, Decision, Entry, Fate, Id, Update


class History:
    """Entries from `base + 1` to `end`, and updates. `decision`: the last one that was applied."""

    def __init__(self) -> None:
        self.decision: Decision | None = None
        self.base = 0
        self.up_to = 0
        """Of every entry up to this ordinal the update is held, or will never be delivered."""
        self.loose: dict[Id, Update] = {}
        self._entries: list[Entry] = []
        self._ordinals: dict[Id, int] = {}
        self._ordered: dict[Id, Update] = {}

    @property
    def end(self) -> int:
        return self.base + len(self._entries)

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries)

    def entry(self, ordinal: int) -> Entry:
        """Of an ordinal from `base + 1` to `end`."""
        return self._entries[ordinal - self.base - 1]

    def ordinal(self, update_id: Id) -> int | None:
        return self._ordinals.get(update_id)

    def held(self, update_id: Id) -> Update | None:
        return self._ordered.get(update_id) or self.loose.get(update_id)

    def ids(self) -> tuple[Id, ...]:
        """Of all updates that are held beyond `up_to`, and of the loose ones."""
        beyond = (self.entry(ordinal).id for ordinal in range(self.up_to + 1, self.end + 1))
        return (*(update_id for update_id in beyond if update_id in self._ordered), *self.loose)

    def hold(self, update: Update) -> bool:
        """Keep an update; False if it is held already, or not wanted any more."""
        ordinal = self._ordinals.get(update.id)
        if ordinal is None:
            if update.id in self.loose or not self._awaited(update.id):
                return False
            self.loose[update.id] = update
            return True
        if update.id in self._ordered or self.entry(ordinal).fate is not Fate.DELIVERED:
            return False
        self._ordered[update.id] = update
        self._advance()
        return True

    def follow(self, decision: Decision) -> list[Entry]:
        """Apply the next decision of this member's history, of the same view or a later one.

        Returns the new entries that will never be delivered.
        """
        if self.decision is None or decision.view > self.decision.view:
            first = max(self.base, decision.base) + 1
        else:
            first = self.end + 1
        self.decision = decision
        dropped = []
        for ordinal in range(first, decision.end + 1):
            entry = decision.entries[ordinal - decision.base - 1]
            if ordinal <= self.end:
                self._entries[ordinal - self.base - 1] = entry
            else:
                self._entries.append(entry)
                self._ordinals[entry.id] = ordinal
            update = self.loose.pop(entry.id, None) or self._ordered.pop(entry.id, None)
            if update and entry.fate is Fate.DELIVERED:
                self._ordered[entry.id] = update
            if entry.fate is not Fate.DELIVERED:
                dropped.append(entry)
        self._advance()
        return dropped

    def start(self, decision: Decision) -> None:
        """Forget everything, and begin with this decision: what is stable in it came with the service's state."""
        self.base = self.up_to = decision.base
        self.loose.clear()
        self._entries.clear()
        self._ordinals.clear()
        self._ordered.clear()
        self.decision = None
        self.follow(decision)

    def missing(self) -> Iterator[Id]:
        """The ids of updates that have ordinals and are not held, in their order."""
        for ordinal in range(self.up_to + 1, self.end + 1):
            entry = self.entry(ordinal)
            if entry.fate is Fate.DELIVERED and entry.id not in self._ordered:
                yield entry.id

    def trim(self, stable: int) -> list[Entry]:
        """Drop what is stable, which nobody will ask for; returns these entries."""
        count = max(0, min(stable, self.up_to) - self.base)
        gone = self._entries[:count]
        del self._entries[:count]
        self.base += count
        for entry in gone:
            del self._ordinals[entry.id]
            self._ordered.pop(entry.id, None)
        return gone

    def _awaited(self, update_id: Id) -> bool:
        """Whether its proposer is in the group, and the update has not had its ordinal already."""
        place = self.decision.place(update_id[0]) if self.decision else None
        return place is not None and place.following <= update_id[1] < (place.boot + 1) << BOOT_BITS

    def _advance(self) -> None:
        while self.up_to < self.end:
            entry = self.entry(self.up_to + 1)
            if entry.fate is Fate.DELIVERED and entry.id not in self._ordered:
                return
            self.up_to += 1
