"""Revocation: nothing after its entry reaches whom it names, in whatever order things happen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from pushup.core.commands import Configure, Continue, Entry, Revoke
from pushup.core.cursor import REMEMBERED, sequence_in
from pushup.core.held_polls import SLICE
from pushup.core.limits import Limits
from pushup.core.revocations import AHEAD_SECONDS, SLACK_SECONDS
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import restore
from pushup.net.api.channel_rules import ChannelRules
from pushup.tokens.verifier import Verifier
from tests.net.authorized_node import AuthorizedNode
from tests.net.in_memory_node import InMemoryNode, RecordingExchange, events_of
from tests.tokens.evil_tokens import NOW, issuer, key, token

LIFETIME = 1000.0
OPERATOR = {"Authorization": "Bearer operator-key-of-this-test"}
PUBLISHER = {"Authorization": "Bearer publisher-key-of-this-test"}
KEYS = ("ops operator-key-of-this-test operate", "app publisher-key-of-this-test publish channels")


class RevokingNode(InMemoryNode):
    """A node whose channels take a token."""

    def __init__(
        self,
        *,
        revocations_limit: int = 100,
        lifetime: float = LIFETIME,
        rules: ChannelRules = ChannelRules("token"),  # noqa: B008
    ) -> None:
        verifier = Verifier([issuer(key("HS256"))], lambda: self.clock.seconds())
        limits = Limits(token_lifetime_limit_seconds=lifetime, revocations_limit=revocations_limit)
        super().__init__(limits=limits, tokens=verifier, publish_keys=KEYS, rules=rules)

    def poll(self, text: str, query: str = "channel=user:7&cursor=now") -> RecordingExchange:  # type: ignore[override]
        return self.begin("GET", f"/v1/poll?{query}", Authorization=f"Bearer {text}")

    def stream(self, text: str, query: str = "channel=user:7&cursor=now") -> RecordingExchange:
        return self.begin("GET", f"/v1/events?{query}", Authorization=f"Bearer {text}")

    def revoke(self, status: int = 200, **body: Any) -> Any:
        result = self.call("POST", "/v1/revoke", body, **OPERATOR)
        assert result.status == status, result
        return result.json

    def say(self, data: Any = None, channel: str = "user:7") -> int:
        """Publish, without delivering; returns the sequence."""
        result = self.call("POST", "/v1/messages", {"channels": [channel], "data": data}, **PUBLISHER)
        return int(result.json["id"].partition("-")[2])

    def restart_from(self, state: ReplicatedState) -> None:
        """Continue with another state, as after a restart of the log."""
        self.node.start_from(state)
        self.run()


@pytest.fixture
def node() -> RevokingNode:
    return RevokingNode()


def mine(**others: Any) -> str:
    """A token of user 7, issued a minute ago."""
    return token(**others)


def other(**others: Any) -> str:
    return token(**{"sub": "8", **others})


def is_refused(exchange: RecordingExchange) -> bool:
    """Whether it was refused, or ended, as revoked."""
    return bool(exchange.responses) and b'"urn:pushup:revoked"' in exchange.responses[0].body


def is_held(exchange: RecordingExchange) -> bool:
    return not exchange.responses and not exchange.answers


def has_ended(stream: RecordingExchange) -> bool:
    """Whether the stream ended as revoked."""
    if stream.held is not None:
        return False
    last = events_of(stream)[-1]
    return last.event == "error" and last.data["type"] == "urn:pushup:revoked"


def sequences(exchange: RecordingExchange) -> list[int]:
    """Those of the messages that reached a client."""
    if exchange.streamed is not None:
        return [
            sequence_in(event.id) for event in events_of(exchange) if event.data is not None and "data" in event.data
        ]
    return [sequence_in(message.id) for answer in exchange.answers for message in answer.messages]


def test_what_is_held_ends_and_the_rest_stays(node: RevokingNode) -> None:
    """Polls and streams of the subject; not those of others, nor of a token that has no subject."""
    ended = [node.poll(mine()), node.poll(mine(jti="a"))], [node.stream(mine())]
    stay = [node.poll(other()), node.poll(mine(sub=None)), node.poll(mine(sub="77"))], [node.stream(other(jti="7"))]
    assert node.revoke(sub="7") == {"sub": "7", "issued_before": NOW + 1}
    node.run()
    assert [is_refused(poll) for poll in ended[0]] == [True, True]
    assert [has_ended(stream) for stream in ended[1]] == [True]
    assert all(is_held(poll) for poll in stay[0])
    assert stay[1][0].held is not None
    assert (node.polls.count, node.streaming.count) == (4, 1)
    node.check()


@pytest.mark.parametrize("body", [{"sub": "7"}, {"jti": "a"}])
def test_later_requests_are_refused(node: RevokingNode, body: dict[str, Any]) -> None:
    """In every call, with what was issued before, also if it was accepted before; a new token is good at once."""
    may = {"poll": ["user:7"], "publish": ["user:7"]}
    old = mine(jti="a", pushup=may)
    assert is_held(node.poll(old))
    node.revoke(**body)
    node.run()
    assert is_refused(node.poll(old))
    assert is_refused(node.stream(old))
    assert is_refused(node.poll(old, "channel=user:8"))  # not told that this is beyond its claim
    assert is_refused(node.begin("POST", "/v1/poll", {"channels": ["user:7"], "token": old}))
    publishing = node.begin("POST", "/v1/messages", {"channels": ["user:7"], "data": 1}, Authorization=f"Bearer {old}")
    assert is_refused(publishing)
    assert node.state.message_count == 0
    assert is_held(node.poll(mine(jti="b", iat=NOW + 1)))
    assert is_held(node.poll(other(jti="b")))
    assert is_refused(node.poll(mine(jti="b"))) == ("sub" in body)


@pytest.mark.parametrize("rules", [ChannelRules("token"), ChannelRules("anyone")])
def test_who_is_revoked_is_not_nobody_instead(rules: ChannelRules) -> None:
    """Also on channels that need no token."""
    node = RevokingNode(rules=rules)
    held = node.poll(mine())
    node.revoke(sub="7")
    node.run()
    assert is_refused(held)
    assert is_refused(node.poll(mine()))


@pytest.mark.parametrize(
    ("issued_before", "revoked"),
    [(None, NOW + 1), (NOW - 30, NOW - 30), (NOW + 30.5, NOW + 30.5), (NOW + AHEAD_SECONDS, NOW + AHEAD_SECONDS)],
)
def test_issued_before(node: RevokingNode, issued_before: float | None, revoked: float) -> None:
    """What was issued before this time, exclusive; by default the end of this second, for tokens have whole ones."""
    assert node.revoke(sub="7", issued_before=issued_before)["issued_before"] == revoked
    node.clock.rightNow += 2 * AHEAD_SECONDS
    assert is_refused(node.poll(mine(iat=revoked - 0.001)))
    assert is_held(node.poll(mine(iat=revoked)))


def test_a_revocation_takes_nothing_back(node: RevokingNode) -> None:
    """An earlier time, and the same again, revoke no less than what came before."""
    node.revoke(sub="7", issued_before=NOW - 30)
    assert node.revoke(sub="7", issued_before=NOW - 50)["issued_before"] == NOW - 30
    assert is_refused(node.poll(mine(iat=NOW - 31)))
    assert is_held(node.poll(mine(iat=NOW - 30)))
    node.revoke(jti="7")
    node.revoke(sub="7", issued_before=NOW - 500)
    assert is_refused(node.poll(mine(iat=NOW - 31)))
    assert is_refused(node.poll(other(jti="7")))  # names of tokens and subjects are apart
    assert is_held(node.poll(other(jti="8", sub="jti:7")))


@pytest.mark.parametrize(
    "body",
    [
        {}, {"sub": ""}, {"jti": ""}, {"sub": "7", "jti": "a"}, {"sub": None}, {"sub": 7}, {"jti": ["a"]},
        {"sub": "a\n"},
        {"sub": "x" * 256}, {"jti": "ж" * 128}, {"jti": "a", "issued_before": NOW}, {"sub": "7", "issued_before": 0},
        {"sub": "7", "issued_before": -1}, {"sub": "7", "issued_before": "now"}, {"sub": "7", "issued_before": 1e300},
        {"sub": "7", "issued_before": NOW + AHEAD_SECONDS + 1}, {"subject": "7"}, {"sub": "7", "more": 1}, [], "7",
    ],
)  # fmt: skip
def test_revocations_that_are_refused(node: RevokingNode, body: object) -> None:
    """They change nothing, whatever is wrong with them."""
    held = node.poll(mine(jti="a"))
    assert node.call("POST", "/v1/revoke", body, **OPERATOR).status == 400
    node.run()
    assert is_held(held)
    assert not node.state.revocations.names()


def test_who_may_revoke(node: RevokingNode) -> None:
    """Operators. Not who may publish, and nobody else; the error comes before anything is said about the body."""
    for headers, status in (
        ({}, 401),
        (PUBLISHER, 403),
        ({"Authorization": f"Bearer {mine(pushup={'publish': ['*']})}"}, 403),
    ):
        for body in ({"sub": "7"}, b"nonsense"):
            assert node.call("POST", "/v1/revoke", body, **headers).status == status
    assert not node.state.revocations.names()


def test_a_full_table_refuses() -> None:
    """With 503, and drops none for it; what is in it can be revoked again. There is room when the oldest goes."""
    node = RevokingNode(revocations_limit=3)
    for name in ("1", "2", "3"):
        node.revoke(sub=name)
        node.advance(10)
    held = node.poll(mine(iat=NOW))
    assert "revocations_limit" in node.revoke(503, sub="7")["detail"]
    node.run()
    assert is_held(held)
    node.revoke(503, jti="7")
    assert node.revoke(sub="1")["issued_before"] == NOW + 31
    assert len(node.state.revocations.names()) == 3
    node.clock.rightNow = NOW + 10 + LIFETIME + SLACK_SECONDS
    node.revoke(sub="7")
    assert set(node.state.revocations.names()) == {"sub:1", "sub:3", "sub:7"}


def test_a_smaller_limit_drops_none() -> None:
    """One that is revoked again, where there are more than the new limit allows, takes the place of none but itself."""
    node = RevokingNode(revocations_limit=5)
    for name in ("1", "2", "3", "4"):
        node.revoke(sub=name)
    node.node.submit(Configure(structs.replace(node.state.limits, revocations_limit=1)), lambda outcome: None)
    node.revoke(sub="3")
    assert set(node.state.revocations.names()) == {"sub:1", "sub:2", "sub:3", "sub:4"}
    node.revoke(503, sub="5")


def test_a_revocation_is_kept_for_as_long_as_tokens_live(node: RevokingNode) -> None:
    """Until no token that it revokes can be valid; then it goes."""
    node.revoke(sub="7", issued_before=NOW + AHEAD_SECONDS)
    last = {"iat": NOW + AHEAD_SECONDS - 1, "exp": NOW + AHEAD_SECONDS - 1 + LIFETIME}
    node.clock.rightNow = last["exp"] + 9.0
    assert (is_held(node.poll(other(**last))), is_refused(node.poll(mine(**last)))) == (True, True)
    node.clock.rightNow = last["exp"] + 60.0 - 1  # with the largest leeway
    node.say(channel="a")
    assert node.state.revocations.names() == ["sub:7"]
    node.clock.rightNow = NOW + LIFETIME + SLACK_SECONDS + 1
    node.say(channel="a")
    assert node.state.revocations.names() == []


@pytest.mark.parametrize("named", [{"sub": "7"}, {"jti": "a"}])
@pytest.mark.parametrize("is_lowered", [False, True])
def test_what_lives_longer_than_a_revocation(is_lowered: bool, named: dict[str, Any]) -> None:
    """It is refused, also when its revocation goes: that of another node's limit, or from before it was lowered."""
    node = RevokingNode(lifetime=LIFETIME * (5 if is_lowered else 1))
    long = mine(jti="a", exp=NOW + 9 * LIFETIME)
    node.revoke(**named)
    if is_lowered:
        limits = structs.replace(node.state.limits, token_lifetime_limit_seconds=LIFETIME)
        node.node.submit(Configure(limits), lambda outcome: None)
    for seconds in (0, AHEAD_SECONDS, LIFETIME, LIFETIME + SLACK_SECONDS - 1, LIFETIME + SLACK_SECONDS, 8 * LIFETIME):
        node.clock.rightNow = NOW + seconds
        node.say(channel="a")
        assert is_refused(node.poll(long))
    assert not node.state.revocations.names()
    issued_at, expires = NOW + 7.5 * LIFETIME, NOW + 8.5 * LIFETIME
    assert is_held(node.poll(mine(jti="a", iat=issued_at, exp=expires)))
    assert is_refused(node.poll(mine(jti="a", iat=issued_at, exp=expires + AHEAD_SECONDS))), "a minute is too long"


