"""Simulated publishers and subscribers: what they try again, and what they hold against a server."""

from __future__ import annotations

import json

import pytest

from loadtest.history.events import BrokenPromise, Failed, GivenUp, Refused
from tests.simulation.clients import ATTEMPTS, Publisher, Subscriber, attributes_of
from tests.simulation.http import Message, Reader
from tests.simulation.network import End, Network
from tests.simulation.record import Record
from tests.simulation.world import Process, World


def reply(status: int, body: object) -> bytes:
    data = json.dumps(body).encode()
    return b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n" % (status, len(data)) + data


NOTHING = reply(200, {"cursor": "e1-0", "messages": [], "gaps": [], "closed": []})
CREATED = reply(201, {"id": "e1-1", "time": 0.0})
BUSY = reply(503, {"title": "busy"})


class Setting:
    """A server that answers each request with `reply` after some seconds, and a checker."""

    def __init__(self) -> None:
        self.world = World("test")
        self.network = Network(self.world)
        self.record = Record(self.world)
        self.process = Process(self.world, "balancer")
        self.reply = NOTHING
        self.seconds = 0.0
        self.requests: list[Message] = []
        self.network.listen("balancer", self.process, self._accept)

    def _accept(self, end: End) -> None:
        reader = Reader()

        def received(data: bytes) -> None:
            for message in reader.feed(data):
                self.requests.append(message)
                self.process.later(self.seconds, lambda: end.send(self.reply))

        end.on_data = received

    def run(self, seconds: float) -> None:
        self.world.run(self.world.now + seconds)

    def subscribe(self) -> Subscriber:
        subscriber = Subscriber(self.world, self.network, "s", self.record, ("a", "tag:é"), "earliest")
        subscriber.timeout = 2.0
        subscriber.start()
        return subscriber


@pytest.fixture
def setting() -> Setting:
    return Setting()


@pytest.mark.parametrize(("key", "tries"), [("k", ATTEMPTS), (None, 1)])
def test_a_publication_that_is_refused_for_now(setting: Setting, key: str | None, tries: int) -> None:
    """It is tried again with its key, and without one given up; the key is the same each time."""
    setting.reply = BUSY
    Publisher(setting.world, setting.network, "p", setting.record).publish("balancer", [("a",)], key, "accepted")
    setting.run(100)
    assert len(setting.requests) == tries
    assert {message.headers.get("idempotency-key") for message in setting.requests} == {key}
    assert {message.headers["authorization"] for message in setting.requests} == {"Bearer key-of-publisher-p"}
    assert isinstance(setting.record.events[-1], GivenUp)


def test_a_publication_that_is_acknowledged_or_wrong(setting: Setting) -> None:
    """201 is told to the checker, 4xx is not tried again."""
    publisher = Publisher(setting.world, setting.network, "p", setting.record)
    setting.reply = CREATED
    publisher.publish("balancer", [("a", "b")], "k", "stable")
    setting.run(10)
    setting.reply = reply(422, {})
    publisher.publish("balancer", [("a",), ("b",)], "k", "accepted")
    setting.run(10)
    first, second = setting.record.checker.publications.values()
    assert (first.ids, second.ids, second.refused) == (("e1-1",), (), True)
    assert [message.json for message in setting.requests] == [
        {"channels": ["a", "b"], "data": "p.1/0", **attributes_of("p.1/0"), "ack": "stable", "ack_timeout": 3.0},
        {
            "messages": [
                {"channels": ["a"], "data": "p.2/0", **attributes_of("p.2/0")},
                {"channels": ["b"], "data": "p.2/1", **attributes_of("p.2/1")},
            ]
        },
    ]


def test_some_messages_are_ephemeral(setting: Setting) -> None:
    """The checker is told, and the servers are."""
    setting.reply = BUSY
    groups: list[tuple[str, ...]] = [("a",)] * 40
    Publisher(setting.world, setting.network, "p", setting.record).publish("balancer", groups, None, "accepted")
    setting.run(1)
    (publication,) = setting.record.checker.publications.values()
    (message,) = setting.requests
    assert [draft.get("ephemeral", False) for draft in message.json["messages"]] == publication.ephemeral
    assert {True, False} == set(publication.ephemeral)


