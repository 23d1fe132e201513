"""Another cluster beside the one that is tested: a Redis and a server, with an order, a mark and messages of their own.

What belongs to it may turn up here by mistake: an address that leads to its Redis, or a disk with its state directory.
Its clients are told the truth as well, and no server changes anything in the Redis of the other cluster.
"""

from __future__ import annotations

from typing import Any

from loadtest.history import events
from loadtest.history.events import BrokenPromise
from tests.simulation.clients import Publisher, Subscriber
from tests.simulation.network import Network
from tests.simulation.record import Record
from tests.simulation.redis_server import RedisServer
from tests.simulation.server import Server
from tests.simulation.steps import NAMES
from tests.simulation.world import World

REDIS = "redis2"


class OtherCluster:
    """It runs as long as the simulation, and loses nothing. Its messages are named `stranger`."""

    def __init__(self, world: World, network: Network, like: Server, home: RedisServer) -> None:
        """`like`: a server of the tested cluster, with the same settings; `home`: the Redis of that cluster."""
        self.world = world
        self.network = network
        self.home = home
        self.redis = RedisServer(world, network, appendfsync="always", host=REDIS)
        self.server = Server(world, network, "x0", "redis", like.settings)
        self.server.redis_host = REDIS
        self.server.start()
        self.record = Record(world)
        self.record.take(events.Begin(at=0.0, format=events.FORMAT, limits=like.settings.queue))
        self._publisher = Publisher(world, network, "stranger", self.record)
        self._subscriber = Subscriber(world, network, "follower of strangers", self.record, NAMES, "earliest")
        self._subscriber.hosts = [self.server.name]
        self._subscriber.start()
        self._marks: dict[Server, bytes | None] = {}
        """The own marks of the servers that have this cluster's state directory."""
        self._led_away: dict[Server, str] = {}
        """Where the addresses of servers lead that do not lead home now, and where home is."""

    def watch(self) -> None:
        """From now on no server changes anything in the Redis of another cluster."""
        for redis, is_own in ((self.home, False), (self.redis, True)):
            self._watch(redis, is_own=is_own)

    def _watch(self, redis: RedisServer, *, is_own: bool) -> None:
        watched = redis.on_write

        def wrote(words: list[bytes], reply: Any) -> None:
            if redis.redis.effects and redis.asked_by and (redis.asked_by == self.server.name) is not is_own:
                raise BrokenPromise(
                    f"clusters stay apart: {redis.asked_by} changed the log of another cluster at {redis.host}"
                )
            watched(words, reply)

        redis.on_write = wrote

    def publish(self, channel: str, *, key: bool = False) -> None:
        """Publish a message there."""
        name = f"k{self.world.now:.6f}" if key else None
        self._publisher.publish(self.server.name, [(channel,)], name, "accepted")

    # Mistakes, and how they end.

    def lead_here(self, server: Server, seconds: float) -> None:
        """A server's address of Redis leads here for so long."""
        self._lead_away(server, REDIS, seconds)

    def lead_there(self, seconds: float) -> None:
        """This cluster's server is led to the Redis of the tested one for so long."""
        self._lead_away(self.server, self.home.host, seconds)

    def _lead_away(self, server: Server, to: str, seconds: float) -> None:
        if server in self._led_away or server in self._marks or server.disk.mark is None:
            return  # without a mark of its own cluster it would rightly join this one when it starts again
        self._led_away[server] = server.redis_host
        self._lead(server, to)
        self.world.later(seconds, lambda: self._lead_home(server))

    def _lead_home(self, server: Server) -> None:
        if server in self._led_away:
            self._note_refusal(server)
            self._lead(server, self._led_away.pop(server))

    def _lead(self, server: Server, to: str) -> None:
        """New connections lead there, and those to where it led before are broken."""
        before, server.redis_host = server.redis_host, to
        links = self.network.both(server.name, before)
        was_cut = [link.cut for link in links]
        self.network.cut(server.name, before)
        for link, cut in zip(links, was_cut, strict=True):
            link.cut = cut

    def give_state_directory(self, server: Server, seconds: float, *, removed: bool) -> None:
        """A server is killed and starts again with the state directory of this cluster's server on its disk.

        After so long somebody does what it logs: stops it, gives it its own again (or, if `removed`, removes the mark),
        and starts it.
        """
        if server in self._led_away or server in self._marks or server.disk.mark is None:
            return
        server.kill()
        self._marks[server] = None if removed else server.disk.mark
        server.disk.mark = self.server.disk.mark
        server.start_again()
        self.world.later(seconds, lambda: self._take_state_directory(server))

    def _take_state_directory(self, server: Server) -> None:
        if server in self._marks:
            self._note_refusal(server)
            server.kill()
            server.disk.mark = self._marks.pop(server)
            server.start_again()

    def _note_refusal(self, server: Server) -> None:
        trouble = server.node.why_not_ready() if server.is_running else None
        if trouble is not None and "belongs to cluster" in trouble.operator_detail:
            self.world.reach(
                "a node had the mark of another cluster, and refused to follow"
                if server in self._marks
                else "a node of the other cluster refused to follow this log"
                if server is self.server
                else "a node refused to follow the log of another cluster"
            )

    def heal(self) -> None:
        """End all mistakes."""
        for server in [*self._led_away]:
            self._lead_home(server)
        for server in [*self._marks]:
            self._take_state_directory(server)

    # The end.

    def check(self) -> None:
        """Its clients have everything, and its server follows its log. Some time after all mistakes have ended."""
        trouble = self.server.node.why_not_ready()
        if trouble is not None:
            raise BrokenPromise(f"live again: {self.server.name} is not ready: {trouble.operator_detail}")
        self.record.take(events.End(at=self.record.now))

    def stop(self) -> None:
        self._publisher.process.die()
        self._subscriber.leave()
        self.server.is_over = True
        self.server.kill()
        self.redis.stop()
