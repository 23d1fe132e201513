"""The server in the process cannot be told from a real one: the same calls have equal answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pushup.client import Client, ClientError
from pushup.testing import InProcess
from pushup.testing.server_process import ServerProcess, running

pytestmark = pytest.mark.processes

SETTINGS: dict[str, object] = {"retention_messages": 4, "channels_limit": 4, "message_limit_bytes": 100}
"""Small, so that there are gaps and refusals."""

VOLATILE = {"time", "expires", "expires_in", "subscribers"}
"""Fields that differ between two runs of one server; `subscribers` when a connection has just ended."""

NAMES = st.sampled_from(["a", "b", "tag:c++", "", "x" * 300])
CHANNELS = st.lists(NAMES, max_size=3)
DATA = st.sampled_from([1, "two", {"three": [3]}, None, "x" * 200])

Call = tuple[str, str, Any, dict[str, str]]


PUBLICATIONS: st.SearchStrategy[Call] = st.tuples(
    st.just("POST"), st.just("/v1/messages"),
    st.fixed_dictionaries({"channels": CHANNELS}, optional={"data": DATA, "ephemeral": st.booleans()}),
    st.sampled_from([{}, {"Idempotency-Key": "k1"}, {"Idempotency-Key": "k2"}]),
)  # fmt: skip
POLLS: st.SearchStrategy[Call] = st.tuples(
    st.just("POST"), st.just("/v1/poll"),
    st.fixed_dictionaries(
        {"channels": CHANNELS, "cursor": st.integers(-2, 5), "timeout": st.just(0)},
        optional={"limit": st.integers(0, 3)},
    ),
    st.just({}),
)  # fmt: skip
CHANNEL_CALLS: st.SearchStrategy[Call] = st.tuples(
    st.sampled_from(["GET", "PUT", "DELETE", "PATCH"]), st.sampled_from(["/v1/channels/a", "/v1/channels/b"]),
    st.sampled_from([None, {"ttl": 600}, {"ttl": -1}]), st.just({}),
)  # fmt: skip
OTHER_CALLS: st.SearchStrategy[Call] = st.tuples(
    st.sampled_from(["GET", "POST", "DELETE"]),
    st.sampled_from(["/v1/channels", "/v1/nothing", "/v1/cursor", "/healthz", "/readyz"]),
    st.sampled_from([None, {}, {"name": "b"}]), st.just({}),
)  # fmt: skip

PUBLISH: Call = ("POST", "/v1/messages", {"channels": ["a"], "data": 1}, {"Idempotency-Key": "k1"})
POLL: Call = ("POST", "/v1/poll", {"channels": ["a"], "cursor": 0, "timeout": 0}, {})


@pytest.fixture(scope="module")
def process() -> Iterator[ServerProcess]:
    with running(SETTINGS) as process:
        yield process


@settings(max_examples=60)
@given(calls=st.lists(PUBLICATIONS | POLLS | CHANNEL_CALLS | OTHER_CALLS, max_size=12))
@example(calls=[("GET", "/v1/cursor", None, {}), *[PUBLISH] * 2, POLL])
@example(calls=[("GET", "/v1/cursor", None, {}), *[(*PUBLISH[:3], {})] * 6, POLL])
def test_equal_calls_have_equal_answers(process: ServerProcess, calls: list[Call]) -> None:
    process.restart(SETTINGS)
    with Client(process.url, patience=0) as real, InProcess(**SETTINGS).client(patience=0) as in_process:
        assert answers(in_process, calls) == answers(real, calls)


def test_the_calls_reach_what_they_should() -> None:
    """Messages, a publication that is not repeated, a gap and refusals are among them."""
    client = InProcess(**SETTINGS).client(patience=0)
    cursor: Call = ("GET", "/v1/cursor", None, {})
    found = answers(client, [cursor, *[PUBLISH] * 2, POLL, *[(*PUBLISH[:3], {})] * 6, POLL])
    assert found[1] == found[2]
    assert len(found[3]["messages"]) == 1
    assert [gap["reason"] for gap in found[-1]["gaps"]] == ["evicted"]
    assert answers(client, [("GET", "/v1/nothing", None, {})])[0][0] == 404


def answers(client: Client, calls: list[Call]) -> list[Any]:
    """What each call returns, without what differs between two servers. A cursor is the number of an answer that had
    one; -1 is none, -2 one that cannot be."""
    cursors: list[str] = []
    found: list[Any] = []
    for method, path, body, headers in calls:
        if path == "/v1/poll":
            number = body["cursor"]
            known = cursors[number : number + 1] if number >= 0 else []
            body = {**body, "cursor": known[0] if known else "nonsense" if number == -2 else ""}
        try:
            answer: Any = client.call(method, path, body, headers)
            cursors += [answer["cursor"]] if "cursor" in answer else []
        except ClientError as error:
            answer = [error.status, str(error), error.problem]
        found.append(comparable(answer))
    return found


def comparable(value: Any) -> Any:
    """The name of an epoch is random, times pass, and the number of a channel is the time at which it was created."""
    match value:
        case dict():
            return {name: comparable(each) for name, each in value.items() if name not in VOLATILE}
        case list():
            return [comparable(each) for each in value]
        case str():
            return re.sub(r"\b\d{13}\b", "NUMBER", re.sub(r"\b[0-9a-z]{10,}-(\d+)\b", r"EPOCH-\1", value))
        case int() if value > 1e12:
            return "NUMBER"
        case _:
            return value
