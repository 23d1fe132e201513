"""Another cluster beside the one that is tested: a Redis and a server, with an order, a mark and messages of their own.

What belongs to it may turn up here by mistake: an address that leads to its Redis, or a disk with its state directory.
"""

from __future__ import annotations

from tests.simulation.http import HttpClient, request
from tests.simulation.network import Network
from tests.simulation.redis_server import RedisServer
from tests.simulation.server import Server
from tests.simulation.world import Process, World

REDIS = "redis2"


class OtherCluster:
    """It runs as long as the simulation. Its messages are named `stranger`."""

    def __init__(self, world: World, network: Network, like: Server) -> None:
        """`like`: a server with the same settings."""
        self.world = world
        self.network = network
        self.redis = RedisServer(world, network, appendfsync="always", host=REDIS)
        self.server = Server(world, network, "x0", "redis", like.settings)
        self.server.redis_host = REDIS
        self.server.start()
        self._publisher = Process(world, "stranger")

    def publish(self, channel: str) -> None:
        """Publish a message there."""
        client = HttpClient(self.network, self._publisher)
        data = request("POST", "/v1/messages", {"channels": [channel], "data": "stranger"})
        client.ask(self.server.name, data, 5.0, lambda reply: client.drop())

    def lead_here(self, server: Server, seconds: float) -> None:
        """A server's address of Redis leads here for so long."""
        home = server.redis_host
        self._lead(server, home, REDIS)
        self.world.later(seconds, lambda: self._lead(server, REDIS, home))

    def _lead(self, server: Server, before: str, after: str) -> None:
        """New connections lead there, and those to where it led before are broken."""
        server.redis_host = after
        for link in self.network.both(server.name, before):
            link.cut = False
        self.network.cut(server.name, before)
        for link in self.network.both(server.name, before):
            link.cut = False

    def give_state_directory(self, server: Server) -> None:
        """A server that does not run finds the state directory of this cluster's server on its disk."""
        assert not server.is_running
        server.disk.mark = self.server.disk.mark

    def stop(self) -> None:
        self._publisher.die()
        self.server.is_over = True
        self.server.kill()
        self.redis.stop()
