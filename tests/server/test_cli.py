"""The command line: client commands against a real server, and the log."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.server.blocking_backend import Verdict, WebBackend
from tests.server.command_line import error_of, run, started
from tests.server.conftest import Serve
from tests.server.redis_server import free_port
from tests.server.server_process import Server, clean_environment, wait_until
from tests.server.token_issuer import SETTINGS, TokenIssuer

KEY = "a-publish-key-of-27-letters"


def told(server: Server, *arguments: str) -> list[Any]:
    """What a client command prints, each line parsed as JSON; it must succeed."""
    ended = run(*arguments, PUSHUP_URL=server.url)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_publish_and_poll(server: Server, channel: str) -> None:
    """`poll --once` prints what `publish` publishes, JSON or plain text."""
    first = told(server, "publish", channel, f"{channel}:b", "-d", '{"a": [1, 2.50, "ü"]}')[0]
    second = told(server, "publish", channel, "-d", "plain text")[0]
    assert first["cursor"] != second["cursor"]
    lines = told(server, "poll", "--once", channel)
    assert [line["data"] for line in lines] == [{"a": [1, 2.5, "ü"]}, "plain text"]
    assert [line["id"] for line in lines] == [first["id"], second["id"]]
    assert [line["data"] for line in told(server, "poll", "--once", channel, "--cursor", first["cursor"])] == [
        "plain text"
    ]


def test_poll_as_text(server: Server, channel: str) -> None:
    """Lines to read on a terminal, live: time, channels, event and data. An escape sequence stays escaped."""
    with started(server.url, "poll", channel, f"{channel}:b", "--text") as polling:
        for flags in (("-d", '{"a": "ü\\u001b[2J\\u009b2J"}', "--event", "move"), ("-d", "plain")):
            (published,) = told(server, "publish", channel, f"{channel}:b", *flags)
            time, *rest = polling.text().split("  ")
            shown = datetime.fromtimestamp(published["time"], UTC).isoformat(sep=" ", timespec="milliseconds")
            assert abs(float(time[-6:]) - published["time"] % 60) < 0.01, (time, shown)
            assert time[:5] == shown[11:16]
            assert rest[0] == f"{channel}, {channel}:b"
            assert rest[1:] == (["move", r'{"a": "ü\u001b[2J\u009b2J"}'] if "--event" in flags else ['"plain"'])


def test_publish_reads_lines(server: Server, channel: str) -> None:
    """`-d -` publishes each line of standard input. What Python takes for JSON, and others do not, is text."""
    deep = "[" * 10_000
    lines = f'1\n"two"\nthree\nNaN\n[-Infinity]\n{deep}\n'
    ended = run("publish", channel, "-d", "-", given=lines, PUSHUP_URL=server.url)
    assert ended.returncode == 0, ended.stderr
    published = [line["data"] for line in told(server, "poll", "--once", channel)]
    assert published == [1, "two", "three", "NaN", "[-Infinity]", deep]


def test_publish_reconnects_after_a_pause(serve: Serve) -> None:
    """`-d -` can still publish a line that comes after the server has closed the idle connection."""
    with serve(idle_timeout_seconds="2s") as server, started(server.url, "publish", "a", "-d", "-") as publishing:
        publishing.write("1\n")
        publishing.line()
        wait_until(lambda: server.metric("connections") == 1, "the idle connection to be closed")
        publishing.write("2\n")
        publishing.end_input()
        assert publishing.wait() == 0
        publishing.line()


def test_idempotency_key(server: Server, channel: str) -> None:
    """The same key publishes once, however often the command runs."""
    call = ("publish", channel, "-d", "1", "--idempotency-key", channel)
    assert told(server, *call) == told(server, *call)
    assert len(told(server, "poll", "--once", channel)) == 1


def test_idempotency_key_of_lines(server: Server, channel: str) -> None:
    """With `-d -` and a key, every line is published once, however often the command runs."""
    call = ("publish", channel, "-d", "-", "--idempotency-key", channel)
    for _ in range(2):
        ended = run(*call, given="1\n2\n3\n", PUSHUP_URL=server.url)
        assert ended.returncode == 0, ended.stderr
    assert [line["data"] for line in told(server, "poll", "--once", channel)] == [1, 2, 3]


TRANSPORTS = pytest.mark.parametrize("options", [(), ("--stream",)], ids=["polls", "stream"])


@TRANSPORTS
def test_poll_follows_and_resumes(server: Server, channel: str, options: tuple[str, ...]) -> None:
    """`poll` prints message after message, and with a cursor continues where another one stopped."""
    with server.caller() as caller, started(server.url, "poll", *options, channel, "--cursor", "now") as polling:
        server.wait_for_held(1)
        cursors = []
        for number in range(5):
            cursors.append(caller.publish([channel], number)["cursor"])
            assert polling.line()["data"] == number
        assert polling.interrupt() == -signal.SIGINT
        with started(server.url, "poll", *options, channel, "--cursor", cursors[2]) as resumed:
            assert [resumed.line()["data"] for _ in range(2)] == [3, 4]


@TRANSPORTS
def test_publish_an_ephemeral_message(server: Server, channel: str, options: tuple[str, ...]) -> None:
    """Whoever polls just then gets it, marked as such; with `-d -` every line is one."""
    with started(server.url, "poll", *options, channel, "--cursor", "now") as polling:
        server.wait_for_held(1)
        for data, given, flags in (("1", None, ["--ephemeral"]), ("-", "2\n3\n", ["--ephemeral"]), ("4", None, [])):
            ended = run("publish", channel, "-d", data, *flags, given=given, PUSHUP_URL=server.url)
            assert ended.returncode == 0, ended.stderr
        lines = [polling.line() for _ in range(4)]
    assert [(line["data"], line.get("ephemeral")) for line in lines] == [(1, True), (2, True), (3, True), (4, None)]


LOST = """
import os, signal, socket
from pushup.cli import main