def test_a_ticket_that_lives_longer_than_a_revocation() -> None:
    """As one sealed before the limit was lowered by a restart: the application is asked again."""
    limits = Limits(token_lifetime_limit_seconds=LIFETIME)
    node = AuthorizedNode(limits=limits)
    now = int(node.wall())
    ticket = node.tickets.seal(("a",), issued_at=now, expires=now + 9000, subject="7")
    assert node.call("POST", "/v1/revoke", {"sub": "7"}).status == 200
    node.advance(LIFETIME + SLACK_SECONDS)
    node.publish("b")
    assert not node.state.revocations.names()
    node.begin_poll("channel=a&cursor=now", ticket)
    assert len(node.application.asked) == 1


@pytest.mark.parametrize("is_published", [True, False])
def test_more_than_a_slice(node: RevokingNode, is_published: bool) -> None:
    """All end, a slice at a time, and those of later slices get nothing meanwhile; whoever comes then is refused."""
    count = 2 * SLICE + 10
    polls = [node.poll(mine()) for _ in range(count)]
    streams = [node.stream(mine()) for _ in range(count)]
    bystander = node.poll(other())
    node.revoke(sub="7")
    if is_published:
        node.say("after")
    assert is_refused(node.poll(mine()))
    node.turn()
    assert sum(map(is_held, polls)) > 0
    node.run()
    assert all(map(is_refused, polls))
    assert all(map(has_ended, streams))
    assert [sequences(stream) for stream in streams] == [[]] * count
    assert len(sequences(bystander)) == is_published
    assert (node.polls.count, node.streaming.count) == (not is_published, 0)
    assert not node.node.held_on_grants.names - {"sub:8"}


