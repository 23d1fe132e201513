"""The five paths of docs/internals/architecture.md, each run once: from bytes or a timer to the last effect.

What happens only once for a process, a client or a channel has happened before, and so has what happens once a second.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from pushup.backends.authorization import Authorization
from pushup.backends.function_authorizer import FunctionAuthorizer
from pushup.backends.helper_pool import HelperPool
from pushup.backends.limited_service import ServiceLimits
from pushup.backends.tickets import Tickets
from pushup.broadcast.admission import WaitingLimits
from pushup.broadcast.redis.redis_broadcast import RedisBroadcast
from pushup.broadcast.redis.redis_settings import RedisLimits
from pushup.core.limits import Limits
from pushup.metrics import BackendCounters
from pushup.net.api.access import Access
from pushup.net.api.channel_rules import ChannelRules
from pushup.net.api.poll_access import PollAccess
from pushup.node.node import Node
from tests.backends.stepped_threads import SteppedThreads
from tests.broadcast.redis.fake_redis import TIMEOUT, FakeRedis
from tests.broadcast.redis.following_nodes import FollowingNode, NodeConnector
from tests.core.builders import publish as publish_command
from tests.costs.counting import ROOT, Work, count
from tests.costs.requests import poll, publish
from tests.costs.server import CountedServer, make_clock, server
from tests.net.in_memory_server import Client


def held_poll() -> Work:
    with server() as there:
        client, publisher = there.connect(2)
        _poll_and_publish(there, client, publisher)
        request = poll("a", there.cursor)
        work = count(lambda: there.send([client], [request]))
        assert there.node.polls.count == 1
        return work


def publication() -> Work:
    with server() as there:
        client, publisher = there.connect(2)
        _poll_and_publish(there, client, publisher)
        there.send([client], [poll("a", there.cursor)])
        request = publish("a", 2)
        work = count(lambda: there.send([publisher], [request]))
        assert publisher.reply().status == 201
        _check_delivered(client)
        return work


def expiry() -> Work:
    with server() as there:
        client, publisher = there.connect(2)
        _poll_and_publish(there, client, publisher)
        there.send([client], [poll("a", there.cursor)])
        there.advance(19.75)
        assert there.node.polls.count == 1
        work = count(lambda: there.advance(0.25))
        assert client.reply().status == 200
        return work


def entry_from_redis() -> Work:
    clock = make_clock()
    redis = FakeRedis(clock)
    connector = NodeConnector(redis)

    def broadcast(*, limits: Limits, **_: Any) -> RedisBroadcast:
        return RedisBroadcast(
            connector,
            node_id="counted",
            limits=limits,
            redis_limits=RedisLimits(redis_timeout_seconds=TIMEOUT),
            waiting_limits=WaitingLimits(),
            clock=clock,
            wall=clock.seconds,
            uptime=clock.seconds,
            random=lambda: 0.0,
        )

    with server(clock, broadcast=broadcast) as there:
        other = FollowingNode(redis, clock, name="other")
        _settle(redis, there, other)
        client, publisher = there.connect(2)
        there.send([client], [poll("a")])
        there.send([publisher], [publish("a", 1)])
        _settle(redis, there, other)
        _check_delivered(client)
        there.send([client], [poll("a", there.cursor)])
        ours = [link for link in redis.links if link.connection in connector.made]
        (reading,) = [link for link in ours if link.requests and link.requests[0][1][0] == b"XREAD"]
        other.append(publish_command("a"))
        while not reading.replies:
            reading.execute_next()
            for link in redis.links:
                if link not in ours:
                    link.execute_next()

        def deliver() -> None:
            reading.deliver()
            there.demultiplexer.run()

        work = count(deliver)
        _check_delivered(client)
        other.crash()
        cast(RedisBroadcast, there.node.broadcast).abort()
        Deferred.fromCoroutine(there.node.node.stop())
        return work


def authorized_poll() -> Work:
    threads = SteppedThreads()

    def poll_access(node: Node[Any], access: Access, clock: Clock) -> PollAccess:
        limits = ServiceLimits(at_most=10, queue_limit=10, deadline_seconds=10.0)
        pool = HelperPool("the authorizer", limits, reactor=clock, counters=BackendCounters(), threads=threads)
        authorization = Authorization(
            FunctionAuthorizer(lambda channels, headers: True, pool),
            tickets=Tickets(b"a key"),
            ticket_seconds=120.0,
            limit_seconds=86_400.0,
            wall=clock.seconds,
            random=lambda: 0.0,
        )
        return PollAccess(node, access, clock.seconds, authorization, 1_000_000)

    with server(poll_access=poll_access, rules=ChannelRules("application")) as there:
        client, publisher = there.connect(2)

        def send(request: bytes) -> None:
            there.send([client], [request])
            threads.step_all()
            there.demultiplexer.run()

        send(poll("a"))
        there.send([publisher], [publish("a", 1)])
        _check_delivered(client)
        request = poll("a", there.cursor)
        work = count(lambda: send(request))
        assert there.node.polls.count == 1
        return work


PATHS: dict[str, Callable[[], Work]] = {
    "a poll, held": held_poll,
    "a publication, with one delivery": publication,
    "an expiry: a held poll's deadline": expiry,
    "an entry from Redis, with one delivery": entry_from_redis,
    "a poll authorized by a function, held": authorized_poll,
}


DOCUMENT = ROOT / "docs" / "internals" / "architecture.md"

_PLACE = re.compile(r"(<!-- written by python -m tests\.costs -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(document: str, work: Mapping[str, Work]) -> str:
    """The document with the table of the paths."""
    lines = ["| path | files | calls between files | function calls |", "|---|---:|---:|---:|"]
    lines += [f"| {name} | {len(path.files)} | {path.crossings} | {path.calls} |" for name, path in work.items()]
    text, count = _PLACE.subn(lambda found: "\n".join((found[1].rstrip(), "", *lines, "", found[2])), document)
    assert count == 1, "the document has one place for the table"
    return text


def _poll_and_publish(there: CountedServer, client: Client, publisher: Client) -> None:
    """A client polls a channel, and gets its first message."""
    there.send([client], [poll("a")])
    there.send([publisher], [publish("a", 1)])
    assert publisher.reply().status == 201
    _check_delivered(client)


def _check_delivered(client: Client) -> None:
    assert b'"messages":[{' in client.reply().body


def _settle(redis: FakeRedis, there: CountedServer, other: FollowingNode) -> None:
    while redis.step() or other.turn():
        there.demultiplexer.run()
