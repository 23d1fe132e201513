"""Complete nodes on an in-memory Redis and one clock, and what their publishers were told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from pushup.broadcast.admission import WaitingLimits
from pushup.broadcast.progress_mark import ProgressMark
from pushup.broadcast.redis.connector import Connects
from pushup.broadcast.redis.redis_broadcast import RedisBroadcast
from pushup.broadcast.redis.redis_connection import RedisConnection
from pushup.broadcast.redis.redis_errors import CannotConnect
from pushup.broadcast.redis.redis_settings import RedisLimits
from pushup.core.answer import Answer
from pushup.core.commands import Ack, Command, Confirmation, Entry, Outcome, Published
from pushup.core.cursor import Cursor
from pushup.core.held_polls import HeldPolls
from pushup.core.limits import HoldLimits, Limits
from pushup.core.poll import Poll
from pushup.core.state import ReplicatedState
from pushup.core.subscription import Subscription
from pushup.metrics import Metrics
from pushup.node.node import Node
from tests.broadcast.redis.fake_redis import TIMEOUT, FakeRedis, Link
from tests.core.builders import publish

START = 1_795_219_200.0


class Disk:
    """The disk of one machine; `data` is the mark on it."""

    name = "the mark"

    def __init__(self) -> None:
        self.data: bytes | None = None

    def read(self) -> bytes | None:
        return self.data

    def write(self, data: bytes) -> None:
        self.data = data


class Poller:
    """The client of a held poll; `answers` is what it got."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []

    def answer(self, answer: Answer) -> None:
        self.answers.append(answer)


class NodeConnector:
    """Connects one node to Redis, unless it is cut off; `made` are its connections."""

    def __init__(self, redis: Connects) -> None:
        self.redis = redis
        self.is_cut_off = False
        self.made: list[RedisConnection] = []

    async def connect(self) -> RedisConnection:
        if self.is_cut_off:
            raise CannotConnect("unreachable")
        connection = await self.redis.connect()
        self.made.append(connection)
        return connection


class FollowingNode:
    """A node that follows Redis; a test can act as its publishers and clients."""

    def __init__(
        self,
        redis: Connects,
        clock: Clock,
        *,
        limits: Limits | None = None,
        name: str,
        waiting_limit_bytes: int = WaitingLimits().waiting_limit_bytes,
        timeout: float = TIMEOUT,
        redis_durable: bool = True,
        random: Callable[[], float] = lambda: 0.0,
        progress_mark: ProgressMark | None = None,
        on_large: Callable[[], None] = lambda: None,
    ) -> None:
        self.clock = clock
        self.wall_ahead = 0.0
        """By this the clock of its machine is ahead of the right time."""
        self.suspended = 0.0
        """The seconds for which its machine was suspended: timers and the monotonic clock did not count them."""
        self.limits = limits or Limits()
        self.soon: list[Callable[[], None]] = []
        self.metrics = Metrics()
        self.connector = NodeConnector(redis)
        self.broadcast = RedisBroadcast(
            self.connector,
            node_id=name,  # so that a seed always has the same nodes
            limits=self.limits,
            redis_limits=RedisLimits(redis_timeout_seconds=timeout, redis_durable=redis_durable),
            waiting_limits=WaitingLimits(waiting_limit_bytes=waiting_limit_bytes),
            clock=clock,
            wall=lambda: clock.seconds() + self.wall_ahead,
            uptime=lambda: clock.seconds() + self.suspended,
            random=random,
            progress_mark=progress_mark,
            on_large=on_large,
        )
        self.node: Node[Any] = Node(
            limits=self.limits,
            hold_limits=HoldLimits(),
            broadcast=self.broadcast,
            clock=clock,
            soon=self.soon.append,
            random=random,
            metrics=self.metrics,
            name=name,
        )

        self.node.start()

    @property
    def state(self) -> ReplicatedState:
        return self.node.state

    @property
    def polls(self) -> HeldPolls[Any]:
        return self.node.polls

    def check(self) -> None:
        self.state.check()
        self.polls.check()

    @property
    def cursor(self) -> str:
        return str(self.state.cursor)

    @property
    def follows(self) -> bool:
        """Whether a publication made here now reaches Redis."""
        return self.broadcast.is_following

    def turn(self) -> bool:
        """Make the calls that are deferred by now; returns whether there were any."""
        calls = list(self.soon)
        self.soon.clear()
        for call in calls:
            call()
        return bool(calls)

    def append(self, command: Command) -> list[Outcome]:
        """Append a command; the list returned will have its outcome."""
        outcomes: list[Outcome] = []

        def on_outcome(outcome: Outcome) -> None:
            assert not outcomes, "reported twice"
            outcomes.append(outcome)

        self.node.submit(command, on_outcome)
        return outcomes

    def confirm(self, ack: Ack, published: Published, seconds: float) -> list[Confirmation]:
        """Wait for more than acceptance of a publication made here; the list returned will have the confirmation."""
        received: list[Confirmation] = []
        cursor = Cursor(published.epoch, published.sequence + published.count - 1)
        self.node.confirm(ack, cursor, seconds, received.append)
        return received

    def poll(self, asked: Poll) -> Answer:
        """The answer to a poll that is expected not to be held."""
        answer = self.node.poll(asked, Poller())
        assert isinstance(answer, Answer), answer
        return answer

    def hold(self, asked: Poll) -> Poller:
        """A poll that is expected to be held."""
        poller = Poller()
        assert isinstance(self.node.poll(asked, poller), Subscription)
        return poller

    def fail_once(self) -> None:
        """Fail in the next entry, after applying it."""
        apply = self.node.apply

        def failing(entry: Entry) -> Outcome:
            self.node.apply = apply  # type: ignore[method-assign]
            apply(entry)
            raise RuntimeError("failed within an entry")

        self.node.apply = failing  # type: ignore[method-assign]

    def crash(self) -> None:
        """Vanish without notifying Redis or the other nodes."""
        self.broadcast.abort()
        assert self.stop().called, "only timers may be left"

    def stop(self) -> Deferred[None]:
        """Begin to stop in good order."""
        return Deferred.fromCoroutine(self.node.stop())