@pytest.mark.parametrize("is_delivered_first", [True, False])
def test_a_message_before_and_one_after(node: RevokingNode, is_delivered_first: bool) -> None:
    """What was published before the revocation may reach its subject, or not; what comes after it does not."""
    stream, poll = node.stream(mine()), node.poll(mine())
    before = node.say("before")
    if is_delivered_first:
        node.run()
    node.revoke(sub="7")
    node.say("after")
    node.run()
    for exchange in (stream, poll):
        assert sequences(exchange) == ([before] if is_delivered_first else [])
    assert is_refused(poll) != is_delivered_first
    assert has_ended(stream)


def test_a_stream_that_lags_behind(node: RevokingNode) -> None:
    """Its next page is not sent, whether it waits for its client to read or for its turn."""
    for _ in range(250):  # more than two pages
        node.say("x" * 10)
    waits, blocked = node.stream(mine(), "channel=user:7"), None
    node.turn()
    blocked = node.stream(mine(), "channel=user:7")
    blocked.blocks = True
    seen = [len(sequences(each)) for each in (waits, blocked)]
    node.revoke(sub="7")
    after = node.say("after")
    blocked.blocks = False
    if blocked.streamed is not None and blocked.held is not None:
        blocked.streamed.drained()
    node.run()
    for stream, count in zip((waits, blocked), seen, strict=True):
        assert has_ended(stream)
        assert after not in sequences(stream)
        assert len(sequences(stream)) == count


