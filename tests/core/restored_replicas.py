"""Replicas that are restored from checkpoints now and then, beside one that never is: they must stay equal to it."""

from __future__ import annotations

from random import Random

from pushup.core.channel import MESSAGE_OVERHEAD_BYTES
from pushup.core.commands import Close, Command, Configure, Continue, Create, Entry, Expire, Publish, Renew
from pushup.core.limits import ChannelPolicy, Limits
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import restore

from .builders import EPOCH, draft
from .random_entries import RandomPresence, RandomProducers
from .saved_checkpoint import SavedCheckpoint


def random_limits(random: Random) -> Limits:
    """Some roomy, some so tight that every entry exceeds them."""
    return Limits(
        retention_seconds=random.choice((1.0, 2.5, 6.0, 40.0)),
        retention_messages=random.choice((1, 3, 1000)),
        retention_bytes=MESSAGE_OVERHEAD_BYTES * random.choice((4, 50, 100_000)),
        channel_ttl_seconds=random.choice((0.5, 2.0, 5.0, 60.0)),
        channels_limit=random.choice((3, 12, 40, 100_000)),
        keys_limit=random.choice((1, 3, 100_000)),
        strict_channels=random.random() < 0.1,
        members_limit=random.choice((3, 100_000)),
        presence_limit=random.choice((1, 200)),
        ephemeral_bytes=MESSAGE_OVERHEAD_BYTES * random.choice((3, 100_000)),
        channels=tuple([random_policy(random, prefix) for prefix in random.sample(PREFIXES, random.choice((0, 1, 3)))]),
    )


def random_policy(random: Random, prefix: str) -> ChannelPolicy:
    return ChannelPolicy(
        prefix=prefix,
        retention_seconds=random.choice((None, 0.5, 4.0, 90.0)),
        retention_messages=random.choice((None, 2)),
        retention_bytes=random.choice((None, 3 * MESSAGE_OVERHEAD_BYTES)),
        channel_ttl_seconds=random.choice((None, 1.0, 30.0)),
        share=random.choice((0.3, 1.0, 5.0)),
    )


PREFIXES = ("c1", "c2", "c", "c11")


class RestoredReplicas:
    """One random order of entries, given to a replica that lives throughout and to one that is often restored."""

    def __init__(self, seed: str, *, channels: int) -> None:
        """`channels`: how many names there are."""
        self.random = random = Random(seed)
        self.limits = random_limits(random)
        self.producers = RandomProducers(random)
        self.steady = ReplicatedState(self.limits, epoch=EPOCH)
        self.steady.note_changes()
        self.other = ReplicatedState(self.limits, epoch=EPOCH)
        self.saved = SavedCheckpoint()
        self.save()
        self.names = [f"c{number}" for number in range(channels)]
        random.shuffle(self.names)
        self.presence = RandomPresence(random, tuple(self.names[:3]))
        self.time = 1000.0
        self.restored = 0

    def run(self, entries: int) -> None:
        """Apply that many entries to both; assert that they stay equal."""
        for _ in range(entries):
            if self.random.random() < 0.15:
                self.save()
            if self.random.random() < 0.15:
                self.restore()
            self.time += self.random.choice((0.0, 0.0, 0.0, 0.25, 0.5, 1.0, self.random.choice((3.0, 9.0, 60.0))))
            self.apply(self.command())
        self.assert_equal()

    def apply(self, command: Command) -> None:
        cursor = self.steady.cursor
        entry = Entry(cursor.epoch, cursor.sequence + 1, self.time, command)
        outcome = self.steady.apply(entry)
        assert repr(self.other.apply(entry)) == repr(outcome)
        assert self.other.cursor == self.steady.cursor
        assert self.other.next_expiry == self.steady.next_expiry
        assert self.other.limits == self.steady.limits
        assert [*self.other.members.rows()] == [*self.steady.members.rows()]
        assert len(self.other.channels) == len(self.steady.channels)
        assert self.other.cache.bytes == self.steady.cache.bytes

    def save(self) -> None:
        """A broadcast saves what the steady replica has recorded."""
        changes = self.steady.changes()
        self.saved.save(changes)
        self.steady.note_changes()

    def restore(self) -> None:
        """The other replica starts again from a checkpoint of this moment, in one of the real forms."""
        self.save()
        how = self.random.randrange(3)
        if how == 0:
            snapshot = self.saved.as_redis_reads_it(self.random)
        elif how == 1:
            snapshot = self.saved.as_sqlite_reads_it()
        else:
            snapshot = self.steady.snapshot()
        assert snapshot == self.steady.snapshot()
        self.other = restore(snapshot)
        self.other.check()
        self.restored += 1
        self.assert_equal()

    def assert_equal(self) -> None:
        self.steady.check()
        self.other.check()
        assert self.other.snapshot() == self.steady.snapshot()

    def command(self) -> Command:
        random = self.random
        kind = random.random()
        name = random.choice(self.names)
        if kind > 0.99:
            return Configure(random_limits(random))
        if kind > 0.88:
            return self.presence.command()
        if kind > 0.86:
            return Continue(f"e{self.steady.cursor.sequence + 2}")
        ttl = random.choice((None, None, 0.5, 3.0, 20.0))
        if kind < 0.5:
            count = random.choice((1, 1, 2, 5, 30, len(self.names)))
            names = random.sample(self.names, min(count, len(self.names)))
            ephemeral = random.random() < 0.2
            together = [tuple(names)] if random.random() < 0.5 else [(name,) for name in names]
            drafts = tuple([draft(*each, ephemeral=ephemeral) for each in together])
            key = random.choice("klmnop") if random.random() < 0.2 else None
            owner = random.choice(("", "", "key 1", "key 2"))
            if key is None and random.random() < 0.2:
                return self.producers.publication(drafts, owner)
            return Publish(drafts, key, owner)
        if kind < 0.62:
            return Create(None if random.random() < 0.2 else name, ttl)
        if kind < 0.74:
            return Renew(name, ttl)
        return Close(name) if kind < 0.82 else Expire()
