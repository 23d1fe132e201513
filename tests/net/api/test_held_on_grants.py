"""Held polls and streams are found by subject, and only while they are held."""

from __future__ import annotations

from random import Random
from typing import cast

import pytest

from pushup.core.answer import Answer
from pushup.core.errors import Forbidden
from pushup.core.held_on_grants import Why
from pushup.core.held_polls import SLICE
from pushup.net.api.polling import GrantedPoll
from pushup.net.api.streaming import Stream
from pushup.net.connection import Connection
from tests.net.authorized_node import SECONDS, AuthorizedNode, Connected
from tests.net.event_reader import read_chunks, read_events
from tests.net.in_memory_server import Client

REVOKED = Forbidden("you may not poll any longer")


def issued_before(time: float) -> Why:
    return lambda grant: REVOKED if grant.issued_at < time else None


def test_polls_and_streams_are_found() -> None:
    """Those of a subject, in the order in which they came; those of others and of nobody are elsewhere."""
    node = AuthorizedNode()
    ann = node.ticket("a", subject="ann")
    node.begin_poll("channel=a", ann)
    node.begin("GET", "/v1/events?channel=a", pushup_ticket=ann)
    node.begin_poll("channel=a", node.ticket("a", subject="ben"))
    node.begin_poll("channel=a", node.ticket("a"))
    held = node.node.held_on_grants
    assert [type(each) for each in held.of("sub:ann")] == [GrantedPoll, Stream]
    assert {each.grant.subject for each in held.of("sub:ann")} == {"ann"}
    assert len(held.of("sub:ben")) == 1
    assert held.of("") == held.of("sub:cleo") == ()
    assert held.names - {"sub:ann", "sub:ben"} == {f"key:{node.tickets.key_id}"}


def test_the_application_names_the_subject() -> None:
    """A poll is found from the first one on, by whom the application has named, and so is the next with its ticket."""
    node = AuthorizedNode()
    node.application.subject = "ann"
    first = node.begin_poll("channel=a")
    assert node.node.held_on_grants.names == set()
    node.application.allow()
    (held,) = node.node.held_on_grants.of("sub:ann")
    node.begin_poll("channel=a", held.grant.new_ticket)
    assert len(node.node.held_on_grants.of("sub:ann")) == 2
    assert not first.responses


def test_ending_a_poll_and_a_stream() -> None:
    """Their clients are told why, at once; what others hold is left alone, and nothing is delivered twice."""
    node = AuthorizedNode()
    ann = node.ticket("a", subject="ann")
    poll = node.begin_poll("channel=a", ann)
    stream = node.begin("GET", "/v1/events?channel=a", pushup_ticket=ann)
    other = node.begin_poll("channel=a", node.ticket("a", subject="ben"))
    node.node.held_on_grants.end("sub:ann", issued_before(node.wall()))
    assert poll.responses[0].status == 403
    events, is_complete = read_chunks(stream.written)
    assert read_events(events)[-1].event == "error"
    assert is_complete
    assert (node.streaming.count, node.polls.count) == (0, 1)
    assert node.node.held_on_grants.names == {"sub:ben"}
    node.publish("a", data=1)
    assert len(other.answers) == 1
    assert node.node.held_on_grants.names == set()


def test_a_poll_whose_answer_is_due_is_not_ended() -> None:
    """While one poll is answered, its client's next request may end others that the same message has woken."""
    node = AuthorizedNode()
    first = node.begin_poll("channel=a", node.ticket("a", subject="ann"))
    second = node.begin_poll("channel=a", node.ticket("a", subject="ben"))
    taken, answer = node.node.held_on_grants, first.answer

    def answer_and_end(given: Answer) -> None:
        answer(given)
        taken.end("sub:ben", issued_before(node.wall()))

    first.answer = answer_and_end  # type: ignore[method-assign, assignment]
    node.publish("a", data=1)
    node.run()
    assert (len(second.answers), second.responses) == (1, [])
    assert taken.names == set()


def test_what_was_issued_later_stays() -> None:
    """A user who logs in again keeps what was granted after that."""
    node = AuthorizedNode()
    now = int(node.wall())
    old = node.begin_poll("channel=a", node.ticket("a", subject="ann", issued_at=now - 1))
    new = node.begin_poll("channel=a", node.ticket("a", subject="ann", issued_at=now))
    node.node.held_on_grants.end("sub:ann", issued_before(now))
    assert (len(old.responses), len(new.responses)) == (1, 0)
    assert node.node.held_on_grants.names == {"sub:ann"}


