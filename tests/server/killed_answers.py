"""Answers whose producer, worker or server is killed at random (SIGKILL): `python -m tests.server.killed_answers 100`.

Each answer has 300 tokens. Its producer begins again until it has ended, and goes on where it was. The reader knows
only what docs/guide/answers.md says of the messages.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from pushup.client import Client, Closed, Gap
from tests.server.server_process import clean_environment, running

TOKENS = [f"{number:04} " for number in range(300)]

VICTIMS = ("producer", "worker", "server")

LIMIT_SECONDS = 300.0
"""A producer tries a piece for 60 s, and servers that are killed all the time take several of its pieces as long."""

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


def read(client: Client, channel: str) -> str:
    """The whole answer; or why it is none."""
    text, expected = "", 0
    for item in client.follow(channel):
        if isinstance(item, Gap | Closed):
            return f"{item}"
        if item.event != "answer" or "piece" not in item.data:
            continue
        if item.data["piece"] != expected:
            return f"piece {item.data['piece']} instead of {expected}"
        expected += 1
        text += "".join(item.data["parts"])
        if "end" in item.data:
            return text if item.data["end"] == "done" else f"{item.data}"
    return "the reader was stopped"


def killed(
    url: str, victims: psutil.Process | None, channel: str, draw: random.Random, kills: int, landed: list[int]
) -> str:
    """What a reader got of one answer, whose producer, or a child of `victims`, is killed so many times.

    `landed` gets the process id of each that was killed while a producer ran.
    """
    found: list[str] = []
    with Client(url) as client:
        reader = threading.Thread(target=lambda: found.append(read(client, channel)), daemon=True)
        reader.start()
        while True:
            producer = subprocess.Popen([sys.executable, "-c", _PRODUCER, url, channel], env=clean_environment())
            if kills:
                kills -= 1
                time.sleep(0.2 + draw.random())
                targets = [psutil.Process(producer.pid)] if victims is None else victims.children()
                if producer.poll() is None and targets:
                    target = draw.choice(targets)
                    target.kill()
                    landed.append(target.pid)
            if producer.wait(LIMIT_SECONDS) == 0:
                break
        reader.join(LIMIT_SECONDS)
        client.stop()
    return found[0] if found else "nothing ended"


@contextmanager
def _server_that_dies(folder: Path, draw: random.Random, landed: list[int]) -> Iterator[str]:
    """A server with a journal, killed again and again and started at once."""
    address = f"unix:{folder / 'pushup.sock'}"
    command = ("--listen", address, "--broadcast", f"journal:{folder / 'journal'}")
    over = threading.Event()

    def keep_alive() -> None:
        while not over.is_set():
            with running(folder / "server.log", command) as server:
                if not over.wait(1.0 + 2 * draw.random()):
                    landed.append(server.process.pid)
                server.process.kill()
                server.wait()

    thread = threading.Thread(target=keep_alive)
    thread.start()
    try:
        yield address
    finally:
        over.set()
        thread.join()


def results(victim: str, answers: int, folder: Path, seed: int = 1) -> Counter[str]:
    """How many answers of so many were read whole; the others by what was wrong."""
    draw, found, landed = random.Random(seed), Counter[str](), list[int]()

    def note(url: str, process: psutil.Process | None, kills: int) -> None:
        for number in range(answers):
            got = killed(url, process, f"answer:{number}", draw, kills, landed)
            found["whole" if got == "".join(TOKENS) else got] += 1

    if victim == "server":
        with _server_that_dies(folder, draw, landed) as url:
            note(url, None, 0)
    else:
        workers = ("--workers", "2") if victim == "worker" else ()
        with running(folder / "server.log", workers) as server:
            note(server.url, server.process if workers else None, 2)
    assert 2 * len(landed) >= answers, f"only {len(landed)} kills hit {answers} answers"
    return found


if __name__ == "__main__":
    for each in VICTIMS:
        with tempfile.TemporaryDirectory() as place:
            began = time.monotonic()
            outcome = dict(results(each, int(sys.argv[1]), Path(place)))
            sys.stdout.write(f"{each}: {outcome}, {time.monotonic() - began:.0f} s\n")
