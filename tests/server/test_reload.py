"""SIGHUP: a running server reloads keys, certificates and the log level, and its clients notice nothing."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import ssl
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from pushup.backends.tickets import Tickets
from tests.server.blocking_backend import WebBackend, web_backend
from tests.server.caller import Caller, Reply, data_of, poll_path
from tests.server.certificates import write_certificate
from tests.server.conftest import Serve
from tests.server.raw_client import WAIT_SECONDS, get
from tests.server.redis_cluster import RedisCluster
from tests.server.redis_server import RedisServer, free_port
from tests.server.reloading import reload, reloads, secret
from tests.server.server_process import clean_environment, wait_until
from tests.server.token_issuer import SETTINGS, TokenIssuer

KEY = "a-publish-key-of-27-letters"
OTHER_KEY = "another-publish-key-of-35-characters"


def publish(caller: Caller, key: str, data: object = 1) -> Reply:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return caller.call("POST", "/v1/messages", {"channels": ["a"], "data": data}, headers)


# Keys.


@pytest.mark.parametrize("place", ["key file", "config file"])
def test_keys_change_while_polls_are_held(serve: Serve, tmp_path: Path, place: str) -> None:
    """A held poll survives the reload and gets the next message; a removed key is refused from the next publication
    on, and an added key works."""
    if place == "key file":
        file = tmp_path / "keys"
        config = secret(tmp_path / "pushup.toml", f'publish_keys_file = "{file}"\n')
        write = "{}\n# the other application\n{}\n"
    else:
        file = config = tmp_path / "pushup.toml"
        write = 'publish_keys = ["{}", "{}"]\n'
    secret(file, write.format(KEY, KEY + "-2"))
    with serve("--config", str(config)) as server, server.caller() as polls, server.caller() as caller:
        polls.begin_poll("a", cursor=caller.cursor())
        server.wait_for_held(1)
        assert publish(caller, OTHER_KEY).status == 403
        secret(file, write.format(OTHER_KEY, KEY + "-2"))
        assert reload(server).endswith("changed: publish_keys")
        assert publish(caller, KEY, "removed").status == 403
        assert server.metric("held_polls") == 1
        assert publish(caller, "", "none").status == 401
        assert publish(caller, OTHER_KEY, "added").status == 201
        assert data_of(polls.answer()) == ["added"]
        assert publish(caller, KEY + "-2", "kept").status == 201
        assert KEY not in "\n".join(server.log_lines())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "contains no key"),
        (f"{OTHER_KEY}\nshort\n", "key 2 of 2"),
        (None, "No such file"),
    ],
)
def test_a_broken_key_file_changes_nothing(serve: Serve, tmp_path: Path, content: str | None, said: str) -> None:
    """The old keys stay in force and no others work; one error line says why; a corrected file is accepted."""
    file = secret(tmp_path / "keys", KEY)
    with serve(publish_keys_file=file) as server, server.caller() as caller:
        server.expect_log("cannot reload")
        if content is None:
            file.unlink()
        else:
            secret(file, content)
        line = reload(server)
        assert " error cannot reload, keeping the current settings: " in line
        assert (
            f"publish_keys_file {file}" in line
            or f"publish_keys_file: {file} contains no key" in line
            or (f"cannot read {file}" in line)
        )
        assert said in line
        assert publish(caller, KEY).status == 201
        assert publish(caller, "").status == 401
        assert publish(caller, OTHER_KEY).status == 403
        secret(file, OTHER_KEY)
        reload(server)
        assert publish(caller, OTHER_KEY).status == 201
        assert publish(caller, KEY).status == 403
        assert [line.split()[1] for line in reloads(server)] == ["error", "info"]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (f'publish_keys = ["{OTHER_KEY}"\n', "is not valid TOML"),
        (f'publish_keys = ["{OTHER_KEY}"]\nlog_level = "loud"\n', "'loud' is not one of"),
    ],
)
def test_a_broken_configuration_changes_nothing(serve: Serve, tmp_path: Path, config: str, said: str) -> None:
    """A configuration with an error is rejected as a whole, including its correct parts."""
    file = secret(tmp_path / "pushup.toml", f'publish_keys = ["{KEY}"]\n')
    with serve("--config", str(file)) as server, server.caller() as caller:
        server.expect_log("cannot reload")
        secret(file, config)
        line = reload(server)
        assert " error " in line
        assert str(file) in line
        assert said in line
        assert publish(caller, KEY).status == 201
        assert publish(caller, OTHER_KEY).status == 403


def test_keys_are_kept_while_the_server_is_public(serve: Serve, tmp_path: Path) -> None:
    """A configuration without keys would be valid for loopback at a start, but this server still listens publicly."""
    file = secret(tmp_path / "pushup.toml", f'publish_keys = ["{KEY}"]\nlisten = ["127.0.0.1:0", "0.0.0.0:0"]\n')
    with serve("--config", str(file), "--listen", "127.0.0.1:0", "--listen", "0.0.0.0:0") as server:
        server.expect_log("cannot reload")
        secret(file, "")
        assert "anyone who can reach 0.0.0.0:0 could publish" in reload(server)
    # `running` gives --listen as a flag, which stays; so the same with an address that the file can change
    path = tmp_path / "a.sock"
    secret(file, f'publish_keys = ["{KEY}"]\n')
    with serve("--config", str(file), "--listen", f"unix:{path}") as server, server.caller() as caller:
        secret(file, "")
        assert reload(server).endswith("changed: publish_keys")
        assert publish(caller, "").status == 201


def test_an_address_that_would_change(tmp_path: Path) -> None:
    """Keys are kept if the file removes both them and the public address, since the address stays until a restart."""
    file = secret(tmp_path / "pushup.toml", f'publish_keys = ["{KEY}"]\nlisten = ["0.0.0.0:0"]\n')
    with started(file, tmp_path) as (process, log):
        secret(file, 'listen = ["127.0.0.1:0"]\n')
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: "cannot reload" in log.read_text(), "the refusal")
        said = "listen, whose value changes only with a restart: anyone who can reach 0.0.0.0:0 could publish"
        assert said in log.read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0


class started:  # noqa: N801 - used as a function
    """A server configured only by a file."""

    def __init__(self, config: Path, directory: Path) -> None:
        self._log = directory / "server.log"
        self._config = config

    def __enter__(self) -> tuple[subprocess.Popen[bytes], Path]:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pushup", "serve", "--config", str(self._config)],
                stdout=subprocess.PIPE, stderr=log, env=clean_environment(),
            )  # fmt: skip
        wait_until(lambda: "listening on" in self._log.read_text(), "the server to listen")
        return self._process, self._log

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


# Tickets.


def test_another_ticket_key(serve: Serve, backend: WebBackend, tmp_path: Path) -> None:
    """With another key, old tickets become invalid: held polls end, and the application is asked again, once."""
    file = secret(tmp_path / "ticket", KEY)
    with (
        serve(authorize_url=backend.url, ticket_key_file=file) as server,
        server.caller() as polls,
        server.caller() as caller,
    ):
        cursor = caller.cursor()
        first = caller.call("GET", poll_path("a", timeout=0)).value["ticket"]
        now = int(time.time())
        forged = Tickets(KEY.encode()).seal(("a",), issued_at=now, expires=now + 600, subject="")
        polls.begin("GET", poll_path("a", cursor=cursor), headers={"PushUp-Ticket": first})
        server.wait_for_held(1)
        assert backend.count == 1
        secret(file, OTHER_KEY)
        assert reload(server).endswith("changed: ticket_key")
        held = polls.finish()
        assert (held.status, held.value["type"]) == (401, "urn:pushup:ticket-expired")
        reply = caller.call("GET", poll_path("a", timeout=0), headers={"PushUp-Ticket": forged})
        assert backend.count == 2
        renewed = {"PushUp-Ticket": reply.value["ticket"]}
        assert "ticket" not in caller.call("GET", poll_path("a", timeout=0), headers=renewed).value
        assert backend.count == 2


def test_a_ticket_key_that_stays(serve: Serve, backend: WebBackend) -> None:
    """A reload that changes nothing keeps tickets valid, even those under a key that the server generated."""
    with serve(authorize_url=backend.url) as server, server.caller() as caller:
        ticket = {"PushUp-Ticket": caller.call("GET", poll_path("a", timeout=0)).value["ticket"]}
        assert reload(server).endswith("changed: none")
        assert "ticket" not in caller.call("GET", poll_path("a", timeout=0), headers=ticket).value
        assert backend.count == 1


def test_url_tickets(serve: Serve, tmp_path: Path) -> None:
    """They are switched on and off while the server runs; with another key, old ones and the streams on them end."""
    ticket_key = secret(tmp_path / "ticket", KEY)
    lines = [f'{name} = "{value}"' for name, value in SETTINGS.items()]
    off = "\n".join((*lines, f'ticket_key_file = "{ticket_key}"', ""))
    config = secret(tmp_path / "pushup.toml", off)
    issuer = TokenIssuer(60.0, poll=["a"])
    page = {"Origin": "https://app.example"}

    def issue(caller: Caller) -> Reply:
        return caller.call("POST", "/v1/url-tickets", {"channels": ["a"], "token": issuer.token()}, page)

    def status(ticket: str) -> bytes:
        with server.connect() as client:
            client.send(get(f"/v1/events?channel=a&ticket={ticket}", f"Origin: {page['Origin']}"))
            return client.read_until(b"\r\n\r\n").split(b" ")[1]

    with serve("--config", str(config)) as server, server.caller() as caller:
        assert issue(caller).status == 404
        secret(config, f"{off}token_url_tickets = true\n")
        assert reload(server).endswith("changed: token_url_tickets")
        ticket = issue(caller).value["ticket"]
        assert status(ticket) == b"200"
        with server.connect() as stream:
            stream.send(get(f"/v1/events?channel=a&ticket={ticket}", f"Origin: {page['Origin']}"))
            stream.read_until(b"retry")
            secret(ticket_key, OTHER_KEY)
            assert reload(server).endswith("changed: ticket_key")
            stream.read_until(b"urn:pushup:invalid-token")
        assert status(ticket) == b"401"
        assert status(issue(caller).value["ticket"]) == b"200"
        secret(config, off)
        reload(server)
        assert issue(caller).status == 404
        assert status(ticket) == b"400"
        assert ticket.rpartition(".")[2] not in "\n".join(server.log_lines())


# Certificates.


def test_certificates_of_the_application(serve: Serve, tmp_path: Path, stack: ExitStack) -> None:
    """After SIGHUP, the application is asked over new connections, using the certificates trusted by then; until
    then, open connections stay in use."""
    certificate, key = write_certificate(tmp_path / "application", "127.0.0.1")
    stranger, _ = write_certificate(tmp_path / "stranger", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    backend = stack.enter_context(web_backend(context))
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(certificate.read_bytes())
    with serve(authorize_url=backend.url, environment={"SSL_CERT_FILE": str(trusted)}) as server:
        server.expect_log("authorization is failing")
        caller = stack.enter_context(server.caller())

        def asked(channel: str) -> tuple[int, int]:
            return caller.call("GET", poll_path(channel, timeout=0)).status, backend.connections

        lines = len(server.log_lines())
        assert [asked(name) for name in "abc"] == [(200, 1)] * 3
        assert server.log_lines()[lines:] == []
        trusted.write_bytes(stranger.read_bytes())
        assert asked("d") == (200, 1)
        reload(server)
        assert asked("e")[0] == 503
        assert "is not signed by an authority" in server.log_lines()[-1]
        trusted.write_bytes(certificate.read_bytes())
        status, connections = asked("f")  # after a failed connection it reloads the certificates by itself
        assert status == 200
        reload(server)
        assert [asked(name) for name in "gh"] == [(200, connections + 1)] * 2


def test_certificates_of_redis(tmp_path: Path, stack: ExitStack) -> None:
    """Each connection to Redis uses the certificates trusted at that moment; SIGHUP leaves it open."""
    certificate, key = write_certificate(tmp_path / "redis", "127.0.0.1")
    stranger, _ = write_certificate(tmp_path / "stranger", "127.0.0.1")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(stranger.read_bytes())
    redis = RedisServer(tmp_path / "redis")
    stack.callback(redis.kill)
    port = free_port()
    redis.start(
        "--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key),
        "--tls-auth-clients", "no",
    )  # fmt: skip
    cluster = RedisCluster(redis, tmp_path, stack)
    server = cluster.start(f"rediss://127.0.0.1:{port}", environment={"SSL_CERT_FILE": str(trusted)}, ready=False)
    wait_until(lambda: any("is not signed by an authority" in line for line in server.log_lines()), "the refusal")
    trusted.write_bytes(certificate.read_bytes())
    cluster.wait_until_ready(0)
    connections = connections_of_nodes(redis)
    assert connections
    trusted.write_bytes(stranger.read_bytes())
    reload(server)
    assert cluster.callers[0].publish(["a"], 1)
    assert connections_of_nodes(redis) == connections
    assert cluster.trouble() == []


def connections_of_nodes(redis: RedisServer) -> list[str]:
    """The ids of the nodes' connections."""
    clients: str = redis.ask("CLIENT", "LIST").decode()
    return [line.split()[0] for line in clients.splitlines() if " name=pushup " in line]


