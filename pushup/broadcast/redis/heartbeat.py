"""What a node does four times a second: shows that it is alive, and learns of the others, the log and the checkpoint.

While much changes it does so more often, so that no save of the checkpoint has much to collect and encode at once.

Each report renews the node's lease. The reply says which nodes are alive, where the log ends, and where the checkpoint
is. From it the node sees whether the log is still the one that it follows, and whether its reading is stuck. One node
does what has to be done once for all (`leader`), beside its reports: it may take longer than a lease lasts.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import structs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from pushup.broadcast import Member, OnEnd
from pushup.broadcast.outage_log import OutageLog
from pushup.broadcast.redis.acknowledgements import Confirmations
from pushup.broadcast.redis.differences import SettingsDifferences
from pushup.broadcast.redis.durability import Durability
from pushup.broadcast.redis.leader import SAVE_CHANGES, CheckpointSaver, FirstNode
from pushup.broadcast.redis.lease import MARGIN_SECONDS, Lease
from pushup.broadcast.redis.log import LEASE_SECONDS, READ_SECONDS, RedisLog
from pushup.broadcast.redis.records import LastEntry, NodeReport, Report
from pushup.broadcast.redis.redis_errors import ErrorReply, Lost, Malformed
from pushup.broadcast.redis.redis_metrics import RedisMetrics
from pushup.broadcast.redis.replica import Diverged, Replica
from pushup.core.cursor import Cursor, is_of_one_cluster, order_of
from pushup.core.limits import Limits
from pushup.core.machine_rules import LATEST_VERSION

REPORT_SECONDS = 0.25
"""How often a node reports, unless SAVE_CHANGES have been made before."""

LATELY_SECONDS = 2 * REPORT_SECONDS
"""A node that has seen this lately that the log is in its epoch is not cut off."""

OUTDATED_SECONDS = 600.0
"""How long clients with a cursor of a later epoch of this cluster are sent elsewhere. By then an operator has ended a
split; and if that epoch is gone, or the cursor was made up, its client gets an answer."""

EPOCHS_LIMIT = 64
"""Maximum number of epochs that a node remembers: those it has followed, and those of which clients have cursors."""

_log = Logger()
_node_report = msgspec.json.Decoder(NodeReport)


class Heartbeat:
    """Reports of one node, through whichever connection is the current one."""

    def __init__(
        self,
        *,
        node_id: str,
        replica: Replica,
        saver: CheckpointSaver,
        lease: Lease,
        confirmations: Confirmations,
        outage_log: OutageLog,
        durability: Durability,
        metrics: RedisMetrics,
        limits: Limits,
        timeout: float,
        clock: IReactorTime,
        uptime: Callable[[], float],
    ) -> None:
        """`limits`: those in this node's settings. `timeout`: seconds, after which reading without progress counts as
        stuck. `uptime`: see `Lease`.
        """
        self._node_id = node_id
        self._replica = replica
        self._lease = lease
        self._confirmations = confirmations
        self._outage_log = outage_log
        self._durability = durability
        self._metrics = metrics
        self._limits = msgspec.Raw(msgspec.json.encode(limits))
        self._timeout = timeout
        self._clock = clock
        self._uptime = uptime
        self._is_leaving = False
        self._in_epoch_at = -math.inf  # when the report was sent that last found the log in this node's epoch
        self._log_seen_at = math.inf
        self._answered = 0.0  # the time of the last report whose reply has come, by the clock of Redis
        self._asked_at = -math.inf  # when it was sent, by `uptime`
        # Epochs, and since when this node knows that clients have cursors of them; -inf for those that it has followed.
        self._epochs: dict[str, float] = {}
        self._redis_ahead = -math.inf  # by this at least the clock of Redis is ahead of `uptime`
        self._incomplete_at = -math.inf  # when Redis last did not know all leases
        self.members: list[Member] = []
        """The nodes that are alive, by id, as of the last report."""
        self._differences = SettingsDifferences()
        self._seen: dict[str, float] = {}  # when each node was last seen, for those seen lately
        self._first_node = FirstNode(node_id=node_id, replica=replica, saver=saver, clock=clock)
        self._acting: Deferred[None] | None = None  # while this node, as the first one, does what is due
        self._on_ends: list[OnEnd] = []  # those who ask where the log ends; the next report that is sent tells them
        self._pause: Deferred[None] | None = None  # the last one before a report
        self._most_changes = 0  # with so many the next report comes early

    async def run(
        self, commands: RedisLog, reading: RedisLog, on_report: Callable[[RedisLog], Awaitable[None]]
    ) -> None:
        """Report until cancelled, or until the log cannot be read on: then close the connection that reads it.

        `on_report` is called after each report.
        """
        stall = _Stall(reading, self._timeout, self._clock)
        self._lease.lapse()  # with whatever state recovery has left
        try:
            while not self._is_leaving:
                await self._report(commands, reading, stall)
                await on_report(commands)
                self._most_changes = self._replica.follower.changed_count + SAVE_CHANGES
                self._pause = Deferred()
                await self._pause.addTimeout(REPORT_SECONDS, self._clock, lambda *_: None)  # cancelling still ends it
        except CancelledError:
            pass
        except Exception:
            self._failed(Failure(), reading)
        if self._acting is not None:
            self._acting.cancel()

    def _failed(self, failure: Failure, reading: RedisLog) -> None:
        """The log cannot be read on, unless this was cancelled."""
        if failure.check(CancelledError):
            return
        self._replica.is_in_doubt |= bool(failure.check(Diverged, Malformed))
        reason = failure.getErrorMessage()
        if not failure.check(Lost, ErrorReply, Diverged) and self._outage_log.refused(reason):
            _log.failure("reporting to the other nodes failed; this node reconnects to Redis", failure)
        reading.connection.abort(reason)

    def applied(self) -> None:
        """An entry has been applied: report now if much has changed since the last report."""
        if self._lease.is_behind:
            self._lease.applied(self._replica.cursor)
        pause = self._pause
        if pause is not None and not pause.called and self._replica.follower.changed_count >= self._most_changes:
            pause.callback(None)

    async def leave(self, commands: RedisLog) -> None:
        """Report no more, and end the lease at once."""
        self._is_leaving = True
        self._lease.lapse()
        await commands.report(self._node_id, b"", 0)

    def awaits(self, epoch: str) -> bool:
        """Whether the log may be in this epoch by now, and not in this node's.

        It is not if this node has followed it before, or if the log was seen to be in this node's epoch after a client
        came with a cursor of the other one. If that has an earlier name, it is enough to have seen it lately: only a
        node that is cut off can have missed it, and only if the clock that named this node's epoch was ahead.

        If it has a later name and is of this cluster, this node's log is outdated: there are two primaries. Another
        node follows the later epoch, so for OUTDATED_SECONDS this one reports no loss to its clients.
        """
        replica, now = self._replica, self._uptime()
        if epoch == replica.cursor.epoch or replica.follower.state.past_epochs.good_up_to(epoch) >= 0:
            return False
        if order_of(epoch) < order_of(replica.cursor.epoch):
            is_full = len(self._epochs) >= EPOCHS_LIMIT and epoch not in self._epochs
            if is_full or now <= self._in_epoch_at + LATELY_SECONDS:
                return False
        elif is_of_one_cluster(epoch, replica.cursor.epoch) and now < self._known_since(epoch, now) + OUTDATED_SECONDS:
            return True
        return self._known_since(epoch, now) >= self._in_epoch_at

    def _known_since(self, epoch: str, now: float) -> float:
        """When this node first heard of this epoch."""
        if len(self._epochs) >= EPOCHS_LIMIT and epoch not in self._epochs:
            del self._epochs[next(iter(self._epochs))]
        return self._epochs.setdefault(epoch, now)

    def redis_time(self) -> float:
        """The time in Redis now, seconds since the epoch: that of the last report and what has passed since.

        Early by the time that the reply took. -inf before the first report.
        """
        return self._uptime() + self._redis_ahead

    def find_end(self, on_end: OnEnd) -> None:
        """Call back with the end of the log, as the next report finds it."""
        self._on_ends.append(on_end)

    async def _report(self, commands: RedisLog, reading: RedisLog, stall: _Stall) -> None:
        """Report once, and act on the reply. Raises: Diverged."""
        replica = self._replica
        last, tag = replica.cursor, replica.tag
        own = self._own_report()
        asked_at = self._uptime()
        asking = len(self._on_ends)  # others that ask while this report is under way may ask about later entries
        report = await commands.report(
            self._node_id,
            msgspec.json.encode(own),
            LEASE_SECONDS,
            last=self._answered,
            was_replicated=self._durability.is_disproved,
        )
        now = self._uptime()
        # If the clock of Redis was set forward, it may have ended the lease of a node that still goes by it.
        was_set = report.time - self._answered > now - self._asked_at + MARGIN_SECONDS
        self._answered, self._asked_at = report.time, asked_at
        self._metrics.reported(commands, now - asked_at, report.tail)
        was_living = report.complete
        self._durability.note(commands, report.tail)
        if was_set or not report.complete:
            self._incomplete_at = now
        if now < self._incomplete_at + LEASE_SECONDS:
            report = structs.replace(report, complete=False)
        self._redis_ahead = report.time - now
        nodes = sorted(map(_node_report.decode, report.members), key=lambda node: node.id)
        self._note(nodes, now)
        tail = report.tail
        if tail.cluster != replica.cluster:
            raise Diverged(f"the log is that of cluster {tail.cluster or '(none)'} by now, not of {replica.cluster}")
        if commands.run != tail.run:
            raise Diverged("the log is followed in another run of Redis")
        if tail.epoch != last.epoch and (tail.sequence, tail.tag) == (last.sequence, tag):
            raise Diverged(f"the log is in epoch {tail.epoch} by now, and no entry says so")
        if tail.epoch != last.epoch and await commands.find(tail, last, tag) is LastEntry.CONTAINED:
            pass  # the epoch goes on under a new name, which this node has yet to read
        elif not tail.includes(last) or (tail.sequence == last.sequence and tail.tag != tag):
            raise Diverged(f"the log ends at {tail.epoch}-{tail.sequence} and does not contain {last}")
        else:
            self._in_epoch_at = asked_at
            self._log_seen_at = report.time
            self._known_since(last.epoch, -math.inf)
        if not self._is_leaving:
            self._lease.renewed(asked_at, Cursor(tail.epoch, tail.sequence), replica.cursor, was_living=was_living)
        on_ends, self._on_ends = self._on_ends[:asking], self._on_ends[asking:]
        for on_end in on_ends:
            on_end(Cursor(tail.epoch, tail.sequence))
        self._confirmations.reported(self.members, complete=report.complete)
        if not replica.stuck_at:
            stall.check(report, replica.cursor.sequence)
        if not 0 <= report.saved <= tail.sequence:
            raise Diverged(f"the checkpoint is at {report.saved}, and the log ends at {tail.sequence}")
        follower = replica.follower
        if report.saved > follower.changes_known_after:
            follower.note_changes(min(report.saved, follower.cursor.sequence))
        first = min(nodes, key=lambda node: (bool(node.stuck_at), node.id))  # there is this node, at least
        if first.id == self._node_id and self._acting is None:
            acting = self._acting = Deferred.fromCoroutine(self._first_node.act(commands, report, nodes))
            acting.addErrback(self._failed, reading)
            acting.addBoth(self._has_acted)

    def _has_acted(self, _: None) -> None:
        self._acting = None

    def log_seen_at(self) -> float:
        """When a report last found the log that this node follows, in seconds by the clock of Redis; inf: never."""
        return self._log_seen_at

    def known_nodes(self) -> list[str]:
        """The nodes that were alive when this one last reported, or shortly before."""
        return list(self._seen)

    def _own_report(self) -> NodeReport:
        shown = structs.asdict(self._replica.follower.member(self._node_id))
        return NodeReport(**shown, latest_version=LATEST_VERSION, limits=self._limits, stuck_at=self._replica.stuck_at)

    def _note(self, nodes: list[NodeReport], now: float) -> None:
        self.members = [node.member for node in nodes]
        self._differences.look(self._replica.follower.member(self._node_id), self.members)
        self._seen |= {node.id: now for node in nodes}
        self._seen = {name: at for name, at in self._seen.items() if at >= now - LEASE_SECONDS}


class _Stall:
    """Notices that nothing is read, though the log has more: the server that is read from is cut off, or a replica."""

    def __init__(self, reading: RedisLog, timeout: float, clock: IReactorTime) -> None:
        self._connection = reading.connection
        self._limit = READ_SECONDS + timeout
        self._clock = clock
        self._sequence, self._since = -1, 0.0  # where reading stands, and since when

    def check(self, report: Report, sequence: int) -> None:
        """`sequence`: the last one applied. Raises: Diverged."""
        now = self._clock.seconds()
        if report.tail.sequence <= sequence or sequence != self._sequence:
            self._sequence, self._since = sequence, now
        elif now - max(self._since, self._connection.reply_grew_at) > self._limit:
            raise Diverged("reading is stuck: Redis has new entries, but sends none")
