"""Who follows a channel, on a whole node without a network."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw, structs
from twisted.internet.defer import Deferred, succeed

from pushup.broadcast import Member
from pushup.core.attendance import Attendance, Away, Gone, Here
from pushup.core.channel import Message
from pushup.core.errors import Refusal
from pushup.core.grant import Grant
from pushup.core.limits import ChannelPolicy, Limits
from pushup.core.poll import Selection
from pushup.core.webhooks import OCCUPANCY_SECONDS, Webhook
from pushup.node.leaving import PATIENCE_SECONDS
from pushup.node.presence import (
    ANSWER_SECONDS,
    CLOSING_SECONDS,
    GONE_SECONDS,
    LOOK_SECONDS,
    TOGETHER_SECONDS,
    PresenceLimits,
)
from tests.net.authorized_node import AuthorizedNode
from tests.net.in_memory_node import RecordingExchange

GRACE = PresenceLimits().presence_grace_seconds

LEAVE = GRACE + ANSWER_SECONDS + 3 * LOOK_SECONDS
"""After this, who does not come back has left."""

ROOM = ChannelPolicy(prefix="room:", presence=True)


class PresenceNode(AuthorizedNode):
    """The application allows everybody everything."""

    def __init__(self, **limits: Any) -> None:
        super().__init__(limits=Limits(**{"channels": (ROOM,), **limits}))
        self.application.at_once = lambda channels: 3600.0

    def poll_as(self, subject: str, channel: str = "room:1", *, timeout: int = 25, more: str = "") -> RecordingExchange:
        """Poll until the poll is held, if it has a timeout: who joins gets a message about it."""
        exchange = self._poll(subject, f"channel={channel}&timeout={timeout}&cursor=now{more}")
        return exchange if exchange.held is not None or not timeout else self.poll_as(subject, channel, timeout=timeout)

    def _poll(self, subject: str, query: str) -> RecordingExchange:
        self.application.subject = subject
        exchange = self.begin("GET", f"/v1/poll?{query}")
        self.advance(0.25)
        return exchange

    def close(self, subject: str, *channels: str) -> None:
        self.application.subject = subject
        (response,) = self.begin("POST", "/v1/presence", {"channels": channels or ["room:1"]}).responses
        assert response.status == 204
        self.run()

    def there(self, channel: str = "room:1") -> list[str]:
        self.application.subject = ""
        answer = self.call("GET", f"/v1/presence?channel={channel}").json
        assert answer["count"] == len(answer["members"])
        return [member["subject"] for member in answer["members"]]

    def told(self, channel: str = "room:1") -> list[Any]:
        """All messages about who follows it."""
        self.application.subject = ""
        messages = self.call("GET", f"/v1/poll?channel={channel}&timeout=0&limit=100").json["messages"]
        return [message["data"] for message in messages if message.get("event") == "presence"]


@pytest.fixture
def node() -> PresenceNode:
    return PresenceNode()


def test_who_comes_and_goes(node: PresenceNode) -> None:
    """A page that follows the channel is told of both, and the list says the same at its cursor."""
    ann = node.poll_as("ann")
    bob = node.poll_as("bob", timeout=60)
    assert node.there() == ["ann", "bob"]
    (first, second) = node.told()
    assert (first["count"], [each["subject"] for each in first["joins"]]) == (1, ["ann"])
    assert (second["count"], [each["subject"] for each in second["joins"]]) == (2, ["bob"])
    assert len(ann.answers or ann.responses) == 1  # of bob
    node.leave(bob)
    node.poll_as("ann", timeout=60)
    node.advance(GRACE - 1)
    assert node.there() == ["ann", "bob"]
    node.advance(LEAVE - GRACE + 1)
    assert node.there() == ["ann"]
    assert node.told()[-1] == {"count": 1, "leaves": ["bob"]}
    node.check()


def test_nobody_leaves_between_two_polls(node: PresenceNode) -> None:
    for _ in range(6):
        node.poll_as("ann", timeout=0)
        node.advance(GRACE - 2)
        assert node.there() == ["ann"]
    assert len(node.told()) == 1


def test_a_poll_that_goes_on_takes_no_entry(node: PresenceNode) -> None:
    node.poll_as("ann")
    before = node.state.cursor.sequence
    for _ in range(4):
        node.advance(25)
        node.poll_as("ann")
    assert node.state.cursor.sequence == before


def test_two_tabs_are_one_member(node: PresenceNode) -> None:
    """The member leaves with the last one."""
    node.poll_as("ann", timeout=60)
    other = node.poll_as("ann", timeout=60)
    assert node.there() == ["ann"]
    node.leave(other)
    node.close("ann")
    node.advance(5)
    assert node.there() == ["ann"]
    assert len(node.told()) == 1


def test_two_tabs_with_different_data(node: PresenceNode) -> None:
    """Those of the newer token count. Each message about it wakes both, who must not answer each other for ever."""

    def poll(version: int, issued_at: float | None = None) -> None:
        grant = Grant(subject="ann", issued_at=issued_at or version, presence=b"%d" % version)
        node.node.presence.seen(grant, Selection(("room:1",)))
        node.advance(4 * TOGETHER_SECONDS)

    for _ in range(5):
        poll(1)
        poll(2)
    assert [bytes(row.data) for row in node.state.members.of_channel("room:1")] == [b"2"]
    for _ in range(5):
        node.node.submit(Here("another node", (Attendance("room:1", "ann", Raw(b"3")),)), lambda outcome: None)
        poll(2)
    assert [bytes(row.data) for row in node.state.members.of_channel("room:1")] == [b"3"]
    for version in (4, 5):
        poll(version, issued_at=4.0)
        assert [bytes(row.data) for row in node.state.members.of_channel("room:1")] == [b"%d" % version]
    assert len(node.told()) == 5


def test_a_page_that_closes(node: PresenceNode) -> None:
    """Its user leaves at once, and not after the grace; whether the poll ends before or after."""
    first, second = node.poll_as("ann", timeout=60), node.poll_as("bob", timeout=60)
    first = node.poll_as("ann", timeout=60)  # the other was answered
    node.close("ann")
    node.leave(first)
    node.leave(second)
    node.close("bob")
    node.advance(ANSWER_SECONDS + 2 * LOOK_SECONDS)
    assert node.there() == []


def test_a_page_that_closes_leaves_the_grace_to_the_others(node: PresenceNode) -> None:
    """The user's other device loses its connection later, and comes back within the grace."""
    first, second = node.poll_as("ann", timeout=60), node.poll_as("ann", timeout=60)
    node.close("ann")
    node.leave(first)
    node.advance(5)
    node.leave(second)
    node.advance(GRACE - 2)
    assert node.there() == ["ann"]
    node.advance(LEAVE - GRACE + 2)
    assert node.there() == []


