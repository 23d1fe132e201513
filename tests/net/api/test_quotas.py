"""Quotas: rates and held polls of a key, a user or an address; and whose a request is."""

from __future__ import annotations

import random
from typing import Any
from unittest.mock import Mock, PropertyMock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushup.core.grant import Grant
from pushup.net.api.channel_rules import ChannelRules
from pushup.net.api.quotas import (
    BURST_SECONDS,
    HELD_RETRY_SECONDS,
    NAMES_LIMIT,
    Quotas,
    QuotaSettings,
    QuotaTable,
    Rate,
    network_of,
)
from pushup.net.application_interface import Client
from tests.net.api.publishing_node import PublishingNode, of
from tests.net.in_memory_node import InMemoryNode, RecordingExchange
from tests.net.observed_log import logged_at
from tests.tokens.evil_tokens import NOW, token

PER_SECOND = 10.0
BURST = int(PER_SECOND * BURST_SECONDS)
KEY = "a-key-of-sixteen-letters"


def quotas(*tables: QuotaTable) -> QuotaSettings:
    return QuotaSettings(quotas=tables)


def per_address(**limits: Any) -> QuotaSettings:
    return quotas(QuotaTable(per="address", **limits))


def test_the_rate_of_a_user() -> None:
    """A user publishes what 5 s allow at once, then at the rate; another user, and keys, do not notice."""
    node = PublishingNode()
    assert all(node.is_allowed(of("7")) for _ in range(BURST))
    assert node.is_allowed(of("7"))  # the last one may begin a debt
    before = node.state.cursor
    with logged_at("info") as lines:
        refused = node.say(of("7"))
    assert lines[0].endswith("this user has used up its messages_per_second; nothing was done: subject '7'")
    assert (refused.status, refused.json["type"]) == (429, "urn:pushup:quota-exceeded")
    assert "this user has used up its messages_per_second" in refused.json["detail"]
    assert refused.headers[b"Retry-After"] == b"1"
    assert node.state.cursor == before
    assert node.is_allowed(of("8"))
    assert all(node.say("a-key-of-sixteen-letters").status == 201 for _ in range(BURST * 2))
    node.advance(1)
    assert sum(node.is_allowed(of("7")) for _ in range(BURST)) == PER_SECOND


def test_a_batch_counts_its_messages() -> None:
    """However large it is, it is published if nothing is owed; what it is too large is owed."""
    node = PublishingNode()
    assert node.is_allowed(of("7"), 100)
    assert node.say(of("7")).headers[b"Retry-After"] == b"5"
    node.advance(5)
    assert node.is_allowed(of("7"))


def test_a_new_token_is_the_same_user() -> None:
    """Who has several tokens has one rate; tokens without a user have one for each of their names, or of their key."""
    node = PublishingNode()
    assert node.is_allowed(of("7", jti="a"), 100)
    assert not node.is_allowed(of("7", jti="b"))
    assert node.is_allowed(of(None, jti="a"), 100)
    assert node.is_allowed(of(None, jti="b"))
    assert node.is_allowed(of(None), 100)
    assert not node.is_allowed(of(None, exp=NOW + 301))


def test_what_is_refused_for_another_reason_does_not_count() -> None:
    node = PublishingNode()
    for _ in range(BURST * 2):
        assert node.say(of("7"), channel="staff").status == 403
    assert node.is_allowed(of("7"))


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 3), st.sampled_from("ab"), st.integers(1, 20)), max_size=60))
def test_the_rate_by_its_definition(steps: list[tuple[float, str, int]]) -> None:
    """Whoever waits as long as told is allowed; and over any time, nobody gets more than the rate and one burst."""
    now = 0.0
    rate = Rate(PER_SECOND, lambda: now)
    used: dict[str, list[tuple[float, int]]] = {"a": [], "b": []}
    for pause, name, units in steps:
        now += pause
        wait = rate.wait(name, units)
        if wait:
            now += wait + 1e-6
            assert rate.wait(name, units) == 0
        used[name].append((now, units))
        for begin, _ in used[name]:
            taken = sum(count for at, count in used[name] if at >= begin) - units
            assert taken <= PER_SECOND * (now - begin + BURST_SECONDS) + 20


