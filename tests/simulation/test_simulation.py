"""Whole clusters: no promise is broken, and a seed decides everything."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from loadtest.history.clients import Publication
from pushup.broadcast.redis.log import RedisLog
from pushup.broadcast.redis.records import Tail
from tests.simulation import inside, reach
from tests.simulation.observed_node import BUG
from tests.simulation.plan import ERASURES, LEASES, PRESENCE, PRODUCERS, STRANGERS, UNREAD, USERS, WORKERS, make_plan
from tests.simulation.redis_server import HOST as REDIS
from tests.simulation.simulation import Simulation, simulate
from tests.simulation.steps import CLUSTER, FAULT_SECONDS, Plan, Step
from tests.simulation.world import START

ROOT = Path(__file__).parents[2]

FIRST_SEED = 0
BATCHES = {"": 50, WORKERS: 25, LEASES: 3, STRANGERS: 3, USERS: 3, ERASURES: 6, PRODUCERS: 6, PRESENCE: 6, UNREAD: 6}
"""By what the seeds begin with."""

BATCH_SEEDS = 4
"""One batch is part of `make check`, all are of CI; `python -m tests.simulation --seeds 20000` runs many more."""

SAME_STORY_SEEDS = 20


@pytest.mark.parametrize(
    ("family", "batch"), [(family, batch) for family, count in BATCHES.items() for batch in range(count)]
)
def test_seeds(family: str, batch: int, logged_failures: list[str]) -> None:
    """No promise is broken, and no server meets an error that it does not expect.

    For the story of a seed: `python -m tests.simulation --seed 17`.
    """
    seeds = [f"{family}{FIRST_SEED + batch * BATCH_SEEDS + number}" for number in range(BATCH_SEEDS)]
    broken = [f"seed {seed}: {what}" for seed in seeds if (what := simulate(make_plan(seed)).broken)]
    gc.collect()  # a lost Deferred logs its failure now, and not in another test
    unexpected = [text for text in logged_failures if "Traceback" in text and BUG not in text]
    logged_failures.clear()  # what servers log about faults, they may log as an error
    assert not broken, "\n".join(broken)
    assert not unexpected, "\n".join(unexpected)


SETUP = {**CLUSTER, "replica": True, "slow_node": 0.3}
SUBSCRIBE = Step(1.0, "subscribe", {
    "number": 0, "channels": ("a",), "cursor": "", "timeout": 10, "limit": 100, "direct": True, "slow": 0.0,
    "pause": 0.0,
})  # fmt: skip


def carry_out(kind: str, *steps: Step) -> tuple[Simulation, str]:
    """These steps, in a cluster of this kind with one subscriber; and the promise that was broken."""
    simulations: list[Simulation] = []
    setup = {**SETUP, "kind": kind, "nodes": 2 if kind == "redis" else 1}
    result = simulate(Plan("steps", setup, (SUBSCRIBE, *steps)), simulations.append)
    return simulations[0], result.broken


LAST_MOMENT = FAULT_SECONDS - 0.01


@pytest.mark.parametrize("what", ["slow_link", "late", "kill_writing"])
def test_a_fault_that_is_under_way_ends_with_all_others(what: str) -> None:
    """No link becomes slow again, and nothing is late or killed because of what comes next."""
    if what == "slow_link":
        arguments = {"node": 0, "other": REDIS, "seconds": 15.0, "delay": 0.4}
        simulation, broken = carry_out("redis", Step(LAST_MOMENT, what, arguments))
        assert max(link.seconds for link in simulation.network.both("n0", REDIS)) <= 0.002
    elif what == "late":
        arguments = {"what": "append", "seconds": 8.0, "flush": True}
        simulation, broken = carry_out("redis", Step(LAST_MOMENT, what, arguments))
    else:
        simulation, broken = carry_out("journal", Step(LAST_MOMENT, what, {"seconds": 1.0, "share": 0.5}))
        assert [server.starts for server in simulation.servers] == [1]
    assert not broken
    assert not any("is late" in line for line in simulation.world.story)


def publish(at: float, ack: str) -> Step:
    """At n1, so that nobody else is on the way."""
    return Step(at, "publish", {
        "publisher": 0, "groups": [("a",)], "key": False, "ack": ack, "target": "node", "node": 1,
    })  # fmt: skip


@pytest.mark.parametrize("is_replicated", [True, False])
def test_replicated_although_the_replica_has_lost_it_since(
    is_replicated: bool, monkeypatch: pytest.MonkeyPatch, log: list[str]
) -> None:
    """Redis is put back while the answer is on its way: that is no lie, unless the replica never had the entry."""
    pause = Step(2.0, "replica_pause", {"node": 0, "seconds": 15.0, "what": ""})
    if not is_replicated:
        monkeypatch.setattr(RedisLog, "replicas", lie)
    told: list[str] = []

    def put_back(simulation: Simulation) -> None:
        check = simulation.checker.confirmed

        def confirmed(publication: Publication, ack: str) -> None:
            told.append(ack)
            assert simulation.redis is not None
            simulation.redis.restart(len(simulation.redis.writes) // 2)
            check(publication, ack)

        simulation.checker.confirmed = confirmed

    setup = {**SETUP, "slow_node": 0.0}
    steps = (publish(3.0, "replicated"),) if is_replicated else (pause, publish(3.0, "replicated"))
    broken = simulate(Plan("steps", setup, steps), put_back).broken
    assert told[0] == "replicated"
    assert broken.startswith("replicated: ") is not is_replicated


async def lie(log: RedisLog, seconds: float) -> tuple[Tail, int]:
    """What `RedisLog.replicas` would say of a replica that has everything."""
    return await log.tail(), 1


@pytest.mark.parametrize("is_cut_off", [True, False])
def test_who_counts_as_living(is_cut_off: bool, monkeypatch: pytest.MonkeyPatch, log: list[str]) -> None:
    """A node that is cut off, until its lease is over, even if it has not noticed; one that is not cut off, always."""
    monkeypatch.setattr(inside, "note_report", lambda simulation, node: None)
    lives: dict[float, bool] = {}

    def look(simulation: Simulation) -> None:
        world, server = simulation.world, simulation.servers[0]

        def note(at: float) -> None:
            server.reported_at = START + 8.5
            lives[at] = inside._counts_as_living(server)

        for at in (9.9, 10.5, 11.4, 11.6):
            world.at(START + at, partial(note, at))

    clog = Step(10.0, "clog", {"node": 0, "other": REDIS, "seconds": 15.0, "direction": "both"})
    simulate(Plan("steps", {**SETUP, "slow_node": 0.0}, (clog,) if is_cut_off else ()), look)
    assert lives == {9.9: True, 10.5: True, 11.4: True, 11.6: not is_cut_off}


@pytest.mark.parametrize("is_other", [True, False])
def test_the_mark_of_another_cluster_shows_no_loss(is_other: bool, log: list[str]) -> None:
    """Its server refuses to follow, and any other takes the log that was put back for complete."""
    seen: list[bool] = []

    def observe(simulation: Simulation) -> None:
        redis = simulation.redis
        assert redis is not None

        def put_back() -> None:
            for server in simulation.servers:
                server.kill()
                if is_other and server.disk.mark is not None:
                    server.disk.mark = json.dumps(json.loads(server.disk.mark) | {"cluster": "f00"}).encode()
            redis.restart(before[0])
            reach.redis_came_back(simulation)
            seen.append(bool(simulation.checker.unknowable))

        before: list[int] = []
        simulation.world.at(START + 5.0, lambda: before.append(len(redis.writes)))
        simulation.world.at(START + 9.0, put_back)

    setup = {**SETUP, "appendfsync": "always", "replica": False, "slow_node": 0.0}
    simulate(Plan("steps", setup, (publish(6.0, "accepted"),)), observe)
    assert seen == [is_other]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("more", "seeds"),
    [([], SAME_STORY_SEEDS), (["--workers"], SAME_STORY_SEEDS), (["--unread"], SAME_STORY_SEEDS // 3)],
    ids=["clusters", "workers", "unread"],
)  # fmt: skip
def test_the_same_seed_is_the_same_story(more: list[str], seeds: int) -> None:
    """Two Pythons with other hashes of strings, and so with another order of every set, do the same."""
    command = [sys.executable, "-m", "tests.simulation", "--digests", "--jobs", "1"]
    command += ["--first", str(FIRST_SEED), "--seeds", str(seeds), *more]
    processes = [
        subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONHASHSEED": hash_seed}
        )
        for hash_seed in ("1", "2")
    ]
    one, other = [process.communicate()[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert len(one) == seeds
    assert all(len(line.split()) == 2 for line in one), "errors"
    assert one == other


def test_a_gap_for_a_forgotten_channel_may_be_of_an_epoch_that_has_ended(logged_failures: list[str]) -> None:
    """The answer was on its way while its server went on to another epoch, which has forgotten none."""

    def on(at: float, *channels: str) -> Step:
        step = publish(at, "accepted")
        return step._replace(arguments={**step.arguments, "groups": [(channel,) for channel in channels]})

    reading = {"channels": ("a", "c"), "cursor": "earliest", "timeout": 2, "limit": 1, "slow": 1.0, "pause": 2.0}
    steps = (
        on(2.0, *(f"x{number}" for number in range(10))),
        on(5.0, "c"), on(5.5, "c"),
        on(6.0, *(f"y{number}" for number in range(8))),
        Step(8.0, "subscribe", {**SUBSCRIBE.arguments, **reading}),
        on(10.0, "d"), on(10.5, "d"), on(10.9, "d"), on(11.05, "d"),
        Step(11.1, "redis_power", {"seconds": 0.3}),
    )  # fmt: skip
    setup = {**SETUP, "kind": "redis", "nodes": 2, "limits": "few channels", "appendfsync": "everysec"}
    setup |= {"replica": False, "slow_node": 0.0, "many": 40}
    simulations: list[Simulation] = []
    assert simulate(Plan("steps", setup, steps), simulations.append).broken == ""
    assert any('{"channel":"a","reason":"expired"' in line for line in simulations[0].world.story)
    logged_failures.clear()  # Redis was gone


@pytest.mark.parametrize("is_noted", [True, False])
def test_a_clock_that_was_set_counts_when_a_journal_is_opened(is_noted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever restarts the server: messages that are too old by the new time expire, as documented, and not before."""
    if not is_noted:
        monkeypatch.setattr(Simulation, "_note_clock", lambda simulation, clock: None)
    slow = Step(1.0, "subscribe", {**SUBSCRIBE.arguments, "cursor": "now", "timeout": 2, "limit": 1, "pause": 4.0})
    jump, restart = Step(5.0, "jump", {"node": 0, "by": 86_400.0}), Step(6.0, "new_settings", {"limits": {}})
    setup = {**SETUP, "kind": "journal", "nodes": 1}
    messages = [publish(at, "accepted") for at in (3.0, 3.1, 3.2)]
    simulations: list[Simulation] = []
    broken = simulate(Plan("steps", setup, (slow, *messages, jump, restart)), simulations.append).broken
    assert any('"reason":"expired"' in line for line in simulations[0].world.story)
    assert broken.startswith("nothing expires early") is not is_noted
