"""A flag per worker: the worker sets it when it is free, the server searches for one (Roussev & Wu §3.6, Figure 6).

A worker sets its flag in O(1) (Proposition 1). With n of m workers free, beta = n/m, the server probes at most 1/beta
flags on average (Theorem 3), provided that free workers are spread uniformly. They are not if every search starts at
the first flag, as in the paper: then the workers at the front are the busy ones.
"""

from __future__ import annotations

from threading import Event


class FreeWorkers:
    """Flags for workers 0 to m - 1, all busy at first. Any thread may call `free`; only one may call `take`."""

    def __init__(self, workers: int) -> None:
        self._free = [False] * workers
        self._wanted = False
        self._freed = Event()

    def free(self, worker: int) -> None:
        """Mark this worker as free."""
        self._free[worker] = True
        if self._wanted:
            self._freed.set()

    def count(self) -> int:
        """How many workers are free. O(m)."""
        return sum(self._free)

    def take(self, start: int) -> tuple[int, int]:
        """Find the first free worker from `start` on, wrapping around, and mark it busy.

        Returns the worker and the number of flags probed in the round that found it. Waits while no worker is free.
        """
        found = self._look(start)
        while found is None:
            # `free` sets the flag, then checks `_wanted`; we set `_wanted`, then check the flags. One sees the other.
            self._wanted = True
            self._freed.clear()
            found = self._look(start)
            if found is None:
                self._freed.wait()
            self._wanted = False
        return found

    def _look(self, start: int) -> tuple[int, int] | None:
        count = len(self._free)
        for probes in range(1, count + 1):
            worker = (start + probes - 1) % count
            if self._free[worker]:
                self._free[worker] = False
                return worker, probes
        return None
