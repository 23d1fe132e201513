"""Brings a node to where it can follow the log: finds out the situation, and carries out what `recovery` decides."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from msgspec import structs
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from pushup.broadcast.formats import NotUnderstood
from pushup.broadcast.progress_mark import Mark
from pushup.broadcast.redis.checkpoint_loader import Loaded
from pushup.broadcast.redis.durability import Durability
from pushup.broadcast.redis.log import RedisLog
from pushup.broadcast.redis.records import LastEntry, Tail
from pushup.broadcast.redis.recovery import Action, Contents, Situation, decide
from pushup.broadcast.redis.redis_errors import Malformed
from pushup.broadcast.redis.replica import Replica
from pushup.broadcast.work_budget import Pace, free, restored, work_of
from pushup.core.commands import Continue, Entry, Publish
from pushup.core.cursor import Cursor, PastEpochs, next_epoch, order_of
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import head_of_new_epoch, rows_of_new_epoch

VOUCH_SECONDS = 6.0
"""After a restart of Redis, how long to wait for the other nodes to vouch for the log. They try to reconnect
every 2 s, and then may have much to load."""

VOUCH_STEP_SECONDS = 0.25
"""How often to look whether they have."""

BEGIN_TRIES = 5
"""How often an epoch is not begun because there is a new entry, whose key the node that begins it may not know. Then it
begins anyway: in a busy log there is always another."""

FOUNDED_SECONDS = 10.0
"""How far the clocks of two servers of Redis may be apart, of which one takes the other's place with no data."""

_log = Logger()


class CannotFollow(Exception):
    """This node may not follow the log; the text says why and what to do."""


