"""The seeded model test: thousands of random steps on real states, compared with a naive model."""

from __future__ import annotations

import math
from random import Random

import pytest
from msgspec.structs import replace

from pushup.core.channel import MESSAGE_OVERHEAD_BYTES
from pushup.core.commands import Close, Command, Configure, Continue, Create, Draft, Erase, Expire, Publish, Renew
from pushup.core.cursor import Cursor, Start
from pushup.core.limits import ChannelPolicy, Limits
from pushup.core.poll import Poll, Selection
from pushup.core.reading import RECEIVED_OVERHEAD_BYTES

from .builders import draft
from .random_entries import RandomPresence, RandomProducers
from .simulated_clients import Client, Cluster, Node

STEPS = 1500

NAMES = ("a", "b", "c", "d", "tag:é")

LIMITS = {
    "roomy": Limits(retention_seconds=40.0, channel_ttl_seconds=60.0),
    "short": Limits(
        retention_seconds=6.0,
        channel_ttl_seconds=4.0,
        answer_limit_bytes=3 * RECEIVED_OVERHEAD_BYTES + 30,
        keys_limit=2,
    ),
    "few messages": Limits(
        retention_seconds=30.0, retention_messages=3, channel_ttl_seconds=25.0, members_limit=5, presence_limit=2
    ),
    "few bytes": Limits(
        retention_seconds=30.0,
        retention_bytes=6 * MESSAGE_OVERHEAD_BYTES,
        answer_limit_bytes=6 * RECEIVED_OVERHEAD_BYTES + 50,
    ),
    "strict": Limits(retention_seconds=12.0, channel_ttl_seconds=40.0, retention_messages=5, strict_channels=True),
    "policies": Limits(
        retention_seconds=6.0,
        retention_bytes=12 * MESSAGE_OVERHEAD_BYTES,
        ephemeral_bytes=4 * MESSAGE_OVERHEAD_BYTES,
        channel_ttl_seconds=9.0,
        channels=(
            ChannelPolicy(prefix="a", retention_seconds=40.0, retention_bytes=9 * MESSAGE_OVERHEAD_BYTES, share=2.0),
            ChannelPolicy(prefix="tag:", retention_messages=2, channel_ttl_seconds=30.0),
            ChannelPolicy(prefix="t", retention_seconds=15.0, share=0.5),
        ),
    ),
    "few channels": Limits(retention_seconds=8.0, channel_ttl_seconds=5.0, channels_limit=3),
}


