"""Keeps a cluster running: restarts parts that die, a limited number of times."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from deploy.part import PartFailed

PAUSE_SECONDS = 1.0
"""Delay before a dead part is restarted: long enough to watch how the other parts react."""

RESTARTS_LIMIT = 5
WITHIN_SECONDS = 60.0
"""A part that dies more than `RESTARTS_LIMIT` times within this time stays down: restarting it does not help."""


class Mortal(Protocol):
    """The interface of a part that can be restarted."""

    @property
    def runs(self) -> bool: ...

    def obituary(self) -> str: ...
    def restart(self) -> None: ...


class Restarts:
    """Restarts the parts of a cluster when they die, and reports it.

    parts: by name
    nodes: names of the nodes, which may stay down as long as one is left; every other part is essential
    say: called with messages for the user
    """

    def __init__(self, parts: Mapping[str, Mortal], nodes: list[str], *, say: Callable[[str], None]) -> None:
        self._parts = parts
        self._nodes = nodes
        self._say = say
        self._deaths: dict[str, deque[float]] = {name: deque(maxlen=RESTARTS_LIMIT + 1) for name in parts}
        self._due: dict[str, float] = {}
        self._down: set[str] = set()

    def check(self, now: float) -> None:
        """Find parts that have died, and restart those whose delay is over.

        Raises: PartFailed if the remaining parts cannot work as a cluster.
        """
        for name, part in self._parts.items():
            if part.runs or name in self._down:
                continue
            if name not in self._due:
                self._died(name, part, now)
            elif now >= self._due[name]:
                del self._due[name]
                part.restart()

    def _died(self, name: str, part: Mortal, now: float) -> None:
        deaths = self._deaths[name]
        deaths.append(now)
        if len(deaths) <= RESTARTS_LIMIT or now - deaths[0] > WITHIN_SECONDS:
            self._due[name] = now + PAUSE_SECONDS
            self._say(f"{part.obituary()}\nRestarting {name} in {PAUSE_SECONDS:.0f} s.")
            return
        self._down.add(name)
        verdict = f"{part.obituary()}\n{name} has died {len(deaths)} times within a minute, so it stays down."
        if name not in self._nodes or self._down >= set(self._nodes):
            raise PartFailed(verdict)
        self._say(verdict)
