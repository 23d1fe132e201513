"""The promises: nothing lost, nothing twice, one order; also while everything happens at the same moment."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from conformance.follower import Follower
from conformance.registry import must
from conformance.trial import LONG, Trial

RACES = 150
"""How often each race is run."""


@must("ORD-1", "resume")
def loses_nothing_between_polls(t: Trial) -> None:
    """What is published between two polls comes with the next ones."""
    client, publisher, name = t.client(), t.client(), t.channel()
    follower, sent = Follower(t, name), 0
    for count in (1, 0, 3, 7, 1, 12):
        for _ in range(count):
            publisher.publish(name, sent)
            sent += 1
        follower.read(client, sent)
    follower.expect(range(sent))


@must("ORD-1", "resume")
def loses_nothing_of_many(t: Trial) -> None:
    """Three hundred messages all come, once and in order."""
    client, publisher, name = t.client(), t.client(), t.channel()
    for n in range(300):
        publisher.publish(name, n)
    follower = Follower(t, name)
    follower.read(client, 300)
    follower.expect(range(300))


@must("ORD-2", "resume")
def repeats_nothing(t: Trial) -> None:
    """After everything has come, more polls get nothing."""
    client, name = t.client(), t.channel()
    for n in range(5):
        client.publish(name, n)
    follower = Follower(t, name)
    follower.read(client, 5)
    for _ in range(5):
        follower.poll(client)
    follower.expect(range(5))


@must("ORD-1", "resume")
def follows_a_publisher(t: Trial) -> None:
    """A subscriber that polls while a publisher publishes gets everything in order."""
    _follow(t, publishers=1, followers=1, channels=1, messages=150)


@must("ORD-3", "resume")
def shows_all_the_same_order(t: Trial) -> None:
    """Three subscribers of a channel with four publishers all get the same messages in the same order."""
    followers = _follow(t, publishers=4, followers=3, channels=1, messages=40)
    for follower in followers[1:]:
        t.same("the order of another subscriber", follower.data, followers[0].data)


@must("ORD-1", "many channels")
def follows_many_channels(t: Trial) -> None:
    """A subscriber of four channels with three publishers gets everything on all of them, while seconds pass."""
    _follow(t, publishers=3, followers=2, channels=4, messages=40, pause=0.12)


@must("ORD-3", "many channels")
def shows_all_the_same_order_of_channels(t: Trial) -> None:
    """Two subscribers of the same four channels get the messages of three publishers in the same order."""
    followers = _follow(t, publishers=3, followers=2, channels=4, messages=30)
    t.same("the order of the other subscriber", followers[1].data, followers[0].data)


@must("ORD-4", "many channels")
def keeps_the_order_of_a_publisher_on_channels(t: Trial) -> None:
    """Messages of one publisher on four channels come in the order of their acknowledgements."""
    client, names = t.client(), tuple(t.channel() for _ in range(4))
    numbers = random.Random(4)
    for n in range(40):
        client.publish(numbers.choice(names), n)
    follower = Follower(t, names)
    follower.read(client, 40)
    follower.expect(range(40))


@must("ORD-4", "resume")
def keeps_the_order_of_a_publisher(t: Trial) -> None:
    """Messages of one publisher over changing connections come in the order of their acknowledgements."""
    name = t.channel()
    for n in range(40):
        t.client().publish(name, n)
    follower = Follower(t, name)
    follower.read(t.client(), 40)
    follower.expect(range(40))


def _follow(
    t: Trial, *, publishers: int, followers: int, channels: int, messages: int, pause: float = 0.005
) -> list[Follower]:
    """Publish and follow at the same time; expect everything, each publisher's messages on a channel in order."""
    names = tuple(t.channel() for _ in range(channels))
    all_followers = [Follower(t, names) for _ in range(followers)]
    letters = "abcdefgh"[:publishers]
    sent: dict[tuple[str, str], list[str]] = {(letter, name): [] for letter in letters for name in names}

    def publish(letter: str) -> None:
        client, numbers = t.client(), random.Random(letter)
        for n in range(messages):
            name = numbers.choice(names)
            client.publish(name, f"{letter}{n}")
            sent[letter, name].append(f"{letter}{n}")
            t.sleep(numbers.random() * pause)

    def follow(follower: Follower) -> None:
        follower.read(t.client(), publishers * messages, timeout=2)

    tasks: list[Callable[[], None]] = [lambda f=f: follow(f) for f in all_followers]  # type: ignore[misc]
    t.together(*tasks, *[lambda letter=letter: publish(letter) for letter in letters])
    for follower in all_followers:
        for (letter, _), expected in sent.items():
            own = [data for data in follower.data if data in expected]
            t.same(f"the messages of publisher {letter} on a channel", own, expected)
    return all_followers