class Steps:
    """Random steps of publishers, clients, nodes and the clock."""

    def __init__(self, random: Random, limits: Limits, delay: float) -> None:
        self.random = random
        self.limits = limits
        self.strict = limits.strict_channels
        self.cluster = Cluster(limits, nodes=2, delay=delay)
        # Some clients share a selection, so that they share answers as well.
        self.selections = [self.selection() for _ in range(4)]
        self.clients: list[Client] = []
        self.gaps_reported = 0
        self.with_key: Publish | None = None
        self.producers = RandomProducers(random)
        self.presence = RandomPresence(random, ("a", "tag:é", "4711"))

    def selection(self) -> Selection:
        random = self.random
        names = tuple(random.sample(NAMES, random.choice((1, 1, 2, 3))))
        start, end = 0.0, math.inf
        if random.random() < 0.3:
            start = self.cluster.now + random.choice((-10.0, -2.0, 0.0, 1.5, 5.0))
        if random.random() < 0.3:
            end = max(start, self.cluster.now + random.choice((-2.0, 0.0, 1.0, 8.0, 30.0)))
        return Selection(names, random.choice((1, 2, 3, 100)), start, end)

    def name(self) -> str:
        """A name, the id of an open channel, or an id that was never given."""
        open_channels = self.cluster.nodes[0].naive.open
        if open_channels and self.random.random() < 0.15:
            return str(self.random.choice([channel.id for channel in open_channels.values()]))
        if open_channels and self.strict and self.random.random() < 0.8:
            return self.random.choice(list(open_channels))
        return "4711" if self.random.random() < 0.02 else self.random.choice(NAMES)

    def command(self) -> Command:
        random = self.random
        kind = random.random()
        ttl = random.choice((None, None, 0.5, 3.0, 20.0))
        if random.random() < 0.02:
            newest = int(self.cluster.epoch[1:])
            return Continue(f"e{random.choice((newest + 1, newest + 1, newest, max(1, newest - 1)))}")
        if random.random() < 0.01:
            limits = self.limits
            changed = {
                "retention_messages": random.choice((1, 2, 20, limits.retention_messages)),
                "retention_bytes": MESSAGE_OVERHEAD_BYTES * random.choice((3, 8, 100_000)),
                "channels_limit": random.choice((limits.channels_limit, 4)),
                "keys_limit": random.choice((1, 2, 100)),
                "channels": tuple(random.sample(LIMITS["policies"].channels, random.randrange(4))),
            }
            return Configure(replace(limits, **changed) if random.random() < 0.6 else limits)
        if random.random() < 0.04:
            return self.erase()
        if random.random() < 0.15:
            return self.presence.command()
        if kind < (0.55 if self.strict else 0.72):
            if self.with_key is not None and random.random() < 0.1:
                return self.with_key  # a publisher retries because it got no answer
            key = random.choice("klmn") if random.random() < 0.2 else None
            drafts = tuple(self.draft() for _ in range(random.choice((1, 1, 1, 2, 5))))
            owner = random.choice(("", "", "key 1", "key 2"))
            if key is None and random.random() < 0.25:
                return self.producers.publication(drafts, owner)
            publication = Publish(drafts, key, owner)
            self.with_key = publication if key is not None else self.with_key
            return publication
        if kind < 0.82:
            return Create(None if random.random() < 0.2 else random.choice(NAMES), ttl)
        if kind < 0.89:
            return Renew(self.name(), ttl)
        return Close(self.name()) if kind < 0.95 else Expire()

    def erase(self) -> Erase:
        naive, random = self.cluster.nodes[0].naive, self.random
        cursor = Cursor(naive.epoch, max(1, naive.last - random.randrange(12)))
        if naive.published and random.random() < 0.6:
            message = random.choice(naive.published[-12:])
            cursor = Cursor(message.epoch, message.sequence)
        if random.random() < 0.1:
            cursor = random.choice((Cursor("e0", cursor.sequence), Cursor(naive.epoch, naive.last + 3)))
        if random.random() < 0.5:
            return Erase("message", "", cursor)
        until = random.choice((cursor, None))
        return Erase("channel", self.name(), until) if random.random() < 0.7 else Erase("owner", "key 1", until)

    def draft(self) -> Draft:
        names = dict.fromkeys(self.name() for _ in range(self.random.choice((1, 1, 2, 3))))
        return draft(*names, data='"' + "x" * self.random.randrange(30) + '"', ephemeral=self.random.random() < 0.15)

    def cursor(self, node: Node) -> Cursor | Start:
        last, epoch = node.naive.last, node.naive.epoch
        past = self.random.choice([*node.naive.past.items(), (epoch, last)])
        return self.random.choice(
            (
                Start.EARLIEST,
                Start.NOW,
                Cursor(epoch, last),
                Cursor(epoch, max(0, last - self.random.randrange(12))),
                Cursor(epoch, self.random.randrange(last + 1)),
                Cursor(epoch, last + self.random.randrange(1, 6)),
                Cursor(past[0], max(0, past[1] + self.random.randrange(-2, 4))),
                Cursor("e0", last),
            )
        )

    def stays(self) -> bool:
        return self.random.random() < 0.4

    def timeout(self) -> float:
        return self.random.choice((0.0, 0.0, 0.25, 2.0, 9.0))

    def step(self) -> None:
        random, cluster = self.random, self.cluster
        node = random.choice(cluster.nodes)
        kind = random.random()
        if kind < 0.3:
            cluster.append(self.command())
            if random.random() < 0.7:
                cluster.follow(cluster.nodes[0], 100)
        elif kind < 0.42:
            cluster.follow(node, random.choice((1, 2, 20)))
        elif kind < 0.52:
            cluster.now += random.choice((0.0, 0.25, 0.25, 0.5, 1.0, 2.0, random.choice((0.0, 7.0, 30.0))))
        elif kind < 0.68 and node.delay == math.inf and random.random() < 0.8:
            node.expire(cluster.now, 1)
        elif kind < 0.62:
            node.deliver(random.choice((0, 1, 2, 5)))
        elif kind < 0.68:
            node.deliver_all()
        elif kind < 0.75:
            node.expire(cluster.now, random.choice((0, 1, 3, 100)))
        elif kind < 0.77:
            node.abandon(random)
        elif kind < 0.82:
            node.poll(Poll(self.selection(), self.cursor(node), self.timeout(), self.stays()), None, cluster.now)
        elif kind < 0.825:
            cluster.nodes[1].start_from(cluster.nodes[0])
        elif kind < 0.84:
            node.ask_end(cluster.end)
        elif kind < 0.86:
            node.hear_end()
        else:
            self.client_polls(node)

    def client_polls(self, node: Node) -> None:
        idle = [client for client in self.clients if not client.is_waiting]
        if len(self.clients) < 8 or not idle:
            selection = self.random.choice((*self.selections, self.selection()))
            idle = [Client(selection, self.random.choice(tuple(Start)))]
            self.clients += idle
        client = self.random.choice(idle)
        node.poll(Poll(client.selection, client.cursor, self.timeout(), self.stays()), client, self.cluster.now)
        if self.random.random() < 0.02:
            self.clients = [other for other in self.clients if other is not client]
            self.gaps_reported += client.answers_with_gaps

    def finish(self) -> None:
        """Bring all nodes up to date, and all clients to the end of their cursors."""
        for node in self.cluster.nodes:
            self.cluster.follow(node, 1000)
            node.deliver_all()
            while node.polls.count:
                node.answered(node.polls.end_all(3))
        first, second = self.cluster.nodes
        assert first.state.snapshot() == second.state.snapshot()
        for client in self.clients:
            assert not client.is_waiting
            for _ in range(1000):
                before = client.cursor
                first.poll(Poll(client.selection, client.cursor), client, self.cluster.now)
                if client.cursor == before:
                    break
            names = first.naive.awaited(client.selection.channels)
            if names is not None:
                assert client.cursor == Cursor(first.naive.epoch, first.naive.last)
            self.gaps_reported += client.answers_with_gaps


def run(limits: str, seed: int, delay: float) -> Steps:
    steps = Steps(Random(f"{limits} {seed}"), LIMITS[limits], delay)
    for _ in range(STEPS):
        steps.step()
    steps.finish()
    return steps


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("limits", LIMITS)
def test_clients_that_follow_their_cursors_get_every_message_once_or_a_gap(limits: str, seed: int) -> None:
    """Every step agrees with the naive state, and no client loses a message without a gap."""
    steps = run(limits, seed, delay=0.0 if limits == "few channels" else 3.0)
    naive = steps.cluster.nodes[0].naive
    assert len(naive.published) > 100
    assert naive.closed
    assert limits == "roomy" or steps.gaps_reported


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("limits", ["short", "few channels"])
def test_a_node_that_answers_late_reports_closings_to_held_polls(limits: str, seed: int) -> None:
    """A closing that is forgotten before the polls it woke are answered still reaches them."""
    assert run(limits, seed, delay=math.inf).gaps_reported
