"""Which workers are free: a flag for each, set by the worker, looked for by the server (Roussev & Wu §3.6, Figure 6).

A worker says that it is free in O(1) (Proposition 1). With n of m workers free, beta = n/m, the server looks at no more
than 1/beta flags on average (Theorem 3), if the free ones are anywhere alike. They are not where the search begins at
the first flag each time, as in the paper: those in front are the busy ones.
"""

from __future__ import annotations

from threading import Event


class FreeWorkers:
    """Flags for workers 0 to m - 1, all of them busy at first. Any thread may call `free`, one thread `take`."""

    def __init__(self, workers: int) -> None:
        self._free = [False] * workers
        self._wanted = False
        self._freed = Event()

    def free(self, worker: int) -> None:
        """This worker is free."""
        self._free[worker] = True
        if self._wanted:
            self._freed.set()

    def count(self) -> int:
        """How many are free. O(m)."""
        return sum(self._free)

    def take(self, start: int) -> tuple[int, int]:
        """The first free worker from `start` on, around the array, who is busy now; and the probes it took, of flags.

        Waits while nobody is free; the probes are those of the round that found one.
        """
        found = self._look(start)
        while found is None:
            # The one who frees looks whether it is wanted after the flag is up; we look at the flags after saying so.
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
