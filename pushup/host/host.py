"""What a server stands on: its process, and the clocks, the disk and the network of its machine.

Everything that differs between a real server and a simulated one is here (`tests/simulation/host.py` has the other).
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from twisted.internet.task import deferLater

from pushup.backends.helper_pool import HelperPool
from pushup.backends.limited_service import ServiceLimits
from pushup.broadcast.journal_file import JournalFile
from pushup.broadcast.progress_mark import Helpers, MarkFile, Store, lock_file
from pushup.clock import WATCH_SECONDS, SteadyTime, uptime
from pushup.core.cursor import next_epoch
from pushup.host.build_form import build
from pushup.host.process_limits import connection_limit, spare_garbage_collector
from pushup.host.reactor_watch import ReactorWatch
from pushup.metrics import Metrics, MetricsPage
from pushup.net.wait.demultiplexer import Demultiplexer
from pushup.service_tree import InOrder, Part, Periodic


class Host(InOrder):
    """The first part of every server: its clock is watched, and its sockets are waited for, from start to stop."""

    def __init__(
        self,
        reactor: Any,
        demultiplexer: Demultiplexer,
        *,
        wall: Callable[[], float] = time.time,
        uptime: Callable[[], float] = uptime,
        random: Callable[[], float] = random.random,
        computed: Callable[[], float] = time.thread_time,
    ) -> None:
        """`reactor`: an IReactorFDSet, -Time, -TCP and -FromThreads. `wall` and `uptime`: see `pushup.clock`;
        `computed`: see `ReactorWatch`.
        """
        super().__init__()
        self.reactor = reactor
        self.demultiplexer = demultiplexer
        self.wall = wall
        self.uptime = uptime
        self.random = random
        self.run_id = secrets.token_hex(4)
        """Names this run of the server among the nodes of its cluster."""
        self.ticket_key = secrets.token_hex(32)
        """Seals tickets if the settings have no key; workers have that of their parent, to read those of the others."""
        self.steady_time = SteadyTime(wall, uptime)
        self.metrics = Metrics()
        self._reactor_watch = ReactorWatch(demultiplexer, reactor.seconds, uptime, computed)
        self.page = MetricsPage(build(), self.metrics.collect, self._reactor_watch.metrics)
        failed = "clock monitoring failed; restart the server"
        self.add(
            Periodic(self._watch, WATCH_SECONDS, reactor, if_it_fails=failed, at_once=True),
            Part(demultiplexer.start, self._close_demultiplexer),
        )

    def _watch(self) -> None:
        self.steady_time.watch()
        self._reactor_watch.look()

    async def _close_demultiplexer(self) -> None:
        await deferLater(self.reactor, 0, lambda: None)  # what has led here may be in a turn of the demultiplexer
        self.demultiplexer.close()

    def much_was_made(self) -> None:
        """Much exists now that is in no reference cycle, such as a state that was restored."""
        spare_garbage_collector()

    def name_epoch(self, after: str, cluster: str) -> str:
        """A new name for the order: later than `after`, and of this cluster (empty: a new one)."""
        return next_epoch(after, self.wall(), self.random, cluster)

    def connection_limit(self, wanted: int, backend_connections: int, operator_connections: int) -> tuple[int, int]:
        """As `pushup.host.process_limits.connection_limit`."""
        return connection_limit(wanted, backend_connections, operator_connections)

    def helpers(self, name: str, seconds: float) -> Helpers:
        """One thread for calls that block, such as those to the disk; each may take so many seconds."""
        limits = ServiceLimits(at_most=1, queue_limit=1, deadline_seconds=seconds)
        return HelperPool(name, limits, reactor=self.reactor, counters=self.metrics.backend(name))

    def open_journal(self, path: Path) -> JournalFile:
        """Raises: JournalError, NotUnderstood."""
        return JournalFile(path)

    def mark(self, path: Path) -> Store:
        """Where the mark with this path is kept."""
        return MarkFile(path)

    def lock(self, path: Path) -> IO[bytes]:
        """As `lock_file`; its directory is created if it is missing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        return lock_file(path)

    def connect_redis(self, url: str, timeout: float) -> Any:
        """What makes connections to Redis (`Connects`)."""
        # Imported here, so that a single node does not load what it does not need.
        from pushup.broadcast.redis.connector import Connector
        from pushup.broadcast.redis.redis_settings import parse_address

        adopt = self.demultiplexer.adopt
        return Connector(parse_address(url), reactor=self.reactor, timeout=timeout, name="pushup", adopt=adopt)
