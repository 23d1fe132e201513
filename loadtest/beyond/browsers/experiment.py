"""Real browsers behind HAProxy while something fails: is anything lost, and how soon is a page current again?

| setting | value |
|---|---|
| browsers | Chromium, Firefox ESR, WebKitGTK; a new one for each scene, without a window |
| fronts | HAProxy's `plain` (HTTP/1.1) and `tls` (HTTP/2), with two nodes and Redis behind it |
| clients | pushup.js with the transports `auto` (a stream) and `poll`; the loop that most people write |
| load | 1,000 messages on one channel, through HAProxy, each repeated until it is acknowledged |
| rate | 50 a second; fewer if the fault takes longer |
| faults | those of `scenarios`; from when a quarter of the messages is published, to three quarters at most |

In a scene all clients and fronts are there at the same time. At its beginning and at its end the nodes must hold one
request for all tabs of pushup.js with the same transport and front.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

from deploy.cluster import Cluster
from loadtest.beyond.browsers import stage
from loadtest.beyond.browsers.drivers import BROWSERS
from loadtest.beyond.browsers.scenarios import SCENARIOS, Scenario
from loadtest.beyond.browsers.scene import CLIENTS, FRONTS, LOOP, Group, Scene
from loadtest.beyond.browsers.verdict import Verdict
from loadtest.reports.results import Figure, Progress, Table, Value, percentile

MESSAGES = 1000
INTERVAL_SECONDS = 0.02
BEFORE = 0.25
DURING = 0.5
"""The shares of the messages that are published before the fault, and while it lasts."""

QUICK_DURING = 0.7

QUICK_MESSAGES = 200
QUICK = {
    "chromium": ("node-killed", "offline", "slow", "leader-frozen", "leader-killed", "eight-tabs"),
    "firefox": ("node-drained", "haproxy-away", "buffering", "cutting-often", "leader-hangs", "back"),
    "webkit": ("redis-away", "haproxy-reloaded", "bad-gateway", "reload"),
}
"""With these, each browser, client, front and kind of fault is there at least once."""

FIRST_LOOK = {"chromium": ("node-killed",), "firefox": ("haproxy-away",), "webkit": ("reload",)}
"""What `--quick` plays; the tests play the others of `QUICK`."""

_numbers = count()


class Case(NamedTuple):
    """One tab in one scene."""

    scenario: str
    browser: str
    front: str
    client: str
    verdict: Verdict


class Played(NamedTuple):
    """What became of all tabs; `failed`: what should not have happened, a line each."""

    cases: list[Case]
    failed: list[str]


def run(
    *, quick: bool, browsers: Sequence[str] = (), scenarios: Sequence[str] = ()
) -> tuple[list[Table], list[Figure]]:
    """`browsers`, `scenarios`: only these."""
    chosen = [
        (browser, scenario)
        for browser in browsers or BROWSERS
        for scenario in scenarios or (FIRST_LOOK[browser] if quick else SCENARIOS)
        if SCENARIOS[scenario].fits(BROWSERS[browser])
    ]
    messages, during = (QUICK_MESSAGES, QUICK_DURING) if quick else (MESSAGES, DURING)
    return [*tables(played(chosen, messages=messages, during=during))], []


def played(
    chosen: Sequence[tuple[str, str]], *, messages: int, during: float = DURING, clients: Sequence[str] = CLIENTS
) -> Played:
    """Play scenarios, each in a browser, one after the other, with one cluster.

    chosen: (browser, scenario) pairs
    during: the share of the messages that is published while something happens
    """
    progress = Progress(len(chosen))
    cases: list[Case] = []
    failed: list[str] = []
    with stage.cluster() as cluster:
        for browser, scenario in chosen:
            progress.step(f"{browser}: {SCENARIOS[scenario].title}")
            for fronts, together in _parts(SCENARIOS[scenario], clients):
                done = play(cluster, browser, scenario, fronts, together, messages=messages, during=during)
                cases += done.cases
                failed += [f"{browser}, {scenario}: {line}" for line in done.failed]
            _mend(cluster)
    progress.end()
    return Played(cases, failed)


def _parts(scenario: Scenario, clients: Sequence[str]) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """The fronts and the clients of each scene."""
    clients = [client for client in clients if client != LOOP or scenario.loops]
    if not scenario.apart:
        yield [*FRONTS], clients
        return
    for front in FRONTS:
        for together in ([c for c in clients if c != LOOP], [c for c in clients if c == LOOP]):
            if together:
                yield [front], together


def play(
    cluster: Cluster,
    browser: str,
    scenario: str,
    fronts: Iterable[str],
    clients: Sequence[str],
    *,
    messages: int,
    during: float,
) -> Played:
    """Play a scenario once, in a new browser."""
    plan = SCENARIOS[scenario]
    name = f"{scenario}-{next(_numbers)}"
    try:
        with BROWSERS[browser].started() as driver, Scene(cluster, driver, name) as scene:
            origins = scene.origins(fronts, plan.proxy_for(driver), plan.prepare)
            scene.open(clients, origins, plan)
            # A gateway does not answer a stream, so a browser that ends no requests holds it for minutes.
            counts = driver.ends_requests or plan.proxy != "gateway"
            failed = [scene.held_one_each()] if counts else []
            interval = max(INTERVAL_SECONDS, plan.lasts / messages / during)
            with stage.Publisher(cluster, scene.channel, messages=messages, interval=interval) as publisher:
                verdicts = _verdicts(scene, plan, publisher, messages)
                failed.append(publisher.failed)
                publisher.publish(messages)
            failed += [scene.held_at_most()] if counts else []
            failed += [
                f"{group.client} {group.front}: {verdict}: {report}"
                for (group, verdict), report in zip(verdicts, scene.reports(), strict=True)
                if group.client != LOOP and verdict[:4] != (0, 0, 0, 0)
            ]
            cases = [Case(scenario, browser, group.front, group.client, verdict) for group, verdict in verdicts]
    except Exception as error:  # the other scenes are played anyway
        return Played([], [f"{type(error).__name__}: {error}"])
    return Played(cases, [line for line in failed if line])


def _verdicts(scene: Scene, plan: Scenario, publisher: stage.Publisher, messages: int) -> list[tuple[Group, Verdict]]:
    """Let it happen when enough is published; the verdict on each tab when all have what they will ever get."""
    while publisher.is_alive() and len(publisher.acknowledged) < messages * BEFORE:
        time.sleep(INTERVAL_SECONDS)
    plan.happen(scene)
    publisher.join()
    scene.settle(len(publisher.acknowledged))
    return [*scene.judged(publisher.acknowledged)]


def _mend(cluster: Cluster) -> None:
    """Start what a scene has left behind that failed."""
    for name, part in cluster.parts.items():
        if not part.runs:
            part.kill()
            cluster.start_part(name)


# --- tables ---

NAMES = {"auto": "pushup.js, streams", "poll": "pushup.js, polls", LOOP: "the loop"}


def tables(played: Played) -> Iterator[Table]:
    """Every case, and a summary of each scenario."""
    failed = "\n".join(played.failed)
    yield Table("browsers", "Real browsers, each case", CASE_COLUMNS, _case_rows(played.cases), failed)
    yield Table("browsers-summary", "Real browsers, all together", SUMMARY_COLUMNS, _summary_rows(played.cases))


CASE_COLUMNS = (
    "scenario", "browser", "front", "client", "tabs", "lost per tab", "repeated", "out of order", "gaps", "late p50 s",
    "late p99 s",
)  # fmt: skip


def _case_rows(cases: Sequence[Case]) -> list[tuple[Value, ...]]:
    kinds = dict.fromkeys(case[:4] for case in cases)
    rows: list[tuple[Value, ...]] = []
    for kind in kinds:
        verdicts = [case.verdict for case in cases if case[:4] == kind]
        late = [seconds for verdict in verdicts for seconds in verdict.late]
        rows.append((
            *kind, len(verdicts),
            sum(verdict.lost for verdict in verdicts) / len(verdicts),
            sum(verdict.repeated for verdict in verdicts),
            sum(verdict.out_of_order for verdict in verdicts),
            sum(verdict.gaps for verdict in verdicts),
            percentile(late, 0.5), percentile(late, 0.99),
        ))  # fmt: skip
    return rows


SUMMARY_COLUMNS = ("scenario", *(f"{name}: {what}" for name in NAMES.values() for what in ("lost", "late p50 / p99 s")))


def _summary_rows(cases: Sequence[Case]) -> list[tuple[Value, ...]]:
    rows: list[tuple[Value, ...]] = []
    for scenario in dict.fromkeys(case.scenario for case in cases):
        row: list[Value] = [SCENARIOS[scenario].title]
        for client in NAMES:
            verdicts = [case.verdict for case in cases if (case.scenario, case.client) == (scenario, client)]
            late = [seconds for verdict in verdicts for seconds in verdict.late]
            lost = sum(verdict.lost for verdict in verdicts) / len(verdicts) if verdicts else "-"
            times = f"{percentile(late, 0.5):.2f} / {percentile(late, 0.99):.2f}" if verdicts else "-"
            row += [lost, times]
        rows.append(tuple(row))
    return rows
