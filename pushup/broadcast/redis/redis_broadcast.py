"""The broadcast that a node sees. It joins the parts, which are the files beside this one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from twisted.internet.interfaces import IReactorTime

from pushup.broadcast import Broadcast, Follower, Member, OnConfirmation, OnEnd, OnOutcome
from pushup.broadcast.admission import WaitingLimits, WaitingRoom
from pushup.broadcast.outage_log import OutageLog
from pushup.broadcast.progress_mark import ProgressMark
from pushup.broadcast.redis.acknowledgements import Confirmations, PendingPublishers
from pushup.broadcast.redis.catch_up import CatchUp, EpochStarter
from pushup.broadcast.redis.connector import Connects
from pushup.broadcast.redis.durability import Durability
from pushup.broadcast.redis.heartbeat import Heartbeat
from pushup.broadcast.redis.leader import CheckpointSaver
from pushup.broadcast.redis.lease import Lease
from pushup.broadcast.redis.log import open_log
from pushup.broadcast.redis.redis_metrics import RedisMetrics
from pushup.broadcast.redis.redis_settings import RedisLimits
from pushup.broadcast.redis.replica import Replica
from pushup.broadcast.redis.session import Session
from pushup.core.commands import Ack, Command, Outcome
from pushup.core.cursor import Cursor
from pushup.core.errors import PushUpError, Refusal
from pushup.core.limits import Limits
from pushup.metrics import Metric


class RedisBroadcast:
    """The order of many machines, followed by this node. Its follower has no state until the log was read."""

    _replica: Replica  # these exist once it is started
    _heartbeat: Heartbeat
    _session: Session

    def __init__(
        self,
        connector: Connects,
        *,
        node_id: str,
        limits: Limits,
        redis_limits: RedisLimits,
        waiting_limits: WaitingLimits,
        clock: IReactorTime,
        wall: Callable[[], float],
        uptime: Callable[[], float],
        random: Callable[[], float],
        progress_mark: ProgressMark | None = None,
        on_large: Callable[[], None] = lambda: None,
    ) -> None:
        """`node_id`: unique among the nodes, and new with each start; `random` returns a number in [0, 1).

        `wall` returns seconds since the epoch, by a clock that other nodes have as well; `clock` is for waiting,
        and `uptime` for leases (see `pushup.clock`).
        `on_large` is called when a large checkpoint may be in memory, and when the state that was made of it is.
        """
        self.node_id = node_id
        self._progress_mark = progress_mark
        self._on_large = on_large
        self._limits = limits
        self._timeout = redis_limits.redis_timeout_seconds
        self._clock = clock
        self._wall = wall
        self._uptime = uptime
        self._random = random
        self._connect = partial(open_log, connector, redis_limits.redis_prefix)
        self._room = WaitingRoom(waiting_limits)
        self._pending_publishers = PendingPublishers(clock, self._timeout, self._room)
        self._durability = Durability(declared=redis_limits.redis_durable)
        self._confirmations = Confirmations(self._connect, clock)
        self._lease = Lease(uptime)
        self._metrics = RedisMetrics(clock, lambda: self._replica.cursor)
        self._is_running = False

    def start(self, follower: Follower) -> None:
        clock, limits, node_id = self._clock, self._limits, self.node_id
        outage_log = OutageLog(clock, "Redis: {reason}; publishing is refused until it is back")
        replica = self._replica = Replica(follower, self._applied)
        mark = None if self._progress_mark is None else self._progress_mark.read()
        epochs = EpochStarter(node_id=node_id, replica=replica, mark=mark, wall=self._wall, random=self._random)
        self._saver = saver = CheckpointSaver(replica=replica, epochs=epochs, clock=clock)
        self._heartbeat = Heartbeat(
            node_id=node_id,
            replica=replica,
            saver=saver,
            lease=self._lease,
            confirmations=self._confirmations,
            outage_log=outage_log,
            durability=self._durability,
            metrics=self._metrics,
            limits=limits,
            timeout=self._timeout,
            clock=clock,
            uptime=self._uptime,
        )
        self._session = Session(
            node_id=node_id,
            connect=self._connect,
            replica=replica,
            catch_up=CatchUp(
                node_id=node_id,
                replica=replica,
                epochs=epochs,
                known_nodes=self._heartbeat.known_nodes,
                on_start=self._starting,
                on_started=self._started,
                mark=mark,
                mark_name="" if self._progress_mark is None else self._progress_mark.name,
                durability=self._durability,
                log_seen_at=self._heartbeat.log_seen_at,
                clock=clock,
            ),
            heartbeat=self._heartbeat,
            pending_publishers=self._pending_publishers,
            confirmations=self._confirmations,
            outage_log=outage_log,
            metrics=self._metrics,
            timeout=self._timeout,
            clock=clock,
            random=self._random,
        )
        self._session.start()
        self._is_running = True

    def _starting(self) -> None:
        """A checkpoint was read, and is going to replace the state."""
        self._saver.forget()
        self._on_large()

    def _started(self) -> None:
        """It has replaced the state."""
        self._on_large()
        if self._progress_mark is not None:
            self._progress_mark.cluster = self._replica.cluster
        self._note_mark()

    def _note_mark(self) -> None:
        if self._progress_mark is not None:
            self._progress_mark.note(self._replica.cursor)

    def _applied(self, tag: bytes, outcome: Outcome) -> None:
        self._pending_publishers.tell(tag, outcome)
        self._note_mark()

    async def stop(self) -> None:
        if self._is_running:
            self._is_running = False
            await self._session.stop()
            if self._progress_mark is not None:
                await self._progress_mark.stop()
            self._confirmations.stop()
            self._pending_publishers.stop()

    def abort(self) -> None:
        """Disappear as in a crash: without telling the other nodes, and without answering publishers."""
        if self._is_running:
            self._is_running = False
            self._session.abort()
            if self._progress_mark is not None:
                self._progress_mark.abort()
            self._confirmations.abort()
            self._pending_publishers.abort()

    def append(self, command: Command, on_outcome: OnOutcome) -> None:
        self._session.append(command, on_outcome)

    def confirm(self, ack: Ack, cursor: Cursor, seconds: float, on_confirmation: OnConfirmation) -> None:
        self._confirmations.confirm(ack, cursor, seconds, on_confirmation)

    def now(self) -> float:
        return max(self._replica.follower.state.time, self._heartbeat.redis_time())

    def find_end(self, on_end: OnEnd) -> None:
        self._heartbeat.find_end(on_end)

    @property
    def is_current(self) -> bool:
        return self._lease.is_current

    @property
    def waiting_bytes(self) -> int:
        return self._room.bytes

    def awaits(self, epoch: str) -> bool:
        return self._heartbeat.awaits(epoch)

    def members(self) -> list[Member]:
        return self._heartbeat.members

    def why_not_ready(self) -> PushUpError | None:
        if self._session.trouble is not None:
            return self._session.trouble
        return None if self._lease.is_current else Refusal.OUTDATED()

    def metrics(self) -> Iterator[Metric]:
        if self._is_running:
            yield from self._metrics.metrics(is_up=self._session.is_following)

    @property
    def is_following(self) -> bool:
        """Whether commands can be appended now."""
        return self._session.is_following

    @property
    def tag(self) -> bytes:
        """Identifies the last entry applied, in all forks of the log; empty while the state is not known."""
        return self._replica.tag


_check: type[Broadcast] = RedisBroadcast
