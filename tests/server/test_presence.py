"""Who follows a channel, with real servers that are killed, stopped for a while and replaced: no false leave."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.server.conftest import Serve
from tests.server.presence_crowd import User
from tests.server.presence_kills import POLICY, Crowd, report, run, token
from tests.server.presence_seen import CHANNEL, LEAVE_SECONDS, Fault, Observer, Result, Seen, Stop
from tests.server.server_process import wait_until, workers_of
from tests.server.token_issuer import SETTINGS

GRACE_SECONDS = 3.0


def test_sixty_members_of_three_nodes(tmp_path: Path) -> None:
    """`python -m tests.server.presence_kills` does the same with 1,000, some of them in Chromium."""
    result = run(
        60, tmp_path, 1, print, faults=("restarts 1", "kill", "stop 3"), grace=GRACE_SECONDS, pause=1.5, browsers=0
    )
    assert not result.wrong(), report(result)
    assert len(result.stops) == 7
    assert len(result.seen[0].leaves) == 7
    assert all(seen.lists > 10 for seen in result.seen)


def test_two_workers_and_one_is_killed(serve: Serve, tmp_path: Path, stack: ExitStack) -> None:
    """Its members come to the other one or to the next; two pages of one user are one member."""
    (tmp_path / "presence.toml").write_text(POLICY)
    result = Result(GRACE_SECONDS)
    crowd = Crowd(result)
    stack.callback(crowd.end)
    settings: dict[str, Any] = {"presence_grace_seconds": f"{GRACE_SECONDS}s", **SETTINGS}
    with serve("--config", str(tmp_path / "presence.toml"), "--workers", "2", **settings) as server:
        server.expect_log("worker .* (died|was killed|has ended)")
        observer = Observer(server.address)
        stack.callback(observer.end)
        result.seen = [observer.seen]
        for number in range(40):
            subject = f"user{number % 20}"
            crowd.come(User(subject, token(subject), CHANNEL, [server.address]))
        wait_until(lambda: observer.seen.members == result.members, "all to be there")
        before, began = workers_of(server), time.time()
        before[0].kill()
        result.faults.append(Fault("kill", began, time.time(), node_ends=True))
        wait_until(
            lambda: len(workers_of(server)) == 2 and before[0].pid not in [w.pid for w in workers_of(server)],
            "a worker",
        )
        crowd.stop("user3")
        wait_until(lambda: observer.seen.members == result.members - {"user3"}, "one to leave")
        time.sleep(GRACE_SECONDS + 1)
        observer.end()
    assert not result.wrong()


def message(number: int, *, joins: str = "", leaves: str = "", count: int, time: float = 100.0) -> dict[str, object]:
    data = {"count": count, "joins": [{"subject": who} for who in joins], "leaves": list(leaves)}
    return {"id": f"e-{number}", "time": time, "data": data}


class Played:
    """What one or two observers saw of three users."""

    def __init__(self) -> None:
        self.result = Result(30.0, set("abc"), seen=[Seen(), Seen()])
        self.take(message(1, joins="abc", count=3))

    def take(self, *messages: dict[str, object]) -> None:
        for seen in self.result.seen:
            for each in messages:
                seen.take(each)


@pytest.fixture
def played() -> Played:
    return Played()


def test_a_leave_of_nobody_who_stopped_is_false(played: Played) -> None:
    played.take(message(2, leaves="a", count=2))
    assert [text.split()[0] for text in played.result.wrong()] == ["false:", "missing:"]
    played.result.aways = [("a", 69.0, 80.0)]
    assert [text.split()[0] for text in played.result.wrong()] == ["false:", "missing:"]
    played.result.aways = [("a", 69.0, 101.0)]
    assert played.result.wrong() == ["missing: a"]


@pytest.mark.parametrize(("stopped", "wrong"), [(90.0, ["false:"]), (69.0, []), (64.0, ["late:"])])
def test_when_a_leave_is_false_or_late(played: Played, stopped: float, wrong: list[str]) -> None:
    played.result.stops["a"] = Stop(stopped, 30.0, 30.0)
    played.take(message(2, leaves="a", count=2))
    assert [text.split()[0] for text in played.result.wrong()] == wrong


@pytest.mark.parametrize(
    ("fault", "latest"),
    [
        (Fault("kill", 20.0, 20.0, node_ends=True), 20.0 + 8 + 30 + LEAVE_SECONDS),
        (Fault("kill", 60.0, 60.0, node_ends=True), 10.0 + 30 + LEAVE_SECONDS),
        (Fault("stop", 20.0, 25.0), 10.0 + 5 + 30 + LEAVE_SECONDS),
    ],
)
def test_a_fault_delays_a_leave(played: Played, fault: Fault, latest: float) -> None:
    played.result.faults = [fault]
    assert played.result.deadline(Stop(10.0, 30.0, 30.0)) == latest


def test_what_observers_cannot_have_seen(played: Played) -> None:
    one, other = played.result.seen
    one.take(message(2, joins="a", count=3))
    one.take(message(3, leaves="x", count=4))
    one.compare("ab", "e-3")
    one.compare("abc", "e-1")
    one.compare("", "e-0")
    assert one.wrong == [
        "a joins again",
        "x leaves, and was not there",
        "e-3: 4 instead of 3 members",
        "the list at e-3 differs: ['c']",
    ]
    assert other.wrong == []
    assert "the observers were told different things" in played.result.wrong()
    assert "false: x" in " ".join(played.result.wrong())


def test_who_stays(played: Played) -> None:
    played.result.stops["a"] = Stop(1.0, 30.0, 30.0)
    played.result.members.add("d")
    assert played.result.wrong() == ["stays: a", "missing: d"]