def test_memory_is_bounded() -> None:
    """Beyond the limit, whoever owes nothing is forgotten first, and then the oldest."""
    now = 0.0
    rate = Rate(PER_SECOND, lambda: now)
    for number in range(NAMES_LIMIT - 1):
        rate.wait(str(number), 1)
    rate.wait("busy", 1000)
    now = 1.0
    rate.wait("one more", 1)
    assert rate.wait("busy", 1) > 0
    for number in range(3 * NAMES_LIMIT):
        rate.wait(f"new {number}", 1000)
    assert rate.wait(f"new {3 * NAMES_LIMIT - 1}", 1) > 0
    assert rate.wait("new 0", 1) == 0  # forgotten


def leave(node: InMemoryNode, exchange: RecordingExchange) -> None:
    """The client of an open request disconnects."""
    if exchange.held is not None:
        node.api.abandon(exchange.held)


def test_requests_of_an_address() -> None:
    """Whatever is asked counts, refusals as well; health does not; and another address does not notice."""
    node = InMemoryNode(quotas=per_address(requests_per_second=2.0))
    targets = ["/v1/poll?channel=a&timeout=0", "/v1/cursor", "/v1/channels/none", "/nothing", "/v1/poll?channel="]
    statuses = [node.begin("GET", target) for target in targets * 4]
    refused = [exchange for exchange in statuses if exchange.responses and exchange.responses[0].status == 429]
    assert len(refused) == 4 * len(targets) - (2 * BURST_SECONDS + 1)
    assert node.call("GET", "/healthz").status == node.call("GET", "/metrics").status == 200
    result = node.call("GET", "/v1/cursor")
    assert (result.status, result.headers[b"Retry-After"]) == (429, b"1")
    assert "this client's address has used up its requests_per_second" in result.json["detail"]
    node.client = Client("192.0.2.77", 1)
    assert node.call("GET", "/v1/cursor").status == 200
    node.client = Client("")  # a Unix socket: nobody knows who that is
    assert all(node.call("GET", "/v1/cursor").status == 200 for _ in range(30))


def test_whose_a_request_is() -> None:
    """Its key's; or its token's user's, also when the token is in the body; or its address's."""
    tables = (
        QuotaTable(per="key", requests_per_second=1.0),
        QuotaTable(per="key", name="chat", requests_per_second=100.0),
        QuotaTable(per="subject", requests_per_second=1.0),
        QuotaTable(per="address", requests_per_second=1.0),
    )
    node = PublishingNode(quotas=quotas(*tables))
    for _ in range(30):
        assert node.say(KEY).status == 201
    assert [node.say("another-key-of-sixteen").status for _ in range(7)] == [201] * 6 + [429]
    assert [node.call("GET", "/v1/cursor").status for _ in range(7)] == [200] * 6 + [429]

    def poll(body: dict[str, Any], **head: str) -> int:
        exchange = node.begin("POST", "/v1/poll", {"channels": ["chat"], "timeout": 0, **body}, **head)
        return exchange.responses[0].status if exchange.responses else 200

    reader = of("7")
    assert [poll({"token": reader}) for _ in range(3)] == [200] * 3
    assert [poll({}, Authorization=f"Bearer {reader}") for _ in range(4)] == [200] * 3 + [429]
    assert poll({"token": of("8")}) == 200
    assert poll({}) == 429


def test_an_address_that_no_quota_limits_is_not_asked_for() -> None:
    """That is a system call for each request. Users may have a quota meanwhile: by default they do."""
    exchange = Mock(spec_set=RecordingExchange())
    asked = type(exchange).client = PropertyMock(return_value=Client("192.0.2.7", 1))
    Quotas(QuotaSettings().tables).use_up("messages_per_second", 1, Grant(), exchange)
    assert not asked.called
    limited = Quotas(per_address(messages_per_second=1.0, held_polls=1).tables)
    limited.use_up("messages_per_second", 1, Grant(), exchange)
    assert limited.hold(Grant(), exchange) == ("address", "192.0.2.7")
    assert asked.call_count == 2


