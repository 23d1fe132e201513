"""The conversation between clients and a server (docs/guide/), over `http.client`."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pytest

from pushup import __version__
from pushup.host.build_form import build
from tests.server.caller import Caller, data_of
from tests.server.conftest import Serve
from tests.server.server_process import Server, wait_until


def test_held_poll_gets_the_message(caller: Caller, other: Caller, server: Server, channel: str) -> None:
    caller.begin_poll(channel, cursor=caller.cursor())
    server.wait_for_held(1)
    published = other.publish([channel], {"text": "Grüße", "number": 1.5})
    answer = caller.answer()
    assert answer == {
        "cursor": published["cursor"],
        "messages": [
            {
                "id": published["id"],
                "time": published["time"],
                "channels": [channel],
                "data": {"text": "Grüße", "number": 1.5},
            }
        ],
        "more": False,
        "gaps": [],
        "closed": [],
    }
    assert abs(published["time"] - time.time()) < 60


def test_message_between_two_polls_is_not_missed(caller: Caller, other: Caller, channel: str) -> None:
    first = caller.poll(channel, timeout=0)
    other.publish([channel], "between")
    second = caller.poll(channel, cursor=first["cursor"])
    assert data_of(second) == ["between"]
    assert data_of(caller.poll(channel, cursor=second["cursor"], timeout=0)) == []


def test_chain_of_cursors(caller: Caller, channel: str) -> None:
    """Every answer has a cursor for the next poll, whether there was a message or not."""
    cursor = caller.cursor()
    seen = []
    for number in range(20):
        if number % 3:
            caller.publish([channel], number)
        answer = caller.poll(channel, cursor=cursor, timeout=0)
        seen += data_of(answer)
        cursor = answer["cursor"]
    assert seen == [n for n in range(20) if n % 3]


def test_several_channels_sorted_each_once(caller: Caller, channel: str) -> None:
    """A poll on several channels gets their messages in order, each once, listing the requested channels it is on."""
    a, b, c = (f"{channel}:{x}" for x in "abc")
    cursor = caller.cursor()
    for number, channels in enumerate(([b], [a, b, c], [c], [a], [b, c])):
        caller.publish(channels, number)
    answer = caller.poll(a, b, cursor=cursor)
    assert data_of(answer) == [0, 1, 3, 4]
    assert [set(m["channels"]) for m in answer["messages"]] == [{b}, {a, b}, {a}, {b}]


@pytest.mark.parametrize("as_text", [False, True], ids=["seconds", "rfc3339"])
def test_time_range(caller: Caller, channel: str, as_text: bool) -> None:
    """`from` is inclusive, `to` exclusive; both are seconds since the epoch or RFC 3339."""
    times = []
    for number in range(4):
        times.append(caller.publish([channel], number)["time"])
        time.sleep(0.002)

    def written(seconds: float) -> str:
        return datetime.fromtimestamp(seconds, UTC).isoformat() if as_text else repr(seconds)

    between = [(times[n] + times[n + 1]) / 2 for n in range(3)]
    assert data_of(caller.poll(channel, from_=written(between[0]), to=written(between[2]))) == [1, 2]
    assert data_of(caller.poll(channel, to=written(between[0]), timeout=0)) == [0]
    if not as_text:  # text has microseconds only
        assert data_of(caller.poll(channel, from_=written(times[1]), to=written(times[3]))) == [1, 2]


def test_timeout_0_is_client_pull(caller: Caller, channel: str) -> None:
    """With `timeout=0`, a poll without messages is answered at once."""
    for _ in range(20):
        assert data_of(caller.poll(channel, timeout=0)) == []  # the client gives up before a default hold ends


def test_poll_that_times_out_is_a_normal_answer(caller: Caller, channel: str) -> None:
    """A poll ends shortly before `timeout` with 200, no messages and a new cursor."""
    cursor = caller.cursor()
    caller.publish([f"{channel}:other"], 1)
    before = time.monotonic()
    answer = caller.poll(channel, cursor=cursor, timeout=1)
    assert time.monotonic() - before >= 0.8
    assert data_of(answer) == []
    assert answer["cursor"] != cursor


def test_health_readiness_and_metrics(caller: Caller, server: Server, channel: str) -> None:
    """/healthz and /readyz succeed, and /metrics counts requests."""
    assert caller.call("GET", "/healthz").value == {"status": "alive"}
    assert caller.call("GET", "/readyz").value == {"status": "ready"}
    before = server.metric("messages_total"), server.metric("deliveries_total")
    caller.publish([channel], 1)
    caller.poll(channel)
    caller.poll(channel)
    assert server.metric("messages_total") == before[0] + 1
    assert server.metric("deliveries_total") == before[1] + 2
    assert server.metric("process_memory_bytes") == pytest.approx(server.memory_bytes, rel=0.2)
    page = caller.call("GET", "/metrics")
    assert page.headers["Content-Type"].startswith("text/plain")
    assert "pushup_answer_delay_seconds_bucket" in page.text
    assert f'pushup_build_info{{build="{build()}",version="{__version__}"}} 1.0' in page.text


def test_open_connections_are_open_descriptors(serve: Serve) -> None:
    """Each of ten clients takes one descriptor of those that the process may open."""
    with serve() as server, ExitStack() as clients:
        before = server.metric("descriptors")
        for _ in range(10):
            clients.enter_context(server.caller()).cursor()
        assert server.metric("descriptors") - before == pytest.approx(10, abs=2)
        assert server.metric("descriptors_limit") > server.metric("descriptors") > 10


def test_limits_are_metrics(serve: Serve) -> None:
    """Each limit can be compared with what is in use of it."""
    limits: dict[str, Any] = {
        "unsent_limit_bytes": 30_000_001,
        "waiting_requests_limit_bytes": 30_000_002,
        "retention_bytes": 30_000_003,
        "channels_limit": 30_004,
    }
    with serve(**limits) as server:
        assert {name: server.metric(name) for name in limits} == limits


def test_the_age_of_the_oldest_message_is_a_metric(serve: Serve) -> None:
    """It grows with time, whatever is published later, and shrinks when the oldest message is evicted."""
    with serve(retention_messages=2) as server, server.caller() as caller:
        assert server.metric("oldest_message_age_seconds") == 0
        caller.publish(["a"], "oldest")
        wait_until(lambda: server.metric("oldest_message_age_seconds") > 0.5, "the message to get old")
        before = time.monotonic()
        caller.publish(["a"], "second")
        assert server.metric("oldest_message_age_seconds") > 0.5
        caller.publish(["a"], "third")
        assert server.metric("oldest_message_age_seconds") <= time.monotonic() - before
