"""A node's session with Redis: connects, catches up, follows the log and appends to it; reconnects when that fails.

Two connections: one reads the log, the other appends and reports. A command is applied when it is read back, on the
node that appended it as on all others, and its publisher is answered then. So there is one way from the log into the
replicated state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as TookTooLong
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from pushup.broadcast import OnOutcome
from pushup.broadcast.formats import NotUnderstood
from pushup.broadcast.outage_log import OutageLog
from pushup.broadcast.redis.acknowledgements import Confirmations, PendingPublishers
from pushup.broadcast.redis.catch_up import CannotFollow, CatchUp
from pushup.broadcast.redis.heartbeat import Heartbeat
from pushup.broadcast.redis.log import Appended, RedisLog
from pushup.broadcast.redis.redis_errors import CannotConnect, ErrorReply, Lost, Malformed
from pushup.broadcast.redis.redis_metrics import RedisMetrics
from pushup.broadcast.redis.replica import CannotApply, Diverged, Replica
from pushup.broadcast.work_budget import Pace, work_of
from pushup.core.commands import Command, Entry
from pushup.core.errors import PushUpError, Refusal, VersionTooNew

RETRY_SECONDS = (0.1, 2.0)
"""The pause after a failure: the first, and the longest. It doubles each time, and up to half of it is left out."""

STUCK_RETRY_SECONDS = 5.0
"""How long a node that cannot read or apply an entry waits before it tries again: then it loads everything."""

_log = Logger()


class Session:
    """Keeps one node connected until it is stopped."""

    def __init__(
        self,
        *,
        node_id: str,
        connect: Callable[[], Awaitable[RedisLog]],
        replica: Replica,
        catch_up: CatchUp,
        heartbeat: Heartbeat,
        pending_publishers: PendingPublishers,
        confirmations: Confirmations,
        outage_log: OutageLog,
        metrics: RedisMetrics,
        timeout: float,
        clock: IReactorTime,
        random: Callable[[], float],
    ) -> None:
        """`timeout`: seconds that leaving may take."""
        self._node_id = node_id
        self._connect = connect
        self._replica = replica
        self._catch_up = catch_up
        self._heartbeat = heartbeat
        self._pending_publishers = pending_publishers
        self._confirmations = confirmations
        self._outage_log = outage_log
        self._metrics = metrics
        self._timeout = timeout
        self._clock = clock
        self._random = random
        self._numbers = count(1)
        self._commands: RedisLog | None = None  # while the log is followed
        self._followed = ("", "")  # the server and the run of Redis that were followed last
        self.trouble: PushUpError | None = Refusal.UNREACHABLE("Redis has not been reached yet")
        """Why publications are refused. None: Redis has accepted something since the log is followed."""

    def start(self) -> None:
        self._running = Deferred.fromCoroutine(self._run())
        self._running.addErrback(lambda failure: failure.trap(CancelledError) and None)  # it was waiting to retry

    async def stop(self) -> None:
        """Tell the other nodes that this one leaves, and disconnect."""
        if self._commands is not None:
            try:
                leaving = Deferred.fromCoroutine(self._heartbeat.leave(self._commands))
                await leaving.addTimeout(self._timeout, self._clock)  # much may have to be sent before it
            except (Lost, ErrorReply, TookTooLong) as error:
                _log.debug("could not tell the other nodes that this one leaves: {error}", error=error)
        self._running.cancel()

    def abort(self) -> None:
        """Disconnect at once, as in a crash. The reports end with it."""
        self._running.cancel()

    @property
    def is_following(self) -> bool:
        """Whether commands can be appended now."""
        return self._commands is not None

    def append(self, command: Command, on_outcome: OnOutcome) -> None:
        """Also while `trouble` is set: Redis says itself whether it takes this one."""
        if self._commands is None:
            on_outcome(self.trouble or Refusal.STOPPING())
            return
        if self._commands.connection.has_ended:  # the other one has yet to end
            on_outcome(Refusal.UNREACHABLE("a connection to Redis has ended"))
            return
        name = f"{self._node_id}.{next(self._numbers)}"
        tag = name.encode()
        if self._pending_publishers.add(tag, command, on_outcome):
            self._commands.append(self._replica.cursor.epoch, name, command, partial(self._appended, tag))

    def _appended(self, tag: bytes, reply: Appended) -> None:
        """The publisher is answered when the entry is read back; or now, if Redis did not append it."""
        self._pending_publishers.command_answered(tag)
        match reply:
            case 0:
                self._pending_publishers.tell(tag, Refusal.NEW_EPOCH())
                self._reconnect("a new epoch has begun")
            case int():
                if self.trouble is not None:
                    self._accepted()
            case Lost():
                self._pending_publishers.tell(tag, Refusal.UNKNOWN_OUTCOME(str(reply)))
            case ErrorReply():
                self._refused(reply)
                assert self.trouble is not None
                self._pending_publishers.tell(tag, self.trouble)

    def _refused(self, reply: ErrorReply) -> None:
        """Redis takes no publications, though the log is followed."""
        self.trouble = Refusal.REFUSED(f"Redis: {reply.reason}", kind=reply.code.value)
        self._outage_log.refused(reply.reason)
        self._replica.is_in_doubt |= reply.is_about_the_data
        if reply.ends_with_connection or reply.is_about_the_data:
            self._reconnect(str(reply))

    def _accepted(self) -> None:
        """Redis has carried out a publication, or what needs as much."""
        if self._commands is not None:
            self.trouble = None
            self._outage_log.over()

    async def _try_to_write(self, commands: RedisLog) -> None:
        """After each report, while publications are refused: nobody sends any to a node that is not ready."""
        if self.trouble is not None and commands is self._commands:
            try:
                await commands.mark()
            except ErrorReply as error:
                self._refused(error)
            else:
                self._accepted()

    def _reconnect(self, reason: str) -> None:
        if self._commands is not None:
            self._commands.connection.abort(reason)

    async def _run(self) -> None:
        """Connect and follow the log until a connection fails; repeat."""
        shortest, longest = RETRY_SECONDS
        wait = shortest
        while True:
            began_at, least = self._clock.seconds(), 0.0
            logs: list[RedisLog] = []
            try:
                logs.append(await self._connect())
                logs.append(await self._connect())
                if logs[0].run != logs[1].run:
                    raise CannotConnect("Redis was restarted or replaced while this node was connecting")
                if not self._replica.tag and not self._outage_log.has_open_outage:
                    self.trouble = Refusal.LOADING()
                if trouble := await logs[0].trouble():
                    raise CannotFollow(trouble)
                await self._catch_up.run(logs[0])
                await self._follow(*logs)
            except CancelledError:
                return
            except (CannotConnect, Lost) as error:
                self._failed(Refusal.UNREACHABLE(str(error)))
            except (ErrorReply, Diverged, Malformed, CannotApply, CannotFollow, VersionTooNew) as error:
                self._replica.is_in_doubt |= isinstance(error, Diverged | Malformed)
                self._failed(Refusal.UNUSABLE(str(error)))
            except NotUnderstood as error:
                self._replica.is_in_doubt = True  # or it would read on, and take publications meanwhile
                self._failed(Refusal.UNUSABLE(str(error)))
                least = STUCK_RETRY_SECONDS
            except Exception as error:
                if self._failed(Refusal.UNUSABLE(f"{type(error).__name__}: {error}")):
                    _log.failure("following the log in Redis failed; publishing is refused here until it works again")
            finally:
                self._commands = None
                self._confirmations.follows("")
                for log in logs:
                    log.connection.abort(self.trouble.operator_detail if self.trouble else "this node stops")
            if self._clock.seconds() - began_at > longest:
                wait = shortest  # it worked for a while
            await deferLater(self._clock, max(least, wait * (0.5 + self._random() / 2)), lambda: None)
            wait = min(2 * wait, longest)

    def _failed(self, trouble: PushUpError) -> bool:
        """The log is not followed; returns whether that was logged."""
        self.trouble = trouble
        return self._outage_log.refused(trouble.operator_detail)

    def _accept_commands(self, reading: RedisLog, commands: RedisLog) -> None:
        """This node has caught up: publications are appended from now on. Whether Redis takes them is seen then."""
        self._commands = commands
        self._metrics.follows(commands)
        place, self._followed = self._followed, (reading.connection.server, reading.run)
        if place != self._followed or not self._outage_log.has_open_outage:
            _log.info(
                "following the log in Redis from {cursor}; the master is {server}",
                cursor=self._replica.cursor,
                server=reading.connection.server,
                run=reading.run,
            )

    async def _follow(self, reading: RedisLog, commands: RedisLog) -> None:
        """Read and apply entries until a connection fails.

        Raises: CannotApply, Diverged, ErrorReply, Lost, NotUnderstood, VersionTooNew.
        """
        self._confirmations.follows(reading.run)
        if not self._replica.stuck_at:
            self._accept_commands(reading, commands)
        heartbeat = Deferred.fromCoroutine(self._heartbeat.run(commands, reading, self._try_to_write))
        pace = Pace(self._clock)
        try:
            while True:
                last = self._replica.cursor
                entries = await reading.read(last.epoch, last.sequence)
                for logged in entries:
                    if isinstance(logged.entry, Entry):
                        await pace.spend(work_of(logged.entry, self._replica.follower.state.time))
                    self._replica.apply(logged)
                    self._heartbeat.applied()
        except CannotApply as error:
            if self._replica.stuck_at:
                self._failed(Refusal.UNUSABLE(str(error)))
                self._commands = None
                # This node goes on reporting, so that the others know that it cannot read this entry either.
                await deferLater(self._clock, STUCK_RETRY_SECONDS, lambda: None)
            raise
        finally:
            heartbeat.cancel()
