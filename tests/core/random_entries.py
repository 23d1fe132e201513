"""Random commands and entries, and limits to try them with."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from msgspec import Raw
from msgspec.structs import replace

from pushup.core.attendance import Attendance, Away, Gone, Here, Leave
from pushup.core.channel import MESSAGE_OVERHEAD_BYTES, Unread
from pushup.core.commands import (
    Claim,
    Close,
    Command,
    Create,
    Draft,
    Entry,
    Erase,
    Expire,
    Producer,
    Publish,
    Read,
    Renew,
    Told,
)
from pushup.core.cursor import Cursor
from pushup.core.limits import ChannelPolicy, Limits

from .builders import EPOCH, draft

NAMES = ("a", "b", "c", "d", "tag:é", 'quote"\\', "\N{GRINNING FACE}")

LIMITS = {
    "age": Limits(retention_seconds=4.0, channel_ttl_seconds=3.0),
    "messages": Limits(retention_seconds=30.0, retention_messages=3, channel_ttl_seconds=20.0, presence_limit=1),
    "bytes": Limits(retention_seconds=60.0, retention_bytes=6 * MESSAGE_OVERHEAD_BYTES, keys_limit=3),
    "strict": Limits(retention_seconds=15.0, channel_ttl_seconds=9.0, retention_messages=5, strict_channels=True),
    "policies": Limits(
        retention_seconds=3.0,
        retention_bytes=9 * MESSAGE_OVERHEAD_BYTES,
        ephemeral_bytes=3 * MESSAGE_OVERHEAD_BYTES,
        channels=(
            ChannelPolicy(prefix="a", retention_seconds=30.0, share=3.0),
            ChannelPolicy(prefix="tag", retention_messages=2, retention_bytes=5 * MESSAGE_OVERHEAD_BYTES),
        ),
    ),
    "one of all": Limits(retention_seconds=9.0, retention_messages=1, keys_limit=1, channel_ttl_seconds=2.0),
}


class RandomProducers:
    """Publications of a few producers.

    Most are the next one; others come again, overlap, leave out numbers or are of other epochs. Now and then new
    producers come: whoever was refused would leave out numbers from then on.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._last: dict[tuple[str, str], Publish] = {}
        self._generation = 0

    def publication(self, messages: tuple[Draft, ...], owner: str) -> Publish:
        random = self._random
        self._generation += random.random() < 0.05
        name = f"{random.choice('pq')}{self._generation}"
        epoch_change = random.choice((0, 0, 0, 0, 0, 0, 1, -1))
        last = self._last.get((owner, name))
        if last is None or last.producer is None:
            last = Publish(messages, None, owner, Producer(name, 1, random.choice((0, 0, 0, 3))))
            self._last[owner, name] = last
            return last
        producer = last.producer
        epoch = max(0, producer.epoch + epoch_change)
        if random.random() < 0.2:
            return replace(last, producer=replace(producer, epoch=epoch))
        following = producer.sequence + last.width
        sequence = max(0, following + random.choice((0, 0, 0, 0, 0, 0, 0, 0, 1, -1, -2, -last.width)))
        publication = Publish(messages, None, owner, Producer(name, epoch, sequence))
        if sequence == following and epoch >= producer.epoch:
            self._last[owner, name] = publication
        return publication


class RandomPresence:
    """Users follow channels by three nodes, and leave."""

    def __init__(self, random: Random, names: tuple[str, ...], users: tuple[str, ...] = ("x", "y", "z", "é\n")) -> None:
        self._random = random
        self._names = names
        self._users = users

    def command(self) -> Command:
        random = self._random
        node = random.choice(("n1", "n2", "n3"))
        count = random.choice((1, 1, 2, 5))
        keys = [(random.choice(self._names), random.choice(self._users)) for _ in range(count)]
        kind = random.random()
        if kind < 0.45:
            data = random.choice((b"null", b"null", b'{"n":1}', '"é"'.encode()))
            return Here(node, tuple([Attendance(*key, Raw(data)) for key in keys]))
        if kind < 0.7:
            return Away(node, tuple(keys), random.choice((0.0, 0.5, 2.0)), is_closed=random.random() < 0.3)
        return Gone(node, 0.5) if kind < 0.75 else Leave(tuple(keys * 2))


class RandomReaders:
    """Has some messages wait for readers; what becomes of them takes the place of some renewals."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._ids: list[str] = []

    def command(self, command: Command, sequence: int) -> Command:
        """This command, or another one of the same width. `sequence`: of its entry."""
        random = self._random
        if isinstance(command, Publish) and int(command.fingerprint, 16) % 2:  # the same if it is repeated
            first, *others = command.messages
            self._ids.append(f"{EPOCH}-{sequence}")
            return replace(command, messages=(replace(first, unread=Unread(3.0, ("x", "y"))), *others))
        if isinstance(command, Renew) and self._ids:
            ids = tuple(random.sample(self._ids[-6:], min(3, len(self._ids))))
            return random.choice((Read(random.choice("xy"), ids), Claim(ids), Claim(ids), Told(ids[:1])))
        return command


def random_commands(random: Random, *, names: tuple[str, ...] = NAMES) -> Iterator[tuple[float, Command]]:
    """An endless series of commands of all kinds, each with the seconds since the previous one."""
    published = 1
    producers = RandomProducers(of_producers := Random(str(random.getstate())))  # all else stays as it was without them
    presence = RandomPresence(of_members := Random(f"presence {random.getstate()}"), names[:2])
    while True:
        drafts = [
            draft(
                *random.sample(names, random.choice((1, 1, 2, len(names)))),
                data=f'"{"x" * (size := random.randrange(40))}"',
                event=("", "", "e1", "e2")[size % 4],
                ephemeral=size % 9 == 8,
            )
            for _ in range(random.choice((1, 1, 1, 2, 5)))
        ]
        name, ttl = random.choice(names), random.choice((None, None, 0.5, 6.0))
        owner = ("", "key 1", "key 2")[len(drafts) % 3]
        key = random.choice("klmnopq") if random.random() < 0.4 else None
        publication = Publish(tuple(drafts), key, owner)
        if key is None and of_producers.random() < 0.25:
            publication = producers.publication(tuple(drafts), owner)
        command: Command = random.choices(
            (
                publication,
                Create(None if random.random() < 0.1 else name, ttl),
                Renew(name, ttl),
                Close(name),
                Expire(),
                Erase("message", "", Cursor(EPOCH, random.randrange(published, published + 9))),
                Erase(*random.choice((("channel", name), ("owner", "key 1"), ("owner", "")))),
            ),
            (20, 8, 4, 2, 2, 3, 1),
        )[0]
        if of_members.random() < 0.1:
            command = presence.command()
        published += command.width
        yield random.choice((0.0, 0.0, 0.0, 0.25, 0.25, 1.0, random.choice((0.0, 5.0, 20.0)))), command


def random_entries(random: Random, count: int, *, names: tuple[str, ...] = NAMES) -> Iterator[Entry]:
    """The first `count` entries of a random order."""
    sequence, time, readers = 1, 1000.0, RandomReaders(Random(str(random.getstate())))
    for _, (seconds, given) in zip(range(count), random_commands(random, names=names), strict=False):
        time += seconds
        command = readers.command(given, sequence)
        yield Entry(EPOCH, sequence, time, command)
        sequence += command.width