# The log.


@pytest.mark.parametrize("workers", ["1", "2"])
def test_quotas_change_while_polls_are_held(serve: Serve, tmp_path: Path, workers: str) -> None:
    """A client whose address may ask for less is refused, at whichever worker; the held poll goes on.

    Workers apply new settings a moment after their parent has logged that it has.
    """
    quota = '[[quotas]]\nper = "address"\n'
    config = secret(tmp_path / "pushup.toml", quota + "held_polls = 100\n")
    with serve("--config", str(config), "--workers", workers) as server, server.caller() as polls:

        def reply_with(status: int, ask: Callable[[Caller], Reply]) -> Reply:
            """That of the first worker that replies so."""
            replies: list[Reply] = []

            def has_come() -> bool:
                with server.caller() as caller:
                    replies.append(ask(caller))
                return replies[-1].status == status

            wait_until(has_come, f"status {status}")
            return replies[-1]

        with server.caller() as caller:
            polls.begin_poll("a", cursor=caller.cursor())
        server.wait_for_held(1)
        secret(config, quota + "requests_per_second = 0.01\n")
        reload(server)
        refused = reply_with(429, lambda caller: caller.call("GET", "/v1/cursor"))
        why = "this client's address has used up its requests_per_second; nothing was done: address '127.0.0.1'"
        assert refused.value["detail"] == why
        assert int(refused.headers["Retry-After"]) > 60
        secret(config, quota + "held_polls = 100\n")
        reload(server)
        reply_with(201, lambda caller: publish(caller, "", "still here"))
        assert data_of(polls.answer()) == ["still here"]


