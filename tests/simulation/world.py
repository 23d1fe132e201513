"""Simulated time, and the processes that live in it. One seed decides everything.

The simulation runs in one thread. An event is a call at some time, made by a process or by nobody. What one event does
is one turn of that process' reactor. Nothing happens between two events.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from itertools import count
from random import Random
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from zope.interface import implementer

START = 1_795_219_200.0
"""When the simulated time begins, seconds since the epoch."""

TURN_WORK = 2_000
"""What one turn of a server may do, in units of work: about 10 us each (`observed_node.py`), so 20 ms."""

STORY_LINES = 20_000
"""The last lines of what happened that are kept."""


class World:
    """The time, the events to come, and a record of those that were."""

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self.began = START
        self.now = START
        """The true time, seconds since the epoch. Clocks of processes may differ."""
        self.story: list[str] = []
        """What happened: a line for each event worth telling."""
        self.reached: dict[str, int] = {}
        """How often each dangerous state was reached (`reach.py`)."""
        self.running: Process | None = None
        """The process whose event this is."""
        self.work = 0
        """What this turn has cost so far, in units of work."""
        self.longest_turn = 0
        self._events: list[tuple[float, int, Process | None, Callable[[], None]]] = []
        self._numbers = count()
        self._digest = blake2b(digest_size=16)
        self.event_count = 0

    def random(self, *names: object) -> Random:
        """A source of random numbers of its own, so that what one part draws does not change the others."""
        return Random("/".join(map(str, (self.seed, *names))))

    def tell(self, text: str) -> None:
        """Add a line to the story."""
        line = f"{self.now - START:9.4f} {text}"
        self._digest.update(line.encode())
        self.story.append(line)
        if len(self.story) > 2 * STORY_LINES:
            del self.story[:STORY_LINES]

    def reach(self, state: str) -> None:
        """Count that a dangerous state was reached."""
        self.reached[state] = self.reached.get(state, 0) + 1

    @property
    def digest(self) -> str:
        """Identifies the whole story: two runs with equal digests did the same."""
        return self._digest.hexdigest()

    def at(self, time: float, call: Callable[[], None], process: Process | None = None) -> None:
        """Make a call at this true time, by a process: not if it has died meanwhile, and later if it is paused."""
        heapq.heappush(self._events, (max(time, self.now), next(self._numbers), process, call))

    def later(self, seconds: float, call: Callable[[], None], process: Process | None = None) -> None:
        self.at(self.now + seconds, call, process)

    def end_with(self, error: Exception) -> None:
        """Let the run end with this error: servers would catch it where it was found."""

        def fail() -> None:
            raise error

        self.at(self.now, fail)

    def run(self, until: float) -> None:
        """Let time pass."""
        events = self._events
        while events and events[0][0] <= until:
            self.now, _, process, call = heapq.heappop(events)
            if process is None:
                call()
            elif process.paused:
                process.postponed.append(call)
            elif process.alive:
                self._turn(process, call)
        self.now = until

    def _turn(self, process: Process, call: Callable[[], None]) -> None:
        self.event_count += 1
        before, self.running, self.work = self.running, process, 0  # as `turn_of`, which takes longer
        process.before_turn()
        try:
            call()
        finally:
            self.running = before
        if self.work > self.longest_turn:
            self.longest_turn = self.work

    @contextmanager
    def turn_of(self, process: Process) -> Iterator[None]:
        """Whatever is done inside is done by this process."""
        before, self.running, self.work = self.running, process, 0
        process.before_turn()
        try:
            yield
        finally:
            self.running = before


class Process:
    """An operating system's process: killed, paused, with a clock of its own. Each start makes a new one."""

    def __init__(self, world: World, name: str, clock: Clock | None = None) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.paused = False
        self.postponed: list[Callable[[], None]] = []
        self.on_death: list[Callable[[], None]] = []
        """What the operating system does when it dies: closes its sockets."""
        self.clock = clock or Clock(world)
        self.reactor = ProcessTime(self)
        self.before_turn: Callable[[], None] = lambda: None
        """Called before each of its turns."""

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self.world.later(seconds, call, self)

    def pause(self) -> None:
        """As with SIGSTOP."""
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        postponed, self.postponed = self.postponed, []
        for call in postponed:
            self.world.later(0, call, self)

    def die(self) -> None:
        """As with SIGKILL."""
        if self.alive:
            self.alive = False
            self.paused = False
            self.postponed.clear()
            for call in self.on_death:
                call()


