"""Answers whose producer, worker or server is killed at random (SIGKILL) while they are written.

python -m tests.server.killed_answers 100 [producer] [worker] [server] [--page]

Each answer has 300 tokens. Its producer begins again until it has ended, and goes on where it was. The reader knows
only what docs/guide/answers.md says of the messages. With `--page`, so does a page in Chromium, by `readAnswer`.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from pushup.client import Client, Closed, Gap
from tests.browser.answer_site import Site, build, serving, workshop
from tests.browser.answer_tabs import CUT_OFF, Tabs
from tests.server.chromium import chromium
from tests.server.redis_server import free_port
from tests.server.server_process import Server, clean_environment, running

WHOLE = "".join(f"{number:04} " for number in range(300))

VICTIMS = ("producer", "worker", "server")

LIMIT_SECONDS = 300.0
"""A producer tries a piece for 60 s, and servers that are killed all the time take several of its pieces as long."""

KILLS = 2
"""For each answer, unless it ends before."""

ATTEMPTS = 4
"""Answers for each that is to be hit, at most: some have ended before their kill."""

_PRODUCER = """
import sys, time
from pushup.client import Client
tokens = [f"{number:04} " for number in range(300)]
with Client(sys.argv[1], patience=20) as client:
    if client.read_answer(sys.argv[2]).end == "done":
        sys.exit()  # the one before was killed when it had ended the answer
with Client(sys.argv[1], patience=20) as client, client.answer(sys.argv[2], resume=True, coalesce=0.002) as answer:
    for token in tokens[len(answer.text) // 5:]:
        answer.write(token)
        time.sleep(0.004)
"""


class Outcome(NamedTuple):
    """Of many answers. `read`, `shown`: how many a reader and a page had `whole`, the others by what was wrong.
    `kills`: how many hit an answer that was being written.
    """

    read: Counter[str]
    shown: Counter[str]
    kills: int


class Reader:
    """Of one answer: its `text` so far, and `found`: `whole`, or what is wrong; empty until it has ended."""

    def __init__(self, channel: str) -> None:
        self.channel = channel
        self.text = ""
        self.found = ""
        self.kills = 0
        """How many came while it was being written: some of it had been read, and not its end."""

    def is_hit(self) -> None:
        """Note a kill."""
        self.kills += bool(self.text) and not self.found

    def read(self, client: Client) -> None:
        """Read to the end."""
        end = self._end(client)
        self.found = end if end != "done" else "whole" if self.text == WHOLE else f"the text is {self.text!r}"

    def _end(self, client: Client) -> str:
        expected = 0
        for item in client.follow(self.channel):
            if isinstance(item, Gap | Closed):
                return f"{item}"
            if item.event != "answer" or "piece" not in item.data:
                continue
            if item.data["piece"] != expected:
                return f"piece {item.data['piece']} instead of {expected}"
            expected += 1
            self.text += "".join(item.data["parts"])
            if "end" in item.data:
                return "done" if item.data["end"] == "done" else f"{item.data}"
        return "the reader was stopped"


def produce(url: str, reader: Reader, kill: Callable[[subprocess.Popen[bytes]], None]) -> None:
    """Have an answer written and read to its end. Once it has begun, `kill` is called with its producer, twice."""
    kills = KILLS
    with Client(url) as client:
        thread = threading.Thread(target=reader.read, args=[client], daemon=True)
        thread.start()
        while True:
            producer = subprocess.Popen([sys.executable, "-c", _PRODUCER, url, reader.channel], env=clean_environment())
            while kills and producer.poll() is None:
                if reader.text:
                    kills -= 1
                    kill(producer)
                time.sleep(0.01)
            if producer.wait(LIMIT_SECONDS) == 0:
                break
        thread.join(LIMIT_SECONDS)
        client.stop()
    reader.found = reader.found or "nothing ended"


@contextmanager
def pages(folder: Path, address: str) -> Iterator[Callable[[str], Tabs]]:
    """Gives a function that opens the page of docs/guide/answers.md with the answer of a channel, in one browser."""
    shop = folder / "shop"
    shop.mkdir()
    with (
        serving(Site({"plain": build(workshop(shop), "plain", f"http://{address}")})) as site,
        chromium() as browser,
    ):

        def show(channel: str) -> Tabs:
            tabs = Tabs(browser, site.url)
            tabs.open(f"plain?{channel}")
            return tabs

        yield show


def shown(tabs: Tabs) -> str:
    """What a page has in the end: `whole`, `cut off`, or what is wrong."""
    end, text = tabs.ended(0, LIMIT_SECONDS), tabs.text(0)
    if end == "done" and text == WHOLE:
        return "whole"
    return "cut off" if end == CUT_OFF and WHOLE.startswith(text) else f"{end}: {text!r}"


def results(victim: str, answers: int, folder: Path, *, page: bool = False, seed: int = 1) -> Outcome:
    """Have answers written until so many of them were hit by a kill at least once; the others count, too."""
    draw, address = random.Random(seed), f"127.0.0.1:{free_port()}"
    flags = ("--listen", address, "--set", "cors_origins=*", "--broadcast", f"journal:{folder / 'journal'}")
    workers = ("--workers", "2") if victim == "worker" else ()
    read, on_pages, kills, hit = Counter[str](), Counter[str](), 0, 0
    with ExitStack() as stack:

        def start() -> Server:
            return stack.enter_context(running(folder / "server.log", (*flags, *workers)))

        server = start()
        show = stack.enter_context(pages(folder, address)) if page else None

        def kill(producer: subprocess.Popen[bytes]) -> None:
            nonlocal server
            time.sleep(draw.random())
            if producer.poll() is not None:
                return
            reader.is_hit()
            if victim == "producer":
                producer.kill()
                producer.wait()
            elif victim == "worker":
                draw.choice(server.process.children()).kill()
            else:
                server.end(signal.SIGKILL)
                server = start()

        for number in range(answers * ATTEMPTS):
            reader = Reader(f"answer:{number}")
            tabs = show(reader.channel) if show else None
            produce(f"http://{address}", reader, kill)
            read[reader.found] += 1
            if tabs:
                on_pages[shown(tabs)] += 1
            kills += reader.kills
            hit += reader.kills > 0
            if hit == answers:
                break
    assert hit == answers, f"of {read.total()} answers, only {hit} were hit by a kill while they were written"
    return Outcome(read, on_pages, kills)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("answers", type=int)
    parser.add_argument("victims", nargs="*", default=VICTIMS)
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    for each in arguments.victims:
        with tempfile.TemporaryDirectory() as place:
            began = time.monotonic()
            outcome = results(each, arguments.answers, Path(place), page=arguments.page)
            sys.stdout.write(
                f"{each}: {outcome.kills} kills while an answer was written; read: {dict(outcome.read)}; "
                f"shown: {dict(outcome.shown)}; {time.monotonic() - began:.0f} s\n"
            )
            sys.stdout.flush()