def test_the_log_level_changes(serve: Serve, tmp_path: Path) -> None:
    file = secret(tmp_path / "pushup.toml", 'log_level = "info"\n')
    with serve("--config", str(file)) as server, server.caller() as caller:

        def set_level(level: str, key: str) -> None:
            secret(file, f'log_level = "{level}"\npublish_keys = ["{key}"]\n')
            server.signal(signal.SIGHUP)
            wait_until(lambda: publish(caller, key).status == 201, "the key of the new configuration")

        set_level("error", KEY)
        lines = server.log_lines()
        set_level("error", OTHER_KEY)
        set_level("error", KEY)
        assert server.log_lines() == lines
        set_level("info", OTHER_KEY)
        wait_until(lambda: len(server.log_lines()) > len(lines), "the log to speak again")
        assert "settings reloaded; changed: " in server.log_lines()[-1]
        assert "log_level" in server.log_lines()[-1]


def test_request_logging_can_be_switched_on_and_off(serve: Serve, tmp_path: Path) -> None:
    """At debug, each request is logged from the reload on, until the next reload; a poll held meanwhile
    is answered, and another whose client disconnects is dropped."""
    file = secret(tmp_path / "pushup.toml", "")
    with (
        serve("--config", str(file)) as server, server.caller() as polls, server.caller() as goes,
        server.caller() as caller,
    ):  # fmt: skip

        def requests() -> int:
            return sum("POST /v1/messages" in line for line in server.log_lines())

        for client in (polls, goes):
            client.begin_poll("a", cursor=caller.cursor())
        server.wait_for_held(2)
        caller.publish(["b"], 1)
        assert requests() == 0
        secret(file, 'log_level = "debug"\n')
        assert reload(server).endswith("changed: log_level")
        goes.close()
        server.wait_for_held(1)
        caller.publish(["a"], 2)
        wait_until(lambda: requests() == 1, "a line for the request")
        assert data_of(polls.answer()) == [2]
        polls.begin_poll("a", cursor="now")
        server.wait_for_held(1)
        secret(file, 'log_level = "info"\n')
        assert reload(server).endswith("changed: log_level")
        caller.publish(["a"], 3)
        assert data_of(polls.answer()) == [3]
        assert requests() == 1


