"""The drill of docs/operate/secrets.md: three keys have leaked. The page's own commands replace each of them on three
nodes with workers, while clients publish, poll and follow streams, and somebody uses the leaked ones."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Literal

from pushup.backends.tickets import Tickets
from pushup.client import Client, ClientError, Message
from tests.server.blocking_backend import WebBackend
from tests.server.document_samples import sample
from tests.server.raw_client import RawClient, get, post
from tests.server.redis_cluster import RedisCluster
from tests.server.redis_server import RedisServer
from tests.server.reloading import reloads, secret
from tests.server.server_process import Server, wait_until
from tests.tokens.evil_tokens import write

PAGE = "docs/operate/secrets.md"
ADD = sample(PAGE, 'echo "new')
REMOVE = sample(PAGE, "sed -i")
REPLACE = sample(PAGE, "cp -p ticket_key")

FILES = ("publish_keys", "token_secrets", "ticket_key")

NODES = 3
WORKERS = 2
SETTLE_SECONDS = 1.0
"""Within this long after the last node was reloaded, the old key is of no use."""

SETTINGS = f"""
workers = {WORKERS}
publish_keys_file = "publish_keys"
ticket_key_file = "ticket_key"
token_issuer = "app"
token_audience = "pushup"
token_secrets_file = "token_secrets"
authorize_url = "URL"
[[channels]]
prefix = "user:"
poll = "token"
"""


class Drill:
    """The nodes, and the files that they share."""

    def __init__(self, cluster: RedisCluster, directory: Path, url: str) -> None:
        self.cluster = cluster
        self.directory = directory
        for name in ("publish_keys", "token_secrets"):
            secret(directory / name, f"old {os.urandom(32).hex()}\n")
        secret(directory / "ticket_key", os.urandom(32).hex())
        for name in FILES:
            (directory / name).chmod(0o640)
            if os.geteuid() == 0:
                os.chown(directory / name, 0, 1)  # shared with a service through its group, as a package has it
        config = secret(
            directory / "pushup.toml", SETTINGS.replace("URL", url).replace('_file = "', f'_file = "{directory}/')
        )
        for _ in range(NODES):
            cluster.start(environment={"PUSHUP_CONFIG": str(config)})

    def read(self, name: str) -> str:
        """The newest key in a file: the last word."""
        return (self.directory / name).read_text().split()[-1]

    def token(self, key: str = "") -> str:
        now = int(time.time())
        rights = {"poll": ["user:7", "user:8"]}
        claims = {"iss": "app", "aud": "pushup", "sub": "7", "iat": now, "exp": now + 600, "pushup": rights}
        return write({"alg": "HS256"}, claims, key or self.read("token_secrets"))

    def _rights(self) -> list[tuple[int, int, int]]:
        """Who may read the files."""
        found = [(self.directory / name).stat() for name in FILES]
        return [(status.st_mode, status.st_uid, status.st_gid) for status in found]

    def run(self, block: str, file: str = "publish_keys") -> float:
        """Run a block of the page in the nodes' directory, and its last line for each node; returns when they knew.

        Whoever could read the files still can.
        """
        *lines, hang_up = block.replace("publish_keys", file).strip().splitlines()
        before = {node: len(reloads(node)) for node in self.cluster.nodes}
        rights = self._rights()
        subprocess.run(["bash", "-euc", "\n".join(lines)], cwd=self.directory, check=True)
        assert self._rights() == rights
        for node in self.cluster.nodes:
            environment = {**os.environ, "PID": str(node.process.pid)}
            subprocess.run(["bash", "-euc", hang_up], env=environment, check=True)
        for node, count in before.items():
            wait_until(lambda n=node, c=count: len(reloads(n)) > c, "a reload")  # type: ignore[misc]
        return time.monotonic()


class Load:
    """Publishers and followers that go on until `stop`; they use the keys that are newest."""

    def __init__(self, drill: Drill) -> None:
        self.key = drill.read("publish_keys")
        self.published = 0
        self.received: list[list[Any]] = []
        self.errors: list[BaseException] = []
        self._drill = drill
        self._stop = threading.Event()
        self._clients: list[Client] = []
        self._threads = [threading.Thread(target=self._publish, daemon=True)]
        for node in drill.cluster.nodes:
            for channel in ("user:7", "asked:7"):
                self._follow(node, "poll", channel)
                self._follow(node, "stream", channel)
        for thread in self._threads:
            thread.start()

    def _follow(self, node: Server, transport: Literal["stream", "poll"], channel: str) -> None:
        token = self._drill.token if channel == "user:7" else None
        client = Client(node.url, token=token, retry_seconds=(0.05, 0.2))
        cursor = self._drill.cluster.callers[0].cursor()
        received: list[Any] = []
        self._clients.append(client)
        self.received.append(received)

        def run() -> None:
            def note(error: ClientError, pause: float) -> None:
                if error.status not in (0, 503):
                    self.errors.append(error)

            try:
                items = client.follow(channel, cursor, transport=transport, on_trouble=note)
                received.extend(item.data if isinstance(item, Message) else "gap" for item in items)
            except BaseException as error:
                self.errors.append(error)

        self._threads.append(threading.Thread(target=run, daemon=True))

    def _publish(self) -> None:
        """Some 50 a second, each at the next node; none may be refused."""
        with ExitStack() as stack:
            clients: dict[str, list[Client]] = {}
            while not self._stop.wait(0.02):
                if self.key not in clients:
                    nodes = self._drill.cluster.nodes
                    clients[self.key] = [stack.enter_context(Client(node.url, self.key)) for node in nodes]
                try:
                    to = clients[self.key][self.published % NODES]
                    to.publish(["user:7", "asked:7"], self.published, patience=5)
                except ClientError as error:
                    self.errors.append(error)
                self.published += 1

    def stop(self) -> None:
        """End it, when everybody has received everything."""
        self._stop.set()
        self._threads[0].join()
        with suppress(AssertionError):  # what is missing is shown by the test
            wait_until(lambda: all(len(each) >= self.published for each in self.received), "the last message")
        for client in self._clients:
            client.stop()
        for thread in self._threads:
            thread.join(5)


class Thief:
    """Holds polls and streams on a leaked key at each node, and tries it again and again."""

    def __init__(self, drill: Drill, stack: ExitStack, channel: str, *headers: str) -> None:
        self._nodes = drill.cluster.nodes
        self._stack = stack
        self._channel = channel
        self._headers = headers
        self._held = [(self.send(node, "poll"), self.send(node, "events")) for node in self._nodes for _ in range(5)]
        for _, stream in self._held:
            assert stream.read_response().status == 200

    def send(self, node: Server, call: str) -> RawClient:
        client = self._stack.enter_context(node.connect())
        client.send(get(f"/v1/{call}?channel={self._channel}&cursor=now", *self._headers))
        return client

    def check_ended(self, since: float) -> None:
        """Whether all ended within a second."""
        for poll, stream in self._held:
            assert poll.read_response().status == 401
            assert b"event: error" in stream.read_until(b"\r\n0\r\n\r\n")
        assert time.monotonic() - since < SETTLE_SECONDS


def statuses(drill: Drill, call: Callable[[RawClient], None]) -> set[int]:
    """How a request is answered by all workers of all nodes: so many connections are hardly ever all of one."""
    found = set()
    for node in drill.cluster.nodes:
        for _ in range(15):
            with node.connect() as client:
                call(client)
                found.add(client.read_response().status)
    return found


def test_the_drill(redis: RedisServer, tmp_path: Path, backend: WebBackend) -> None:
    """Each leaked key is of no use a second after the last reload; nobody else notices anything."""
    redis.start()
    with ExitStack() as stack:
        drill = Drill(RedisCluster(redis, tmp_path, stack), tmp_path, backend.url)
        load = Load(drill)
        wait_until(lambda: load.published > 20, "some messages")

        # A publish key.
        leaked = drill.read("publish_keys")
        drill.run(ADD)
        load.key = drill.read("publish_keys")
        assert load.key != leaked
        time.sleep(0.2)  # a publication on the old one may be under way
        drill.run(REMOVE)

        def publish(client: RawClient) -> None:
            body = {"channels": ["user:7"], "data": "stolen"}
            client.send(post("/v1/messages", body, f"Authorization: Bearer {leaked}"))

        assert statuses(drill, publish) == {403}

        # The secret of tokens: whoever has it writes a new one when the last is refused.
        leaked = drill.read("token_secrets")
        drill.run(ADD, "token_secrets")
        thief = Thief(drill, stack, "user:8", f"Authorization: Bearer {drill.token(leaked)}")
        since = drill.run(REMOVE, "token_secrets")
        thief.check_ended(since)
        request = get("/v1/poll?channel=user:8&timeout=0", f"Authorization: Bearer {drill.token(leaked)}")
        assert statuses(drill, lambda client: client.send(request)) == {401}

        # The key of tickets.
        def forge(key: str) -> str:
            now = int(time.time())
            return Tickets(key.encode()).seal(["asked:8"], issued_at=now, expires=now + 600, subject="7")

        leaked = drill.read("ticket_key")
        thief = Thief(drill, stack, "asked:8", f"PushUp-Ticket: {forge(leaked)}")
        since = drill.run(REPLACE)
        thief.check_ended(since)
        asked = backend.count
        request = get("/v1/poll?channel=asked:8&timeout=0", f"PushUp-Ticket: {forge(leaked)}")
        assert statuses(drill, lambda client: client.send(request)) == {200}
        assert backend.count >= asked + 15 * NODES  # as if there were no ticket

        load.stop()
        assert load.errors == []
        assert load.published > 50
        assert [each == list(range(load.published)) for each in load.received] == [True] * len(load.received)
        for node in drill.cluster.nodes:
            log = "\n".join(node.log_lines())
            assert not [
                line for line in (tmp_path / "publish_keys").read_text().split() if len(line) > 8 and line in log
            ]
