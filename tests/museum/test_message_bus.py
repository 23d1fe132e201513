"""MessageBus: ids that are issued again when the server forgets how far it had counted."""

from __future__ import annotations

import pytest

from tests.museum.simulated import acknowledged, answers, carry_out, publish, subscribe
from tests.simulation.steps import Step


@pytest.mark.usefixtures("faults_may_be_logged")
@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("redis", Step(10.0, "redis_evict", {"key": "state"})),
        ("redis", Step(10.0, "redis_old", {"seconds": 0.0, "share": 0.3})),
        ("redis", Step(10.0, "redis_flush", {})),
        ("journal", Step(10.0, "put_back", {"share": 0.2, "good": False})),
        ("memory", Step(10.0, "kill", {"node": 0, "seconds": 0.5})),
    ],
    ids=["the counter is evicted", "an older save", "everything is deleted", "an older journal", "a restart"],
)
def test_a_counter_that_is_lost(kind: str, fault: Step) -> None:
    """No id is issued twice, and subscribers are told that messages may be lost."""
    steps = [publish(1.0 + 0.5 * number, "a") for number in range(40)]
    nodes = 2 if kind == "redis" else 1
    result = carry_out(subscribe(2.0, 0, "a", cursor="earliest"), fault, *steps, kind=kind, nodes=nodes)
    ids = [id_ for event in acknowledged(result).values() for id_ in event.ids]
    assert len(ids) == len(set(ids)) > 30
    assert len({id_.rpartition("-")[0] for id_ in ids}) > 1, "the fault had no effect"
    assert [gap.reason for answer in answers(result, "s0") for gap in answer.gaps] == ["lost"]
