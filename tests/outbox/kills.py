"""`python -m tests.outbox.kills 300 --page`: kill the application, relays, PushUp and PostgreSQL at random, under load.

Then every committed message must have reached each follower once, and in the order that docs/guide/outbox.md promises;
none that was rolled back. PushUp has a journal, so no gap may be reported. `--nodes 3`: three nodes, and a Redis that
syncs each write and is killed as well. `--page`: a page in Chromium follows, too, by pushup.js. `--lossy`: PushUp keeps
everything in memory, and loses it with each kill. Then whatever a follower lacks, or has twice, must have a gap beside
it that the follower was told.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.request import urlopen

from selenium import webdriver
from sqlalchemy import Engine, create_engine, select, text
from sqlalchemy.pool import NullPool

from pushup.client import Client, Gap, Message
from pushup.outbox.sqlalchemy import metadata
from tests.outbox.application import facts, truth
from tests.outbox.postgres_server import Postgres, postgres
from tests.server.chromium import chromium
from tests.server.redis_server import RedisServer, free_port
from tests.server.server_process import wait_until

DRAIN_SECONDS = 60.0

PAGE = """
window.seen = [];
const { PushUp } = await import("/v1/pushup.js");
new PushUp({ url: location.origin }).subscribe(["all"], {
  cursor: "earliest",
  onMessage: ({ data }) => seen.push(data),
  onGap: () => seen.push(null),
});
"""


Seen = list[dict[str, Any] | None]
"""The messages that a follower saw, in order; None is a gap that it was told."""


@dataclass
class Result:
    """What was committed, and what each follower saw."""

    committed: set[str]
    followers: dict[str, Seen]
    kills: Counter[str]
    renamed: int

    @property
    def gaps(self) -> int:
        return sum(seen.count(None) for seen in self.followers.values())

    def faults(self) -> list[str]:
        return [fault for name, seen in self.followers.items() for fault in self._faults(name, seen)]

    def _faults(self, follower: str, seen: Seen) -> list[str]:
        """What no gap explains: a part between two gaps has to be in order, with nothing twice and nothing missing."""
        wrong = []
        places: dict[str, int] = {}  # where each was seen first
        parts: dict[str, int] = {}  # and in which part last
        last: dict[str, int] = {}
        part = 0
        for place, message in enumerate(seen):
            if message is None:
                part += 1
                last.clear()
                continue
            name = message["name"]
            writer, _, number = name.rpartition("-")
            if last.get(writer, -1) >= int(number):
                wrong.append(f"{name} after a later one of its writer")
            last[writer] = int(number)
            if parts.get(name) == part:
                wrong.append(f"{name} twice")
            places.setdefault(name, place)
            parts[name] = part
        afters = {message["name"]: message["after"] for message in seen if message is not None}
        wrong += [f"{name} before {after}" for name, after in afters.items() if places.get(after, -1) > places[name]]
        wrong += [
            f"{name} is missing" for name in self.committed - places.keys() if not _is_beside_gap(name, parts, part)
        ]
        wrong += [f"{name} was not committed" for name in places.keys() - self.committed]
        return [f"{follower}: {text}" for text in wrong]


def _is_beside_gap(name: str, parts: Mapping[str, int], last: int) -> bool:
    """Whether a gap lies between the messages of this writer around the missing one; `last`: the last part."""
    writer, _, number = name.rpartition("-")
    numbers = {int(other.rpartition("-")[2]): part for other, part in parts.items() if other.startswith(writer + "-")}
    before = max((n for n in numbers if n < int(number)), default=None)
    after = min((n for n in numbers if n > int(number)), default=None)
    return (0 if before is None else numbers[before]) < (last if after is None else numbers[after])


@dataclass
class Process:
    """A program that is killed and started again."""

    command: Callable[[], list[str]]
    log: Path
    process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()


def run(
    kills: int,
    folder: Path,
    seed: int,
    show: Callable[[str], object] = lambda _: None,
    *,
    nodes: int = 1,
    with_page: bool = False,
    is_lossy: bool = False,
) -> Result:
    """Kill so many processes, one each half to one and a half seconds."""
    rng = random.Random(seed)
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(nodes)]
    urls = [f"http://{address}" for address in addresses]
    applications = iter(range(1_000_000))
    python = [sys.executable, "-m"]
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        database = stack.enter_context(postgres())
        engine = create_engine(database.sqlalchemy_url, poolclass=NullPool)
        metadata.create_all(engine)
        facts.create_all(engine)
        relay = [*python, "pushup.outbox", database.url, *urls]
        writer = [*python, "tests.outbox.application", database.sqlalchemy_url]
        broadcast = "memory:" if is_lossy else f"journal:{folder / 'pushup.db'}"
        processes: dict[str, Process | Postgres | RedisServer] = {"postgres": database}
        if nodes > 1:
            redis = RedisServer(folder / "redis", flags={"appendonly": "yes", "appendfsync": "always"})
            redis.start()
            stack.callback(redis.kill)
            broadcast, processes["redis"] = redis.url, redis
        settings: dict[str, object] = {"retention_seconds": 3600, "retention_bytes": 500_000_000}
        settings |= {"retention_messages": 100_000, "redis_durable": "true"}
        serve = [*python, "pushup", "serve", "--broadcast", broadcast]
        serve += [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        started = {
            **{
                f"pushup {number}": Process(partial(_node, serve, address, folder, number), folder / "pushup.log")
                for number, address in enumerate(addresses)
            },
            "relay 1": Process(lambda: relay, folder / "relay.log"),
            "relay 2": Process(lambda: relay, folder / "relay.log"),
            "application": Process(lambda: [*writer, f"app{next(applications)}"], folder / "application.log"),
        }
        for process in started.values():
            process.start()
            stack.callback(process.kill)
        processes |= started
        followers: dict[str, Seen] = {"stream": [], "poll": []}
        seen = 0  # when the application was started
        for transport in followers:
            client = Client(urls, retry_seconds=(0.1, 0.5))
            stack.callback(client.close)
            thread = threading.Thread(target=_follow, args=(client, transport, followers[transport]))
            thread.start()
            stack.callback(thread.join)
            stack.callback(client.stop)
        page = _open_page(stack.enter_context(chromium()), urls[0]) if with_page else None
        for number in range(kills):
            time.sleep(rng.uniform(0.5, 1.5))
            name = rng.choice(list(processes))
            if name == "application":  # on a busy machine it takes seconds to begin
                _wait_for(followers, seen + 1)
            counts[name] += 1
            show(f"{number + 1}: kill {name}; {len(followers['stream'])} messages")
            processes[name].kill()
            time.sleep(rng.choice([0.0, 0.0, 0.5]))
            processes[name].start()
            if name == "application":
                seen = len(followers["stream"])
        _wait_for(followers, seen + 1)
        processes["application"].kill()
        time.sleep(1.0)  # PostgreSQL may still be committing what it sent
        with engine.connect() as connection:
            committed = set(connection.scalars(select(truth.c.name)))
        if is_lossy:
            _wait(lambda: _is_empty(engine))
        else:
            _wait_for(followers, len(committed))
        if page is not None:
            _wait(lambda: page.execute_script("return seen.length") >= len(followers["stream"]))
        time.sleep(1.0)  # what comes twice, comes now
        if page is not None:
            followers["page"] = list(page.execute_script("return seen"))
    renamed = (folder / "relay.log").read_text().count("restored or copied")
    return Result(committed, followers, counts, renamed)


def _wait_for(followers: Mapping[str, Seen], count: int) -> None:
    """Wait, but not for ever, until each has seen so many messages."""
    _wait(lambda: all(len(seen) >= count for seen in followers.values()))


def _is_empty(engine: Engine) -> bool:
    """Whether everything has been published."""
    with engine.connect() as connection:
        return not connection.scalar(text("SELECT count(*) FROM pushup_outbox"))


def _wait(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < end and not condition():
        time.sleep(0.1)


def _open_page(browser: webdriver.Chrome, url: str) -> webdriver.Chrome:
    """A page that follows by pushup.js. Its module is loaded before anything is killed."""
    wait_until(lambda: _answers(url), "PushUp to answer")
    browser.get(f"{url}/healthz")
    browser.execute_async_script(f"(async () => {{{PAGE}}})().then(arguments[0])")
    return browser


def _answers(url: str) -> bool:
    try:
        return bool(urlopen(f"{url}/healthz", timeout=1))
    except OSError:
        return False


def _node(serve: list[str], address: str, folder: Path, number: int) -> list[str]:
    return [*serve, "--listen", address, "--set", f"state_directory={folder / f'node{number}'}"]


def _follow(client: Client, transport: Literal["stream", "poll"], seen: Seen) -> None:
    for item in client.follow("all", transport=transport):
        match item:
            case Message():
                seen.append(item.data)
            case Gap():
                seen.append(None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("kills", type=int)
    parser.add_argument("seed", type=int, nargs="?", default=os.getpid())
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--lossy", action="store_true")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        result = run(
            options.kills,
            Path(place),
            options.seed,
            partial(print, flush=True),
            nodes=options.nodes,
            with_page=options.page,
            is_lossy=options.lossy,
        )
        faults = result.faults()
        print(f"seed {options.seed}, {time.monotonic() - began:.0f} s, {dict(result.kills)}")
        print(f"{len(result.committed)} committed messages, {result.gaps} gaps, {result.renamed} new names")
        print(f"{len(faults)} faults", *faults[:20], sep="\n")
        if faults:
            print((Path(place) / "relay.log").read_text()[-3000:])
        sys.exit(bool(faults or result.renamed or (result.gaps and not options.lossy)))