@pytest.mark.parametrize(("first", "told"), [(BUSY, GivenUp), (reply(422, {}), Refused)])
def test_a_publication_that_is_refused_in_the_end(setting: Setting, first: bytes, told: type) -> None:
    """Only if that is the first response: an earlier attempt may have been carried out although it failed."""
    setting.reply = first
    Publisher(setting.world, setting.network, "p", setting.record).publish("balancer", [("a",)], "k", "accepted")
    setting.run(0.1)
    setting.reply = reply(422, {})
    setting.run(10)
    assert [type(event) for event in setting.record.events[1:]] == [told]


def test_a_subscriber_continues_with_its_cursor(setting: Setting) -> None:
    """After a refusal with the one that it has, after an answer with the new one."""
    setting.seconds, setting.reply = 1.0, BUSY
    subscriber = setting.subscribe()
    setting.run(2.5)
    setting.reply = NOTHING
    setting.run(2.5)
    subscriber.leave()
    targets = [message.first_line.split()[1] for message in setting.requests]
    assert targets[0] == targets[1] == "/v1/poll?channel=a&channel=tag%3A%C3%A9&cursor=earliest&timeout=2&limit=100"
    assert "cursor=e1-0" in targets[-1]
    count = len(setting.requests)
    setting.run(9)
    assert len(setting.requests) == count


@pytest.mark.parametrize(("seconds", "in_time"), [(3.4, True), (3.7, False)])
def test_a_late_answer(setting: Setting, seconds: float, in_time: bool) -> None:
    """It breaks a promise if nothing excuses it: the timeout is 2 s, and 1.5 s are for the way."""
    setting.seconds = seconds
    setting.subscribe().must_be_in_time = True
    if in_time:
        setting.run(10)
    else:
        with pytest.raises(BrokenPromise, match=r"holds end in time: s asked for 2 s, and was held for 3\.7 s"):
            setting.run(10)


def test_a_subscriber_that_sleeps(setting: Setting) -> None:
    """It breaks off, and comes back with its old cursor."""
    setting.seconds = 1.0
    subscriber = setting.subscribe()
    setting.run(1.5)
    count = len(setting.requests)
    subscriber.sleep(5.0)
    setting.run(4.9)
    assert len(setting.requests) == count
    assert isinstance(setting.record.events[-1], Failed)
    setting.run(0.2)
    assert len(setting.requests) == count + 1
    assert "cursor=e1-0" in setting.requests[-1].first_line


def test_a_subscriber_that_sleeps_between_two_polls(setting: Setting) -> None:
    """The poll that it would have made does not wake it."""
    subscriber = setting.subscribe()
    subscriber.pause = 2.0
    setting.run(1.0)
    subscriber.sleep(5.0)
    setting.run(4.9)
    assert len(setting.requests) == 1
    setting.run(0.2)
    assert len(setting.requests) == 2


@pytest.mark.parametrize(("seconds", "in_time"), [(0.9, True), (1.1, False)])
def test_a_message_that_comes_late(setting: Setting, seconds: float, in_time: bool) -> None:
    """It breaks a promise if it was acknowledged, and the poll sent, more than a second before."""
    setting.reply = CREATED
    Publisher(setting.world, setting.network, "p", setting.record).publish("balancer", [("a",)], "k", "accepted")
    setting.run(1)
    message = {"id": "e1-1", "time": 0.0, "channels": ["a"], "data": "p.1/0", **attributes_of("p.1/0")}
    setting.reply = reply(200, {"cursor": "e1-1", "messages": [message], "gaps": [], "closed": []})
    setting.seconds = seconds
    setting.subscribe().prompt_from = 0.0
    if in_time:
        setting.run(seconds + 0.1)
    else:
        with pytest.raises(BrokenPromise, match=r"delivered at once: s got p\.1/0 1\.1 s after it was acknowledged"):
            setting.run(seconds + 0.1)


@pytest.mark.parametrize(("seconds", "loops"), [(0.05, True), (0.15, False)])
def test_answers_without_anything(setting: Setting, seconds: float, loops: bool) -> None:
    """Some at once are no harm, and many are a loop."""
    setting.seconds = seconds
    setting.subscribe()
    setting.run(0.3)
    if loops:
        with pytest.raises(BrokenPromise, match="no hot loop: s was answered 11 times at once"):
            setting.run(10)
    else:
        setting.run(10)
