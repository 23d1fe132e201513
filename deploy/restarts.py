"""What keeps a cluster running when a part of it dies: the part is started again, a limited number of times."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from deploy.part import PartFailed

PAUSE_SECONDS = 1.0
"""From a part's death to its next start: long enough to see what the others make of it."""

RESTARTS_LIMIT = 5
WITHIN_SECONDS = 60.0
"""A part that has died more often than this within so long stays down: starting it again does not help."""


class Mortal(Protocol):
    """A part of a cluster, as far as it matters here."""

    @property
    def runs(self) -> bool: ...

    def obituary(self) -> str: ...
    def begin_again(self) -> None: ...


class Restarts:
    """Starts the parts of a cluster again when they die, and says so.

    parts: by name
    nodes: those of which some may stay down; without any other part, or without all of these, there is no cluster
    say: takes what people should know
    """

    def __init__(self, parts: Mapping[str, Mortal], nodes: list[str], *, say: Callable[[str], None]) -> None:
        self._parts = parts
        self._nodes = nodes
        self._say = say
        self._deaths: dict[str, deque[float]] = {name: deque(maxlen=RESTARTS_LIMIT + 1) for name in parts}
        self._due: dict[str, float] = {}
        self._down: set[str] = set()

    def look(self, now: float) -> None:
        """See who has died, and start again whose time has come.

        Raises: PartFailed when what is left is no cluster.
        """
        for name, part in self._parts.items():
            if part.runs or name in self._down:
                continue
            if name not in self._due:
                self._died(name, part, now)
            elif now >= self._due[name]:
                del self._due[name]
                part.begin_again()

    def _died(self, name: str, part: Mortal, now: float) -> None:
        deaths = self._deaths[name]
        deaths.append(now)
        if len(deaths) <= RESTARTS_LIMIT or now - deaths[0] > WITHIN_SECONDS:
            self._due[name] = now + PAUSE_SECONDS
            self._say(f"{part.obituary()}\nStarting {name} again in {PAUSE_SECONDS:.0f} s.")
            return
        self._down.add(name)
        verdict = f"{part.obituary()}\n{name} has died {len(deaths)} times in a minute and stays down."
        if name not in self._nodes or self._down >= set(self._nodes):
            raise PartFailed(verdict)
        self._say(verdict)
