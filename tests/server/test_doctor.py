"""`pushup doctor`: what it finds on a machine, in a real Redis, and behind real proxies."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from threading import Event
from urllib.request import urlopen

import pytest

from tests.server.blocking_backend import Verdict, WebBackend
from tests.server.command_line import error_of, run
from tests.server.raw_client import WAIT_SECONDS
from tests.server.redis_server import RedisServer, free_port
from tests.server.server_process import clean_environment, running, wait_until

NGINX = """
daemon off; pid {folder}/pid; error_log stderr; worker_processes 1;
events {{ worker_connections 100; }}
http {{
  access_log off; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{
    listen 127.0.0.1:{port};
    location /push/ {{ proxy_pass {to}/; proxy_http_version 1.1; {lines} }}
  }}
}}
"""

QUICK = ("--set", "poll_timeout_limit_seconds=3", "--set", "stream_heartbeat_seconds=1")


def findings(*flags: str, **environment: str) -> tuple[int, dict[str, list[str]]]:
    """The exit status, and the texts by their level."""
    ended = run("doctor", *flags, **environment)
    assert not ended.stderr
    found: dict[str, list[str]] = {"ok": [], "warning": [], "problem": []}
    for line in ended.stdout.splitlines():
        level, _, text = line.partition(" ")
        found[level].append(text.strip())
    return ended.returncode, found


def test_a_machine_with_nothing_wrong(tmp_path: Path) -> None:
    """A free port, room for a journal; what a small machine lacks is a warning, and no problem."""
    port = free_port()
    status, found = findings(
        "--listen", f"127.0.0.1:{port}", "--broadcast", f"journal:{tmp_path}/j.db", "--set", "connections_limit=100",
        "--set", "retention_bytes=1MiB",
    )  # fmt: skip
    assert status == 0
    assert found["problem"] == []
    assert f"listen: 127.0.0.1:{port} is free" in found["ok"]
    assert any(text.startswith("connections_limit: 100, with ") for text in found["ok"])
    assert any(text.startswith("broadcast: the journal needs up to 1 MiB, and 2 beside it") for text in found["ok"])


@pytest.mark.parametrize(("tenths", "level"), [(4, "ok"), (6, "warning")])
def test_a_journal_that_is_there_already(tmp_path: Path, tenths: int, level: str) -> None:
    """What it has counts as its own; but what is free in a large file is no room for the copies of a rewrite."""
    kept = tenths * shutil.disk_usage(tmp_path).free // 10 // 2**20
    with (tmp_path / "j.db").open("wb") as file:
        file.truncate(3 * kept * 2**20)  # as `stat` says; nothing of it is on the disk
    wanted = f"retention_bytes={kept}MiB"
    _, found = findings("--listen", "127.0.0.1:0", "--broadcast", f"journal:{tmp_path}/j.db", "--set", wanted)
    start = (
        f"broadcast: the journal needs up to {kept} MiB, and {2 * kept} beside it to be rewritten; it has {3 * kept}"
    )
    assert any(text.startswith(start) for text in found[level]), found


def test_what_the_machine_lacks(tmp_path: Path) -> None:
    """Each is named with its setting: a directory, files, memory (of the parent, too), a journal's room."""
    status, found = findings(
        "--broadcast", f"journal:{tmp_path}/j.db", "--listen", "192.0.2.1:80", "--set", "connections_limit=2000000000",
        "--set", "retention_bytes=900000GiB", "--workers", "2", PUSHUP_PUBLISH_KEYS="a-key-of-sixteen-letters",
    )  # fmt: skip
    assert status == 1
    assert found["problem"] == ["listen: cannot listen on 192.0.2.1:80: this machine does not have this address"]
    assert not any(text.startswith("listen") for text in found["ok"]), "and nothing else is said of it"
    for start in ("connections_limit: it is 2000000000, but", "retention_bytes: 3 processes", "broadcast: the journal"):
        assert any(text.startswith(start) for text in found["warning"]), start