def test_a_page_that_is_hidden(node: PresenceNode) -> None:
    node.poll_as("ann", timeout=0, more="&hidden=true")
    node.advance(PresenceLimits().presence_hidden_seconds - 2)
    assert node.there() == ["ann"]
    node.advance(10)
    assert node.there() == []


def test_streams_are_members(node: PresenceNode) -> None:
    node.application.subject = "ann"
    stream = node.begin("GET", "/v1/events?channel=room:1")
    node.advance(100)
    assert node.there() == ["ann"]
    node.leave(stream)
    node.advance(LEAVE)
    assert node.there() == []


@pytest.mark.parametrize(("subject", "channel"), [("", "room:1"), ("ann", "other")])
def test_who_is_no_member(node: PresenceNode, subject: str, channel: str) -> None:
    before = node.state.cursor.sequence
    node.poll_as(subject, channel)
    node.advance(2)
    assert node.state.cursor.sequence == before


def test_the_list_of_a_channel_without_presence(node: PresenceNode) -> None:
    answer = node.call("GET", "/v1/presence?channel=other")
    assert answer.status == 404
    assert answer.json["detail"].startswith("'other' has no presence; set presence = true")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "channel"),
        ("channel=", "channel"),
        ("channel=a,b", "channel"),
        ("channel=room:1&channel=room:2", "channel"),
        *((f"channel=room:1&{name}=1", name) for name in ("timeout", "limit", "from", "to", "x")),
        ("cursor=now&channel=room:1", "cursor"),
        ("hidden=true&channel=room:1", "hidden"),
        ("channel=room:1&format=raw", "format"),
    ],
)
def test_a_list_takes_one_channel_and_nothing_else(node: PresenceNode, query: str, field: str) -> None:
    """The parameters of a poll mean nothing here: who sends one expects something else."""
    result = node.call("GET", f"/v1/presence?{query}")
    assert (result.status, result.json["field"]) == (400, field)
    assert node.call("GET", "/v1/presence?_=7&channel=room:1&_=8").status == 200


def test_a_thousand_come_at_once(node: PresenceNode) -> None:
    """They take few entries; beyond the limit the channel tells only their number, and not each."""
    node.application.at_once = lambda channels: 3600.0
    for number in range(1000):
        node.application.subject = f"user{number}"
        node.begin("GET", "/v1/poll?channel=room:1&timeout=60&cursor=now")
    node.advance(1)
    assert node.state.cursor.sequence <= 12
    answer = node.call("GET", "/v1/presence?channel=room:1").json
    assert (answer["count"], "members" in answer) == (1000, False)
    told = node.told()
    assert [each["count"] for each in told] == [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]
    assert ["joins" in each for each in told] == [True, True, *[False] * 8]
    node.check()


