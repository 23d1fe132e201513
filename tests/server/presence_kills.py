"""`python -m tests.server.presence_kills [MEMBERS] [SEED]`: who is there, while nodes and Redis are killed and stopped.

Three nodes behind HAProxy. Most members of the channel poll or stream by plain sockets, some by the Python client, and
some by pushup.js in Chromium; a tenth of them stop. Nobody else may be reported gone, who stops has to be reported in
time, and an observer at each node has to see the same.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psutil
from selenium import webdriver

from deploy.cluster import Cluster
from pushup.client import Client, ClientError
from tests.server.caller import Caller
from tests.server.chromium import chromium
from tests.server.presence_crowd import User
from tests.server.presence_seen import CHANNEL, GONE_SECONDS, LEAVE_SECONDS, Fault, Observer, Result, Stop
from tests.server.server_process import clean_environment, wait_until
from tests.server.token_issuer import SETTINGS, TokenIssuer

POLICY = '[[channels]]\nprefix = "room:"\npresence = true\npoll = "anyone"\n'

FAULTS = ("kill", "stop 5", "kill", "stop 12", "redis", "restarts 3")
"""SIGKILL of a node; SIGSTOP for so many seconds; SIGKILL of Redis; so many nodes restarted, one after the other."""

COME_SECONDS = 90.0
"""How long it may take until all are there."""

PAGE = """
const { PushUp } = await import("/v1/pushup.js");
window.push = new PushUp({ url: location.origin, user: "%s", token: "%s" });
window.presence = push.presence("room:1");
"""


def token(subject: str) -> str:
    return TokenIssuer(3600, subject, poll=["room:*"], presence={"name": subject}).token()


class Crowd:
    """The process of presence_crowd.py; a page hidden by its user has twice the grace."""

    def __init__(self, result: Result) -> None:
        self.result = result
        self.users: dict[str, User] = {}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.server.presence_crowd"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=clean_environment(), text=True,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def come(self, user: User) -> None:
        self.users[user.subject] = user
        self.result.members.add(user.subject)
        self._say(come=user._asdict())

    def stop(self, subject: str) -> None:
        """Without a word, as if the user's machine had failed."""
        self._say(stop=subject)

    def kill(self) -> None:
        """The process, and so all its users."""
        self._process.kill()
        for subject, user in self.users.items():
            self._stopped(subject, time.time(), user.pause)

    def end(self) -> None:
        """Close the requests of all users; that is no stop."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._thread.join()
        self._process.stdout.close()
        self._process.wait()

    def _say(self, **command: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            what, subject, *times = json.loads(line)
            if what == "away":
                self.result.aways.append((subject, *times))
            else:
                self._stopped(subject, *times)

    def _stopped(self, subject: str, at: float, pause: float = 0.0) -> None:
        grace = self.result.grace * (2 if self.users[subject].hidden else 1)
        self.result.stops[subject] = Stop(at, grace - pause, grace)


class Program:
    """A program of a user, as in docs/guide/presence.md."""

    def __init__(self, result: Result, subject: str, urls: Sequence[str]) -> None:
        self.result = result
        self.subject = subject
        self.members: set[str] = set()
        self._client = Client(urls, token=token(subject))
        self._thread = threading.Thread(target=self._run)
        result.members.add(subject)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                room = self._client.presence(CHANNEL)
                for item in self._client.follow(CHANNEL, room.cursor):
                    if not room.update(item):
                        break
                    self.members = set(room.members or ())
            except ClientError:
                return  # it was stopped

    def stop(self) -> None:
        self.end()
        self.result.stops[self.subject] = Stop(time.time(), self.result.grace, self.result.grace)

    def end(self) -> None:
        self._client.stop()
        self._thread.join()
        self._client.close()


class Pages:
    """Pages in one browser, each of another user. Those behind the last one may count as hidden."""

    def __init__(self, result: Result, browser: webdriver.Chrome, url: str, subjects: Sequence[str]) -> None:
        self.result = result
        self._browser = browser
        self.tabs: dict[str, str] = {}
        for subject in subjects:
            browser.switch_to.new_window("tab")
            browser.get(f"{url}/v1/cursor")
            browser.execute_async_script(f"(async () => {{{PAGE % (subject, token(subject))}}})().then(arguments[0])")
            self.tabs[subject] = browser.current_window_handle
            result.members.add(subject)

    def stop(self, subject: str) -> None:
        """Close this page, which says so."""
        self._browser.switch_to.window(self.tabs.pop(subject))
        self._browser.close()
        self.result.stops[subject] = Stop(time.time(), 0.0, self.result.grace)

    def kill(self) -> None:
        """The browser; which of its pages were hidden is not known any more."""
        for process in psutil.Process(self._browser.service.process.pid).children(recursive=True):
            process.kill()
        for subject in self.tabs:
            self.result.stops[subject] = Stop(time.time(), self.result.grace, 2 * self.result.grace)
        self.tabs.clear()

    def members(self) -> Iterator[set[str]]:
        """What each page shows."""
        for tab in self.tabs.values():
            self._browser.switch_to.window(tab)
            yield set(self._browser.execute_script("return [...presence.members?.keys() ?? []]"))


class Drill:
    """The servers, and what is done to them."""

    def __init__(self, cluster: Cluster, result: Result, draw: random.Random) -> None:
        self._cluster = cluster
        self._result = result
        self._draw = draw

    def cause(self, fault: str) -> None:
        kind, _, number = fault.partition(" ")
        node, began = self._draw.choice(self._cluster.nodes), time.time()
        if kind == "kill":
            self._cluster.kill_part(node)
            self._note(f"kill {node}", began, node_ends=True)
            time.sleep(self._draw.uniform(0.5, 4.0))
            self._cluster.start_part(node)
        elif kind == "stop":
            self._cluster.freeze_part(node)
            time.sleep(float(number))
            self._cluster.thaw_part(node)
            self._note(f"{fault} {node}", began)
        elif kind == "redis":
            self._cluster.kill_part("redis")
            time.sleep(self._draw.uniform(0.5, 3.0))
            self._cluster.start_part("redis")
            for node in self._cluster.nodes:
                wait_until(partial(self._is_ready, node), f"{node} to be ready")
            self._note("kill redis", began)
        else:
            for node in self._cluster.nodes[: int(number)]:
                began = time.time()
                self._cluster.stop_part(node)
                self._note(f"restart {node}", began, node_ends=True)
                self._cluster.start_part(node)

    def _is_ready(self, node: str) -> bool:
        with Caller(self._cluster.address(node)) as caller:
            return caller.call("GET", "/readyz").status == 200

    def _note(self, name: str, began: float, *, node_ends: bool = False) -> None:
        self._result.faults.append(Fault(name, began, time.time(), node_ends))


def at_random_times(draw: random.Random, seconds: float, actions: Sequence[Callable[[], None]]) -> threading.Thread:
    """Do these within so many seconds, in a thread."""
    times = sorted(zip([draw.uniform(0, seconds) for _ in actions], range(len(actions)), strict=True))
    began = time.monotonic()

    def run() -> None:
        for at, number in times:
            time.sleep(max(0.0, began + at - time.monotonic()))
            actions[number]()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def users(draw: random.Random, count: int, grace: float, front: str, nodes: Sequence[str]) -> list[User]:
    """Seven of ten come through HAProxy, the others directly; a tenth has a hidden page."""
    found = []
    for number in range(count):
        subject, turn = f"user{number}", draw.randrange(len(nodes))
        kind = draw.choice(("poll", "poll", "stream", "stream", "pause"))
        addresses = [*nodes[turn:], *nodes[:turn]] if draw.random() < 0.3 else [front]
        pause = draw.uniform(0.1, 0.45) * grace if kind == "pause" else 0.0
        found.append(User(subject, token(subject), CHANNEL, addresses, kind, draw.random() < 0.1, pause))
    return found


def run(
    count: int,
    folder: Path,
    seed: int,
    show: Callable[[str], None],
    *,
    faults: Sequence[str],
    grace: float = 30.0,
    pause: float = 8.0,
    browsers: int = 2,
) -> Result:
    """So many members, and these faults, with pauses between them."""
    draw, result = random.Random(seed), Result(grace)
    (folder / "pushup.toml").write_text(POLICY)
    settings = {
        "presence_grace_seconds": f"{grace}s", "presence_hidden_seconds": f"{2 * grace}s", "presence_limit": 2 * count,
        "drain_seconds": f"{pause / 4}s", **SETTINGS,
    }  # fmt: skip
    with ExitStack() as stack:
        cluster = stack.enter_context(
            Cluster(nodes=3, settings=settings, config=folder / "pushup.toml", without=["example"])
        )
        nodes = [cluster.address(node) for node in cluster.nodes]
        observers = [Observer(node) for node in nodes]
        crowds = [Crowd(result) for _ in range(3)]  # the last one is killed
        ends = [observer.end for observer in observers]
        for end in (*ends, *[crowd.end for crowd in crowds]):
            stack.callback(end)
        result.seen = [observer.seen for observer in observers]

        front = f"http://{cluster.address('plain')}"
        pages = [
            Pages(result, stack.enter_context(chromium()), front, [f"page{n}{letter}" for letter in "abc"])
            for n in range(browsers)
        ]
        urls = ([front], [f"http://{node}" for node in nodes])
        programs = [Program(result, f"program{n}", urls[n % 2]) for n in range(max(2, count // 100))]
        for program in programs:
            stack.callback(program.end)
        crowd = users(draw, count - len(result.members), grace, cluster.address("plain"), nodes)
        some = max(1, count // 20)
        for n, user in enumerate(crowd[some:]):
            crowds[2 if n < some else n % 2].come(user)
        wait_until(lambda: all(seen.members == result.members for seen in result.seen), "all to be there", COME_SECONDS)
        show(f"{len(result.members)} members")

        actions: list[Callable[[], None]] = [partial(crowds[0].come, user) for user in crowd[:some]]
        actions += [partial(crowds[n % 2].stop, f"user{n + some}") for n in range(some, 2 * some)]
        actions += [crowds[2].kill, programs[0].stop]
        if pages:
            actions += [partial(pages[0].stop, "page0a"), pages[-1].kill]
        what_users_do = at_random_times(draw, len(faults or FAULTS) * pause * 1.5, actions)
        drill = Drill(cluster, result, draw)
        for fault in faults:
            time.sleep(draw.uniform(0.5, 1.5) * pause)
            show(fault)
            drill.cause(fault)
        what_users_do.join()

        show("no more faults")
        quiet = max((fault.ended for fault in result.faults), default=0.0) + GONE_SECONDS + grace + LEAVE_SECONDS
        latest = max(quiet, *map(result.deadline, result.stops.values()))
        while time.time() < quiet or (time.time() < latest and any(s.members != result.there for s in result.seen)):
            time.sleep(0.2)
        for end in ends:
            end()
        have = [each for page in pages for each in page.members()] + [program.members for program in programs[1:]]
        result.others = [f"a client has others: {sorted(them ^ result.there)}" for them in have if them != result.there]
    return result


def report(result: Result) -> str:
    """Figures in one line."""
    wrong = result.wrong()
    kinds = [sum(text.startswith(kind) for text in wrong) for kind in ("false", "late")]
    calm, others = result.leave_times()
    away = sum(until - since >= result.grace for _, since, until in result.aways)
    return (
        f"{len(result.members)} members, {len(result.stops)} stopped, {len(result.seen[0].after)} messages, "
        f"{[seen.lists for seen in result.seen]} lists compared; false {kinds[0]}, late {kinds[1]}, "
        f"other faults {len(wrong) - sum(kinds)}; left at most {max(calm, default=0):.1f} s after the grace, "
        f"{max(others, default=0):.1f} s near a fault; {away} times away for the grace"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("members", type=int, nargs="?", default=1000)
    parser.add_argument("seed", type=int, nargs="?", default=os.getpid())
    parser.add_argument("--faults", nargs="*", help="such as kill 'stop 5'; without it all, shuffled")
    options = parser.parse_args()
    started = time.monotonic()

    def show(text: str) -> None:
        sys.stdout.write(f"{time.monotonic() - started:5.0f} s  {text}\n")
        sys.stdout.flush()

    with tempfile.TemporaryDirectory() as place:
        chosen = random.Random(options.seed).sample(FAULTS, len(FAULTS)) if options.faults is None else options.faults
        outcome = run(options.members, Path(place), options.seed, show, faults=chosen)
    for each in outcome.faults:
        show(f"{each.name}: {each.ended - each.began:.1f} s")
    show(f"seed {options.seed}: {report(outcome)}")
    sys.stdout.write("".join(f"{text}\n" for text in outcome.wrong()[:40]))
    sys.exit(bool(outcome.wrong()))
