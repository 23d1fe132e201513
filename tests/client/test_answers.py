"""Answers of both clients, written and followed without real time."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from pushup.client import AnswerCutOff, AnswerFailed, ClientError
from tests.client.both_clients import MakeClient
from tests.client.simulated_driver import HANGS, REFUSED, Reply, SimulatedDriver, answer, stream


def event(number: int, **data: Any) -> dict[str, Any]:
    """A piece or a beat, as a stream sends it."""
    return {"id": f"e-{number}", "data": message(number, **data)}


def message(number: int, **data: Any) -> dict[str, Any]:
    return {"id": f"e-{number}", "time": 1.0, "channels": ["a"], "event": "answer", "data": data}


def polled(cursor: str, *messages: dict[str, Any]) -> Reply:
    return answer(200, {"cursor": cursor, "messages": list(messages), "more": False, "gaps": [], "closed": []})


X = event(1, piece=0, parts=["x", {"tool": 1}])


def test_following(make: MakeClient) -> None:
    """The parts come as they are written, over a stream that ends; nothing twice, and nothing of other events."""
    driver = SimulatedDriver(
        a=[
            stream(X, event(2, piece=1, parts=[]), 9.0),
            stream(X, event(3, beat=2), {"id": "e-4", "data": message(4, piece=2) | {"event": "other"}}, closes=False,
                   *[event(5, piece=2, parts=["y"]), event(6, piece=3, parts=["z"], end="stopped")]),
        ]
    )  # fmt: skip
    assert list(make("unix:a", driver=driver).follow_answer("a")) == ["x", {"tool": 1}, "y", "z"]
    assert driver.sent[0].body["channels"] == ["a"]


def test_following_one_that_fails(make: MakeClient) -> None:
    """The error comes after all parts, with its text for users."""
    driver = SimulatedDriver(a=[stream(X, event(2, piece=1, parts=["y"], end="error", error="sorry"), closes=False)])
    items = make("unix:a", driver=driver).follow_answer("a")
    assert list(islice(items, 3)) == ["x", {"tool": 1}, "y"]
    with pytest.raises(AnswerFailed, match="^sorry$"):
        next(items)


@pytest.mark.parametrize(
    ("then", "why"),
    [
        ([event(3, piece=2, parts=["z"])], "piece 1 is missing"),
        ([event(3, beat=2)], "piece 1 is missing"),
        ([{"event": "closed", "data": {"channel": "a"}}], "was closed"),
    ],
)
def test_following_one_that_is_cut_off(make: MakeClient, then: list[dict[str, Any]], why: str) -> None:
    """What comes next shows that something is missing."""
    items = make("unix:a", driver=SimulatedDriver(a=[stream(X, *then, closes=False)])).follow_answer("a")
    assert list(islice(items, 2)) == ["x", {"tool": 1}]
    with pytest.raises(AnswerCutOff, match=why):
        next(items)


BEATS = [each for second in range(10) for each in (14.0, event(second, beat=1))]


@pytest.mark.parametrize("transport", ["stream", "poll"])
def test_following_a_silent_writer(make: MakeClient, transport: str) -> None:
    """After 15 s without a beat, a node is asked anew, and has nothing: the answer was cut off."""
    silent = [stream(X, *BEATS, closes=False), polled("e-9")]
    if transport == "poll":
        held = Reply([(15.0, polled("e-1").pieces[0][1])])
        silent = [answer(404), polled("e-1", X["data"]), held, polled("e-1")]
    driver = SimulatedDriver(a=silent)
    items = make("unix:a", driver=driver).follow_answer("a")
    assert list(islice(items, 2)) == ["x", {"tool": 1}]
    began = driver.time
    with pytest.raises(AnswerCutOff, match="silent for 15 s"):
        next(items)
    assert driver.time - began == 15.0 + (140.0 if transport == "stream" else 0.0)
    assert driver.sent[-1].body["timeout"] == 0.0
    if transport == "poll":
        assert driver.sent[-2].body["timeout"] == 15.0
    else:
        assert 1 not in driver.open


def test_following_over_a_dead_connection(make: MakeClient) -> None:
    """The node that is asked anew has more: it goes on."""
    y = event(2, piece=1, parts=["y"])
    driver = SimulatedDriver(
        a=[stream(X, closes=False), polled("e-2", y["data"]), stream(event(3, piece=2, parts=[], end="done"))]
    )
    assert list(make("unix:a", driver=driver).follow_answer("a")) == ["x", {"tool": 1}, "y"]
    assert driver.sent[-1].body["cursor"] == "e-2"


def test_following_while_no_node_is_there(make: MakeClient) -> None:
    """That is no silence of the writer, however long it takes; a refusal ends it."""
    gone = [REFUSED] * 30
    driver = SimulatedDriver(
        a=[
            stream(X, closes=False), HANGS, *gone,
            stream({"id": "e-1"}, 14.0, event(2, piece=1, parts=["y"]), closes=False), answer(403),
        ]
    )  # fmt: skip
    items = make("unix:a", driver=driver).follow_answer("a")
    assert list(islice(items, 3)) == ["x", {"tool": 1}, "y"]
    assert driver.time > 1100.0
    with pytest.raises(ClientError, match="403"):
        next(items)


def test_a_client_that_is_stopped(make: MakeClient) -> None:
    """It does not look like the end of the answer."""
    driver = SimulatedDriver(a=[stream(X, closes=False)])
    client = make("unix:a", driver=driver)
    items = client.follow_answer("a")
    assert list(islice(items, 2)) == ["x", {"tool": 1}]
    client.stop()
    with pytest.raises(ClientError, match="stopped"):
        next(items)