def test_what_needs_a_restart_is_named(serve: Serve, tmp_path: Path) -> None:
    """Settings that cannot change while running are named on one line, at each reload until they are restored."""
    file = secret(tmp_path / "pushup.toml", "")
    with serve("--config", str(file)) as server, server.caller() as caller:
        server.expect_log("restart to apply")
        changed = f'retention_seconds = "1s"\nbroadcast = "journal:{tmp_path}/a.db"\ndrain_seconds = 9\n'
        secret(file, f'{changed}[[channels]]\nprefix = "a"\n')
        for times in (1, 2):
            assert reload(server).endswith("settings reloaded; changed: none")
            wait_until(lambda n=times: len(reloads(server)) == 2 * n, "the other line")  # type: ignore[misc]
            assert reloads(server)[-1].endswith(
                " warn  restart to apply: broadcast, retention_seconds, channels, drain_seconds"
            )
        assert publish(caller, "").status == 201
        assert not (tmp_path / "a.db").exists()
        secret(file, "")
        assert reload(server).endswith("settings reloaded; changed: none")
        secret(file, f'retention_seconds = "1s"\npublish_keys = ["{KEY}"]\n')
        assert reload(server).endswith("settings reloaded; changed: publish_keys")
        assert publish(caller, "").status == 401


