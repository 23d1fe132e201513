"""A node at the log in Redis: gives commands their places, follows the log, and sees when it is another one.

Two connections. By one, commands are appended and the node reports that it lives; by the other it reads. A command is
applied when it is read, by the node that appended it too, and only then is its publisher answered: there is one way
from the log into the message queue.

What the node remembers is the log's last entry that it has applied, by its place and tag. Whenever it connects, and
four times a second, it sees whether the log still contains that entry:

- It does: the node reads on, and has missed nothing.
- The log does not reach back so far: the node was away for long. It starts again from the checkpoint, like a new one.
- The log is without it: Redis has lost acknowledged entries (a restart from an older file, a failover). The cursors
  of this epoch are then worth nothing: a new epoch is begun, in which every client is told of gaps.
- The log is in another epoch. If that is a later one, the node starts again from its checkpoint; if it is an earlier
  one, Redis has gone back, and a new epoch is begun.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Protocol

import hiredis
import msgspec
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as TookTooLong
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from pushup.broadcast import Broadcast, Follower, OnConfirmation, OnOutcome, refusals
from pushup.broadcast.members import Member
from pushup.broadcast.outage import Outage
from pushup.broadcast.redis.confirmations import Confirmations
from pushup.broadcast.redis.connection import Lost, RedisConnection, Reply
from pushup.broadcast.redis.connector import NotThere
from pushup.broadcast.redis.epochs import age, beginning, next_epoch
from pushup.broadcast.redis.limits import RedisLimits
from pushup.broadcast.redis.log import LEASE_SECONDS, READ_SECONDS, Incomplete, Loaded, LogEntry, RedisLog, Report
from pushup.broadcast.redis.pending import Pending
from pushup.broadcast.waiting import WaitingLimits, WaitingRoom
from pushup.core.commands import Ack, Command
from pushup.core.cursor import Cursor
from pushup.core.errors import OutOfOrder, Unavailable
from pushup.core.limits import Limits
from pushup.core.snapshot import Snapshot, new_epoch

REPORT_SECONDS = 0.25
"""How often a node shows that it lives, and looks where the log is."""

SAVE_SECONDS = 1.0
"""How often the checkpoint is brought up to the log."""

LOG_SECONDS = 60.0
"""Entries stay in the log for so long after the checkpoint contains them: a node that was away no longer reads on."""

AWAITED_SECONDS = 60.0
"""Clients from an epoch that began so recently wait for this node to come to it, though it has been told of none: the
clocks of two nodes may differ, or Redis has gone back and those who know will say so."""

WITNESS_SECONDS = 2.0
"""After Redis was restarted, a node that knows nothing waits so long for one that can tell whether the log is whole."""

RETRY_SECONDS = (0.1, 5.0)
"""How long after a failure Redis is tried again: at first, and at most; doubled each time, and each a random part."""


class _Diverged(Exception):
    """What comes next in the log does not follow what this node has applied."""


class _OtherLimits(Exception):
    """Nodes with other limits than this one's follow the log."""


class Connects(Protocol):
    """Makes connections to Redis."""

    async def connect(self) -> RedisConnection: ...