# In any order.

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sampled_from(["user:7", "both"])),
        st.tuples(st.just("poll"), st.sampled_from(["7", "8", "7 new", "7 jti"])),
        st.tuples(st.just("stream"), st.sampled_from(["7", "8", "7 new", "7 jti"])),
        st.tuples(st.just("revoke"), st.sampled_from(["sub", "jti", "sub earlier"])),
        st.tuples(st.just("turn"), st.just("")),
        st.tuples(st.just("leave"), st.just("")),
        st.tuples(st.just("restart"), st.just("")),
        st.tuples(st.just("wait"), st.just("")),
    ),
    min_size=3,
    max_size=25,
)


@settings(max_examples=150)
@given(OPERATIONS)
def test_nothing_after_a_revocation_reaches_whom_it_names(operations: list[tuple[str, str]]) -> None:
    """Whatever comes in between: other clients, slices, restarts; and others get all that they wait for."""
    node = RevokingNode()
    clients: list[tuple[str, float, RecordingExchange]] = []
    revoked: list[tuple[str, float, int]] = []  # which, what was issued before, after which sequence

    def open_for(who: str) -> tuple[float, str]:
        issued = node.clock.seconds() if who == "7 new" else NOW - 60.0
        name = "a" if "jti" in who else "b"
        return issued, token(sub=who[0], jti=name, iat=issued, exp=NOW + 900, pushup={"poll": ["user:7"]})

    for operation, what in operations:
        if operation == "publish":
            node.say()
        elif operation in ("poll", "stream"):
            issued, text = open_for(what)
            exchange = (node.poll if operation == "poll" else node.stream)(text)
            is_revoked = any(_covers(how, what) and issued < before for how, before, _ in revoked)
            assert is_refused(exchange) == is_revoked
            clients.append((what, issued, exchange))
        elif operation == "revoke":
            node.clock.rightNow += 1
            body: dict[str, Any] = {"jti": "a"} if what == "jti" else {"sub": "7"}
            if what == "sub earlier":
                body["issued_before"] = NOW - 59
            answered = node.revoke(**body)
            revoked.append((what, answered.get("issued_before", float("inf")), node.state.cursor.sequence))
        elif operation == "turn":
            node.turn()
        elif operation == "leave" and clients and clients[0][2].held is not None:
            node.leave(clients[0][2])
        elif operation == "restart":
            node.node.start_from(restore(node.state.snapshot()))
        elif operation == "wait":
            node.clock.rightNow += 1
    node.run()
    node.check()
    for who, issued, exchange in clients:
        last = min([n for how, before, n in revoked if _covers(how, who) and issued < before], default=10**9)
        assert all(sequence <= last for sequence in sequences(exchange))
        if last < 10**9 and exchange.held is not None:
            raise AssertionError(f"{who} is still held")