class Interrupted:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

wait = socket.socket.recv

def recv(*arguments):
    Interrupted()
    return wait(*arguments)

socket.socket.recv = recv
main()
"""
"""`pushup` with a Ctrl-C in a destructor, before it waits: Python prints the exception there and drops it."""


@TRANSPORTS
def test_an_interrupt_is_never_lost(server: Server, channel: str, options: tuple[str, ...]) -> None:
    """Not even where Python drops exceptions; there is no traceback, and a shell sees exit status 130."""
    command = [sys.executable, "-c", LOST, "poll", *options, channel, "--cursor", "now", "--url", server.url]
    ended = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=20, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_an_interrupt_that_is_ignored(server: Server, channel: str) -> None:
    """A shell starts a command in the background with Ctrl-C ignored: it stays that way."""
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)" + LOST
    command = [sys.executable, "-c", code, "poll", "--once", channel, "--cursor", "earliest", "--url", server.url]
    with server.caller() as caller:
        caller.publish([channel], 1)
    ended = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=20, check=False)
    assert (ended.returncode, json.loads(ended.stdout)["data"], ended.stderr) == (0, 1, "")


@TRANSPORTS
def test_poll_reports_a_closed_channel(server: Server, channel: str, options: tuple[str, ...]) -> None:
    with server.caller() as caller:
        caller.publish([channel], 1)
        with started(server.url, "poll", *options, channel) as polling:
            assert polling.line()["data"] == 1
            server.wait_for_held(1)
            assert run("channel", "close", channel, PUSHUP_URL=server.url).returncode == 0
            assert channel in polling.error_line("closed")


@TRANSPORTS
def test_poll_survives_a_restart(serve: Serve, options: tuple[str, ...]) -> None:
    """When the server is restarted on its port, `poll` reports a gap, since the messages are lost, and continues."""
    address = f"127.0.0.1:{free_port()}"
    with (
        serve("--listen", address) as server,
        started(server.url, "poll", *options, "a", "--cursor", "now") as polling,
    ):
        server.wait_for_held(1)
        with server.caller() as caller:
            caller.publish(["a"], "before")
        assert polling.line()["data"] == "before"
        server.wait_for_held(1)
        server.end(signal.SIGKILL)
        polling.error_line("retrying")
        with serve("--listen", address) as again, again.caller() as caller:
            assert "lost" in polling.error_line("gap")
            again.wait_for_held(1)
            caller.publish(["a"], "after")
            assert polling.line()["data"] == "after"


def test_a_stream_that_is_refused(server: Server, channel: str) -> None:
    """The error is that of a poll, and there is no retry."""
    assert "404" in error_of("poll", "--stream", "4711", PUSHUP_URL=server.url)
    ended = run("poll", "--stream", "--once", channel, PUSHUP_URL=server.url)
    assert (ended.returncode, "--once" in ended.stderr) == (2, True)


def test_new_cluster_is_interrupted() -> None:
    """While Redis does not reply."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        broadcast = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        with (
            subprocess.Popen(
                [sys.executable, "-m", "pushup", "new-cluster", "--broadcast", broadcast],
                env=clean_environment({}),
                stderr=subprocess.PIPE,
                text=True,
            ) as renaming,
            silent.accept()[0],
        ):
            renaming.send_signal(signal.SIGINT)
            _, errors = renaming.communicate(timeout=20)
    assert (renaming.returncode, errors) == (-signal.SIGINT, "")