def test_bad_keys_count_for_the_address() -> None:
    node = PublishingNode(quotas=per_address(requests_per_second=1.0))
    assert [node.say("no-such-key-anywhere").status for _ in range(7)] == [403] * 6 + [429]
    assert node.say(KEY).status == 201


SIX = 6
"""Requests that `requests_per_second = 1` allows at once: those of 5 s, and one that begins a debt."""

BAD = token()[:-1]


@pytest.mark.parametrize(
    ("method", "target", "body", "fields", "status"),
    [
        ("POST", "/v1/poll", {"channels": ["chat"], "token": BAD}, {}, 401),
        ("POST", "/v1/events", {"channels": ["chat"], "token": BAD}, {}, 401),
        ("POST", "/v1/presence", {"channels": ["chat"], "token": BAD}, {}, 401),
        ("GET", "/v1/poll?channel=chat", b"", {"Authorization": f"Bearer {BAD}"}, 401),
        ("GET", "/v1/poll?channel=", b"", {}, 400),
        ("GET", "/v1/events?channel=chat", b"", {"Accept": "image/png"}, 406),
        ("GET", "/v1/events?channel=chat", b"", {"Last_Event_ID": "none"}, 400),
        ("POST", "/v1/url-tickets", {"channels": ["chat"]}, {}, 404),
        ("GET", "/v1/nothing", b"", {}, 404),
    ],
)
def test_each_refusal_counts_once(method: str, target: str, body: Any, fields: dict[str, str], status: int) -> None:
    """Whenever it turns out that the request cannot be answered; a bad token costs a check of its signature."""
    node = PublishingNode(quotas=per_address(requests_per_second=1.0))
    statuses = [node.call(method, target, body, **fields).status for _ in range(SIX + 1)]
    assert statuses == [status] * SIX + [429]


def test_a_refusal_counts_for_whose_request_it_is() -> None:
    """If that is known by then, and for nobody else."""
    tables = [QuotaTable(per="subject", requests_per_second=1.0), QuotaTable(per="address", requests_per_second=1.0)]
    node = PublishingNode(quotas=quotas(*tables), rules=ChannelRules("application"))
    body = {"channels": ["user:7", "news"], "token": token()}
    assert [node.call("POST", "/v1/poll", body).status for _ in range(SIX + 1)] == [400] * SIX + [429]
    assert [node.call("GET", "/v1/cursor").status for _ in range(SIX + 1)] == [200] * SIX + [429]


def test_a_poll_of_an_operator_counts_once() -> None:
    """At `operator_listen`, where it takes a right like the other calls."""
    node = InMemoryNode(quotas=per_address(requests_per_second=1.0), api={"only_for_operators": True})
    for _ in range(SIX):
        node.poll("channel=a&timeout=0")
    assert node.call("GET", "/v1/poll?channel=a&timeout=0").status == 429


def test_bytes_of_publications() -> None:
    """A body counts whole; the next waits until it is paid for."""
    node = PublishingNode(quotas=quotas(QuotaTable(per="key", name="chat", bytes_per_second=1000)))
    assert node.say(KEY, 100).status == 201  # 3.4 kB
    assert node.say(KEY, 100).status == 201
    refused = node.say(KEY)
    assert (refused.status, "bytes_per_second" in refused.json["detail"]) == (429, True)
    assert node.say("another-key-of-sixteen", 100).status == 201
    node.advance(int(refused.headers[b"Retry-After"]))
    assert node.say(KEY).status == 201


