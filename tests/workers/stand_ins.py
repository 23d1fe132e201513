"""A crew whose workers are played by the test: no processes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Raw

from pushup.settings.settings import Settings
from pushup.transport.framed_link import Link
from pushup.workers import control_protocol
from pushup.workers.machine_metrics import Family, Sample
from pushup.workers.supervisor import Supervisor
from tests.piped_links import TurnClock, join

PARENT = Family("parents", "gauge", "", [Sample("parents", {}, 1.0)])
"""A metric of the parent's own."""

KEY = "the key of the tickets"


class StandIn:
    """A worker's process, as the test plays it."""

    def __init__(self, number: int, link: Link, order: Link | None, clock: TurnClock) -> None:
        self.number = number
        self.heard: list[control_protocol.ToWorker] = []
        """What the parent has said, without questions."""
        self.questions: list[control_protocol.Question] = []
        self.signals: list[int] = []
        self.status: int | None = None
        self.order = order
        self._link = Link(self._received, lambda reason: None)
        self._end, self._parent_end = join(self._link, link, clock)
        if order is not None:
            self.order_end, self._parent_order_end = join(Link(lambda body: None, lambda reason: None), order, clock)

    def _received(self, body: bytes) -> None:
        message = control_protocol.read_by_worker(body)
        if isinstance(message, control_protocol.Question):
            self.questions.append(message)
        else:
            self.heard.append(message)

    def carry(self) -> None:
        self._end.carry()
        self._parent_end.carry()

    def says(self, message: control_protocol.ToParent) -> None:
        """Let the parent hear this."""
        self._link.send(control_protocol.frame(message))
        self._end.carry()

    def says_bytes(self, frame: bytes) -> None:
        self._link.send(frame)
        self._end.carry()

    def signs(self, why_not_ready: str | None = None) -> None:
        """Send a heartbeat."""
        self.says(control_protocol.Sign(why_not_ready))

    def answers(self, body: object) -> None:
        """Answer the oldest question."""
        self.carry()
        self.says(control_protocol.Answer(self.questions.pop(0).number, Raw(msgspec.json.encode(body))))

    def closes_its_links(self) -> None:
        """As when its process ends, which may take a little longer."""
        self._end.die()
        if self.order is not None:
            self.order_end.die()

    def dies(self, status: int = 1) -> None:
        """Let the process end."""
        self.status = status
        self.closes_its_links()

    # What the crew does with it.

    def send_signal(self, number: int) -> None:
        self.signals.append(number)

    def poll(self) -> int | None:
        return self.status


class Ship:
    """A crew and all workers that it has started, in order; by default two, which send a heartbeat."""

    def __init__(
        self,
        size: int = 2,
        *,
        attach: Callable[[str, Callable[[str], None]], Link] | None = None,
        begin: bool = True,
    ) -> None:
        self.clock = TurnClock()
        self.clock.rightNow = 1000.0
        self.started: list[StandIn] = []
        self.errors: list[OSError] = []
        """Starting fails with these next."""
        self.readies = 0
        self.settings = Settings()
        self.crew = Supervisor(
            size,
            self._start,
            attach=attach,
            on_ready=self._ready,
            own_metrics=lambda: [PARENT],
            ticket_key=KEY,
            clock=self.clock,
        )
        if begin:
            self.crew.begin(self.settings)
            for worker in self.started:
                worker.signs()

    def _start(self, number: int, control: Link, order: Link | None) -> StandIn:
        if self.errors:
            raise self.errors.pop(0)
        worker = StandIn(number, control, order, self.clock)
        self.started.append(worker)
        return worker

    def _ready(self) -> None:
        self.readies += 1

    @property
    def alive(self) -> list[StandIn]:
        return [worker for worker in self.started if worker.status is None]

    def advance(self, seconds: float, *, silent: tuple[StandIn, ...] = ()) -> None:
        """Let time pass in small steps; those that are not silent send heartbeats."""
        for _ in range(round(seconds / 0.1)):
            self.clock.rightNow += 0.1
            self.turn()
            for worker in self.alive:
                if worker not in silent:
                    worker.signs()

    def turn(self) -> None:
        while self.clock.is_due:
            self.clock.turn()
        for worker in self.alive:
            worker.carry()


def metrics(polls: int, answers: int, text: str = "") -> list[Family]:
    """The page of one worker: a gauge and a counter."""
    return [
        Family("polls", "gauge", text, [Sample("polls", {}, polls)]),
        Family("answers", "counter", text, [Sample("answers_total", {}, answers)]),
    ]
