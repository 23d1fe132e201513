"""What the clients of a simulated cluster do and are told: judged as it happens, and kept."""

from __future__ import annotations

from loadtest.history.checker import Checker
from loadtest.history.events import Event
from tests.simulation.world import World


class Record:
    """The history of one run."""

    def __init__(self, world: World) -> None:
        self.checker = Checker()
        self.events: list[Event] = []
        self._world = world

    @property
    def now(self) -> float:
        """Seconds since the beginning, as events have it."""
        return round(self._world.now - self._world.began, 6)

    def take(self, event: Event) -> None:
        """Raises: BrokenPromise."""
        self.events.append(event)
        self.checker.take(event)