def test_held_polls() -> None:
    """Polls and streams share the limit; one that ends makes room; one that need not wait is answered."""
    node = InMemoryNode(quotas=per_address(held_polls=3))
    first = node.begin("GET", "/v1/poll?channel=a&cursor=now")
    stream = node.begin("GET", "/v1/events?channel=a")
    third = node.begin("GET", "/v1/poll?channel=b")
    refused = node.call("GET", "/v1/poll?channel=a&cursor=now")
    assert (refused.status, refused.headers[b"Retry-After"]) == (429, b"%d" % HELD_RETRY_SECONDS)
    assert "held_polls" in refused.json["detail"]
    assert node.call("GET", "/v1/events?channel=a").status == 429
    assert node.polls.count == 3
    assert node.poll("channel=a&timeout=0").messages == ()
    here, node.client = node.client, Client("192.0.2.77", 1)
    node.begin("GET", "/v1/poll?channel=z")
    node.client = here
    node.publish("a")
    assert first.answers
    node.begin("GET", "/v1/poll?channel=b")
    assert node.call("GET", "/v1/poll?channel=b").status == 429
    leave(node, stream)
    leave(node, third)
    for _ in range(2):
        node.begin("GET", "/v1/poll?channel=b")
    assert node.call("GET", "/v1/poll?channel=b").status == 429
    node.publish("b")
    assert node.poll("channel=b&timeout=0").messages


def test_nothing_is_kept_of_what_has_ended() -> None:
    """Whatever happens to polls and streams, in the end no place is taken."""
    chance = random.Random(7)
    node = InMemoryNode(quotas=per_address(held_polls=20))
    held = []
    for _ in range(400):
        match chance.randrange(5):
            case 0 | 1:
                target = chance.choice(["/v1/poll?channel=a&timeout=1", "/v1/events?channel=a", "/v1/poll?channel=999"])
                exchange = node.begin("GET", target)
                held.append(exchange)
            case 2 if held:
                leave(node, held.pop(chance.randrange(len(held))))
            case 3:
                node.publish("a")
            case _:
                node.advance(0.5)
    for each in held:
        leave(node, each)
    node.advance(3)
    assert node.polls.count == 0
    for _ in range(20):
        node.begin("GET", "/v1/poll?channel=b")
    assert node.call("GET", "/v1/poll?channel=b").status == 429


def test_other_quotas_while_it_runs() -> None:
    """New quotas count from now on; polls that are held already keep their places."""
    node = InMemoryNode(quotas=per_address(held_polls=1))
    first = node.begin("GET", "/v1/poll?channel=a")
    node.access.quotas.use(per_address(held_polls=2, requests_per_second=1.0).tables)
    node.begin("GET", "/v1/poll?channel=a")
    assert node.call("GET", "/v1/poll?channel=a").status == 429
    node.access.quotas.use(())
    node.begin("GET", "/v1/poll?channel=a")
    leave(node, first)
    assert node.polls.count == 2


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("gone", "gone"),
    ],
)
def test_networks(host: str, network: str) -> None:
    assert network_of(host) == network


@pytest.mark.parametrize(
    ("tables", "mistake"),
    [
        ([QuotaTable(per="key")], "limits nothing"),
        ([QuotaTable(per="address", name="192.0.2.1", held_polls=1)], "is for all addresses"),
        ([QuotaTable(per="key", held_polls=1), QuotaTable(per="key", held_polls=2)], "quotas[0] is for the same"),
        ([QuotaTable(per="key", name=str(n), held_polls=1) for n in range(101)], "at most 100"),
        ([QuotaTable(per="key", held_polls=1), QuotaTable(per="key", name="a", held_polls=2)], None),
    ],
)
def test_mistakes(tables: list[QuotaTable], mistake: str | None) -> None:
    found = [text for _, text in quotas(*tables).mistakes()]
    assert (mistake is None and not found) or (mistake is not None and mistake in found[0])


def test_the_usual_limit_of_users_gives_way() -> None:
    """`subject_messages_per_second` holds where no quota says something else."""
    node = PublishingNode(quotas=quotas(QuotaTable(per="subject", messages_per_second=1.0)))
    assert [node.is_allowed(of("7")) for _ in range(7)] == [True] * 6 + [False]