def test_a_thousand_leave_at_once(node: PresenceNode) -> None:
    """The last of them leaves as soon as one alone would."""
    for number in range(1000):
        node.application.subject = f"user{number}"
        node.begin("GET", "/v1/poll?channel=room:1&timeout=0")
    node.advance(1)
    assert node.call("GET", "/v1/presence?channel=room:1").json["count"] == 1000
    node.advance(LEAVE)
    assert node.there() == []
    node.check()


def test_a_question_is_answered(node: PresenceNode) -> None:
    """Another node was told that this one is gone."""
    node.poll_as("ann", timeout=60)
    node.node.submit(Gone("1", 10.0), lambda outcome: None)
    node.advance(30)
    assert node.there() == ["ann"]
    assert len(node.told()) == 1


def test_a_question_has_half_of_the_grace(node: PresenceNode) -> None:
    """A node that answers it may have hung for that long."""
    node.poll_as("ann", timeout=0)
    node.advance(GRACE / 2 + LOOK_SECONDS)
    row = node.state.members.member(("room:1", "ann"))
    assert row is not None
    assert row.leaves_at >= row.time + GRACE
    node.advance(GRACE / 2)
    node.node.submit(Here("2", (Attendance("room:1", "ann"),)), lambda outcome: None)
    node.advance(4)
    assert node.there() == ["ann"]
    assert len(node.told()) == 1


def test_a_node_that_stops_claims_those_who_were_there_last(node: PresenceNode) -> None:
    """Another one has them, and would ask about them when nobody remembers that they have been here since."""
    node.node.submit(Here("2", (Attendance("room:1", "ann"),)), lambda outcome: None)
    node.poll_as("ann", timeout=0)
    node.advance(GONE_SECONDS - 2)
    assert node.state.members.holders == ["2"]
    done = Deferred.fromCoroutine(node.node.stop())
    node.run()
    assert done.called
    assert node.state.members.holders == ["1"]


def test_members_of_a_node_that_is_gone(node: PresenceNode) -> None:
    """They leave after the grace, unless they come back."""
    ann, bob = [Attendance("room:1", subject) for subject in ("ann", "bob")]
    node.node.submit(Here("gone", (ann, bob)), lambda outcome: None)
    node.poll_as("ann", timeout=60)
    node.advance(GONE_SECONDS + GRACE - 2)
    assert node.there() == ["ann", "bob"]
    node.advance(8 + TOGETHER_SECONDS)
    assert node.there() == ["ann"]


def _others(node: PresenceNode, answered: int | None) -> None:
    """There is another living node, which has applied everything, and answered questions up to this entry."""
    broadcast: Any = node.broadcast
    mine, cursor = node.node.member, str(node.node.cursor)
    broadcast.members = lambda: [mine("1"), Member("2", "", (), cursor, 0, "1", answered=answered)]


def test_nobody_leaves_before_every_node_has_answered(node: PresenceNode) -> None:
    """Not because an answer is late: Redis may have stood still."""
    node.leave(node.poll_as("ann", timeout=60))
    before = node.node.cursor.sequence
    node.advance(GRACE - 5)
    _others(node, before)
    node.advance(ANSWER_SECONDS + 5 + PATIENCE_SECONDS - 3)
    assert node.there() == ["ann"]
    _others(node, before + 1)  # the question
    node.advance(2 * LOOK_SECONDS)
    assert node.there() == []


def test_a_node_that_does_not_answer(node: PresenceNode) -> None:
    """It cannot apply entries. The others wait, but not for ever."""
    node.leave(node.poll_as("ann", timeout=60))
    _others(node, 0)
    node.advance(LEAVE + PATIENCE_SECONDS)
    assert node.there() == []


def test_a_node_of_an_earlier_release(node: PresenceNode) -> None:
    """It does not say what it has answered; what it has applied counts."""
    node.leave(node.poll_as("ann", timeout=60))
    node.advance(GRACE + LOOK_SECONDS)
    _others(node, None)
    node.advance(LEAVE - GRACE)
    assert node.there() == []


def test_what_a_node_has_answered(node: PresenceNode) -> None:
    """Not a question about a member who follows here, until the answer is in the order; others at once."""
    node.poll_as("ann", timeout=60)
    node.node.submit(Gone("1", 10.0), lambda outcome: None)
    asked = node.node.cursor.sequence
    assert node.node.member("1").answered == asked - 1
    node.advance(0.25)
    assert node.node.member("1").answered == node.node.cursor.sequence == asked + 1
    node.node.submit(Here("2", (Attendance("room:1", "bob"),)), lambda outcome: None)
    node.node.submit(Gone("2", 10.0), lambda outcome: None)
    assert node.node.member("1").answered == node.node.cursor.sequence