# The signal.


def test_flags_and_environment_still_win(serve: Serve, tmp_path: Path) -> None:
    file = secret(tmp_path / "pushup.toml", 'log_level = "debug"\n')
    environment = {"PUSHUP_PUBLISH_KEYS": KEY}
    with serve("--config", str(file), "--log-level", "info", environment=environment) as server:
        secret(file, f'publish_keys = ["{OTHER_KEY}"]\nlog_level = "error"\n')
        assert reload(server).endswith("changed: none")
        with server.caller() as caller:
            assert publish(caller, KEY).status == 201
            assert publish(caller, OTHER_KEY).status == 403


def test_a_configuration_that_can_be_read_once(serve: Serve, tmp_path: Path) -> None:
    """A configuration read from a pipe stays in force, and the reload does not wait for the pipe."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(f'publish_keys = ["{KEY}"]\n'))
    writer.start()
    with serve("--config", str(pipe)) as server, server.caller() as caller:
        writer.join()
        server.expect_log("cannot reload")
        assert f"{pipe} is not a regular file" in reload(server)
        assert publish(caller, KEY).status == 201
        assert publish(caller, "").status == 401


def test_many_signals(serve: Serve, tmp_path: Path) -> None:
    """Signals in quick succession, at the start and while draining, do not end anything early."""
    file = secret(tmp_path / "keys", KEY)
    with serve(publish_keys_file=file, drain_seconds=1) as server, server.caller() as polls, server.caller() as caller:
        for _ in range(200):
            server.signal(signal.SIGHUP)
        polls.begin_poll("a", cursor=caller.cursor())
        server.wait_for_held(1)
        assert publish(caller, KEY).status == 201
        assert data_of(polls.answer()) == [1]
        polls.begin_poll("a", cursor=caller.cursor())
        server.wait_for_held(1)
        server.signal(signal.SIGTERM)
        wait_until(lambda: any("draining 1 held" in line for line in server.log_lines()), "the server to drain")
        server.signal(signal.SIGHUP)
        assert data_of(polls.answer()) == []
        for client in (polls, caller):
            client.close()
        assert server.wait() == 0


def test_a_signal_while_it_starts(tmp_path: Path) -> None:
    """A server that gets SIGHUP before it listens reloads its settings as soon as it does."""
    code = (
        "import os, signal, sys\n"
        "import pushup.cli, pushup.host.preflight\n"
        "found = pushup.host.preflight.troubles\n"
        "def troubles(settings):\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    return found(settings)\n"
        "pushup.host.preflight.troubles = troubles\n"
        "pushup.cli.main(['serve', '--listen', '127.0.0.1:0'])\n"
    )
    log = tmp_path / "log"
    with (
        log.open("wb") as stderr,
        subprocess.Popen(
            [sys.executable, "-c", code], stdout=stderr, stderr=stderr, env=clean_environment()
        ) as process,
    ):
        try:
            wait_until(lambda: "settings reloaded" in log.read_text(), "the reload")
            assert log.read_text().index("listening on") < log.read_text().index("settings reloaded")
            process.terminate()
            assert process.wait(WAIT_SECONDS) == 0
        finally:
            process.kill()


@pytest.mark.parametrize("nohup", [False, True])
def test_a_terminal_that_is_closed(tmp_path: Path, nohup: bool) -> None:
    """A server in a terminal ends with it, after draining its clients; under nohup it continues."""
    log = tmp_path / "log"
    terminal, its_end = pty.openpty()

    def belong_to_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        # Either way: these tests may run under nohup themselves.
        signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)

    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "pushup", "serve", "--listen", "127.0.0.1:0"],
            stdin=its_end, stdout=stderr, stderr=stderr, env=clean_environment(), preexec_fn=belong_to_terminal,
        )  # fmt: skip
    try:
        os.close(its_end)
        wait_until(lambda: "To try it" in log.read_text(), "the server to listen")
        os.close(terminal)
        if nohup:
            wait_until(lambda: "settings reloaded" in log.read_text(), "the reload")
            process.terminate()
        assert process.wait(WAIT_SECONDS) == 0
        assert ("settings reloaded" in log.read_text()) == nohup
        assert "stopped" in log.read_text()
    finally:
        process.kill()
        process.wait()
