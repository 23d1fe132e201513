"""A simulated PushUp server: the real service, above simulated sockets, in a process that can die and start again."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from msgspec import structs

from pushup.broadcast import Broadcast
from pushup.broadcast.formats import NotUnderstood
from pushup.broadcast.hub.worker_broadcast import HubBroadcast
from pushup.broadcast.journal_file import JournalError
from pushup.broadcast.redis.log import LEASE_SECONDS
from pushup.broadcast.redis.redis_broadcast import RedisBroadcast
from pushup.core.commands import Entry, Outcome
from pushup.core.subscription import Holder
from pushup.net.api.node_interface import OneProcess
from pushup.net.listener import Listener
from pushup.node.node import Node
from pushup.parts import make_broadcast, make_node
from pushup.service import PushUpService
from pushup.settings.settings import Settings
from pushup.transport.framed_link import Link
from tests.next_version import know
from tests.simulation import parent, redis_server
from tests.simulation.clients import key_of
from tests.simulation.disk import Disk
from tests.simulation.host import BROADCASTS, SimulatedHost
from tests.simulation.network import End, Network
from tests.simulation.observed_node import ObservedBroadcast, ObservedNode
from tests.simulation.parent import Parent, connect
from tests.simulation.sockets import ListeningSocket, SimulatedSocket
from tests.simulation.world import Clock, Process, World

KEYS = tuple(f"{name} {key_of(name)}" for name in ("p0", "p1", "p2", "stranger"))
"""The publish keys of all servers, with the names of those who have them."""


class Server:
    """A machine with a PushUp server on it, which can be started many times."""

    def __init__(
        self,
        world: World,
        network: Network,
        name: str,
        broadcast: str,
        settings: Settings,
        parent: Parent | None = None,
    ) -> None:
        """`broadcast`: memory, journal or redis; or what the order is in, if this is a worker of a parent process."""
        self.world = world
        self.network = network
        self.name = name
        self.kind = broadcast
        self.settings = settings
        self.parent = parent
        self.attached_to = 0
        """Which start of the parent it belongs to."""
        self.clock = (
            parent.clock if parent is not None else Clock(world, drift=world.random("drift", name).uniform(-1e-4, 1e-4))
        )
        self.disk = Disk(world, name)
        self.redis_host = redis_server.HOST
        """Where the address of its Redis leads to now."""
        self.version: int | None = None
        """The latest version of the state machine that it knows from its next start on; None: that of this release."""
        self.runs_version: int | None = None
        """The same of the process that runs."""
        self.too_old_since: float | None = None
        """Since when it has been too old for the log, and could know."""
        self.starts = 0
        self.on_start: Callable[[Clock], None] = lambda clock: None
        self.before_entry: Callable[[Node[Holder], Entry], Callable[[], None] | None] = lambda node, entry: None
        """See `ObservedNode.before_entry`."""
        self.on_entry: Callable[[Entry, Outcome], None] = lambda entry, outcome: None
        """Called with each entry that it has applied."""
        self.on_state: Callable[[str, int], None] = lambda epoch, sequence: None
        """Called with the cursor of each state that it goes on from."""
        self.floors: dict[str, int] = {}
        """Of each epoch that it has left for another, the `floor` of its channels then."""
        self.seen_at = (0, "")
        """Which start it was, and its cursor, when its mark was last looked at."""
        self.process: Process | None = None
        self.reported_at = -math.inf
        """When the last report of this process came to Redis."""
        self.draining = False
        self.is_over = False
        """Whether it is not to start again."""
        self.dead: list[object] = []
        self._broadcasts: list[Broadcast] = []
        """Earlier services: kept, so that when they are freed has no influence."""

    def _goes_on(self, epoch: str, sequence: int) -> None:
        """From another state, which ends there."""
        left = self.node.state
        self.floors[left.cursor.epoch] = max(left.channels.floor, self.floors.get(left.cursor.epoch, 0))
        self.on_state(epoch, sequence)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def is_up(self) -> bool:
        """Whether it runs and is not about to stop."""
        return self.is_running and not self.draining and self.process is not None and not self.process.paused

    def start(self) -> None:
        """Start a new process."""
        assert not self.is_running
        self.starts += 1
        self.on_start(self.clock)
        self.draining = False
        process = self.process = Process(self.world, self.name, self.clock)
        self.runs_version = self.version
        if self.version is not None:
            process.before_turn = partial(know, self.version)
        with self.world.turn_of(process):
            self._build(process)
            try:
                self.service.startService()
            except (JournalError, NotUnderstood) as error:
                self.world.tell(f"{self.name}: cannot start: {error}")
                self._die(process)
                self.world.later(1.0, self.start_again)
                return
        self.network.listen(self.name, process, self._accept)
        if isinstance(self.broadcast, RedisBroadcast):
            self._watch_following()
        self.world.tell(f"{self.name}: started")

    def start_again(self) -> None:
        if self.is_running or self.is_over:
            return
        if self.parent is not None and (not self.parent.is_running or self.parent.is_stopping):
            self.world.later(0.5, self.start_again)
        else:
            self.start()

    def _connect_to_parent(self, link: Link) -> None:
        process = self.process
        assert process is not None
        assert self.parent is not None
        self.attached_to = self.parent.starts

        def made(end: End | None) -> None:
            if end is None:
                self._parent_lost("it cannot be reached")
            else:
                connect(end, link)

        self.network.connect(self.name, process, parent.HOST, made, lambda: made(None))

    def _parent_lost(self, reason: str) -> None:
        """As the process of a worker does: it drains and exits; another one is started."""
        process = self.process
        assert process is not None
        self.world.tell(f"{self.name}: its parent is lost: {reason}")
        if not self.draining:
            self.stop()
            process.on_death.append(lambda: self.world.later(0.5, self.start_again))

    def _build(self, process: Process) -> None:
        """Build a server of the same parts as a real one, with a node and a broadcast that are observed."""
        run_id = f"{self.name}.{self.starts}"
        random = self.world.random("server", self.name, self.starts).random
        host = SimulatedHost(
            process, self.disk, self.network, random, run_id=run_id, redis_host=lambda: self.redis_host
        )
        of_server = structs.replace(
            self.settings.server,
            broadcast=BROADCASTS[self.kind],
            state_directory="state",
            node_name=self.name,
            publish_keys=KEYS,
            hosts=("*",),
        )
        settings = structs.replace(self.settings, server=of_server)
        self.broadcast = self._make_broadcast(settings, host)
        observed = ObservedBroadcast(self.broadcast)
        self.node = make_node(settings, host, cast(Broadcast, observed))
        observed_node = ObservedNode(
            self.world, self.name, self.node, lambda *applied: self.on_entry(*applied), self._goes_on
        )
        observed_node.before_entry = self.before_entry
        node = observed.follower = cast(Node[Holder], observed_node)
        self._listening = ListeningSocket(self.name)
        self._readers = host.reactor.readers
        self.service = PushUpService(
            settings,
            host,
            self.broadcast,
            node,
            machine=OneProcess(host.page.text, self.node.polls.subscribers, self.node.draining.set_out),
            open_sockets=lambda addresses: [cast(socket.socket, self._listening)],
        )
        self.edge = self.service.edge
        self.dead.append(self.service)
        self._broadcasts.append(self.broadcast)
        self._last_fd = 100
        self._following_since = self._watched_at = self.world.now
        self.reported_at = self._cut_off_at = -math.inf
        self.left_over = 0

    def forget(self) -> None:
        """The simulation is over: end what waits in it, or it would be woken as garbage."""
        for broadcast in self._broadcasts:
            if isinstance(broadcast, RedisBroadcast):
                broadcast.abort()
        self.disk.close()

    def _make_broadcast(self, settings: Settings, host: SimulatedHost) -> Broadcast:
        if self.parent is None:
            return make_broadcast(settings, host)
        return HubBroadcast(
            self._connect_to_parent,
            worker_id=self.name,
            waiting_limits=settings.waiting,
            clock=host.reactor,
            uptime=host.uptime,
            on_lost=self._parent_lost,
        )

    @property
    def is_following(self) -> bool:
        """Whether it follows the log in Redis now."""
        return isinstance(self.broadcast, RedisBroadcast) and self.broadcast.is_following

    @property
    def lease_is_over(self) -> bool:
        """Whether it was cut off from Redis lately, and has not reported for longer than a lease, by the true time."""
        now = self.world.now
        return now < self._cut_off_at + 2 * LEASE_SECONDS and now > self.reported_at + LEASE_SECONDS

    @property
    def following_since(self) -> float:
        """Since when it has followed the log and had its lease without a break, as seen four times a second."""
        return self._following_since if self.is_following and not self.lease_is_over else self.world.now

    def _watch_following(self) -> None:
        was_paused = self.world.now - self._watched_at > 1.0
        if any(link.cut or link.clogged for link in self.network.both(self.name, redis_server.HOST)):
            self._cut_off_at = self.world.now
        if was_paused or not self.is_following or self.lease_is_over:
            self._following_since = self.world.now
        self._watched_at = self.world.now
        assert self.process is not None
        self.process.later(0.25, self._watch_following)

    def _accept(self, end: End) -> None:
        if not self._readers:
            end.reset()  # it listens no more
            return
        self._last_fd += 1
        self._listening.queue.append(SimulatedSocket(end, self._last_fd))
        for reader in self._readers:
            assert isinstance(reader, Listener)
            reader.doRead()

    def kill(self) -> None:
        if self.process is not None and self.process.alive:
            self.world.tell(f"{self.name}: killed")
            self._die(self.process)

    def _die(self, process: Process) -> None:
        process.die()
        if isinstance(self.broadcast, RedisBroadcast):
            self.broadcast.abort()  # no one notices: it frees the coroutines, which Python would complain of

    def stop(self) -> None:
        """Stop in good order, as with SIGTERM."""
        if not self.is_running or self.draining:
            return
        process = self.process
        assert process is not None
        self.draining = True
        self.world.tell(f"{self.name}: begins to drain")

        def stopped(result: Any) -> None:
            self.world.tell(f"{self.name}: stopped")
            process.later(0.1, exit_)  # connections that it closed end in a later turn

        def exit_() -> None:
            self.left_over = process.reactor.active_calls
            self._die(process)

        def begin() -> None:
            self.service.stopService().addCallback(stopped)

        process.later(0, begin)

    def use(self, **limits: Any) -> None:
        """Have other limits from the next start on."""
        self.settings = structs.replace(self.settings, queue=structs.replace(self.settings.queue, **limits))
