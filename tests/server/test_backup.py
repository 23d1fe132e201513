"""`pushup backup`, `verify` and `restore`, with servers that go on, are killed, or have older cursors to answer.

What docs/operate says about it is run as it stands there, also for Redis.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from pushup.broadcast.journal_copy import verify
from pushup.broadcast.progress_mark import mark_path
from tests.server.caller import Caller, gaps_of
from tests.server.command_line import error_of, run
from tests.server.conftest import Serve
from tests.server.document_samples import sample
from tests.server.raw_client import get
from tests.server.redis_cluster import RedisCluster, cluster_at
from tests.server.redis_server import RedisServer
from tests.server.server_process import Server, clean_environment, wait_until

USUAL, BACKUP = "key-of-this-test-with-usual-rights", "key-of-this-test-to-back-up"
KEYS = f"usual {USUAL}, nightly {BACKUP} backup"

ALL = "earliest"

BACKUP_A_JOURNAL = sample("docs/operate/journal.md", "pushup backup")
RESTORE_A_JOURNAL = sample("docs/operate/journal.md", "pushup restore")
BACKUP_REDIS = sample("docs/operate/redis.md", "redis-cli bgsave")
RESTORE_REDIS = sample("docs/operate/redis.md", "systemctl stop pushup")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def journal(path: Path) -> tuple[str, ...]:
    """The flags of a server with this journal."""
    return "--broadcast", f"journal:{path}", "--set", f"publish_keys={KEYS}", "--set", "retention_messages=1000000"


def publish(caller: Caller, count: int, size: int = 0, channel: str = "a") -> list[str]:
    """Publish so many messages; returns their ids."""
    ids = []
    for first in range(0, count, 100):
        messages = [{"channels": [channel], "data": f"{n} {'x' * size}"} for n in range(first, min(first + 100, count))]
        headers = {"Authorization": f"Bearer {USUAL}"}
        ids += caller.call("POST", "/v1/messages", {"messages": messages}, headers).value["ids"]
    return ids


def back_up(server: Server, path: Path) -> Path:
    """Make a backup, which must succeed."""
    ended = run("backup", str(path), "--key", BACKUP, PUSHUP_URL=server.url)
    assert ended.returncode == 0, ended.stderr
    return path


def ids_of(caller: Caller, channel: str = "a", cursor: str = ALL) -> list[str]:
    """The ids of all messages after a cursor, without a gap."""
    ids: list[str] = []
    while True:
        answer = caller.poll(channel, cursor=cursor, timeout=0, limit=1000)
        assert answer["gaps"] == []
        ids += [message["id"] for message in answer["messages"]]
        cursor = answer["cursor"]
        if not answer["more"]:
            return ids


class Publishing:
    """A thread that publishes one message after the other."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.ids: list[str] = []
        self.longest = 0.0
        """The longest wait for an acknowledgement."""

    def _run(self) -> None:
        with self._server.caller() as caller:
            while not self._ends.is_set():
                began = time.monotonic()
                self.ids += publish(caller, 1)
                self.longest = max(self.longest, time.monotonic() - began)

    def __enter__(self) -> Publishing:
        self._thread.start()
        wait_until(lambda: len(self.ids) > 10, "publications")
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.set()
        self._thread.join()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_backup_while_messages_are_published(serve: Serve, path: Path, tmp_path: Path, workers: int) -> None:
    """Nobody waits for it. It has all that was acknowledged before it began, and nothing without what was before it."""
    with serve(*journal(path), workers=workers) as server, server.caller() as caller:
        ids = publish(caller, 6000, size=1000)
        with Publishing(server) as publishing:
            before, began = list(publishing.ids), time.monotonic()
            copy = back_up(server, tmp_path / "copy")
            during = len(publishing.ids) - len(before)
            per_second = during / (time.monotonic() - began)
        assert per_second > 20
        assert publishing.longest < 2
        everything = ids + publishing.ids
        server.end()
    found = verify(copy)
    restored = tmp_path / "restored"
    assert f"messages     {found.messages}, " in run("restore", str(copy), str(restored)).stdout
    with serve(*journal(restored)) as server, server.caller() as caller:
        kept = ids_of(caller)
        assert kept == everything[: len(kept)]
        assert len(kept) == found.messages >= len(ids) + len(before)
        assert kept[-1].rpartition("-")[2] == str(found.cursor.sequence)
        assert gaps_of(caller.poll("a", cursor=everything[-1], timeout=0)) == [("a", "lost")]
        assert ids_of(caller, cursor=ids[-1]) == kept[len(ids) :]