class EpochStarter:
    """Begins new epochs, and continues old ones under new names."""

    def __init__(
        self,
        *,
        node_id: str,
        replica: Replica,
        mark: Mark | None,
        wall: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        """`mark`: the last entry that this machine is known to have applied; `wall`, `random`: see `RedisBroadcast`."""
        self._node_id = node_id
        self._replica = replica
        self._mark = "" if mark is None else mark.epoch
        self._wall = wall
        self._random = random
        self._over, self._failed = "", 0  # the epoch to replace, and how many tries have failed

    def _next(self, over: str, cluster: str) -> str:
        """A name in this cluster, later than all that this node knows of.

        Or it would be taken for a log that was put back.
        """
        latest = max(over, self._replica.cursor.epoch, self._mark, key=order_of)
        return next_epoch(latest, self._wall(), self._random, cluster)

    async def begin(
        self, log: RedisLog, over: str, cluster: str, state: ReplicatedState, reason: str, *, after: bytes = b""
    ) -> None:
        """Replace the epoch `over` (empty: there is none) by a new one with the open channels of this state.

        Unless another node has, or there are entries after the one with the tag `after`: then try again. The epoch also
        has the rows of the bounded tables of this state, and those that this node knows. If the state changes
        meanwhile, the epoch may have some channels as they were before.
        `cluster`: whose log it is; empty if it is founded now.
        """
        if over != self._over:
            self._over, self._failed = over, 0
        if self._failed >= BEGIN_TRIES:
            after = b""
        self._failed += 1
        epoch = self._next(over, cluster)
        own = self._replica.follower.state
        states = (state,) if state is own else (own, state)
        head, rows = head_of_new_epoch(epoch, *states), rows_of_new_epoch(*states)
        if await log.begin(over, head, rows, cluster, after=after):
            self._failed = 0
            _log.warn(
                "{reason}; epoch {epoch} begins, and gaps are reported to subscribers", reason=reason, epoch=epoch
            )

    async def continue_(self, log: RedisLog, loaded: Loaded, reason: str) -> None:
        """Go on with what was loaded under a new name, in this run of Redis, unless another node has."""
        tail = loaded.tail
        epoch = self._next(tail.epoch, tail.cluster)
        if await log.switch(tail.tag, f"{self._node_id}.{epoch}", Continue(epoch), epoch=epoch, run=log.run):
            _log.info(
                "{reason}; epoch {old} continues as {epoch} (cursors stay valid)",
                reason=reason,
                old=tail.epoch,
                epoch=epoch,
            )


class CatchUp:
    """Recovery of one node."""

    def __init__(
        self,
        *,
        node_id: str,
        replica: Replica,
        epochs: EpochStarter,
        known_nodes: Callable[[], list[str]],
        on_start: Callable[[], None],
        on_started: Callable[[], None],
        mark: Mark | None,
        mark_name: str,
        durability: Durability,
        log_seen_at: Callable[[], float],
        clock: IReactorTime,
    ) -> None:
        """`known_nodes`: those that were alive when this node last followed the log. `on_start` is called before the
        state is replaced by a checkpoint that was read, and `on_started` afterwards. `mark`: as that of
        `EpochStarter`; `mark_name`: its file. `log_seen_at`: as that of `Heartbeat`.
        """
        self._node_id = node_id
        self._replica = replica
        self._epochs = epochs
        self._known_nodes = known_nodes
        self._on_start = on_start
        self._on_started = on_started
        self._mark = mark
        self._mark_name = mark_name
        self._durability = durability
        self._log_seen_at = log_seen_at
        self._clock = clock
        self._pace = Pace(clock)

    async def run(self, log: RedisLog) -> None:
        """Repeat deciding and acting until the log can be read on from.

        Raises: CannotFollow, CannotApply, Diverged, ErrorReply, Lost, NotUnderstood, VersionTooNew.
        """
        situation = await self._assess(log)
        loaded: Loaded | None = None
        while True:
            decision = decide(situation)
            match decision.action:
                case Action.READ_ON:
                    return
                case Action.START_FROM_CHECKPOINT:
                    assert loaded is not None
                    self._on_start()
                    await self._replica.start_from(loaded, self._pace)
                    self._replica.cluster = loaded.tail.cluster
                    self._on_started()
                    await free(loaded.snapshot.tables, self._pace)
                    return
                case Action.REFUSE:
                    raise CannotFollow(decision.reason)
                case Action.LOAD:
                    loaded = await log.load(self._node_id)
                    situation = structs.replace(situation, contents=_contents(loaded))
                case Action.ASK_OTHERS:
                    vouch = await self._ask_others(log, vouches=situation.vouches)
                    if vouch is None:
                        situation, loaded = await self._assess(log), None
                    else:
                        situation = structs.replace(situation, others_vouch=vouch)
                case Action.BEGIN_EPOCH:
                    await self._begin_epoch(log, situation, loaded, decision.reason)
                    situation, loaded = await self._assess(log), None
                case Action.CONTINUE_EPOCH:
                    assert loaded is not None
                    await self._epochs.continue_(log, loaded, decision.reason)
                    situation, loaded = await self._assess(log), None

    async def _assess(self, log: RedisLog) -> Situation:
        """What is known before anything is loaded."""
        replica = self._replica
        has_state = bool(replica.tag)
        tail = await log.tail()
        self._durability.note(log, tail)
        last_entry = LastEntry.UNKNOWN
        if has_state:
            with suppress(Malformed, NotUnderstood):  # what was loaded decides
                last_entry = await log.find(tail, replica.cursor, replica.tag)
        if last_entry is LastEntry.CONTAINED and (replica.stuck_at or replica.is_in_doubt):
            last_entry = LastEntry.UNKNOWN  # the entry after it cannot be read; the checkpoint may be past that
        return Situation(
            has_state=has_state,
            last_entry=last_entry,
            seen=replica.cursor if has_state else self._mark,
            tail=tail,
            is_same_run=log.run == tail.run,
            is_durable=self._durability.holds(log),
            cluster=self._own_cluster(tail),
            place=f"{log.connection.server} (redis_prefix {log.prefix})",
            mark=self._mark_name,
        )

    def _own_cluster(self, tail: Tail) -> str:
        """The cluster that this node belongs to, empty if it may join whichever there is.

        That is so if it has none; or if the other was founded after this node last saw its own log. Then that was
        flushed, and a node that knew no cluster was the first to find nothing in its place.
        """
        if not self._replica.cluster:
            return "" if self._mark is None else self._mark.cluster
        return "" if tail.founded > self._log_seen_at() - FOUNDED_SECONDS else self._replica.cluster

    async def _begin_epoch(self, log: RedisLog, situation: Situation, loaded: Loaded | None, reason: str) -> None:
        cluster = situation.tail.cluster or situation.cluster
        tail = situation.tail if loaded is None else loaded.tail
        state = self._replica.follower.state if loaded is None else await self._state(loaded)
        await self._epochs.begin(log, tail.epoch, cluster, state, reason, after=tail.tag)

    async def _state(self, loaded: Loaded) -> ReplicatedState:
        """The checkpoint with the entries applied, up to the first that cannot be.

        Without the keys and producers of those entries if a part of the checkpoint is missing: their outcomes may have
        been others.
        """
        state = await restored(loaded.snapshot, self._pace)
        for logged in loaded.entries:
            entry = logged.entry
            if not isinstance(entry, Entry):
                break
            if isinstance(entry.command, Publish) and not loaded.complete:
                entry = structs.replace(entry, command=structs.replace(entry.command, key=None, producer=None))
            await self._pace.spend(work_of(entry, state.time))
            try:
                state.apply(entry)
            except Exception:  # an entry that cannot be applied ends the state, whatever the reason
                break
        return state

    async def _ask_others(self, log: RedisLog, *, vouches: bool) -> bool | None:
        """Whether every node vouches; None if one has decided already. `vouches`: whether this node does.

        If Redis syncs each write, it is enough that no node has died with it.
        """
        known = [self._node_id, *self._known_nodes()] if vouches else None
        for _ in range(round(VOUCH_SECONDS / VOUCH_STEP_SECONDS)):
            vouchers = await log.vouch(self._node_id, known)
            if log.run == vouchers.run:
                return None
            if vouchers.are_all or (self._durability.holds(log) and not vouchers.members):
                return True
            await deferLater(self._clock, VOUCH_STEP_SECONDS, lambda: None)
        return False


def _contents(loaded: Loaded | None) -> Contents:
    if loaded is None:
        return Contents(Cursor("", 0), PastEpochs(), is_whole=False)
    return Contents(Cursor(loaded.tail.epoch, loaded.tail.sequence), PastEpochs(loaded.past), loaded.is_whole)