def test_many_are_ended_in_slices() -> None:
    """Other connections have their turn in between; who leaves or is answered meanwhile is not answered again."""
    node = AuthorizedNode()
    ticket = node.ticket("a", subject="ann")
    polls = [node.begin_poll("channel=a", ticket) for _ in range(SLICE * 2 + 2)]
    node.node.held_on_grants.end("sub:ann", issued_before(node.wall()))
    assert sum(bool(poll.responses) for poll in polls) == SLICE
    node.leave(polls[-1])
    node.turn()
    assert sum(bool(poll.responses) for poll in polls) == 2 * SLICE
    node.run()
    assert sum(bool(poll.responses) for poll in polls) == 2 * SLICE + 1
    assert node.node.held_on_grants.names == set()
    assert node.is_quiet()


def test_equal_requests_of_two_users() -> None:
    """Whatever is remembered of a request, its grant is its own: equal polls are held for whoever sent each."""
    connected = Connected()
    held = connected.node.node.held_on_grants
    tickets = {name: connected.node.ticket("a", subject=name) for name in ("ann", "ben", "")}
    for count in range(1, 4):
        for ticket in tickets.values():
            connected.poll("channel=a&timeout=20", f"PushUp-Ticket: {ticket}")
        assert {name: len(held.of(f"sub:{name}")) for name in tickets} == {"ann": count, "ben": count, "": 0}
    connected.poll("channel=a&timeout=20", f"PushUp-Ticket: {tickets['ann'][:-1]}_")
    connected.poll("channel=a&timeout=20")
    assert len(connected.node.application.asked) == 2
    assert len(held.of("sub:ann")) == 3


class Model:
    """Clients that come and go over connections, of some users and of nobody."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.connected = Connected()
        self.node = self.connected.node
        self.held = self.node.node.held_on_grants
        self.began = int(self.node.wall())
        self.clients: list[Client] = []

    def arrive(self) -> None:
        subject = self.random.choice(("", "ann", "ann", "ben", "cleo"))
        channel = self.random.choice("ab")
        ticket = self.node.ticket(channel, subject=subject, issued_at=self.began + self.random.randrange(100))
        client = self.connected.server.connect(self.random.choice((None, None, 400)))
        call = self.random.choice((f"poll?timeout={self.random.choice((5, 200))}&", "events?"))
        start = self.random.choice(("", "&cursor=earliest"))
        self.clients.append(client)
        head = f"GET /v1/{call}channel={channel}{start} HTTP/1.1\r\nHost: x\r\nPushUp-Ticket: {ticket}\r\n\r\n"
        client.send(head.encode() * self.random.choice((1, 1, 1, 2)))

    def leave(self) -> None:
        if self.clients:
            client = self.clients.pop(self.random.randrange(len(self.clients)))
            self.random.choice((client.end, client.reset))()
            client.read(None)

    def publish(self) -> None:
        data = "x" * self.random.choice((1, 1, 2000))
        self.node.call("POST", "/v1/messages", {"channels": [self.random.choice("ab")], "data": data})
        for _ in range(self.random.randrange(3)):
            self.node.turn()

    def wait(self) -> None:
        self.node.advance(self.random.choice((1, 7, SECONDS)))
        self.connected.server.demultiplexer.run()

    def read(self) -> None:
        for client in self.clients:
            client.read(None if self.random.random() < 0.5 else 300)

    def jump(self) -> None:
        self.node.wall_ahead += self.random.choice((10.0, SECONDS + 1.0, -30.0))

    def end(self) -> None:
        name = self.random.choice(("sub:ann", "sub:ben", "sub:", "sub:dee"))
        self.held.end(name, issued_before(self.began + self.random.randrange(120)))

    def check(self) -> None:
        """What is found by name is what connections hold: nothing else, and nothing twice."""
        self.node.check()
        of_node = [each for subject in self.held.names for each in self.held.of(subject)]
        assert len(of_node) == len(set(of_node))
        for each in of_node:
            assert isinstance(each, GrantedPoll | Stream)
        assert self.open() == sorted(each.grant.subject for each in of_node)

    def open(self) -> list[str]:
        """The subjects of what connections hold, as the edge sees it."""
        held = [cast(Connection, watched).held for watched in self.connected.server.demultiplexer.wanted]
        return sorted([each.grant.subject for each in held if isinstance(each, GrantedPoll | Stream)])


@pytest.mark.parametrize("seed", range(12))
def test_the_index_is_what_is_held(seed: int) -> None:
    """However polls and streams end: answered, late, expired, left, broken, ended or drained. Nothing stays behind."""
    random = Random(seed)
    model = Model(random)
    steps = (*[model.arrive] * 5, model.leave, model.publish, model.wait, model.read, model.jump, model.end)
    most = 0
    for _ in range(150):
        random.choice(steps)()
        model.check()
        most = max(most, len(model.open()))
    assert most > 3
    assert len(model.clients) > 3
    if seed % 2:
        model.node.node.drain(5.0)
        model.node.advance(10)
    else:
        for client in model.clients:
            client.reset()
    model.node.run()
    model.check()
    assert model.held.names == set()
