"""Brings a node to where it can follow the log: finds out the situation, and carries out what `recovery` decides."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from pushup.broadcast.redis.epochs import next_epoch, order_of
from pushup.broadcast.redis.log import RedisLog
from pushup.broadcast.redis.records import LastEntry, Loaded
from pushup.broadcast.redis.recovery import Action, Contents, Situation, decide
from pushup.broadcast.redis.replica import Replica
from pushup.core.limits import Limits
from pushup.core.snapshot import Snapshot, new_epoch

WITNESS_SECONDS = 2.0
"""After a restart of Redis, how long a node without a state waits for one that can tell whether the log is complete."""

WITNESS_STEP_SECONDS = 0.25
"""How often it looks for one."""

_log = Logger()


class CannotFollow(Exception):
    """This node may not follow the log; the text says why and what to do."""


class EpochStarter:
    """Begins new epochs with this node's limits."""

    def __init__(
        self, *, replica: Replica, limits: Limits, wall: Callable[[], float], random: Callable[[], float]
    ) -> None:
        """`wall` returns seconds since the epoch, by a clock that other nodes have as well; `random` a number in [0, 1)."""
        self._replica = replica
        self._limits = limits
        self._wall = wall
        self._random = random

    async def begin(self, log: RedisLog, over: str, state: Snapshot, reason: str) -> None:
        """Replace the epoch `over` (empty: there is none) by a new one with these channels, unless another node has."""
        epoch = next_epoch(max(over, self._replica.cursor.epoch, key=order_of), self._wall(), self._random)
        if await log.begin(over, new_epoch(state, epoch), self._limits, log.run):
            _log.warn("{reason}; epoch {epoch} begins, and subscribers are told of gaps", reason=reason, epoch=epoch)


class CatchUp:
    """Recovery of one node."""

    def __init__(
        self,
        *,
        node_id: str,
        replica: Replica,
        epochs: EpochStarter,
        on_start: Callable[[], None],
        limits: Limits,
        clock: IReactorTime,
    ) -> None:
        """`on_start` is called before the state is replaced by a checkpoint."""
        self._node_id = node_id
        self._replica = replica
        self._epochs = epochs
        self._on_start = on_start
        self._limits = limits
        self._clock = clock

    async def run(self, log: RedisLog) -> None:
        """Repeat deciding and acting until the log can be read on from.

        Raises: CannotFollow, Diverged, ErrorReply, Lost.
        """
        situation = first = await self._assess(log)
        loaded: Loaded | None = None
        while True:
            decision = decide(situation)
            match decision.action:
                case Action.READ_ON:
                    if await log.last_run() != log.run:  # a Redis that is full would refuse a needless write
                        await log.set_run(log.run)
                    return
                case Action.START_FROM_CHECKPOINT:
                    assert loaded is not None
                    self._on_start()
                    self._replica.start_from(loaded)
                    return
                case Action.REFUSE:
                    raise CannotFollow(decision.reason)
                case Action.LOAD:
                    loaded = await log.load()
                    situation = structs.replace(situation, contents=self._contents(loaded))
                case Action.WAIT_FOR_WITNESS:
                    witnessed = await self._wait_for_witness(log)
                    situation = first if witnessed else structs.replace(situation, waited_in_vain=True)
                case Action.LIST_NODES:
                    report = await log.report(self._node_id, b"", 0)
                    situation = structs.replace(situation, others_alive=bool(report.members))
                case Action.BEGIN_EPOCH:
                    await self._begin_epoch(log, loaded, decision.reason)
                    situation = first
                case Action.CHANGE_LIMITS:
                    assert loaded is not None
                    await self._change_limits(log, loaded)
                    situation = first

    async def _assess(self, log: RedisLog) -> Situation:
        """What is known before anything is loaded."""
        replica = self._replica
        return Situation(
            has_state=bool(replica.tag),
            last_entry=await log.find(replica.cursor, replica.tag) if replica.tag else LastEntry.UNKNOWN,
            cursor=replica.cursor,
            limits=self._limits,
            run=log.run,
            is_durable=log.durable,
        )

    def _contents(self, loaded: Loaded | None) -> Contents:
        if loaded is None:
            return Contents("", is_whole=False, run="", limits=self._limits)
        return Contents(loaded.tail.epoch, loaded.is_whole, loaded.run, loaded.saved.limits)

    async def _begin_epoch(self, log: RedisLog, loaded: Loaded | None, reason: str) -> None:
        if loaded is None:
            await self._epochs.begin(log, "", self._replica.follower.snapshot(), reason)
        else:
            await self._epochs.begin(log, loaded.tail.epoch, loaded.state().snapshot(), reason)

    async def _wait_for_witness(self, log: RedisLog) -> bool:
        """Whether some node finds, in time, the entries that it has applied in this run of Redis."""
        for _ in range(round(WITNESS_SECONDS / WITNESS_STEP_SECONDS)):
            await deferLater(self._clock, WITNESS_STEP_SECONDS, lambda: None)
            if await log.last_run() == log.run:
                return True
        return False

    async def _change_limits(self, log: RedisLog, loaded: Loaded) -> None:
        """Save what the entries led to under the old limits; the next entries are applied under this node's."""
        changes = loaded.state().changes()
        await log.save(loaded.saved.head.sequence, changes, loaded.tail.tag.decode(), self._limits, keep_after=0)
