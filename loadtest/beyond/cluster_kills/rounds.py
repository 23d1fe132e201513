"""Rounds of faults: a cluster is started, faults of one kind happen to it under load, and its history is judged."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event as Flag
from typing import NamedTuple

from msgspec import Struct, field

from loadtest.beyond.cluster_kills import clocks, faults, redis_faults
from loadtest.beyond.cluster_kills.clients import Record
from loadtest.beyond.cluster_kills.scene import NotLive, Scene
from loadtest.beyond.cluster_kills.stage import Base, limits, staged
from loadtest.history.file import read_history
from loadtest.history.verdict import check

PAUSE_SECONDS = 0.5
"""Longest pause between two faults; the pauses are random."""


class Fault(NamedTuple):
    """A kind of fault.

    share: how many of a thousand are of this kind. inject: causes one, and returns which nodes it concerned.
    at_once: to how many nodes it happens at a time. a_round: how many in one cluster. stage: arguments for `staged`.
    may_lose, moves_clock: what it may do to the log (`loadtest.history.events.Fault`).
    """

    share: int
    inject: Callable[[Scene], list[str]]
    at_once: int = 1
    a_round: int = 20
    stage: Mapping[str, bool] = {}
    may_lose: bool = False
    moves_clock: bool = False


CLOCKS = {"with_clocks": True}
JOURNAL = {"with_journal": True}


def kinds(*, longest: float) -> dict[str, Fault]:
    """All faults by name. `longest`: seconds, of a stop; cuts take at most half of it."""
    cut_seconds = longest / 2
    return {
        "node-killed": Fault(110, faults.kill_node),
        "node-stopped": Fault(100, partial(faults.stop_node, longest=longest), at_once=2, a_round=25),
        "cut-to-redis": Fault(70, partial(faults.cut, direction="to", longest=cut_seconds), at_once=3, a_round=24),
        "cut-from-redis": Fault(70, partial(faults.cut, direction="from", longest=cut_seconds), at_once=3, a_round=24),
        "cut-both-ways": Fault(50, partial(faults.cut, direction="both", longest=cut_seconds), at_once=3, a_round=25),
        "haproxy-reloaded": Fault(90, faults.reload_haproxy, a_round=25),
        "node-clock": Fault(70, faults.set_node_clock, stage=CLOCKS),
        "redis-clock": Fault(50, faults.set_redis_clock, stage=CLOCKS, moves_clock=True),
        "redis-killed": Fault(80, redis_faults.kill),
        "redis-stopped": Fault(30, partial(faults.stop_redis, longest=longest / 6), a_round=15),
        "redis-disk-full": Fault(40, faults.fill_redis_disk),
        "failover": Fault(40, redis_faults.fail_over, a_round=10, stage={"with_spare": True}, may_lose=True),
        "older-snapshot": Fault(40, redis_faults.put_back_snapshot, a_round=8, may_lose=True),
        "older-file": Fault(40, redis_faults.put_back_file, a_round=8, may_lose=True),
        "older-save": Fault(40, redis_faults.lose_save, a_round=10),
        "journal-killed": Fault(40, faults.kill_journal, stage=JOURNAL),
        "journal-disk-full": Fault(40, faults.fill_journal_disk, stage=JOURNAL),
    }


def missing(fault: Fault) -> str:
    """What has to be installed for this fault; empty if nothing is missing."""
    return clocks.missing() if fault.stage.get("with_clocks") else ""


class Tally(Struct):
    """What came of the faults of one kind. `live`: seconds until live again, of each."""

    times: int = 0
    acknowledged: int = 0
    lost: int = 0
    repeated: int = 0
    out_of_order: int = 0
    gaps: int = 0
    without_loss: Counter[str] = field(default_factory=Counter)
    broken: list[str] = []
    live: list[float] = []


class Round:
    """Faults of one kind in one cluster."""

    def __init__(self, name: str, fault: Fault, *, seed: str, history: Path) -> None:
        self._name = name
        self._fault = fault
        self._rng = random.Random(f"{seed} {name}")  # noqa: S311  # no secret
        self._history = history
        self._is_over = Flag()

    def run(self, base: Base, times: int, deadline: float, tally: Tally) -> None:
        """Cause `times` faults, fewer if it is later than `deadline` (`time.monotonic`), and judge what clients saw."""
        folder = Path(tempfile.mkdtemp(prefix="pushup-faults-"))  # short: the path of HAProxy's socket is limited
        broken: list[str] = []
        with self._history.open("wb") as file:
            record = Record(file, limits())
            try:
                with staged(folder, base, record, self._rng, **self._fault.stage) as scene:
                    broken += self._in(scene, times, deadline, tally)
            except Exception as error:  # the other rounds go on
                broken.append(failure(error))
        shutil.rmtree(folder)
        tally.acknowledged += record.counts["messages"]
        tally.gaps += record.counts["gaps"]
        verdict = check(read_history(self._history))
        if verdict.broken:
            broken.append(f"line {verdict.line}: {verdict.broken}")
            for attribute, promise in PROMISES.items():
                if verdict.broken.startswith(promise):
                    setattr(tally, attribute, getattr(tally, attribute) + 1)
        tally.without_loss += Counter(verdict.without_loss)
        tally.broken += [f"{self._history}: {what}" for what in broken]

    def _in(self, scene: Scene, times: int, deadline: float, tally: Tally) -> list[str]:
        """Have the faults happen to this cluster. Returns the promises that were broken, as far as its clients go."""
        fault, broken = self._fault, []
        scene.kind = {"what": self._name, "may_lose": fault.may_lose, "moves_clock": fault.moves_clock}
        try:
            self._harm(scene, times, deadline, tally)
        except NotLive as error:
            broken.append(str(error))
        except Exception as error:  # a fault could not be caused; what was done so far is judged
            broken.append(failure(error))
        scene.load.finish()
        broken += scene.load.surprises
        difference = scene.differences()
        return [*broken, difference] if difference else broken

    def _harm(self, scene: Scene, times: int, deadline: float, tally: Tally) -> None:
        """The faults, one after the other on each of `at_once` nodes."""
        left = iter(range(times))

        def some() -> None:
            for _ in left:
                if time.monotonic() > deadline:
                    return
                time.sleep(PAUSE_SECONDS * self._rng.random())
                nodes = self._fault.inject(scene)
                tally.times += 1
                tally.live.append(scene.live_again(nodes))

        if self._fault.at_once == 1:
            some()  # processes are started in this thread: they end with the thread that has started them
            return
        with ThreadPoolExecutor(self._fault.at_once) as pool:
            for done in [pool.submit(some) for _ in range(self._fault.at_once)]:
                done.result()
        scene.live_again(scene.nodes)


def failure(error: Exception) -> str:
    """Says that this experiment has failed, rather than the server."""
    return f"not a broken promise, but a failure here: {type(error).__name__}: {error}"


PROMISES = {"lost": "delivered or covered", "repeated": "nothing twice", "out_of_order": "one order"}
"""How the checker's texts begin; it stops at the first, so a history counts once."""