@must("ORD-5", "resume")
def wakes_polls_that_arrive_with_a_message(t: Trial) -> None:
    """A poll and a publication that arrive at the same moment meet, whichever is first."""
    client, publisher = t.client(), t.client()
    for n in range(RACES):
        name = t.channel()
        poll = t.adapter.poll((name,), "", LONG)
        publication = t.adapter.publish((name,), n)
        if n % 2:
            client.begin(poll)
            publisher.begin(publication)
        else:
            publisher.begin(publication)
            client.begin(poll)
        t.adapter.read_published(publisher.finish())
        t.same("the messages", t.adapter.read_answer(client.finish(), "").data, [n])


@must("ORD-5", "resume")
def wakes_polls_that_arrive_with_a_message_again(t: Trial) -> None:
    """A poll with a cursor and a publication that arrive at the same moment meet, again and again on one channel."""
    name = t.channel()
    follower, client, publisher = Follower(t, name), t.client(), t.client()
    gate = threading.Barrier(2, timeout=2 * t.patience)

    def publish() -> None:
        for n in range(RACES):
            gate.wait()
            publisher.publish(name, n)

    def poll() -> None:
        for n in range(RACES):
            gate.wait()
            client.begin_poll(name, follower.cursor)
            follower.take(client.answer())
            t.same("the messages", follower.data[n:], [n])

    t.together(publish, poll)


@must("ORD-5", "timeout")
def loses_nothing_when_polls_end(t: Trial) -> None:
    """Messages that are published in the moment in which a poll ends come with it or with the next."""
    tasks = []
    for k in range(16):
        name = t.channel()

        def follow(name: str = name, k: int = k) -> None:
            follower, client, publisher = Follower(t, name), t.client(), t.client()
            for n in range(4):
                client.begin_poll(name, follower.cursor, 1.0)
                t.sleep(0.8 + 0.025 * k + 0.005 * n)
                publisher.publish(name, n)
                follower.take(client.answer(within=1 + t.patience))
                follower.read(client, n + 1)
            follower.expect(range(4))

        tasks.append(follow)
    t.together(*tasks)


@must("ORD-5", "resume")
def loses_nothing_when_connections_break(t: Trial) -> None:
    """A client whose connection breaks at the moment of a publication finds the message with its old cursor."""
    name, publisher = t.channel(), t.client()
    publisher.publish(name, "first")
    cursor = t.client().poll(name).cursor
    for n in range(40):
        wire = t.wire()
        wire.send(t.encode(t.adapter.poll((name,), cursor, LONG)))
        publisher.begin(t.adapter.publish((name,), n))
        (wire.reset if n % 2 else wire.close)()
        t.adapter.read_published(publisher.finish())
        answer = t.client().poll(name, cursor)
        t.same("the messages", answer.data, [n])
        cursor = answer.cursor


@must("ORD-5", "resume")
def loses_nothing_between_connections(t: Trial) -> None:
    """A client that uses a new connection for each poll gets everything."""
    name, publisher = t.channel(), t.client()
    follower = Follower(t, name)

    def publish() -> None:
        for n in range(60):
            publisher.publish(name, n)
            t.sleep(0.005)

    def follow() -> None:
        while len(follower.data) < 60:
            client = t.client()
            follower.read(client, len(follower.data) + 1)
            client.close()

    t.together(publish, follow)
    follower.expect(range(60))


@must("ORD-1", "several at once")
def reaches_each_channel(t: Trial) -> None:
    """A message on three channels reaches the subscribers of each, held or not."""
    names = tuple(t.channel() for _ in range(3))
    clients = [t.client() for _ in names]
    for client, name in zip(clients, names, strict=True):
        client.begin_poll(name)
    t.sleep(0.1)
    t.client().publish(names, "for three")
    for client, name in zip(clients, names, strict=True):
        t.same("the messages", client.answer().data, ["for three"])
        t.same("the messages kept", client.poll(name).data, ["for three"])


@must("ORD-5", "resume")
def serves_many_channels_at_once(t: Trial) -> None:
    """A hundred polls, each on its own channel, each get their own message."""
    clients = [(t.client(), t.channel()) for _ in range(100)]
    began = time.monotonic()
    for client, name in clients:
        client.begin_poll(name)
    publisher = t.client()
    for _, name in reversed(clients):
        publisher.publish(name, name)
    for client, name in clients:
        answer = client.answer()
        if not answer.data and time.monotonic() - began > LONG / 2:
            answer = client.poll(name)  # a slow machine: the poll has ended before its message was published
        t.same("the messages", answer.data, [name])


@must("HTTP-8", "resume")
def keeps_pipelined_polls_apart(t: Trial) -> None:
    """Two polls on one connection, sent together, are both answered, in order."""
    wire, one, other = t.wire(), t.channel(), t.channel()
    wire.send(t.encode(t.adapter.poll((one,), "", LONG)) + t.encode(t.adapter.poll((other,), "", LONG)))
    client = t.client()
    client.publish(other, "second")
    t.true(wire.silent(0.2), "expected no answer to the second poll before the first, and one came")
    client.publish(one, "first")
    came = [t.adapter.read_answer(wire.response(), "").data for _ in range(2)]
    t.same("the answers", came, [["first"], ["second"]])
