"""Publications that wait for their turn."""

from __future__ import annotations

from typing import Any

import pytest

from pushup.core.errors import Overloaded, PushUpError
from pushup.metrics import Metrics
from pushup.net.api.turns import AT_ONCE, LIMIT_BYTES, PublisherTurns
from pushup.testing.in_memory import InMemoryDemultiplexer
from tests.metric_values import value_of
from tests.net.in_memory_node import InMemoryNode, RecordingExchange
from tests.net.in_memory_server import make_clock

LIMIT_SECONDS = 0.5

GOOD: dict[str, Any] = {"channels": ["a"], "data": 1}
BAD: dict[str, Any] = {"channels": []}


class Crowd:
    """Publishers that all publish in one batch. `begun`: whose publications have begun; `errors`: of the others."""

    def __init__(self) -> None:
        self.clock = make_clock()
        self.demultiplexer = InMemoryDemultiplexer()
        self.metrics = Metrics()
        self.turns = PublisherTurns(self.demultiplexer, self.metrics, self.clock.seconds, LIMIT_SECONDS)
        self.begun: list[str] = []
        self.errors: list[PushUpError] = []

    def publish(self, name: str, size: int = 100) -> None:
        try:
            turn = self.turns.wait(name, size)
        except PushUpError as error:
            self.errors.append(error)
            return
        if turn is None:
            self.begun.append(name)
        else:
            turn.addCallbacks(lambda _: self.begun.append(name), lambda failure: self.errors.append(failure.value))


@pytest.fixture
def crowd() -> Crowd:
    return Crowd()


def test_a_few_begin_at_once_in_each_batch(crowd: Crowd) -> None:
    """Most batches have no more."""
    for _ in range(3):
        for _ in range(AT_ONCE):
            crowd.publish("a")
        assert len(crowd.begun) == AT_ONCE
        crowd.begun.clear()
        crowd.demultiplexer.turn()


def test_publishers_take_turns(crowd: Crowd) -> None:
    """Who publishes little does not wait behind all of who publishes much; each keeps its order."""
    for name in ["flood"] * (AT_ONCE + 5) + ["b", "c", "b"]:
        crowd.publish(name)
    assert crowd.begun == ["flood"] * AT_ONCE
    crowd.begun.clear()
    crowd.demultiplexer.run()
    assert crowd.begun == ["flood", "b", "c", "flood", "b", "flood", "flood", "flood"]


def test_nobody_overtakes_those_who_wait(crowd: Crowd) -> None:
    """Also if a new batch has begun."""
    for _ in range(AT_ONCE):
        crowd.publish("first")
    crowd.demultiplexer.soon(lambda: crowd.publish("b"))  # when the next batch has begun, before anybody's turn
    crowd.publish("a")
    crowd.demultiplexer.run()
    assert crowd.begun[-2:] == ["a", "b"]


def test_who_waits_for_too_long_is_refused(crowd: Crowd) -> None:
    """With 503 and the setting's name; it is counted, and the next publication begins again."""
    for _ in range(AT_ONCE + 2):
        crowd.publish("a")
    crowd.clock.advance(LIMIT_SECONDS + 0.01)
    crowd.demultiplexer.run()
    assert len(crowd.begun) == AT_ONCE
    assert [type(error) for error in crowd.errors] == [Overloaded] * 2
    assert "turn_limit_seconds = 0.5" in crowd.errors[0].detail
    assert crowd.errors[0].retry_after == 1
    assert value_of(crowd.metrics.collect(), "publications_refused_total", reason="busy") == 2
    crowd.publish("a")
    assert len(crowd.begun) == AT_ONCE + 1


def test_the_bodies_of_those_who_wait_are_bounded(crowd: Crowd) -> None:
    """One that does not fit is refused at once; when others have begun there is room again."""
    for _ in range(AT_ONCE):
        crowd.publish("a")
    crowd.publish("a", LIMIT_BYTES)
    crowd.publish("b", 1)
    assert [error.kind for error in crowd.errors] == ["busy"]
    crowd.demultiplexer.run()
    for _ in range(AT_ONCE):
        crowd.publish("a")
    crowd.publish("b", LIMIT_BYTES)
    assert len(crowd.errors) == 1


def test_requests_that_wait(crowd: Crowd) -> None:
    """They are answered as others are: 201, the error of one that is wrong, or 503."""
    node = InMemoryNode(api={"turns": crowd.turns})

    def begin() -> list[RecordingExchange]:
        return [node.begin("POST", "/v1/messages", body) for body in (GOOD, BAD, GOOD)]

    for _ in range(AT_ONCE):
        assert node.call("POST", "/v1/messages", GOOD).status == 201
    waiting = begin()
    assert all(exchange.responses == [] for exchange in waiting)
    crowd.demultiplexer.turn()
    assert [exchange.responses[0].status for exchange in waiting] == [201, 400, 201]
    crowd.demultiplexer.run()
    for _ in range(AT_ONCE):
        assert node.call("POST", "/v1/messages", GOOD).status == 201
    (late, *_) = begin()
    crowd.clock.advance(LIMIT_SECONDS + 0.01)
    crowd.demultiplexer.run()
    refused = node.read(late.responses[0])
    assert (refused.status, refused.json["type"]) == (503, "urn:pushup:overloaded")
