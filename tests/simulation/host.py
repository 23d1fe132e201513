"""What a simulated server stands on: a process, a disk and a network of the simulation."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import IO

from twisted.internet.defer import Deferred

from pushup.broadcast.journal_file import JournalFile
from pushup.broadcast.progress_mark import Helpers, Store
from pushup.broadcast.redis.connector import Connects
from pushup.broadcast.redis.redis_connection import RedisConnection
from pushup.broadcast.redis.redis_errors import CannotConnect, ErrorReply, Lost
from pushup.core.cursor import next_epoch
from pushup.host.host import Host
from tests.simulation.disk import Disk, SimulatedHelpers, SimulatedMark
from tests.simulation.network import End, Network
from tests.simulation.outgoing import SimulatedReactor
from tests.simulation.sockets import SimulatedDemultiplexer, SimulatedTransport
from tests.simulation.world import Process

BROADCASTS = {"memory": "memory:", "journal": "journal:journal.db", "redis": "redis://redis:6379"}
"""The setting `broadcast` for each kind."""


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


class SimulatedHost(Host):
    """A process on a machine of the simulation."""

    def __init__(
        self,
        process: Process,
        disk: Disk,
        network: Network,
        random: Callable[[], float],
        *,
        run_id: str,
        redis_host: Callable[[], str],
    ) -> None:
        """`redis_host`: where the address of its Redis leads to now."""
        super().__init__(
            SimulatedReactor(process, network),
            SimulatedDemultiplexer(process),
            wall=process.clock.wall,
            uptime=process.clock.monotonic,
            random=random,
            computed=lambda: 0.0,
        )
        self.run_id = run_id
        self._process = process
        self._disk = disk
        self._network = network
        self._redis_host = redis_host

    def much_was_made(self) -> None:
        """The simulation is not freed from the search for garbage."""

    def name_epoch(self, after: str, cluster: str) -> str:
        if not after:
            # By the true time, because the checker orders epochs by name, and a broadcast in memory knows of none
            # before it.
            return next_epoch(after, self._process.world.now, self.random, cluster)
        return super().name_epoch(after, cluster)

    def connection_limit(self, wanted: int, backend_connections: int, operator_connections: int) -> tuple[int, int]:
        return wanted, operator_connections

    def helpers(self, name: str, seconds: float) -> Helpers:
        return SimulatedHelpers(self._process, self._disk)

    def open_journal(self, path: Path) -> JournalFile:
        return self._disk.open(self._process)(path)

    def mark(self, path: Path) -> Store:
        return SimulatedMark(self._disk)

    def lock(self, path: Path) -> IO[bytes]:
        return io.BytesIO()

    def connect_redis(self, url: str, timeout: float) -> Connects:
        return SimulatedConnector(self._process, self._network, timeout, self._redis_host)