class RedisBroadcast:
    """One node's share in the log. Its follower has no state until the log was read."""

    def __init__(
        self,
        connector: Connects,
        *,
        limits: Limits,
        redis_limits: RedisLimits,
        waiting_limits: WaitingLimits,
        clock: IReactorTime,
        random: Callable[[], float],
    ) -> None:
        self._connector = connector
        self._limits = limits
        self._timeout = redis_limits.redis_timeout_seconds
        self._prefix = redis_limits.redis_prefix
        self._clock = clock
        self._random = random
        self.id = secrets.token_hex(4)
        self._numbers = count(1)
        self._kept_up: Deferred[None] | None = None
        self._commands: RedisLog | None = None  # while the log is followed
        self._leaving = False
        self._tag = b""  # of the last entry applied; none: what this queue is, is not known
        self._heard = 0.0
        self._current = 0.0  # when the log was last asked, and was in our epoch
        self._stands_at, self._stands_since = -1, 0.0  # where reading has not gone on from, though there is more
        self._outage = Outage(clock, "Redis: {}; publishing is refused until it is back".format)
        # Why the log is not followed, if it is not.
        self._trouble: Unavailable | None = refusals.unreachable("Redis has not been reached yet")
        self._room = WaitingRoom(waiting_limits)
        self._pending = Pending(clock, self._timeout, self._room)
        self._members: list[Member] = []
        self._saves: deque[tuple[float, int]] = deque()
        self._confirmations = Confirmations(self._connect, clock)

    def start(self, follower: Follower) -> None:
        self._follower = follower
        self._kept_up = Deferred.fromCoroutine(self._keep_up())
        self._kept_up.addErrback(lambda failure: failure.trap(CancelledError) and None)  # it waited to try again

    def why_not_ready(self) -> Unavailable | None:
        silent = self._clock.seconds() - self._heard
        if self._tag and silent <= READ_SECONDS + self._timeout:
            return None
        return self._trouble or refusals.unreachable(f"Redis has not answered for {silent:.0f} s")

    @property
    def waiting_bytes(self) -> int:
        return self._room.bytes

    def awaits(self, epoch: str) -> bool:
        """Whether it is later than ours, and may have begun since the log was seen to be in ours."""
        began = beginning(epoch)
        if age(epoch) <= age(self._follower.cursor.epoch) or began is None:
            return False
        return self._current - AWAITED_SECONDS < began < self._clock.seconds() + AWAITED_SECONDS

    def members(self) -> list[Member]:
        return self._members

    def append(self, command: Command, on_outcome: OnOutcome) -> None:
        if self._commands is None:
            on_outcome(self._trouble or refusals.stopping())
            return
        tag = f"{self.id}.{next(self._numbers)}"
        if self._pending.add(tag.encode(), command, on_outcome):
            self._commands.append(self._follower.cursor.epoch, tag, command, partial(self._appended, tag.encode()))
        else:
            on_outcome(self._room.full())

    def confirm(self, ack: Ack, cursor: Cursor, seconds: float, on_confirmation: OnConfirmation) -> None:
        self._confirmations.confirm(ack, cursor, seconds, on_confirmation)

    async def stop(self) -> None:
        self._leaving = True
        if self._commands is not None:
            try:
                leaving = Deferred.fromCoroutine(self._commands.report(self.id, b"", 0))
                await leaving.addTimeout(self._timeout, self._clock)  # much may have to be sent before it
            except (Lost, hiredis.ReplyError, TookTooLong) as error:
                _log.debug("could not tell the others that this node leaves: {error}", error=error)
        if self._kept_up is not None:
            self._kept_up.cancel()
        self._confirmations.stop()
        self._pending.stop()

    def _appended(self, tag: bytes, reply: Reply) -> None:
        """The entry has its place; whoever waits for it is answered when it is read. Or else it has none."""
        self._pending.answered(tag)
        if isinstance(reply, int) and reply > 0:
            self._outage.over()
            return
        if isinstance(reply, Lost):
            self._pending.tell(tag, refusals.unknown(str(reply)))
            return
        reason = str(reply) if reply else "a new epoch has begun"
        self._pending.tell(tag, refusals.refused(f"Redis: {reason}") if reply else refusals.replaced())
        if reply:
            self._outage.refused(reason)
        # Either goes away with new connections: to the master that has taken over, to a Redis that knows the scripts.
        if self._commands is not None and reason.startswith(("a new epoch", "READONLY", "NOSCRIPT")):
            self._commands.connection.abort(reason)

    # Following the log.

    async def _keep_up(self) -> None:
        """Connect and follow the log until a connection is lost, and again."""
        shortest, longest = RETRY_SECONDS
        wait = shortest
        while True:
            logs: list[RedisLog] = []
            try:
                logs.append(await self._connect())
                logs.append(await self._connect())
                if logs[0].run != logs[1].run:
                    raise NotThere("two connections led to two runs of Redis: it was restarted, or a replica took over")
                if not self._tag and not self._outage.lasts:
                    self._trouble = refusals.loading()
                await self._catch_up(logs[0])
                wait = shortest
                await self._follow(*logs)
            except CancelledError:
                return
            except (NotThere, Lost) as error:
                self._failed(refusals.unreachable(str(error)))
            except (_OtherLimits, hiredis.ReplyError, _Diverged) as error:
                self._failed(refusals.unusable(str(error)))
            except Exception as error:
                if self._failed(refusals.unusable(f"{type(error).__name__}: {error}")):
                    _log.failure("following the log failed")
            finally:
                self._commands = None
                self._confirmations.follows("")
                for log in logs:
                    log.connection.abort(self._trouble.operator_detail if self._trouble else "this node stops")
            await deferLater(self._clock, wait * (0.5 + self._random() / 2), lambda: None)
            wait = min(2 * wait, longest)

    async def _connect(self) -> RedisLog:
        connection = await self._connector.connect()
        log = RedisLog(connection, self._prefix)
        try:
            await log.prepare()
        except Exception:
            connection.abort("it cannot be used")
            raise
        return log

    def _failed(self, trouble: Unavailable) -> bool:
        """The log is not followed; whether that is news."""
        self._trouble = trouble
        return self._outage.refused(trouble.operator_detail)

    async def _follow(self, reading: RedisLog, commands: RedisLog) -> None:
        """Read and apply, while commands may be appended, until a connection is lost. Raises: _Diverged."""
        self._heard = self._clock.seconds()
        self._stands_at = -1
        self._commands = commands
        self._confirmations.follows(reading.run)
        self._trouble = None
        if not self._outage.over():
            _log.info("following the log in Redis, from {cursor} on", cursor=self._follower.cursor)
        reporting = Deferred.fromCoroutine(self._keep_reporting(commands, reading))
        try:
            while True:
                last = self._follower.cursor
                entries = await reading.read(last.epoch, last.sequence)
                self._heard = self._clock.seconds()
                for entry in entries:
                    self._take(entry)
        finally:
            reporting.cancel()

    def _take(self, logged: LogEntry) -> None:
        """Apply the next entry. Raises: _Diverged."""
        if logged.after != self._tag:
            raise _Diverged(f"{logged.entry.sequence} comes after another entry than {self._follower.cursor}")
        self._tag = b""
        try:
            outcome = self._follower.apply(logged.entry)
        except OutOfOrder as error:
            raise _Diverged(str(error)) from None
        self._tag = logged.tag
        self._pending.tell(logged.tag, outcome)

    async def _catch_up(self, log: RedisLog) -> None:
        """Be where the log can be read on from."""
        last = self._follower.cursor
        goes_on = await log.goes_on_from(last.epoch, last.sequence, self._tag) if self._tag else None
        if goes_on:
            if await log.last_run() != log.run:  # a Redis that is full would refuse it
                await log.set_run(log.run)
            return
        has_lost = goes_on is False
        while not await self._start(log, has_lost):
            has_lost = False  # there is a new epoch now, begun here or by somebody who was faster

    async def _start(self, log: RedisLog, has_lost: bool) -> bool:
        """Start from what is in Redis, as a new node does; False when that has to be another first."""
        loaded = await log.load()
        if loaded is None:
            await self._begin(log, loaded, "there is nothing in Redis")
        elif not loaded.is_whole:
            await self._begin(log, loaded, "a part of the log is missing in Redis: was it removed, or evicted?")
        elif has_lost and age(loaded.tail.epoch) <= age(self._follower.cursor.epoch):
            await self._begin(
                log, loaded, f"Redis has lost entries that were acknowledged, before {self._follower.cursor}"
            )
        elif not self._tag and loaded.run != log.run and not log.durable:
            if not await self._is_witnessed(log):
                await self._begin(log, loaded, "Redis was restarted, and nobody knows whether it has lost entries")
        elif loaded.saved.limits != self._limits:
            await self._change_limits(log, loaded)
        else:
            self._follower.start_from(loaded.snapshot)
            self._follower.note_changes()
            self._saves.clear()
            self._tag = loaded.saved.tag.encode()
            for entry in loaded.entries:
                self._take(entry)
            return True
        return False

    async def _begin(self, log: RedisLog, loaded: Loaded | None, why: str) -> None:
        """Begin a new epoch with the channels that are in Redis, or else with those of this node."""
        if loaded is None:
            await self._begin_after(log, "", self._follower.snapshot(), why)
        else:
            await self._begin_after(log, loaded.tail.epoch, loaded.state().snapshot(), why)

    async def _begin_after(self, log: RedisLog, over: str, state: Snapshot, why: str) -> None:
        """Begin a new epoch with these channels, unless somebody else has ended that one already."""
        epoch = next_epoch(max(over, self._follower.cursor.epoch, key=age), self._clock.seconds())
        if await log.begin(over, new_epoch(state, epoch), self._limits, log.run):
            _log.warn("{why}; epoch {epoch} begins, and subscribers are told of gaps", why=why, epoch=epoch)

    async def _is_witnessed(self, log: RedisLog) -> bool:
        """Whether, within a while, some node finds in this run of Redis what it has applied."""
        for _ in range(round(WITNESS_SECONDS / REPORT_SECONDS)):
            await deferLater(self._clock, REPORT_SECONDS, lambda: None)
            if await log.last_run() == log.run:
                return True
        return False

    async def _change_limits(self, log: RedisLog, loaded: Loaded) -> None:
        """Entries come to what they came to by the old limits; from here on those of this node hold.

        Raises: _OtherLimits while nodes with other limits live.
        """
        report = await log.report(self.id, b"", 0)
        if report.members:
            names = [
                name
                for name in Limits.__struct_fields__
                if getattr(self._limits, name) != getattr(loaded.saved.limits, name)
            ]
            raise _OtherLimits(f"this node and those that run differ in {', '.join(names)}; stop all to change that")
        changes = loaded.state().changes()
        await log.save(loaded.saved.head.sequence, changes, loaded.tail.tag.decode(), self._limits, keep_after=0)

    # Reporting, and what goes with it.

    async def _keep_reporting(self, log: RedisLog, reading: RedisLog) -> None:
        """Report until the connection is lost, or what is reported shows that reading is in vain: then it is ended."""
        try:
            while not self._leaving:
                await self._report(log, reading)
                await deferLater(self._clock, REPORT_SECONDS, lambda: None)
        except CancelledError:
            pass
        except (Lost, hiredis.ReplyError, _Diverged) as error:
            reading.connection.abort(str(error))
        except Exception as error:
            if self._outage.refused(str(error)):
                _log.failure("reporting failed")
            reading.connection.abort(str(error))

    async def _report(self, log: RedisLog, reading: RedisLog) -> None:
        """Show that this node lives, and learn of the others and of the log. Raises: _Diverged."""
        last, tag = self._follower.cursor, self._tag
        member = msgspec.json.encode(self._follower.member(self.id))
        asked = self._clock.seconds()
        report = await log.report(self.id, member, LEASE_SECONDS)
        self._members = sorted((_member.decode(text) for text in report.members), key=lambda m: m.id)
        tail = report.tail
        if not tail.includes(last) or (tail.sequence == last.sequence and tail.tag != tag):
            raise _Diverged(f"the log is at {tail.epoch}-{tail.sequence}, and is not the one that led to {last}")
        self._current = asked
        self._confirmations.reported(self._members, complete=report.complete)
        self._see_whether_behind(report, reading)
        self._follower.note_changes(min(report.saved, self._follower.cursor.sequence))
        if self._members and self._members[0].id == self.id and self._save_is_due(report):
            await self._save(log, report.saved)

    def _see_whether_behind(self, report: Report, reading: RedisLog) -> None:
        """Reading may be stuck where appending is not: at a Redis that is cut off, or that is a replica by now.

        Raises: _Diverged.
        """
        now, at = self._clock.seconds(), self._follower.cursor.sequence
        if report.tail.sequence <= at or at != self._stands_at:
            self._stands_at, self._stands_since = at, now
        elif now - max(self._stands_since, reading.connection.reply_grew_at) > READ_SECONDS + self._timeout:
            raise _Diverged("nothing is read, though there is something")

    def _save_is_due(self, report: Report) -> bool:
        last_save = self._saves[-1][0] if self._saves else 0.0
        return self._follower.cursor.sequence > report.saved and self._clock.seconds() >= last_save + SAVE_SECONDS

    async def _save(self, log: RedisLog, saved: int) -> None:
        """Bring the checkpoint up to what this node has applied; one node does so for all."""
        now = self._clock.seconds()
        changes = self._follower.changes(saved)
        keep_after = 0
        while self._saves and self._saves[0][0] <= now - LOG_SECONDS:
            keep_after = self._saves.popleft()[1]
        self._saves.append((now, changes.sequence))
        try:
            await log.save(saved, changes, self._tag.decode(), self._limits, keep_after=keep_after)
        except Incomplete as error:
            await self._begin_after(log, self._follower.cursor.epoch, self._follower.snapshot(), str(error))


_log = Logger()
_member = msgspec.json.Decoder(Member)


_check: type[Broadcast] = RedisBroadcast
