"""What one publication, one delivery, one held poll and so on costs: an average over many of them, or a difference."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from msgspec import Raw, json

from pushup.core.attendance import Attendance, Here
from pushup.core.limits import ChannelPolicy, Limits
from tests.broadcast.hub.machine import Machine
from tests.core.builders import publish as core_publish
from tests.costs.counting import Work, count, memory
from tests.costs.requests import create, events, poll, publish
from tests.costs.server import CountedServer, server
from tests.net.in_memory_server import Client

MANY = 16
"""Of what is counted."""

HUNDREDS = 500
"""Of what memory is measured for: so many that what is there only once does not matter, and not so many that any is
dropped."""

TEXT = "x" * 100
"""The data of each message."""


class Cost(NamedTuple):
    """What one of something takes; see `counting.Work`."""

    calls: float
    outside_calls: float
    instructions: float


def publication() -> Cost:
    """On a channel that has had messages before. Nobody waits for it."""
    return _one_of(_publications(["a"] * MANY, polled=False))


def publication_with_workers(together: int) -> Cost:
    """What it takes from a worker's `append` to the answer, in it, the parent and one more worker.

    `together`: so many come in each batch of events.
    """
    machine = Machine()
    asked, _ = machine.start(2)
    asked.append(core_publish("a"))
    machine.run()

    def publish_all() -> None:
        for _ in range(MANY // together):
            outcomes = [asked.append(core_publish("a")) for _ in range(together)]
            machine.carry()
            assert all(outcomes)

    work = count(publish_all)
    assert all(worker.equals_hub() for worker in machine.workers)
    return _one_of(work)


def delivery_to_many() -> Cost:
    """To one of many clients whose polls are equal: by so much a publication costs more with one client more."""
    return _one_of(_publication_to(2 * MANY, poll), _publication_to(MANY, poll))


def event_to_many(request: Callable[[str, str], bytes] = events) -> Cost:
    """The same with event streams."""
    return _one_of(_publication_to(2 * MANY, request), _publication_to(MANY, request))


def event_to_one(request: Callable[[str, str], bytes]) -> Cost:
    """A publication with the only event stream that waits for it."""
    work = _publication_to(1, request)
    return Cost(work.calls, work.outside_calls, work.instructions)


def delivery_to_one() -> Cost:
    """To the only client that waits on a channel: by so much a publication costs more than without it."""
    names = _names(MANY)
    return _one_of(_publications(names, polled=True), _publications(names, polled=False))


def equal_poll() -> Cost:
    """A poll, held, that is equal to others which came before it."""
    with server() as there:
        first, *clients = there.connect(1 + MANY)
        _publish(there, ["a"])
        request = poll("a", there.cursor)
        there.send([first], [request])
        work = count(lambda: there.send(clients, [request] * MANY))
        assert there.node.polls.count == 1 + MANY
        return _one_of(work)


def own_poll() -> Cost:
    """A poll, held, with a channel and a cursor that no other has."""
    with server() as there:
        clients = there.connect(MANY)
        requests = _own_polls(there, _names(MANY))
        work = count(lambda: there.send(clients, requests))
        assert there.node.polls.count == MANY
        return _one_of(work)


def deadline() -> Cost:
    """The deadline of a held poll that is equal to others."""
    with server() as there:
        _hold(there, there.connect(MANY))
        there.advance(19.75)
        work = count(lambda: there.advance(0.25))
        assert there.node.polls.count == 0
        return _one_of(work)


def client_leaves() -> Cost:
    """The end of a connection with a held poll."""
    with server() as there:
        clients = there.connect(MANY)
        _hold(there, clients)
        work = count(lambda: there.end(clients))
        assert all(client.closed() for client in clients)
        return _one_of(work)


def connection() -> Cost:
    """A new connection."""
    with server() as there:
        return _one_of(count(lambda: there.connect(MANY)))


OPERATIONS: dict[str, Callable[[], Cost]] = {
    "a publication": publication,
    "a publication, 2 workers": partial(publication_with_workers, 1),
    "a publication, 2 workers, 16 at a time": partial(publication_with_workers, MANY),
    "a delivery, fan-out": delivery_to_many,
    "a delivery, spread": delivery_to_one,
    "an event, fan-out": event_to_many,
    "a poll, held, fan-out": equal_poll,
    "a poll, held, spread": own_poll,
    "a held poll's deadline": deadline,
    "a held poll given up": client_leaves,
    "a connection": connection,
}
"""Fan-out: many clients wait on one channel. Spread: each waits on a channel of its own."""


def memory_of_connections() -> int:
    with server() as there:
        return memory(lambda: there.connect(HUNDREDS))


def memory_of_equal_polls() -> int:
    with server() as there:
        clients = there.connect(HUNDREDS)
        return memory(lambda: _hold(there, clients))


def memory_of_own_polls() -> int:
    with server() as there:
        clients = there.connect(HUNDREDS)
        requests = _own_polls(there, _names(HUNDREDS))
        return memory(lambda: there.send(clients, requests))


def memory_of_messages() -> int:
    with server() as there:
        size = memory(lambda: _publish(there, ["a"] * HUNDREDS))
        assert there.node.state.message_count == HUNDREDS
        return size


def memory_of_channels() -> int:
    with server() as there:
        (client,) = there.connect(1)

        def create_all() -> None:
            for name in _names(HUNDREDS):
                there.send([client], [create(name)])
                assert client.reply().status == 201

        return memory(create_all)


def memory_of_members() -> int:
    """Of a channel with presence, in the state. They follow at another node."""
    policy = ChannelPolicy(prefix="a", presence=True)
    members = [Attendance("a", name, Raw(b'{"name":"Ann"}')) for name in _names(HUNDREDS)]
    entry = json.encode(Here("other", tuple(members)))
    with server(limits=Limits(channels=(policy,), presence_limit=1)) as there:
        _publish(there, ["a"])
        size = memory(lambda: there.node.node.submit(json.decode(entry, type=Here), lambda outcome: None))
        assert there.node.state.members.count("a") == HUNDREDS
        return size


MEMORY: dict[str, Callable[[], int]] = {
    "a connection": memory_of_connections,
    "a held poll, fan-out": memory_of_equal_polls,
    "a held poll, spread": memory_of_own_polls,
    "a message": memory_of_messages,
    "a channel": memory_of_channels,
    "a member": memory_of_members,
}
"""How many bytes HUNDREDS of them take. A connection is without its socket. A poll is without its connection, and with
what is remembered of its query."""


def _one_of(with_them: Work, without: Work | None = None) -> Cost:
    """The cost of one, if there are MANY."""
    nothing = Work((), 0, 0, 0, 0)
    more, less = with_them, without or nothing
    return Cost(
        (more.calls - less.calls) / MANY,
        (more.outside_calls - less.outside_calls) / MANY,
        (more.instructions - less.instructions) / MANY,
    )


def _publications(names: list[str], *, polled: bool) -> Work:
    """A publication on each of these channels, one after the other."""
    with server() as there:
        clients = there.connect(len(names))
        polls = _own_polls(there, names)
        if polled:
            there.send(clients, polls)
        (publisher,) = there.connect(1)

        def publish_all() -> None:
            for name in names:
                there.send([publisher], [publish(name, TEXT)])

        work = count(publish_all)
        assert [reply.status for reply in publisher.replies()] == [201] * len(names)
        assert all(bool(client.take()) is polled for client in clients)
        return work


def _publication_to(clients: int, request: Callable[[str, str], bytes]) -> Work:
    """A publication that this many clients wait for, with equal requests."""
    with server() as there:
        receivers = there.connect(clients)
        _publish(there, ["a"])
        there.send(receivers, [request("a", there.cursor)] * clients)
        for receiver in receivers:
            receiver.take()  # the head of its stream
        (publisher,) = there.connect(1)
        work = count(lambda: there.send([publisher], [publish("a", TEXT)]))
        assert all(TEXT.encode() in receiver.take() for receiver in receivers)
        return work


def _own_polls(there: CountedServer, names: list[str]) -> list[bytes]:
    """Polls that will be held, after a publication on each of these channels."""
    polls = []
    for name in names:
        _publish(there, [name])
        polls.append(poll(name, there.cursor))
    return polls


def _hold(there: CountedServer, clients: list[Client]) -> None:
    """All of these clients poll the same channel."""
    _publish(there, ["a"])
    there.send(clients, [poll("a", there.cursor)] * len(clients))
    assert there.node.polls.count == len(clients)


def _publish(there: CountedServer, names: list[str]) -> None:
    (publisher,) = there.connect(1)
    for name in names:
        there.send([publisher], [publish(name, TEXT)])
        assert publisher.reply().status == 201


def _names(count: int) -> list[str]:
    return [f"channel-{number}" for number in range(count)]
