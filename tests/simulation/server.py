"""A simulated PushUp server: the real service, above simulated sockets, in a process that can die and start again."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from msgspec import structs
from twisted.internet.defer import Deferred

from pushup.broadcast import Broadcast
from pushup.broadcast.formats import NotUnderstood
from pushup.broadcast.hub.worker_broadcast import HubBroadcast
from pushup.broadcast.journal_file import JournalError
from pushup.broadcast.progress_mark import ProgressMark
from pushup.broadcast.redis.log import LEASE_SECONDS
from pushup.broadcast.redis.redis_broadcast import RedisBroadcast
from pushup.broadcast.redis.redis_connection import RedisConnection
from pushup.broadcast.redis.redis_errors import CannotConnect, ErrorReply, Lost
from pushup.clock import SteadyTime
from pushup.core.subscription import Holder
from pushup.metrics import Metrics
from pushup.net.api.access import Access
from pushup.net.api.application import Api
from pushup.net.api.cors import Origins
from pushup.net.api.error_responses import Refusals
from pushup.net.api.poll_parameters import PollReader
from pushup.net.api.server_view import OneProcess
from pushup.net.api.streaming import Streaming
from pushup.net.edge import Edge
from pushup.net.listener import Listener
from pushup.node.node import Node
from pushup.service import PushUpService
from pushup.settings.settings import Settings
from pushup.transport.framed_link import Link
from tests.net.in_memory import InMemoryReactor
from tests.next_version import know
from tests.simulation import parent, redis_server
from tests.simulation.clients import key_of
from tests.simulation.disk import Disk, SimulatedHelpers, SimulatedMark
from tests.simulation.local_broadcasts import make_local_broadcast
from tests.simulation.network import End, Network
from tests.simulation.observed_node import ObservedBroadcast, ObservedNode
from tests.simulation.parent import Parent, connect
from tests.simulation.sockets import ListeningSocket, SimulatedDemultiplexer, SimulatedSocket, SimulatedTransport
from tests.simulation.world import Clock, Process, World

KEYS = tuple(f"{name} {key_of(name)}" for name in ("p0", "p1", "p2", "stranger"))
"""The publish keys of all servers, with the names of those who have them."""


class SimulatedConnector:
    """Connects a server to Redis."""

    def __init__(self, process: Process, network: Network, timeout: float, host: Callable[[], str]) -> None:
        self._host = host
        self._process = process
        self._network = network
        self._timeout = timeout

    async def connect(self) -> RedisConnection:
        made: Deferred[End | None] = Deferred()
        self._network.connect(
            self._process.name, self._process, self._host(), made.callback, lambda: made.callback(None)
        )
        end = await made
        if end is None:
            raise CannotConnect("redis:6379: refused")
        connection = RedisConnection(self._process.reactor, self._timeout)
        SimulatedTransport(end, connection)
        try:
            await connection.ask("PING")
        except (Lost, ErrorReply) as error:
            connection.abort("the connection is not usable")
            raise CannotConnect(f"redis:6379: {error}") from None
        return connection


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
        settings, clock = self.settings, process.reactor
        random = self.world.random("server", self.name, self.starts).random
        metrics = Metrics()
        self._steady_time = SteadyTime(process.clock.wall, process.clock.monotonic)
        demultiplexer = SimulatedDemultiplexer(process)
        self.broadcast = self._make_broadcast(process, random)
        observed = ObservedBroadcast(self.broadcast)
        self.node: Node[Holder] = Node(
            limits=settings.queue,
            hold_limits=settings.hold,
            broadcast=cast(Broadcast, observed),
            clock=clock,
            soon=demultiplexer.soon,
            random=random,
            metrics=metrics,
            name=self.name,
        )
        node = cast(Node[Holder], ObservedNode(self.world, self.name, self.node))
        observed.follower = node
        origins = Origins(frozenset())
        access = Access(publish_keys=KEYS, origins=origins, hosts=("*",))
        streaming = Streaming(
            node,
            PollReader(settings.poll, for_streams=True),
            None,
            settings.stream,
            seconds=clock.seconds,
            soon=demultiplexer.soon,
            random=random,
        )
        api = Api(
            node,
            polls=PollReader(settings.poll),
            publication_limits=settings.publication,
            publication_limit_bytes=settings.request.body_limit_bytes,
            access=access,
            origins=origins,
            refusals=Refusals(metrics, clock.seconds),
            machine=OneProcess(lambda: b"", self.node.polls.subscribers),
            streaming=streaming,
        )
        self._reactor = InMemoryReactor()
        self.edge = Edge(
            application=api,
            demultiplexer=demultiplexer,
            reactor=self._reactor,
            clock=clock,
            wall=process.clock.wall,
            limits=settings.edge,
            request_limits=settings.request,
            metrics=metrics,
        )
        self.service = PushUpService(
            settings,
            clock=clock,
            node=self.node,
            edge=self.edge,
            api=api,
            access=access,
            authorization=None,
            steady_time=self._steady_time,
        )
        self._listening = ListeningSocket(self.name)
        self.edge.listen(cast(socket.socket, self._listening))
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

    def _make_broadcast(self, process: Process, random: Callable[[], float]) -> Broadcast:
        settings, clock = self.settings, process.reactor
        if self.parent is not None:
            return HubBroadcast(
                self._connect_to_parent,
                worker_id=self.name,
                waiting_limits=settings.waiting,
                clock=clock,
                uptime=process.clock.monotonic,
                on_lost=self._parent_lost,
            )
        if self.kind != "redis":
            return make_local_broadcast(self.kind, process, self.disk, settings, self._steady_time, random)
        return RedisBroadcast(
            SimulatedConnector(process, self.network, settings.redis.redis_timeout_seconds, lambda: self.redis_host),
            node_id=f"{self.name}.{self.starts}",
            limits=settings.queue,
            redis_limits=settings.redis,
            waiting_limits=settings.waiting,
            clock=clock,
            wall=process.clock.wall,
            random=random,
            high_water=ProgressMark(SimulatedMark(self.disk), SimulatedHelpers(process, self.disk), clock),
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
        if not self._reactor.readers:
            end.reset()  # it listens no more
            return
        self._last_fd += 1
        self._listening.queue.append(SimulatedSocket(end, self._last_fd))
        for reader in self._reactor.readers:
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