def test_files_that_no_client_gets() -> None:
    """As many as the server keeps: 64, 32 for each kind of address, and those for calls of the application."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ("authorize_at_most=20", "webhook_at_most=10", f"connections_limit={hard - 1}")
    flags = [word for setting in wanted for word in ("--set", setting)]
    key = {"PUSHUP_WEBHOOK_KEY": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"}
    _, found = findings(*flags, PUSHUP_OPERATOR_LISTEN="127.0.0.1:0", PUSHUP_WEBHOOK_URL="http://127.0.0.1:1", **key)
    (text,) = [text for text in found["warning"] if text.startswith("connections_limit")]
    assert f"some {hard - 64 - 2 * 32 - 20 - 10} clients" in text


def test_who_listens_there_already(backend: WebBackend, tmp_path: Path) -> None:
    """A server of ours is all right; another program is not, nor what does not answer, which may be ours."""

    other = proxy(backend, lambda path: Verdict(404)).removeprefix("http://")
    with running(tmp_path / "log", ()) as server, hung(4096) as stuck, hung(0) as full, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        there, taken = server.address, f"127.0.0.1:{bound.getsockname()[1]}"
        addresses = (there, other, stuck, full, taken)
        status, found = findings(*(word for address in addresses for word in ("--listen", address)))
    assert status == 1
    assert [text for text in found["ok"] if text.startswith("listen: ")] == [f"listen: a PushUp server runs at {there}"]
    assert found["problem"] == [
        f"listen: another program listens on {other}; stop it, or change listen",
        *(f"listen: what listens on {hangs} does not answer; if it is PushUp, it is stuck" for hangs in (stuck, full)),
        f"listen: another program has {taken} or a part of it: Address already in use",
    ]


@contextmanager
def hung(places: int) -> Iterator[str]:
    """The address of a server that accepts nobody; clients wait for it, and if there are no more places, to get one."""
    with socket.create_server(("127.0.0.1", 0), backlog=places) as listening, ExitStack() as stack:
        for _ in range(4):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listening.getsockname())
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def test_redis(redis: RedisServer, tmp_path: Path) -> None:
    """Its memory, its policy, its file, what is in it; and a replica, or nobody, in its place."""
    redis.start()
    status, found = findings("--broadcast", redis.url, "--set", "retention_bytes=64MiB")
    assert (status, found["problem"]) == (0, [])
    assert any(text.startswith("Redis 7") and " answers in " in text for text in found["ok"])
    with redis.client() as client:
        client.ask("CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
    status, found = findings("--broadcast", redis.url, "--set", "redis_durable=true", "--set", "retention_bytes=64MiB")
    assert status == 1
    assert found["problem"] == [
        "Redis: maxmemory-policy is allkeys-lru: it would drop parts of the log; set noeviction",
        "Redis: maxmemory is 100 MiB; retention_bytes needs up to 128 MiB, then publishing is refused",
        "Redis: redis_durable is set, but appendonly is no: a restart of Redis loses everything",
    ]
    with redis.client() as client:
        client.ask("CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction")
        client.ask("CONFIG", "SET", "appendonly", "yes", "appendfsync", "everysec")
        client.ask("SET", "{pushup}:state", "99")
        _, found = findings("--broadcast", redis.url, "--set", "redis_durable=true", "--set", "retention_bytes=64MiB")
        client.ask("DEL", "{pushup}:state")
    format_, sync = found["problem"]
    assert format_.startswith("Redis: the message log has format 99")
    assert sync.startswith("Redis: redis_durable is ignored: appendfsync is not always")
    with RedisServer(tmp_path / "replica", flags={"replicaof": f"127.0.0.1 {redis.port}"}) as replica:
        status, found = findings("--broadcast", replica.url)
        assert found["problem"] == [f"Redis: 127.0.0.1:{replica.port} is not the master but a slave"]
        with redis.client() as client:
            wait_until(lambda: b"state=online" in client.ask("INFO", "replication"), "the replica")
        _, found = findings("--broadcast", redis.url, "--set", "redis_durable=true")
        assert "Redis: redis_durable is ignored: Redis has a replica" in found["warning"]
    status, found = findings("--broadcast", replica.url)
    assert status == 1
    assert found["problem"][0].startswith("Redis: ")
    assert "refused" in found["problem"][0]


@contextmanager
def nginx(folder: Path, to: str, lines: str) -> Iterator[str]:
    """The URL behind nginx with these lines."""
    port = free_port()
    file = folder / "nginx.conf"
    user = "" if os.getuid() else "user root;"
    file.write_text(user + NGINX.format(folder=folder, port=port, to=to, lines=lines))
    with subprocess.Popen(["nginx", "-c", str(file), "-e", "stderr"], stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: _is_open(port), "nginx")
            yield f"http://127.0.0.1:{port}/push"
        finally:
            process.terminate()
            process.wait(20)


def _is_open(port: int) -> bool:
    with socket.socket() as client:
        return not client.connect_ex(("127.0.0.1", port))


@pytest.mark.parametrize(
    ("lines", "problems"),
    [
        ("proxy_read_timeout 6s;", []),
        ("proxy_read_timeout 2s;", ["a poll ended after 2 s (status 504); its timeouts for a response must be longer"]),
        (
            "gzip on; gzip_types text/event-stream; proxy_read_timeout 6s;",
            ["a stream had no heartbeat within 0 s (status 200, gzip); the proxy must not buffer or compress it"],
        ),
    ],
    ids=["good", "short timeout", "compresses"],
)
def test_through_a_proxy(tmp_path: Path, lines: str, problems: list[str]) -> None:
    """The longest poll and the heartbeat of a stream come through, or it says what the proxy must do."""
    with running(tmp_path / "log", QUICK) as server, nginx(tmp_path, server.url, lines) as url:
        status, found = findings("--listen", server.url.removeprefix("http://"), *QUICK, "--through", url)
    assert status == bool(problems)
    assert len(found["problem"]) == len(problems)
    for text, start in zip(found["problem"], problems, strict=True):
        assert text.startswith(f"{url}: {start}")
    assert sum(text.startswith(url) for text in found["ok"]) == 2 - len(problems)


def test_a_proxy_that_buffers(backend: WebBackend, tmp_path: Path) -> None:
    """It passes on what is complete, which a stream never is."""

    def buffered(path: str) -> Verdict:
        with urlopen(server.url + path, timeout=WAIT_SECONDS) as response:
            return Verdict(response.status, response.read())

    with running(tmp_path / "log", QUICK) as server:
        url = proxy(backend, buffered)
        status, found = findings("--listen", server.address, *QUICK, "--through", url)
    assert status == 1
    (problem,) = found["problem"]
    assert problem.startswith(f"{url}: a stream had no heartbeat within 6 s (TimeoutError")


def test_nothing_behind_the_url(tmp_path: Path) -> None:
    """No server, or a path that is not passed on; and a server that wants a token."""
    with running(tmp_path / "log", ()) as server:
        status, found = findings("--listen", server.url.removeprefix("http://"), "--through", f"{server.url}/push")
        assert status == 1
        assert "/v1/cursor gets status 404: " in found["problem"][0]
        assert found["problem"][0].endswith("; does the proxy pass on /v1/ unchanged?")
    _, found = findings("--through", f"http://127.0.0.1:{free_port()}")
    assert "no server of PushUp answers (ConnectionRefusedError" in found["problem"][0]


def proxy(backend: WebBackend, answer: Callable[[str], Verdict]) -> str:
    """The URL of a proxy that answers requests for each path like this."""
    backend.answer = lambda question: answer(question.path)
    return backend.url.removesuffix("/may")


CURSOR = Verdict(body=b'{"cursor": "e-1"}')


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (301, b"", "gets status 301; that is a redirect; give the URL where it leads"),
        (421, b'{"detail": "add the name to hosts"}', "gets status 421: add the name to hosts; does the proxy"),
        (502, b"", "gets status 502; is a server running behind the proxy?"),
        (200, b"[]", ": no server of PushUp answers (TypeError"),
    ],
)
def test_what_answers_is_no_server(backend: WebBackend, status: int, body: bytes, text: str) -> None:
    """The advice is for what was answered, with what a server says itself."""
    url = proxy(backend, lambda path: Verdict(status, body))
    assert text in findings("--listen", "127.0.0.1:0", "--through", url)[1]["problem"][0]


@pytest.mark.parametrize(
    ("status", "body", "level", "text"),
    [
        (404, b"", "problem", "a {} was refused (status 404); does the proxy pass it on"),
        (503, b'{"detail": "full"}', "problem", "a {} was refused (status 503: full); does the proxy pass it on"),
        (401, b"", "warning", "no {} could be tried (status 401); give --token a token that may poll pushup-doctor"),
        (429, b'{"detail": "polls"}', "warning", "no {} could be tried (status 429: polls); a quota refuses it"),
    ],
)
def test_polls_and_streams_that_are_refused(
    backend: WebBackend, status: int, body: bytes, level: str, text: str
) -> None:
    """That says nothing about the timeouts of a proxy, or its buffers."""
    url = proxy(backend, lambda path: CURSOR if path == "/v1/cursor" else Verdict(status, body))
    _, found = findings("--listen", "127.0.0.1:0", "--through", url)
    stream, poll = [each for each in found[level] if each.startswith(url)]
    assert stream.startswith(f"{url}: {text.format('stream')}")
    assert poll.startswith(f"{url}: {text.format('poll')}")


def test_the_longest_poll_counts(backend: WebBackend) -> None:
    """A proxy that cuts some polls, and passes on those that the server ends a little earlier, cuts polls."""
    polls = count()

    def answer(path: str) -> Verdict:
        if not path.startswith("/v1/poll"):
            return CURSOR
        is_cut = next(polls) == 5
        time.sleep(2.9 if is_cut else 2.6)
        return Verdict(504 if is_cut else 200)

    url = proxy(backend, answer)
    _, found = findings("--listen", "127.0.0.1:0", *QUICK, "--through", url)
    assert found["problem"][-1].startswith(f"{url}: a poll ended after 3 s (status 504); its timeouts")


def test_polls_that_are_answered_early(backend: WebBackend) -> None:
    """As by a server that drains: whether the proxy waits long enough was not tried."""
    url = proxy(backend, lambda path: CURSOR)
    _, found = findings("--listen", "127.0.0.1:0", *QUICK, "--through", url)
    assert f"{url}: a poll of 3 s was answered after 0 s; no longer one could be tried" in found["warning"][-1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_is_interrupted(backend: WebBackend, number: signal.Signals) -> None:
    """While it holds polls, and after it has asked Redis: at once."""
    is_held, ends = Event(), Event()

    def answer(path: str) -> Verdict:
        if path != "/v1/cursor":
            is_held.set()
            ends.wait()
        return CURSOR

    redis, url = f"redis://127.0.0.1:{free_port()}", proxy(backend, answer)
    command = [sys.executable, "-m", "pushup", "doctor", "--broadcast", redis, "--through", url]
    with subprocess.Popen(command, env=clean_environment(), stdout=subprocess.DEVNULL) as process:
        try:
            assert is_held.wait(WAIT_SECONDS)
            process.send_signal(number)
            assert process.wait(5) == -number
        finally:
            process.kill()
            ends.set()


def test_a_token_and_a_url_that_cannot_be(backend: WebBackend) -> None:
    """White space around a token is no part of it; what else is wrong is said, and the token is not shown."""
    flags = ("doctor", "--listen", "127.0.0.1:0", "--through", proxy(backend, lambda path: Verdict(421)))
    run(*flags, PUSHUP_TOKEN="a.b.c\n")
    assert backend.questions[-1].headers["authorization"] == "Bearer a.b.c"
    said = error_of(*flags, PUSHUP_TOKEN="a.b\nc")
    assert "printable ASCII" in said
    assert "a.b" not in said
    ended = run("doctor", "--through", "push.example.org")
    assert (ended.returncode, "write a URL such as https://" in ended.stderr) == (2, True)