def unfinished(path: Path) -> list[Path]:
    """The files that backups to this path have begun to write."""
    return [*path.parent.glob(f"{path.name}.*.new")]


@contextmanager
def begun(server: Server, path: Path) -> Iterator[subprocess.Popen[str]]:
    """A backup that has begun to write, and then stands still."""
    command = [sys.executable, "-m", "pushup", "backup", str(path), "--url", server.url, "--key", BACKUP]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=clean_environment()) as process:
        try:
            wait_until(lambda: any(new.stat().st_size > 100_000 for new in unfinished(path)), "rows of the backup")
            process.send_signal(signal.SIGSTOP)
            assert not path.exists()
            yield process
        finally:
            process.kill()


def test_a_server_that_is_killed_meanwhile(serve: Serve, path: Path, tmp_path: Path) -> None:
    """The command says so and leaves no file; the server has lost nothing when it is back."""
    copy = tmp_path / "copy"
    with serve(*journal(path)) as server, server.caller() as caller:
        ids = publish(caller, 10_000, size=3000)
        with begun(server, copy) as process:
            ids += publish(caller, 100)
            server.end(signal.SIGKILL)
            process.send_signal(signal.SIGCONT)
            _, error = process.communicate(timeout=20)
            assert (process.returncode, error.startswith("Error: ")) == (1, True)
    assert sorted(each.name for each in tmp_path.glob("copy*")) == []
    with serve(*journal(path)) as server, server.caller() as caller:
        assert ids_of(caller) == ids


def test_a_backup_that_is_killed(serve: Serve, path: Path, tmp_path: Path) -> None:
    """Only one is made at a time. When it is gone, the next one is not disturbed by what it has left.

    One that is refused does no harm to that which is under way, even to the same file.
    """
    copy = tmp_path / "copy"
    with serve(*journal(path)) as server, server.caller() as caller:
        ids = publish(caller, 10_000, size=3000)
        with begun(server, copy) as process:
            refused = error_of("backup", str(copy), "--key", BACKUP, PUSHUP_URL=server.url)
            assert "another backup is under way" in refused
            assert len(unfinished(copy)) == 1
            publish(caller, 1)
            process.kill()
            process.wait()
        assert not copy.exists()
        back_up(server, copy)
        assert verify(copy).messages == len(ids) + 1
        assert "exists already" in error_of("backup", str(copy), "--key", BACKUP, PUSHUP_URL=server.url)