class Cluster:
    """A Redis, the nodes that follow it, and the clock."""

    def __init__(self, nodes: int = 0, **limits: Any) -> None:
        self.clock = Clock()
        self.clock.advance(START)
        self.redis = FakeRedis(self.clock)
        self.limits = Limits(**limits)
        self.nodes: list[FollowingNode] = []
        self._started = count()
        for _ in range(nodes):
            self.start()

    def start(self, **settings: Any) -> FollowingNode:
        """Start another node, and let it do all it can without time passing."""
        settings.setdefault("limits", self.limits)
        node = FollowingNode(self.redis, self.clock, name=f"node{next(self._started)}", **settings)
        self.nodes.append(node)
        self.settle()
        return node

    def crash(self, node: FollowingNode) -> None:
        self.nodes.remove(node)
        node.crash()

    def leave(self, node: FollowingNode) -> None:
        """A node stops in good order."""
        self.nodes.remove(node)
        node.stop()
        self.settle()

    def links_of(self, node: FollowingNode) -> list[Link]:
        """The connections of a node that are open."""
        return [link for link in self.redis.links if link.connection in node.connector.made]

    def stick(self, node: FollowingNode) -> None:
        """Nothing passes by a node's connections any more, and neither end knows."""
        for link in self.links_of(node):
            link.stuck = True

    def is_one(self) -> bool:
        """Whether all nodes follow the log and have the same state at the same entry."""
        snapshots = [node.state.snapshot() for node in self.nodes]
        return all(node.follows for node in self.nodes) and all(snapshot == snapshots[0] for snapshot in snapshots)

    def settle(self) -> None:
        """Do everything that can be done without time passing."""
        while self.redis.step() or sum(node.turn() for node in self.nodes):
            pass

    def advance(self, seconds: float, step: float = 0.05) -> None:
        """Let time pass, and do everything that becomes possible."""
        for _ in range(round(seconds / step)):
            self.clock.advance(step)
            self.settle()

    def do(self, node: FollowingNode, command: Command) -> Outcome:
        """Append a command as a publisher, and return its outcome."""
        outcomes = node.append(command)
        self.settle()
        (outcome,) = outcomes
        return outcome

    def publish(self, node: FollowingNode, *channels: str, data: str = "1", key: str | None = None) -> Published:
        outcome = self.do(node, publish(*channels, data=data, key=key))
        assert isinstance(outcome, Published), outcome
        return outcome

    def end(self) -> None:
        for node in list(self.nodes):
            self.crash(node)


@contextmanager
def cluster_of(nodes: int, **limits: Any) -> Iterator[Cluster]:
    """A cluster whose nodes are stopped in the end."""
    cluster = Cluster(nodes, **limits)
    try:
        yield cluster
    finally:
        cluster.end()