def test_a_page_that_closes_is_answered_when_it_is_known_whether_another_follows(node: PresenceNode) -> None:
    first, second = node.poll_as("ann", timeout=60), node.poll_as("ann", timeout=60)
    node.close("ann")
    asked = node.node.cursor.sequence
    node.leave(first)
    node.advance(CLOSING_SECONDS - 0.25)
    assert node.node.member("1").answered == asked - 1
    node.advance(2 * LOOK_SECONDS)
    assert node.node.member("1").answered == asked + 1
    node.close("ann")
    node.leave(second)
    assert node.node.member("1").answered == asked + 2


def test_order_that_could_not_be_reached(node: PresenceNode) -> None:
    """Other nodes have time to come back, and to answer."""
    node.leave(node.poll_as("ann", timeout=60))
    broadcast: Any = node.broadcast
    reached = broadcast.why_not_ready
    broadcast.why_not_ready = Refusal.OUTDATED
    node.advance(LEAVE)
    broadcast.why_not_ready = reached
    node.advance(PATIENCE_SECONDS - 2 * LOOK_SECONDS)
    assert node.there() == ["ann"]
    node.advance(4 * LOOK_SECONDS)
    assert node.there() == []


def test_presence_that_is_switched_off() -> None:
    """Who was a member when the server stopped leaves as any other."""
    node = PresenceNode(channels=())
    node.node.submit(Here("1", (Attendance("room:1", "ann"),)), lambda outcome: None)
    node.node.presence.start_from()
    node.advance(GRACE - 1)
    assert len(node.node.state.members) == 1
    node.advance(LEAVE - GRACE + 1)
    assert len(node.node.state.members) == 0


class Told:
    """The application's webhook."""

    def __init__(self) -> None:
        self.types: list[str] = []

    def __call__(self, row: Webhook, message: Message | None) -> Deferred[bool]:
        assert message is None
        self.types.append(f"{row.type} {row.channels[0]}")
        return succeed(True)


def test_the_application_is_told_that_a_channel_is_occupied_and_vacated() -> None:
    node = PresenceNode(channels=(structs.replace(ROOM, occupancy_webhooks=True),))
    told = Told()
    node.node.webhook_caller.use(told, 10)
    first = node.poll_as("ann", timeout=60)
    node.advance(OCCUPANCY_SECONDS + 3)
    assert told.types == ["channel.occupied room:1"]
    second = node.poll_as("bob", timeout=60)
    for poll in (first, second):
        if poll.held is not None:
            node.leave(poll)
    node.advance(LEAVE - 3)
    node.poll_as("ann", timeout=60)
    node.advance(60)
    node.advance(LEAVE + OCCUPANCY_SECONDS + 3)
    assert told.types == ["channel.occupied room:1", "channel.vacated room:1"]
    node.check()


def test_a_visit_that_is_over_at_once_is_not_told() -> None:
    node = PresenceNode(channels=(structs.replace(ROOM, occupancy_webhooks=True),))
    told = Told()
    node.node.webhook_caller.use(told, 10)
    poll = node.poll_as("ann", timeout=60)
    node.leave(poll)
    node.close("ann")
    node.advance(60)
    assert (node.there(), told.types) == ([], [])
    assert node.metric("webhooks_waiting") == 0
    node.check()


def test_a_page_that_closes_before_it_was_noted(node: PresenceNode) -> None:
    """It polls and closes within some milliseconds: its user does not stay for the whole grace."""
    node.application.subject = "ann"
    poll = node.begin("GET", "/v1/poll?channel=room:1&timeout=60&cursor=now")
    node.close("ann")
    node.leave(poll)
    node.advance(ANSWER_SECONDS + 3 * LOOK_SECONDS)
    assert node.there() == []
    node.check()


def test_an_application_that_takes_no_calls_about_channels() -> None:
    """What waits for it is bounded."""
    node = PresenceNode(channels=(structs.replace(ROOM, occupancy_webhooks=True),), unread_limit=3)
    for number in range(6):
        node.poll_as("ann", f"room:{number}", timeout=60)
    node.advance(10)
    assert node.metric("webhooks_waiting") == 3
    node.check()


@pytest.mark.parametrize("ticks", range(40))
def test_two_pages_that_close_one_after_the_other(node: PresenceNode, ticks: int) -> None:
    """The answer to the question about the first does not keep the member when the second closes, at another node."""
    first, second = node.poll_as("ann", timeout=60), node.poll_as("ann", timeout=60)
    node.close("ann")
    node.leave(first)
    for _ in range(ticks):
        node.clock.advance(0.04)
        node.run()
    node.node.submit(Away("2", (("room:1", "ann"),), ANSWER_SECONDS, is_closed=True), lambda outcome: None)
    node.leave(second)
    node.advance(ANSWER_SECONDS + 3 * LOOK_SECONDS)
    assert node.there() == []
    node.check()