def test_new_cluster_reports_what_redis_cannot_be() -> None:
    """Such as a program that replies to every command, but not as Redis does."""
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:

        def reply() -> None:
            with listening.accept()[0] as sock, suppress(ConnectionResetError):
                while request := sock.recv(65536):
                    sock.sendall(b"+OK\r\n" * request.count(b"*"))

        replying = pool.submit(reply)
        error = error_of("new-cluster", "--broadcast", f"redis://127.0.0.1:{listening.getsockname()[1]}")
        assert error.startswith("Error: Redis: ")
        replying.result(timeout=20)


def test_channels(server: Server, channel: str) -> None:
    created = told(server, "channel", "create", channel, "--ttl", "100")[0]
    assert created["name"] == channel
    renewed = told(server, "channel", "renew", channel, "--ttl", "1000")[0]
    assert renewed["expires"] > created["expires"] + 800
    shown = told(server, "channel", "show", channel)[0]
    assert (shown["id"], shown["ttl"], shown["messages"]) == (created["id"], 1000, 0)
    assert channel in [each["name"] for each in told(server, "channel", "list")]
    assert told(server, "channel", "close", channel) == []
    assert "404" in error_of("channel", "show", channel, PUSHUP_URL=server.url)


def test_errors_of_a_client(server: Server, channel: str) -> None:
    """A client command prints one line about what went wrong, and exits with 1."""
    assert "channel" in error_of("poll", "123", "--once", PUSHUP_URL=server.url)
    assert "cursor" in error_of("poll", channel, "--once", "--cursor", "nonsense", PUSHUP_URL=server.url)
    assert "cannot reach the server" in error_of("publish", channel, "-d", "1", PUSHUP_URL="http://127.0.0.1:9")
    assert "is not a valid URL" in error_of("publish", channel, "-d", "1", PUSHUP_URL="127.0.0.1:8080")
    odd = ("--idempotency-key", "two\nlines")
    assert "the request is not valid" in error_of("publish", channel, "-d", "1", *odd, PUSHUP_URL=server.url)


def test_an_error_is_shown_at_once(backend: WebBackend) -> None:
    """A command is not tried again for some seconds, as a program's call is."""
    backend.answer = lambda _: Verdict(503)
    assert "503" in error_of("publish", "a", "-d", "1", PUSHUP_URL=backend.url.removesuffix("/may"))
    assert len(backend.questions) == 1


def test_publish_key_of_a_client(serve: Serve) -> None:
    """The key comes from PUSHUP_KEY or --key, and an error does not show it."""
    with serve(environment={"PUSHUP_PUBLISH_KEYS": KEY}) as server:
        assert "401" in error_of("publish", "a", "-d", "1", PUSHUP_URL=server.url)
        said = error_of("publish", "a", "-d", "1", PUSHUP_URL=server.url, PUSHUP_KEY="x" + KEY)
        assert "403" in said
        assert KEY not in said
        assert run("publish", "a", "-d", "1", PUSHUP_URL=server.url, PUSHUP_KEY=KEY).returncode == 0


@contextmanager
def token_file(issuer: TokenIssuer, path: Path) -> Iterator[Path]:
    """A file with a token, which is replaced every 0.2 s."""
    stopping = threading.Event()

    def write() -> None:
        new = path.with_suffix(".new")
        new.write_text(issuer.token() + "\n")
        new.chmod(0o600)
        new.replace(path)

    def run() -> None:
        while not stopping.wait(0.2):
            write()

    write()
    thread = threading.Thread(target=run)
    thread.start()
    yield path
    stopping.set()
    thread.join()


def test_token_of_a_client(serve: Serve, tmp_path: Path) -> None:
    """It comes from PUSHUP_TOKEN, --token or a file, which is read again when the token has ended; not with a key."""
    issuer = TokenIssuer(60.0, poll=["a"], publish=["a"])
    short = TokenIssuer(2.0, poll=["a"])
    with serve(**SETTINGS) as server, ExitStack() as stack:
        assert run("publish", "a", "-d", "1", PUSHUP_URL=server.url, PUSHUP_TOKEN=issuer.token()).returncode == 0
        assert run("poll", "a", "--once", "--token", issuer.token(), PUSHUP_URL=server.url).returncode == 0
        file = stack.enter_context(token_file(short, tmp_path / "token"))
        poll = stack.enter_context(started(server.url, "poll", "a", "--token-file", str(file)))
        assert poll.line()["data"] == 1
        for number in range(2, 6):
            time.sleep(1.0)
            run("publish", "a", "-d", str(number), PUSHUP_URL=server.url, PUSHUP_TOKEN=issuer.token())
            assert poll.line()["data"] == number
        token = issuer.token()[:-5]
        said = error_of("publish", "a", "-d", "1", PUSHUP_URL=server.url, PUSHUP_TOKEN=token)
        assert "401" in said
        assert token not in said
        assert "not several" in error_of("poll", "a", PUSHUP_URL=server.url, PUSHUP_TOKEN=token, PUSHUP_KEY=KEY)
        assert "nowhere" in error_of("poll", "a", "--token-file", "nowhere", PUSHUP_URL=server.url)
        said = error_of("poll", "a", "--token", f"{token} x", PUSHUP_URL=server.url)
        assert "printable ASCII" in said
        assert token not in said