class Clock:
    """A machine's clocks: the wall clock, which may be wrong and may jump, and the monotonic one, which may drift."""

    def __init__(self, world: World, drift: float = 0.0) -> None:
        self._world = world
        self._drift = drift
        self.offset = 0.0
        """By how many seconds the wall clock is ahead."""
        self.jumped: list[Callable[[], None]] = []

    def monotonic(self) -> float:
        return (self._world.now - START) * (1 + self._drift) + 1000.0

    def wall(self) -> float:
        return self.monotonic() - 1000.0 + START + self.offset

    def jump(self, seconds: float) -> None:
        """Set the wall clock, as an operator or NTP may do."""
        self.offset += seconds
        for call in self.jumped:
            call()

    def true_seconds(self, seconds: float) -> float:
        """How long something really takes that takes so many seconds by this clock."""
        return seconds / (1 + self._drift)


@implementer(IDelayedCall)
class _Call:
    def __init__(self, time: float, function: Callable[[], Any], cancelled: Callable[[_Call], None]) -> None:
        self.time = time
        self.function: Callable[[], Any] | None = function
        self._cancelled = cancelled

    def cancel(self) -> None:
        assert self.function is not None, "called or cancelled already"
        self._cancelled(self)
        self.function = None

    def active(self) -> bool:
        return self.function is not None

    def getTime(self) -> float:
        return self.time

    def delay(self, seconds: float) -> None:
        raise NotImplementedError("PushUp cancels its calls, and makes new ones")

    def reset(self, seconds: float) -> None:
        raise NotImplementedError("PushUp cancels its calls, and makes new ones")


@implementer(IReactorTime)
class ProcessTime:
    """The reactor of a process, as far as time is concerned. Its clock is the one that Twisted uses."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._calls: list[tuple[float, int, _Call]] = []
        self._numbers = count()
        self._wakes_at = math.inf  # true time
        self._alarm = 0
        self.active_calls = 0
        process.clock.jumped.append(self._arm)

    def seconds(self) -> float:
        return self._process.clock.monotonic()

    def callLater(self, delay: float, callable: Callable[..., Any], *args: object, **kwargs: object) -> IDelayedCall:  # noqa: A002
        assert delay >= 0, f"{delay} seconds ahead"
        call = _Call(self.seconds() + delay, lambda: callable(*args, **kwargs), self._cancelled)
        heapq.heappush(self._calls, (call.time, next(self._numbers), call))
        self.active_calls += 1
        self._arm()
        return call

    def getDelayedCalls(self) -> list[IDelayedCall]:
        return [call for _, _, call in self._calls if call.active()]

    def _cancelled(self, call: _Call) -> None:
        self.active_calls -= 1

    def _arm(self) -> None:
        """Have `_ring` called when the first call is due."""
        while self._calls and not self._calls[0][2].active():
            heapq.heappop(self._calls)
        if self._calls and self._process.alive:
            seconds = self._process.clock.true_seconds(max(0.0, self._calls[0][0] - self.seconds()))
            now = self._process.world.now
            time = now + seconds
            if seconds and time == now:
                time = math.nextafter(now, math.inf)  # or it would never be due
            if time < self._wakes_at:
                self._wakes_at = time
                self._alarm += 1
                alarm = self._alarm
                self._process.world.at(time, lambda: self._ring(alarm), self._process)

    def _ring(self, alarm: int) -> None:
        """Make the first call that is due; the next is another turn."""
        if alarm != self._alarm:
            return  # there was an earlier one
        self._wakes_at = math.inf
        now = self.seconds()
        if self._calls and self._calls[0][0] <= now:
            _, _, call = heapq.heappop(self._calls)
            self._arm()
            if call.function is not None:
                function, call.function = call.function, None
                self.active_calls -= 1
                function()
        else:
            self._arm()
