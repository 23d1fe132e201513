"""Runs a command that replaces the nodes of a cluster, while clients publish and poll: they must not notice.

    python deploy/chart/upgrade_under_load.py --url http://10.0.0.5:30080 --key-file key -- helm upgrade ... --wait

Each message must reach each subscriber once and in order, without a gap. No call may fail; a client may repeat it on a
new connection, as HTTP clients do when a server has closed an idle one. `.github/workflows/chart.yml` runs this against
the chart. It needs nothing but `pushup.client`, of a checkout in PYTHONPATH, and h11.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from pushup.client import Client, ClientError, Gap, Message

BUSY, QUIET = "upgrade-busy", "upgrade-quiet"
"""One channel has many messages. The other has none until the end, so its polls are held through the whole upgrade."""

PAUSE_SECONDS = 0.02
"""Between two publications."""

BEFORE_SECONDS = AFTER_SECONDS = 3.0
"""How long the clients work before the command starts, and after it has ended."""

LAST_SECONDS = 60.0
"""How long the last messages may take; it ends the check if some are lost."""


class Noticed:
    """What clients noticed, and how often; each is printed when it happens first."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, what: str) -> None:
        with self._lock:
            if not self.counts[what]:
                print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)
            self.counts[what] += 1


class Subscriber(threading.Thread):
    """Follows a channel from a cursor on."""

    def __init__(self, client: Client, channel: str, cursor: str, noticed: Noticed) -> None:
        super().__init__(name=f"subscriber of {channel}", daemon=True)
        self.client = client
        self.channel = channel
        self.data: list[Any] = []
        self._cursor = cursor
        self._noticed = noticed

    def run(self) -> None:
        try:
            for item in self.client.follow(self.channel, self._cursor, transport="poll", on_trouble=self._on_trouble):
                if isinstance(item, Message):
                    self.data.append(item.data)
                elif isinstance(item, Gap):
                    self._noticed.add(f"{self.name}: a gap, {item.reason}")
        except ClientError as error:
            self._on_trouble(error, 0.0)

    def _on_trouble(self, error: ClientError, _pause: float) -> None:
        self._noticed.add(f"{self.name}: {error}")

    def check(self, expected: list[Any]) -> None:
        """At the end, note what is missing, repeated or in another order."""
        if self.data != expected:
            missing = [data for data in expected if data not in self.data]
            self._noticed.add(f"{self.name}: {len(self.data)} messages, not {len(expected)}; without {missing[:5]}")


class Publisher(threading.Thread):
    """Publishes numbers, each until it is acknowledged, so that one that fails is an error and no loss."""

    def __init__(self, client: Client, noticed: Noticed) -> None:
        super().__init__(name="publisher", daemon=True)
        self.count = 0
        self.is_over = threading.Event()
        self._client = client
        self._noticed = noticed
        self._run = f"{time.time():.0f}"

    def run(self) -> None:
        while not self.is_over.wait(PAUSE_SECONDS):
            try:
                self._client.publish([BUSY], self.count, idempotency_key=f"{self._run}-{self.count}")
            except ClientError as error:
                self._noticed.add(f"{self.name}: {error}")
            else:
                self.count += 1


def run(url: str, key: str | None, subscribers: int, command: list[str]) -> Counter[str]:
    """Run the command under load; return what clients noticed. Raises: ClientError if it cannot begin."""
    noticed = Noticed()
    with Client(url, key) as client:
        cursor = client.cursor()
        publisher = Publisher(Client(url, key, patience=0), noticed)
        followers = [
            Subscriber(Client(url), channel, cursor, noticed) for channel in (BUSY, QUIET) for _ in range(subscribers)
        ]
        for thread in [*followers, publisher]:
            thread.start()
        time.sleep(BEFORE_SECONDS)
        print("the clients are at work", flush=True)
        started = time.monotonic()
        code = subprocess.run(command, check=False).returncode
        seconds = time.monotonic() - started
        if code != 0:
            noticed.add(f"the command failed with {code}")
        time.sleep(AFTER_SECONDS)
        publisher.is_over.set()
        publisher.join()
        client.publish([QUIET], "the end", patience=10)
    expected: dict[str, list[Any]] = {BUSY: list(range(publisher.count)), QUIET: ["the end"]}
    deadline = time.monotonic() + LAST_SECONDS
    while time.monotonic() < deadline and any(len(f.data) < len(expected[f.channel]) for f in followers):
        time.sleep(0.1)
    for follower in followers:
        follower.client.stop()
        follower.check(expected[follower.channel])
    print(f"{publisher.count} messages in {seconds:.0f} s, {subscribers} subscribers, and {subscribers} held polls")
    return noticed.counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="the service, as clients reach it")
    parser.add_argument("--key-file", type=Path, help="file that contains a publish key")
    parser.add_argument("--subscribers", type=int, default=20, help="of the busy channel, and of the quiet one")
    parser.add_argument("command", nargs="+", help="what replaces the nodes, and waits until that is done")
    arguments = parser.parse_args()
    key = arguments.key_file and arguments.key_file.read_text().strip()
    noticed = run(arguments.url, key, arguments.subscribers, arguments.command)
    for what, count in noticed.most_common():
        print(f"{count} x {what}")
    print("the clients have noticed it" if noticed else "no client noticed anything")
    return 1 if noticed else 0


if __name__ == "__main__":
    sys.exit(main())