def _covers(how: str, who: str) -> bool:
    return who == "7 jti" if how == "jti" else who.startswith("7")


# Restarts.


def test_a_restart_keeps_revocations(node: RevokingNode) -> None:
    """They are in the snapshot; polls that are held on what another state has revoked end."""
    node.revoke(sub="7")
    node.revoke(jti="a")
    state = restore(node.state.snapshot())
    assert state.snapshot() == node.state.snapshot()
    again = RevokingNode()
    held = [again.poll(mine()), again.poll(other(jti="a")), again.poll(other())]
    streams = [again.stream(mine()), again.stream(other())]
    again.restart_from(state)
    assert [is_refused(poll) for poll in held] == [True, True, False]
    assert (has_ended(streams[0]), streams[1].held is not None) == (True, True)
    assert is_refused(again.poll(mine()))


def order(*, began: int, continues: int | None = None) -> ReplicatedState:
    """An order whose name says that it began then; `continues`: under another name, from which it went on."""
    first = continues if continues is not None else began
    limits = Limits(token_lifetime_limit_seconds=LIFETIME)
    state = ReplicatedState(limits, epoch=f"{first * 1000:x}abcd00", time=float(first))
    if continues is not None:
        state.apply(Entry(state.cursor.epoch, 1, float(began), Continue(f"{began * 1000:x}abcd01")))
    return state


