"""Who publishes how much: the rate of a user, the counts by key, and the lines of the log."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushup.net.api.publishers import BURST_SECONDS, NAMES_LIMIT, SHOWN_CHANNELS, Rate
from pushup.tokens.verifier import Verifier
from tests.net.in_memory_node import CallResult, InMemoryNode
from tests.net.observed_log import logged_at
from tests.tokens.evil_tokens import NOW, issuer, key, token

PER_SECOND = 10.0
BURST = int(PER_SECOND * BURST_SECONDS)
KEYS = ("chat a-key-of-sixteen-letters", "another-key-of-sixteen")


class PublishingNode(InMemoryNode):
    """A node with two publish keys and users, who may publish on `chat`."""

    def __init__(self, *, keys: tuple[str, ...] = KEYS, **publishers: Any) -> None:
        verifier = Verifier([issuer(key("HS256"))], lambda: self.clock.seconds())
        given = {"messages_per_second": PER_SECOND, **publishers}
        super().__init__(tokens=verifier if keys else None, publish_keys=keys, publishers=given)
        self.advance(NOW - self.clock.seconds())

    def say(self, text: str = "", count: int = 1, channel: str = "chat") -> CallResult:
        message = {"channels": [channel], "data": 1}
        head = {"Authorization": f"Bearer {text}"} if text else {}
        return self.call("POST", "/v1/messages", {"messages": [message] * count}, **head)

    def is_allowed(self, text: str, count: int = 1) -> bool:
        result = self.say(text, count)
        assert result.status in (201, 429)
        return result.status == 201


def of(sub: str | None, **others: Any) -> str:
    return token(sub=sub, pushup={"publish": ["chat"]}, **others)


def test_the_rate_of_a_user() -> None:
    """A user publishes what 5 s allow at once, then at the rate; another user, and keys, do not notice."""
    node = PublishingNode()
    assert all(node.is_allowed(of("7")) for _ in range(BURST))
    assert node.is_allowed(of("7"))  # the last one may begin a debt
    before = node.state.cursor
    refused = node.say(of("7"))
    assert (refused.status, refused.json["type"]) == (429, "urn:pushup:quota-exceeded")
    assert "subject_messages_per_second" in refused.json["detail"]
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


def test_counts_by_key() -> None:
    """By the names of keys; of tokens together; and of everybody where no key is needed."""
    node = PublishingNode()
    node.say("a-key-of-sixteen-letters", 3)
    node.say("another-key-of-sixteen")
    node.say(of("7"), 2)
    node.say(of("8"))
    node.say("no-key-of-this-server")
    assert node.metrics.messages_by_key == {"chat": 3, "publish_keys": 1, "(token)": 3}
    assert b'pushup_messages_by_key_total{key="(token)"} 3.0' in node.call("GET", "/metrics").body
    open_to_all = PublishingNode(keys=())
    open_to_all.say()
    assert open_to_all.metrics.messages_by_key == {"(none)": 1}


@pytest.mark.parametrize("audited", [("chat",), ("ch*",), ("news", "chat*")])
def test_a_line_for_each_publication(audited: tuple[str, ...]) -> None:
    """Who has published what, where; not the data, and nothing of other channels or of what was refused."""
    node = PublishingNode(audited=audited)
    with logged_at("info") as lines:
        node.say(of("7"), 2)
        node.say("a-key-of-sixteen-letters", channel="other")
        node.say("a-key-of-sixteen-letters")
        node.say(of("7"), channel="staff")
    assert [line for line in lines if line.startswith("published")] == [
        "published 2 from e-1 on 'chat' by key (token), user '7'",
        "published 1 from e-4 on 'chat' by key chat, user ''",
    ]


def test_a_long_line() -> None:
    """Many channels, and names that would forge a line, are shown so that they do not."""
    node = PublishingNode(keys=(), audited=("*",))
    names = [f"{number}\u2028x" for number in range(SHOWN_CHANNELS + 5)]
    with logged_at("info") as lines:
        node.call("POST", "/v1/messages", {"channels": names, "data": 1})
    (line,) = [line for line in lines if line.startswith("published")]
    assert "and 5 more by key (none)" in line
    assert "\u2028" not in line
