"""Restoring a state from its snapshot, in steps, so that a node can do other work between them."""

from __future__ import annotations

from collections.abc import Iterator

from pushup.core.epoch_history import PastEpochs
from pushup.core.rows import BUCKET
from pushup.core.snapshot import Snapshot
from pushup.core.state import ReplicatedState
from pushup.core.tables import CHANNELS, MESSAGES


class Restoration:
    """The state that a snapshot was taken of, under construction."""

    def __init__(self, snapshot: Snapshot) -> None:
        head = snapshot.head
        state = ReplicatedState(head.limits, epoch=head.epoch, sequence=head.sequence, time=head.time)
        state.rules.version = head.version
        state.past_epochs = PastEpochs(head.past_epochs)
        state.channels.last_id, state.channels.floor = head.last_id, head.floor
        self._state = state
        self._work = self._restore(snapshot)
        self.is_done = False

    @property
    def state(self) -> ReplicatedState:
        """The state, once it `is_done`; it does not record changes yet."""
        assert self.is_done
        return self._state

    def step(self, most: int) -> bool:
        """Do about as much as restores `most` rows, a message once for each channel; returns whether it is done."""
        done = 0
        while done < most and not self.is_done:
            work = next(self._work, None)
            if work is None:
                self.is_done = True
            else:
                done += work
        return self.is_done

    def _restore(self, snapshot: Snapshot) -> Iterator[int]:
        """Yield how much was done, again and again."""
        state = self._state
        for some in snapshot.tables[CHANNELS].sorting():
            yield BUCKET // 4
            for c in some:
                state.channels.restore(c.restore())
                yield 1
        find, cache = state.channels.find, state.cache
        for some in snapshot.tables[MESSAGES].sorting():
            yield BUCKET // 4
            for m in some:
                holders = [c for c in map(find, m.channels) if c is not None and c.keeps(m.sequence)]
                if holders:  # else all its channels have dropped it
                    cache.restore(m, holders)
                yield len(m.channels)
        for name, table in state.bounded.items():
            for some in snapshot.tables[name].sorting():
                yield BUCKET // 4
                for row in some:
                    table.restore(row)
                    yield 1


def restore(snapshot: Snapshot) -> ReplicatedState:
    """The state that the snapshot was taken of, in one go. O(all)."""
    restoration = Restoration(snapshot)
    while not restoration.step(BUCKET):
        pass
    return restoration.state