def test_a_backup_that_is_interrupted(serve: Serve, path: Path, tmp_path: Path) -> None:
    """By Ctrl-C, a closed terminal or its supervisor: it leaves no part of the messages behind.

    One that has all of them already may be completed.
    """
    with serve(*journal(path)) as server, server.caller() as caller:
        publish(caller, 10_000, size=3000)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with begun(server, tmp_path / "copy") as process:
                process.send_signal(number)
                process.send_signal(signal.SIGCONT)
                _, error = process.communicate(timeout=20)
            left = [file.name for file in tmp_path.glob("copy*")]
            assert (process.returncode, error, left) in ((1, "Aborted!\n", []), (0, "", ["copy"]))
            (tmp_path / "copy").unlink(missing_ok=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_restore_that_is_interrupted(serve: Serve, tmp_path: Path, number: signal.Signals) -> None:
    """As a backup: what it has written goes, unless it is complete."""
    with serve("--set", f"publish_keys={KEYS}") as server, server.caller() as caller:
        publish(caller, 1)
        copy = back_up(server, tmp_path / "copy")
    with closing(sqlite3.connect(copy)) as database, database:
        database.execute("CREATE TABLE more AS SELECT zeroblob(200000000)")
    command = [sys.executable, "-m", "pushup", "restore", str(copy), str(tmp_path / "restored")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=clean_environment()) as process:
        wait_until(lambda: bool(unfinished(tmp_path / "restored")), "it to be written")
        process.send_signal(number)
        process.wait(20)
    left = [file.name for file in tmp_path.glob("restored*")]
    assert (process.returncode, left) in ((1, []), (0, ["restored"]))


def test_a_client_that_does_not_read(serve: Serve, path: Path, tmp_path: Path) -> None:
    """The server keeps little for it, and goes on."""
    with serve(*journal(path), idle_timeout_seconds=2) as server, server.caller() as caller:
        publish(caller, 10_000, size=3000)
        with server.connect(receive_buffer_bytes=4096) as client:
            client.send(get("/v1/backup", f"Authorization: Bearer {BACKUP}"))
            before = server.memory_bytes
            publish(caller, 1000)
            assert server.memory_bytes < before + 20_000_000
            command = ("backup", str(tmp_path / "copy"), "--key", BACKUP)
            wait_until(lambda: run(*command, PUSHUP_URL=server.url).returncode == 0, "the next backup")


def test_a_damaged_backup(serve: Serve, path: Path, tmp_path: Path) -> None:
    """`verify` says what is in a good one, and exits with 1 if it is truncated, or a bit of it has flipped."""
    with serve(*journal(path)) as server, server.caller() as caller:
        publish(caller, 500)
        publish(caller, 5, channel="b")
        data = back_up(server, tmp_path / "copy").read_bytes()
        assert "in use by another server" in error_of("verify", str(path))
    said = run("verify", str(tmp_path / "copy")).stdout.splitlines()
    assert said[0] == f"{tmp_path / 'copy'} is good"
    assert said[1].startswith("  messages     505, from 20")
    assert said[2] == "  channels     2"
    assert said[4].startswith("  digest       matches")
    (tmp_path / "short").write_bytes(data[: len(data) // 2])
    place = data.index(b'"250 ') + 2
    (tmp_path / "flipped").write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    place = data.index(b'"250 ')
    (tmp_path / "broken").write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    for name, told in (("short", "short is damaged"), ("flipped", "digest"), ("broken", "row b'messages/251'")):
        assert told in error_of("verify", str(tmp_path / name))
        assert "damaged" in error_of("restore", str(tmp_path / name), str(tmp_path / "restored"))
    assert not (tmp_path / "restored").exists()


def test_looking_changes_nothing(serve: Serve, path: Path, tmp_path: Path) -> None:
    """What a killed server has left beside its journal, its last messages, is read and stays there.

    Beside another journal it does that no harm which lasts.
    """
    with serve(*journal(path)) as server, server.caller() as caller:
        publish(caller, 10)
        copy = back_up(server, tmp_path / "copy")
        publish(caller, 10)
        server.signal(signal.SIGKILL)
        server.wait()
    wal = path.with_name("journal-wal")
    before = path.read_bytes(), wal.read_bytes()
    assert "  messages     20, " in run("verify", str(path)).stdout
    assert "  messages     20, " in run("restore", str(path), str(tmp_path / "restored")).stdout
    assert (path.read_bytes(), wal.read_bytes()) == before
    wal.rename(tmp_path / "copy-wal")
    run("verify", str(copy))
    (tmp_path / "copy-wal").unlink()
    assert "  messages     10, " in run("verify", str(copy)).stdout
    wal.touch()
    path.write_bytes(b"x" * 5000)
    assert error_of("verify", str(path)).startswith(f"Error: {path} is not a journal")


def shell(tmp_path: Path, lines: str, places: dict[str, str]) -> str:
    """Run lines of a page, at these places instead of its own; returns what they print."""
    programs = tmp_path / "bin"
    if not programs.exists():
        programs.mkdir()
        (programs / "pushup").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m pushup "$@"\n')
        (programs / "pushup").chmod(0o755)
    for there, here in places.items():
        lines = lines.replace(there, here)
    environment = clean_environment({"PATH": f"{programs}:{os.environ['PATH']}"})
    command = ["sh", "-e", "-c", lines]
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_restoring_an_older_backup(serve: Serve, path: Path, tmp_path: Path) -> None:
    """Not while the server runs. Then the mark shows what is missing: every subscriber gets a gap."""
    key = tmp_path / "backup_key"
    key.write_text(BACKUP)
    key.chmod(0o600)
    with serve(*journal(path)) as server, server.caller() as caller:
        ids = publish(caller, 10)
        copy = tmp_path / "copy.db"
        places = {"http://127.0.0.1:8080": server.url, "/etc/pushup/backup_key": str(key)}
        assert "copy.db is good" in shell(tmp_path, BACKUP_A_JOURNAL, places)
        ids += publish(caller, 10)
        assert "exists already: stop its server" in error_of("restore", str(copy), str(path))
        last = int(ids[-1].rpartition("-")[2])
        wait_until(lambda: json.loads(mark_path(path).read_bytes())["sequence"] == last, "the mark, a second behind")
        server.end(signal.SIGKILL)
    assert "exists already" in error_of("restore", str(copy), str(path))
    path.unlink()
    path.with_name("journal-wal").unlink(missing_ok=True)
    if os.geteuid() == 0:
        os.chown(path.parent, 1, 1)  # the server's user
    shell(tmp_path, RESTORE_A_JOURNAL, {"/var/lib/pushup/journal.db": str(path), "/var/lib/pushup": str(path.parent)})
    assert (path.stat().st_uid, path.stat().st_gid) == (path.parent.stat().st_uid, path.parent.stat().st_gid)
    assert mark_path(path).exists()
    with serve(*journal(path)) as server, server.caller() as caller:
        server.expect_log("it is an older copy")
        for cursor in (ids[0], ids[9], ids[19]):
            assert gaps_of(caller.poll("a", cursor=cursor, timeout=0)) == [("a", "lost")]
        assert publish(caller, 1)[0] not in ids


def test_another_machine(serve: Serve, path: Path, tmp_path: Path) -> None:
    """Without a mark, everything is there, and only cursors beyond the backup get a gap. Any server can be copied."""
    with serve("--set", f"publish_keys={KEYS}") as server, server.caller() as caller:
        ids = publish(caller, 10)
        copy = back_up(server, tmp_path / "copy")
        ids += publish(caller, 10)
    run("restore", str(copy), str(path))
    with serve(*journal(path)) as server, server.caller() as caller:
        assert ids_of(caller, cursor=ids[4]) == ids[5:10]
        assert gaps_of(caller.poll("a", cursor=ids[15], timeout=0)) == [("a", "lost")]


@pytest.mark.parametrize("appendonly", ["yes", "no"])
def test_a_backup_of_redis(tmp_path: Path, appendonly: str) -> None:
    """The page's own lines. Every subscriber is told; what Redis was declared to be is so still; publishing goes on."""
    flags = {"appendonly": appendonly, "appendfsync": "always"}
    with RedisServer(tmp_path / "redis", flags=flags) as redis:
        # It takes 2 s to load, and answers meanwhile.
        others = [f"other:{n}" for n in range(100)]
        redis.ask("MSET", *(word for name in others for word in (name, os.urandom(500))))
        slow = "--key-load-delay 20000 --loading-process-events-interval-bytes 1024"
        places = {
            "/var/lib/redis": str(redis.directory),
            "install -o redis -g redis": "install",
            "runuser -u redis -- redis-server": f"redis-server --port {redis.port} --bind 127.0.0.1 {slow}",
            "redis-cli": f"redis-cli -p {redis.port}",
        }
        settings = {"state_directory": str(tmp_path / "state"), "publish_keys": KEYS}
        with cluster_at(redis, tmp_path, 1, **settings) as cluster:
            ids = publish(cluster.callers[0], 10)
            cluster.wait_until_saved()
            shell(tmp_path, BACKUP_REDIS, places)
            ids += publish(cluster.callers[0], 10)
            journal = back_up(cluster.nodes[0], tmp_path / "as-a-journal")
            assert verify(journal).messages == 20
            cluster.wait_until_saved()
            saved = publish(cluster.callers[0], 1)
            _restore(cluster, redis, tmp_path, places)
            assert redis.ask("EXISTS", *others) == len(others)
        with cluster_at(redis, tmp_path, 1, **settings) as cluster:
            for cursor in (ids[0], ids[9], saved[0]):
                wait_until(lambda: cluster.ready(0), "the node to be ready")
                assert gaps_of(cluster.callers[0].poll("a", cursor=cursor, timeout=0)) == [("a", "lost")]
            assert publish(cluster.callers[0], 1)[0] not in ids
            assert redis.ask("HGET", "{pushup}:5:state", "replicated") is None


def _restore(cluster: RedisCluster, redis: RedisServer, tmp_path: Path, places: dict[str, str]) -> None:
    """What the page says, in its order; the services are these processes."""
    stop, stop_redis, rest = RESTORE_REDIS.split("\n", 2)
    assert stop.startswith("systemctl stop pushup")
    cluster.stop(0)
    assert stop_redis == "systemctl stop redis-server"
    redis.stop()
    rest, start_redis, start, _ = rest.rsplit("\n", 3)
    if redis.flags["appendonly"] == "no":
        copy, remark, *only_with_it = rest.splitlines()
        assert (remark[0], len(only_with_it)) == ("#", 6)
        rest = copy
    shell(tmp_path, rest, places)
    assert start_redis == "systemctl start redis-server"
    redis.start()
    assert start.startswith("systemctl start pushup")
