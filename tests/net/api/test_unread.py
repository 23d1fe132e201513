"""Messages that wait for readers: what publishers may ask for, what counts as reading, and who is called."""

from __future__ import annotations

from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from pushup.broadcast import OnOutcome
from pushup.core.channel import Message
from pushup.core.commands import Claim, Command, Read
from pushup.core.errors import Unavailable
from pushup.core.limits import Limits
from pushup.core.webhooks import CLAIM_SECONDS, Webhook
from pushup.node.readers import AHEAD_SECONDS, READ_AT_MOST
from pushup.node.webhook_caller import ATTEMPTS
from tests.net.authorized_node import AuthorizedNode
from tests.net.event_reader import Event
from tests.net.in_memory_node import AroundMemory, RecordingExchange, take
from tests.net.observed_log import logged_at

AFTER = 60


class Called:
    """The application's webhook: answers when the test says so."""

    def __init__(self) -> None:
        self.calls: list[tuple[Webhook, Message | None, Deferred[bool]]] = []
        self.answer: bool | Exception | None = True

    def __call__(self, row: Webhook, message: Message | None) -> Deferred[bool]:
        result: Deferred[bool] = Deferred()
        self.calls.append((row, message, result))
        if isinstance(self.answer, Exception):
            result.errback(self.answer)
        elif self.answer is not None:
            result.callback(self.answer)
        return result

    @property
    def subjects(self) -> list[tuple[str, ...]]:
        return [row.subjects for row, _, _ in self.calls]


