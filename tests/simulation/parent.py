"""The parent process of several workers on one machine: it has the order, and hands its state to each new worker.

The real `Hub`, above a memory or a journal. Workers are `Server`s on the same machine. What replaces workers in reality
(`pushup.workers.supervisor`) is not simulated: servers that end start again, as on machines of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import structs

from pushup.broadcast.hub.hub import Hub
from pushup.broadcast.journal_file import JournalError
from pushup.core.commands import Entry, Outcome, Publish
from pushup.core.snapshot import Changes
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import Outgoing, Piece
from pushup.parts import make_local_broadcast
from pushup.service_tree import InOrder, Part
from pushup.settings.settings import Settings
from pushup.transport.framed_link import Link
from tests.simulation.disk import Disk
from tests.simulation.host import BROADCASTS, SimulatedHost
from tests.simulation.network import End, Network
from tests.simulation.sockets import SimulatedTransport
from tests.simulation.world import Clock, Process, World

HOST = "parent"

WINDOW_BYTES = 3000
"""How much may be under way to a worker: little, so that it is often full."""


class ObservedHub(Hub):
    """A hub that counts what its turns cost (`observed_node`), and notes the dangerous states that it gets into."""

    def __init__(self, world: World, on_entry: Callable[[Entry, Outcome], None], *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._world = world
        self._on_entry = on_entry

    def apply(self, entry: Entry) -> Outcome:
        before = self.state.message_count + len(self.state.channels)
        outcome = super().apply(entry)
        command = entry.command
        added = sum(len(draft.channels) for draft in command.messages) if isinstance(command, Publish) else 1
        self._world.work += added + max(0, before - self.state.message_count - len(self.state.channels))
        if self.is_handing_over:
            self._world.reach("the state changed while it was handed over")
        self._on_entry(entry, outcome)
        return outcome

    @property
    def is_handing_over(self) -> bool:
        """Whether workers are getting the state."""
        return self.outgoing is not None

    def _hand_over(self) -> None:
        if self.is_handing_over and any(worker.link.is_full for worker in self._loading):
            self._world.reach("a worker that loads could not take the next piece")
        super()._hand_over()


class ObservedOutgoing(Outgoing):
    """Counts the work of each piece."""

    def __init__(self, world: World, state: ReplicatedState, *, piece: int) -> None:
        super().__init__(state, piece=piece, last=piece)
        self._world = world

    def next(self) -> Piece | Changes:
        piece = super().next()
        self._world.work += len(piece.rows if isinstance(piece, Changes) else piece)
        return piece


class Parent:
    """The machine's parent process, which can be started many times."""

    def __init__(self, world: World, network: Network, kind: str, settings: Settings, piece: int) -> None:
        """`kind`: memory or journal. `piece`: rows of a piece of the state."""
        self.world = world
        self.network = network
        self.kind = kind
        server = structs.replace(settings.server, broadcast=BROADCASTS[kind])
        self.settings = structs.replace(settings, server=server)
        self.clock = Clock(world, drift=world.random("drift", HOST).uniform(-1e-4, 1e-4))
        self.disk = Disk(world, HOST)
        self._take_out = partial(ObservedOutgoing, world, piece=piece)
        self.process: Process | None = None
        self.hub: ObservedHub
        self.is_over = False
        self.is_stopping = False
        self.left_over = 0
        self.starts = 0
        self.on_start: Callable[[Clock], None] = lambda clock: None
        self._last_id = 0
        self.on_entry: Callable[[Entry, Outcome], None] = lambda entry, outcome: None
        self.on_given_up: Callable[[str], None] = lambda name: None
        """Called with the name of a worker that is given up."""

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.alive

    def start(self) -> None:
        assert not self.is_running
        self.starts += 1
        self.on_start(self.clock)
        self.is_stopping = False
        process = self.process = Process(self.world, HOST, self.clock)
        random = self.world.random("parent", str(self.starts)).random
        with self.world.turn_of(process):
            host = SimulatedHost(process, self.disk, self.network, random, run_id=HOST, redis_host=lambda: "")
            broadcast = make_local_broadcast(self.settings, host)
            assert broadcast is not None
            self.hub = ObservedHub(
                self.world,
                lambda *applied: self.on_entry(*applied),
                broadcast,
                clock=host.reactor,
                uptime=host.uptime,
                take_out=self._take_out,
            )
            self.service = InOrder(host, Part(self.hub.start, self.hub.stop))
            try:
                self.service.startService()
            except JournalError as error:
                self.world.tell(f"{HOST}: cannot start: {error}")
                process.die()
                self.world.later(1.0, self.start_again)
                return
        self.network.listen(HOST, process, self._accept)
        self.world.tell(f"{HOST}: started")

    def start_again(self) -> None:
        if not self.is_running and not self.is_over:
            self.start()

    def _accept(self, end: End) -> None:
        name = f"{end.peer.host} {self._last_id}"
        self._last_id += 1

        def ended(reason: str) -> None:
            if link.was_aborted:
                self.world.reach("a worker was too far behind")
                self.on_given_up(end.peer.host)  # as the crew does
            self.world.tell(f"{HOST}: {name} has ended: {reason}")

        link = self.hub.attach(name, ended)
        connect(end, link)

    def kill(self) -> None:
        if self.process is not None and self.process.alive:
            self.world.tell(f"{HOST}: killed")
            if self.hub.is_handing_over:
                self.world.reach("the parent died while it handed the state over")
            self.process.die()

    def stop(self, stopped: Callable[[], None] = lambda: None) -> None:
        """Stop in good order, once all workers have ended."""
        if not self.is_running or self.is_stopping:
            return
        self.is_stopping = True
        process = self.process
        assert process is not None

        def exit_() -> None:
            self.left_over = process.reactor.active_calls
            process.die()
            stopped()

        def begin() -> None:
            self.service.stopService().addCallback(lambda _: process.later(0.1, exit_))

        process.later(0, begin)


def connect(end: End, link: Link) -> None:
    """Let a link use a simulated connection."""
    end.window = WINDOW_BYTES
    SimulatedTransport(end, link)