def test_an_order_that_continues_nothing(node: RevokingNode) -> None:
    """It does not know what was revoked before it began, so it refuses all that was issued before; held polls end."""
    old, new = node.poll(mine(iat=NOW - 1)), node.poll(mine(iat=NOW))
    stream = node.stream(mine(iat=NOW - 1))
    node.restart_from(order(began=NOW))
    assert (is_refused(old), is_refused(new), has_ended(stream)) == (True, False, True)
    for text in (mine(iat=NOW - 1), other(iat=NOW - 1), mine(iat=NOW - 1, sub=None, jti=None)):
        assert is_refused(node.poll(text))
    assert is_held(node.poll(mine(iat=NOW)))


@pytest.mark.parametrize("times", [1, REMEMBERED + 9])
def test_an_order_that_goes_on_under_another_name(node: RevokingNode, times: int) -> None:
    """It knows what was revoked, so that all others stay; however often that happens."""
    held = node.poll(mine(iat=NOW - 50))
    state = order(began=NOW, continues=NOW - 100)
    for number in range(1, times):
        name = f"{NOW * 1000 + number:x}abcd01"
        state.apply(Entry(state.cursor.epoch, state.cursor.sequence + 1, float(NOW), Continue(name)))
    state.apply(Entry(state.cursor.epoch, state.cursor.sequence + 1, float(NOW), Revoke("sub", "8")))
    node.restart_from(state)
    assert not is_refused(held)
    assert is_held(node.poll(mine(iat=NOW - 100)))
    assert is_refused(node.poll(mine(iat=NOW - 101)))
    assert is_refused(node.poll(other(iat=NOW - 1)))


# Tickets of the application's decisions.


@pytest.fixture
def authorized() -> AuthorizedNode:
    return AuthorizedNode()


def test_tickets_are_revoked_too(authorized: AuthorizedNode) -> None:
    """By their subject. The client of one that was is asked about again, and a held poll on one ends."""
    now = int(authorized.clock.seconds())
    old = authorized.ticket("a", subject="7", issued_at=now - 5)
    held = authorized.begin_poll("channel=a", old)
    assert authorized.call("POST", "/v1/revoke", {"sub": "7"}).status == 200
    authorized.run()
    assert is_refused(held)
    authorized.begin_poll("channel=a", old)
    assert len(authorized.application.asked) == 1
    authorized.application.subject = "7"
    authorized.begin_poll("channel=a", authorized.ticket("a", subject="8", issued_at=now - 5))
    assert len(authorized.application.asked) == 1


def test_a_decision_that_came_too_late(authorized: AuthorizedNode) -> None:
    """What the application allowed before a revocation is not used after it."""
    authorized.application.subject = "7"
    poll = authorized.begin_poll("channel=a")
    authorized.call("POST", "/v1/revoke", {"sub": "7"})
    authorized.application.allow()
    authorized.run()
    assert is_refused(poll)
    assert authorized.is_quiet()