class UnreadNode(AuthorizedNode):
    """`subject` polls; the application allows everybody everything."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.called = Called()
        self.node.webhook_caller.use(self.called, 10)
        self.application.at_once = lambda channels: 3600.0

    def ask(self, *subjects: str, channel: str = "a", after: float = AFTER, **fields: Any) -> str:
        """Publish a message that waits for these; returns its id."""
        body = {"channels": [channel], "data": 1, "unread_after": after, "for": subjects, **fields}
        result = self.call("POST", "/v1/messages", body)
        assert result.status == 201, result
        self.run()
        return str(result.json["id"])

    def seen(self, subject: str, cursor: str, channel: str = "a", timeout: int = 0) -> None:
        self.application.subject = subject
        self.begin("GET", f"/v1/poll?channel={channel}&timeout={timeout}&cursor={cursor}")
        self.run()

    def stream(self, subject: str, query: str = "channel=a") -> RecordingExchange:
        self.application.subject = subject
        return self.begin("GET", f"/v1/events?{query}")


@pytest.fixture
def node() -> UnreadNode:
    return UnreadNode()


def names(events: list[Event]) -> list[str]:
    return [event.event for event in events]


def test_who_has_not_read_it(node: UnreadNode) -> None:
    id_ = node.ask("ann", "bob")
    node.seen("bob", id_)
    node.advance(AFTER - 2)
    assert node.called.calls == []
    node.advance(5)
    ((row, message, _),) = node.called.calls
    assert (row.id, row.channels, row.subjects) == (id_, ("a",), ("ann",))
    assert message is not None
    assert bytes(message.data) == b"1"
    node.advance(100)
    assert len(node.called.calls) == 1
    assert node.metric("webhooks_total", outcome="sent") == 1
    assert node.metric("webhooks_waiting") == 0


def test_who_has_read_it_before_anybody_looked(node: UnreadNode) -> None:
    """Nobody is called about a message that all have read, and nothing is kept of it."""
    id_ = node.ask("ann", "bob")
    node.seen("ann", id_)
    node.seen("bob", node.publish("b").json["id"])  # a cursor behind it
    assert node.metric("webhooks_waiting") == 0
    node.advance(AFTER + 5)
    assert node.called.calls == []


@pytest.mark.parametrize(
    ("subject", "channel", "is_before"),
    [("ann", "a", True), ("ann", "b", False), ("eve", "a", False), ("", "a", False)],
)
def test_what_is_not_reading_it(node: UnreadNode, subject: str, channel: str, is_before: bool) -> None:
    """A cursor before it, another channel, another subject, nobody."""
    before = node.publish("a").json["id"]
    id_ = node.ask("ann")
    node.seen(subject, before if is_before else id_, channel)
    node.advance(AFTER + 5)
    assert node.called.subjects == [("ann",)]


def test_reading_it_too_late(node: UnreadNode) -> None:
    """When it is due, the call is made, whatever is read until the application has it."""
    node.called.answer = None
    id_ = node.ask("ann")
    node.advance(AFTER + 1)
    node.seen("ann", id_)
    node.advance(5)
    assert node.called.subjects == [("ann",)]


def test_a_poll_that_is_held(node: UnreadNode) -> None:
    """What it is answered with is read with the next poll only: the answer may be lost on its way."""
    cursor = node.publish("a").json["id"]
    node.seen("ann", cursor, timeout=25)
    id_ = node.ask("ann")
    assert node.metric("webhooks_waiting") == 1
    node.seen("ann", id_, timeout=25)
    assert node.metric("webhooks_waiting") == 0


def test_a_message_on_two_channels_is_read_on_either(node: UnreadNode) -> None:
    result = node.call(
        "POST", "/v1/messages", {"channels": ["a", "b"], "data": 1, "unread_after": AFTER, "for": ["ann", "bob"]}
    )
    node.seen("ann", result.json["id"], "a")
    node.seen("bob", result.json["id"], "b")
    assert node.metric("webhooks_waiting") == 0


def test_a_reader_who_is_ahead_of_this_node(node: UnreadNode) -> None:
    """It has the message from another node. It is noted when this node has it as well."""
    here = node.node.here
    node.seen("ann", f"{here.epoch}-{here.sequence + 1}", timeout=25)
    node.ask("ann")
    assert node.metric("webhooks_waiting") == 1
    node.advance(2)
    assert node.metric("webhooks_waiting") == 0


def test_a_cursor_that_this_node_does_not_reach(node: UnreadNode) -> None:
    """It is not remembered for ever: any client could send a thousand of them."""
    here = node.node.here
    node.seen("ann", f"{here.epoch}-{here.sequence + 5}", timeout=25)
    node.publish("b")
    node.advance(AHEAD_SECONDS + 2)
    for _ in range(5):
        node.publish("b")
    node.ask("ann", after=1)
    node.advance(5)
    assert node.called.subjects == [("ann",)]


def test_more_messages_than_one_entry_takes(node: UnreadNode) -> None:
    """Whoever has seen the last of them has seen all, though no other poll comes in time."""
    message = {"channels": ["a"], "data": 1, "unread_after": AFTER, "for": ["ann"]}
    for _ in range(2 * READ_AT_MOST // 100 + 1):
        last = node.call("POST", "/v1/messages", {"messages": [message] * 100}).json["cursor"]
    node.seen("ann", last, timeout=60)
    assert node.metric("webhooks_waiting") == 0


class _RefusesReads(AroundMemory):
    """The message log cannot be reached when somebody reads, until a test says so."""

    is_gone = True

    def append(self, command: Command, then: OnOutcome) -> None:
        if self.is_gone and isinstance(command, Read):
            then(Unavailable("the message log cannot be reached"))
        else:
            self._broadcast.append(command, then)


def test_a_reading_that_is_refused_is_noted_later() -> None:
    """The poll that says so may be held until the message is due."""
    node = UnreadNode(broadcast=_RefusesReads)
    node.seen("ann", node.ask("ann", after=20), timeout=60)
    node.advance(AHEAD_SECONDS + 5)
    assert node.metric("webhooks_waiting") == 1
    cast(_RefusesReads, node.broadcast).is_gone = False
    node.advance(15)
    assert node.called.calls == []


def test_a_stream_is_asked_until_its_client_says(node: UnreadNode) -> None:
    mine, other = node.stream("ann"), node.stream("eve")
    take(mine), take(other)
    id_ = node.ask("ann")
    assert names(take(mine)) == ["", "unread"]
    assert names(take(other)) == [""]
    node.advance(20)
    assert "unread" in names(take(mine))
    node.seen("ann", id_)
    node.advance(40)
    assert "unread" not in names(take(mine))
    assert node.metric("webhooks_waiting") == 0


def test_a_stream_begins_with_a_question(node: UnreadNode) -> None:
    node.ask("ann")
    assert "unread" in names(take(node.stream("ann")))


def test_a_stream_that_comes_back_has_read_what_is_before_its_cursor(node: UnreadNode) -> None:
    id_ = node.ask("ann")
    assert "unread" not in names(take(node.stream("ann", f"channel=a&cursor={id_}")))
    assert node.metric("webhooks_waiting") == 0


def test_a_raw_stream_is_asked_as_well(node: UnreadNode) -> None:
    node.ask("ann")
    assert b"event: unread\ndata: {}\n\n" in node.stream("ann", "channel=a&format=raw").written


def test_lines_of_json_ask_as_well(node: UnreadNode) -> None:
    node.ask("ann")
    node.application.subject = "ann"
    exchange = node.begin("GET", "/v1/events?channel=a", accept="application/x-ndjson")
    assert b'{"event":"unread","data":{}}\n' in exchange.written


def test_an_application_that_fails_is_called_again(node: UnreadNode) -> None:
    """Later and later, always with the same id, and then no more."""
    node.called.answer = Unavailable("webhook_url answered 500")
    node.ask("ann")
    node.advance(AFTER + 3)
    assert len(node.called.calls) == 1
    node.advance(CLAIM_SECONDS + 12)
    assert len(node.called.calls) == 2
    node.advance(90 * 60)
    assert len(node.called.calls) == ATTEMPTS
    assert {row.id for row, _, _ in node.called.calls} == {node.called.calls[0][0].id}
    assert node.metric("webhooks_total", outcome="failed") == ATTEMPTS - 1
    assert node.metric("webhooks_total", outcome="given_up") == 1
    assert node.metric("webhooks_waiting") == 0


def test_an_application_that_fails_now_and_then(node: UnreadNode) -> None:
    """The log says so once a minute, and not with each call."""
    with logged_at("warn") as lines:
        for number in range(20):
            node.called.answer = Unavailable("webhook_url answered 500") if number % 2 else True
            node.ask("ann", after=1)
            node.advance(5)
    assert len(node.called.calls) > 20
    assert lines == 2 * ["webhook_url does not take calls, which will be repeated: webhook_url answered 500"]


def test_an_application_that_wants_no_call(node: UnreadNode) -> None:
    node.called.answer = False
    node.ask("ann")
    node.advance(AFTER + 120)
    assert len(node.called.calls) == 1
    assert node.metric("webhooks_waiting") == 0


def test_few_calls_at_a_time(node: UnreadNode) -> None:
    """The next message is claimed when a call has ended."""
    node.node.webhook_caller.use(node.called, 2)
    node.called.answer = None
    for _ in range(5):
        node.ask("ann")
    node.advance(AFTER + 5)
    assert len(node.called.calls) == 2
    node.called.calls[0][2].callback(True)
    node.advance(1)
    assert len(node.called.calls) == 3


def test_what_another_node_has_claimed(node: UnreadNode) -> None:
    """It is called here only if that does not end."""
    node.node.webhook_caller.use(node.called, 0)
    id_ = node.ask("ann", after=1)
    node.advance(3)
    node.node.submit(Claim((id_,)), lambda outcome: None)
    node.node.webhook_caller.use(node.called, 10)
    node.advance(CLAIM_SECONDS - 2)
    assert node.called.calls == []
    node.advance(15)
    assert len(node.called.calls) == 1


def test_data_that_is_gone() -> None:
    node = UnreadNode(limits=Limits(retention_seconds=5))
    node.ask("ann")
    node.advance(AFTER + 5)
    ((_, message, _),) = node.called.calls
    assert message is None


def test_a_message_that_was_deleted(node: UnreadNode) -> None:
    """Nobody is told of it any more."""
    id_ = node.ask("ann")
    assert node.call("DELETE", f"/v1/messages/{id_}").status == 200
    node.advance(AFTER + 5)
    assert node.called.calls == []


def test_a_full_table_refuses() -> None:
    node = UnreadNode(limits=Limits(unread_limit=3))
    node.ask("ann", "bob")
    body = {"channels": ["a", "b"], "data": 1, "unread_after": AFTER, "for": ["ann"]}
    refused = node.call("POST", "/v1/messages", body)
    assert (refused.status, refused.json["detail"]) == (503, "unread_limit of 3 is reached; nothing was published")
    node.publish("a")
    node.ask("eve")
    refused = node.call("POST", "/v1/messages", {**body, "for": ["ann", "bob"]})
    assert (refused.status, refused.json["field"]) == (400, "for"), "it needs 4, whatever else waits"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"unread_after": 5}, "for"),
        ({"for": ["ann"]}, "unread_after"),
        ({"for": []}, "unread_after"),
        ({"for": None}, "for"),
        ({"unread_after": 0, "for": ["ann"]}, "unread_after"),
        ({"unread_after": 86_401, "for": ["ann"]}, "unread_after"),
        ({"unread_after": "5", "for": ["ann"]}, "unread_after"),
        ({"unread_after": 5, "for": []}, "for"),
        ({"unread_after": 5, "for": [""]}, "for"),
        ({"unread_after": 5, "for": ["a\nb"]}, "for"),
        ({"unread_after": 5, "for": [f"user{n}" for n in range(101)]}, "for"),
        ({"unread_after": 5, "for": "ann"}, "for"),
        ({"unread_after": 5, "for": ["ann"], "ephemeral": True}, "unread_after"),
    ],
)
def test_what_cannot_be_asked_for(node: UnreadNode, fields: dict[str, Any], field: str) -> None:
    one = node.call("POST", "/v1/messages", {"channels": ["a"], "data": 1, **fields})
    assert (one.status, one.json["field"]) == (400, field), one
    batch = node.call("POST", "/v1/messages", {"messages": [{"channels": ["a"], "data": 1, **fields}]})
    assert (batch.status, batch.json["field"]) == (400, f"messages[0].{field}"), batch


def test_a_batch_has_it_in_its_messages(node: UnreadNode) -> None:
    body = {"messages": [{"channels": ["a"], "data": 1}], "unread_after": 5, "for": ["ann"]}
    result = node.call("POST", "/v1/messages", body)
    assert (result.status, result.json["field"]) == (400, "unread_after")


def test_a_publication_with_too_many_readers(node: UnreadNode) -> None:
    """Each node would serve nobody else for long."""
    subjects = [f"user{number}" for number in range(100)]
    message = {"channels": [f"c{number}" for number in range(100)], "data": 1, "unread_after": 5, "for": subjects}
    assert node.call("POST", "/v1/messages", message).status == 201
    other = {**message, "channels": ["a"], "for": ["ann"]}
    result = node.call("POST", "/v1/messages", {"messages": [message, other]})
    assert (result.status, result.json["field"]) == (400, "for")
    assert node.metric("webhooks_waiting") == 1


def test_a_server_that_calls_nobody() -> None:
    node = AuthorizedNode()
    result = node.call("POST", "/v1/messages", {"channels": ["a"], "data": 1, "unread_after": 5, "for": ["ann"]})
    assert (result.status, result.json["field"]) == (400, "unread_after")
    assert result.json["detail"].startswith("set webhook_url")