def test_json_log(serve: Serve) -> None:
    """With --log-format json every line of the log is a JSON object."""
    with serve("--log-format", "json") as server, server.caller() as caller:
        caller.publish(["a"], 1)
        caller.close()
        server.end()
        lines = [json.loads(line) for line in server.log_lines()]
        assert all(line.keys() - {"fields"} == {"time", "level", "where", "text"} for line in lines)
        assert "stopped" in [line["text"] for line in lines]
        address = server.url.removeprefix("http://")
        assert [line["fields"] for line in lines if line["text"].startswith("listening")] == [{"addresses": address}]


def test_log_level(serve: Serve) -> None:
    """With --log-level warn, a server without problems logs nothing."""
    with serve("--log-level", "warn") as server, server.caller() as caller:
        caller.publish(["a"], 1)
        assert server.log_lines() == []


@pytest.mark.parametrize("options", [(), ("--text",)])
def test_poll_prints_in_any_locale(server: Server, channel: str, options: tuple[str, ...]) -> None:
    """Letters that the encoding lacks are escaped: the JSON is the same, and no message is lost."""
    data = "h\u00e9 \u2603 \U0001f600"
    with server.caller() as caller:
        caller.publish([channel], data)
    environment = {"PUSHUP_URL": server.url, "PYTHONIOENCODING": "ascii"}
    told = run("poll", channel, "--once", *options, **environment)
    assert (told.returncode, told.stderr) == (0, "")
    assert json.dumps(data) in told.stdout


def test_publish_from_a_closed_input() -> None:
    """It says that it has nothing to read."""
    called = ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-m", "pushup", "publish", "a", "-d", "-"]
    told = subprocess.run(called, env=clean_environment(), capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert told.stderr.splitlines()[-1] == "Error: --data - reads standard input, which is closed"


@pytest.mark.parametrize("command", [("check-config",), ("script",), ("--help",)])
def test_output_on_a_full_disk(command: tuple[str, ...]) -> None:
    """One line says why it cannot be written."""
    called = [sys.executable, "-m", "pushup", *command]
    with open("/dev/full", "w") as full:
        told = subprocess.run(
            called, env=clean_environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (told.returncode, told.stderr) == (1, "Error: writing the output failed: No space left on device\n")


@pytest.mark.parametrize("is_full", [True, False])
def test_a_greeting_that_nobody_reads(is_full: bool) -> None:
    """On a full disk, or for a program that has gone: the server serves, and exits with 0."""
    reader, gone = os.pipe()
    os.close(reader)
    full = os.open("/dev/full", os.O_WRONLY)
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "pushup", "serve", "--listen", address]
    output, pipe = full if is_full else gone, subprocess.PIPE
    with subprocess.Popen(command, env=clean_environment(), stdout=output, stderr=pipe, text=True) as server:
        try:
            called = ("publish", "a", "-d", "1", "--url", f"http://{address}")
            wait_until(lambda: server.poll() is not None or run(*called).returncode == 0, "the server")
            server.send_signal(signal.SIGTERM)
            _, log = server.communicate(timeout=20)
        finally:
            server.kill()
            os.close(full)
            os.close(gone)
    assert server.returncode == 0, log


@pytest.mark.parametrize(("closed", "workers"), [("2>&-", "1"), ("2>&-", "2"), ("<&- >&- 2>&-", "2")])
def test_a_log_that_is_closed(closed: str, workers: str) -> None:
    """The server serves, and exits with 0. An error of the start is on standard output, if that is open."""
    address = f"127.0.0.1:{free_port()}"
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "pushup", "serve"]
    command = [*shell, "--listen", address, "--workers", workers]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=clean_environment(), stdout=pipe, stderr=pipe, text=True) as server:
        try:
            called = ("publish", "a", "-d", "1", "--url", f"http://{address}")
            wait_until(lambda: server.poll() is not None or run(*called).returncode == 0, "the server")
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=20)
        finally:
            server.kill()
    assert server.returncode == 0
    again = subprocess.run(
        [*shell, "--set", "no=1"], env=clean_environment(), capture_output=True, text=True, check=False
    )
    assert (again.returncode, "unknown setting" in again.stdout) == (1, ">&- 2" not in closed)


def test_publish_reports_the_acknowledgement(server: Server, channel: str) -> None:
    """With `--ack`, the response says which level was reached: on a single node, everything acknowledged is stable."""
    told = run("publish", channel, "--data", "1", "--ack", "stable", PUSHUP_URL=server.url)
    assert told.returncode == 0
    assert json.loads(told.stdout)["ack"] == "stable"
