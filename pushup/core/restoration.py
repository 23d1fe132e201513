"""Restoring a state from its snapshot, in steps, so that a node can do other work between them."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge

from pushup.core.past_epochs import PastEpochs
from pushup.core.snapshot import Snapshot, place_among_channels
from pushup.core.state import ReplicatedState

RUN = 1024
"""Channels that are sorted in one go; the sorted runs are merged one channel at a time."""


class Restoration:
    """The state that a snapshot was taken of, under construction."""

    def __init__(self, snapshot: Snapshot) -> None:
        """The snapshot's channels may be in any order."""
        state = ReplicatedState(snapshot.limits, epoch=snapshot.epoch, sequence=snapshot.sequence, time=snapshot.time)
        state.rules.version = snapshot.version
        state.past_epochs = PastEpochs(snapshot.past_epochs)
        state.channels.last_id, state.channels.floor = snapshot.last_id, snapshot.floor
        self._state = state
        self._work = self._restore(snapshot)
        self.is_done = False

    @property
    def state(self) -> ReplicatedState:
        """The state, once it `is_done`; it does not record changes yet."""
        assert self.is_done
        return self._state

    def step(self, most: int) -> bool:
        """Do about as much as restores `most` channels, keys, and messages on a channel; returns whether it is done."""
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
        channels, cache, keys = state.channels, state.cache, state.keys
        runs = []
        for begin in range(0, len(snapshot.channels), RUN):
            runs.append(sorted(snapshot.channels[begin : begin + RUN], key=place_among_channels))
            yield RUN // 4
        for c in merge(*runs, key=place_among_channels):
            channels.restore(c.restore())
            yield 1
        for m in snapshot.messages:
            holders = [c for c in map(channels.find, m.channels) if c is not None and c.dropped_sequence < m.sequence]
            if holders:  # else all its channels have dropped it
                cache.restore(m.restore(), holders)
            yield len(m.channels)
        for key, remembered in snapshot.keys:
            keys.restore(key, remembered)
            yield 1


def restore(snapshot: Snapshot) -> ReplicatedState:
    """The state that the snapshot was taken of, in one go. O(all)."""
    restoration = Restoration(snapshot)
    while not restoration.step(RUN):
        pass
    return restoration.state
