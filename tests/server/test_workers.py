"""Several worker processes behind one address: they act as one server, and one that dies is not missed."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

import pushup
from tests.server.caller import Caller, data_of, poll_path
from tests.server.command_line import error_of
from tests.server.conftest import Serve
from tests.server.raw_client import WAIT_SECONDS, RawClient, get, post
from tests.server.redis_server import RedisServer, free_port
from tests.server.server_process import Server, clean_environment, wait_until, workers_of

CLIENTS = 40
"""So many connections are never all of one worker: one in 10**12 times."""

MARK_RUN = "import os, pathlib\npathlib.Path(__file__).with_name(f'{os.getpid()}.was-run').touch()\n"
"""A module that leaves a file for each process that runs it."""

KEY = "a-publish-key-of-27-letters"
OTHER_KEY = "another-publish-key-of-35-characters"


def gauges(server: Server, name: str) -> dict[str, float]:
    """This gauge of each worker."""
    with server.caller() as caller:
        text = caller.call("GET", "/metrics").text
    found = re.findall(rf'^pushup_{name}{{worker="(.*?)"}} (\S+)$', text, re.MULTILINE)
    return {worker: float(value) for worker, value in found}


def hold(server: Server, stack: ExitStack, channel: str, count: int = CLIENTS) -> list[Caller]:
    """So many clients whose polls are held."""
    callers = [stack.enter_context(server.caller()) for _ in range(count)]
    before = int(server.metric("held_polls"))
    for caller in callers:
        caller.begin_poll(channel, cursor="now", timeout=60)
    server.wait_for_held(before + count)
    return callers


def try_to_poll(caller: Caller, *channels: str, **parameters: object) -> dict[str, Any]:
    """A poll by a client that reconnects, and comes back after a refusal."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            reply = caller.call("GET", poll_path(*channels, **parameters))
            if reply.status == 200:
                value: dict[str, Any] = reply.value
                return value
        except OSError:
            caller.close()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def follow(caller: Caller, channel: str, cursor: str, count: int) -> list[Any]:
    """The data of at least so many messages after a cursor; the client's worker may yet have to apply the last ones."""
    data: list[Any] = []
    while len(data) < count:
        answer = try_to_poll(caller, channel, cursor=cursor)
        data, cursor = data + data_of(answer), answer["cursor"]
    return data


def listens(worker: psutil.Process) -> bool:
    """Whether new clients can get to this worker."""
    with suppress(psutil.Error):  # it has ended
        return any(each.status == psutil.CONN_LISTEN for each in worker.net_connections())
    return False


def wait_for_another(server: Server, old: psutil.Process) -> None:
    """Wait until another process has taken the place of this one of two workers, and both serve clients."""

    def is_replaced() -> bool:
        now = workers_of(server)
        return len(now) == 2 and old.pid not in [worker.pid for worker in now]

    wait_until(is_replaced, "a new worker")
    wait_until(lambda: gauges(server, "ready") == {"1": 1.0, "2": 1.0}, "the new one to be ready")


def replaced(server: Server, number: int = 1) -> None:
    """Expect the log lines of workers that are killed."""
    server.expect_log(rf"worker {number} died \(SIGKILL\).* is being replaced")


@pytest.mark.parametrize("strategy", ["epoll", "reactor"])
def test_they_are_one_server(serve: Serve, stack: ExitStack, strategy: str) -> None:
    """Every client gets what is published through any worker, in one order; metrics are of all workers."""
    with serve("--workers", "2", wait_strategy=strategy) as server:
        waiting = hold(server, stack, "a")
        assert len(workers_of(server)) == 2
        held = gauges(server, "held_polls")
        assert held.keys() == {"1", "2"}
        assert min(held.values()) > 0
        with server.caller() as caller:
            caller.call("POST", "/v1/channels", {"name": "a"})
            assert caller.call("GET", "/v1/channels/a").value["subscribers"] == CLIENTS
            assert caller.call("GET", "/v1/channels").value["channels"][0]["subscribers"] == CLIENTS
            caller.publish(["a"], "first")
        answers = [caller.answer() for caller in waiting]
        assert all(data_of(answer) == ["first"] for answer in answers)
        published = [caller.publish(["a"], number)["id"] for number, caller in enumerate(waiting)]
        assert [int(id_.rpartition("-")[2]) for id_ in published] == list(range(3, 3 + CLIENTS))
        for caller, answer in zip(waiting, answers, strict=True):
            assert follow(caller, "a", answer["cursor"], CLIENTS) == list(range(CLIENTS))
        assert server.metric("messages_total") == 1 + CLIENTS
        assert server.metric("deliveries_total") == CLIENTS * (1 + CLIENTS)
        assert server.metric("workers_replaced_total") == 0


def test_nodes_and_acknowledgements(serve: Serve) -> None:
    """Each worker is a node; `stable` means all of them."""
    with serve("--workers", "3", node_name="here") as server, server.caller() as caller:

        def nodes() -> list[tuple[str, str]]:
            found = caller.call("GET", "/v1/nodes").value["nodes"]
            return sorted((node["id"], node["name"]) for node in found)

        wait_until(lambda: nodes() == [(n, f"here worker {n}") for n in "123"], "all nodes")
        reply = caller.call("POST", "/v1/messages", {"channels": ["a"], "data": 1, "ack": "stable"})
        assert (reply.status, reply.value["ack"], reply.value["nodes"]) == (201, "stable", 3)


def test_a_worker_that_is_killed_is_replaced(serve: Serve, stack: ExitStack) -> None:
    """Its clients reconnect, go on with their cursors at the others, and miss nothing; so do those of the new one."""
    with serve("--workers", "2") as server:
        replaced(server)
        waiting = hold(server, stack, "a")
        before = workers_of(server)
        with server.caller() as caller:
            cursor = caller.cursor()
        before[0].kill()
        with server.caller() as caller:
            wait_until(lambda: _published(caller, "while it is down"), "a publication")
        for caller in waiting:
            try:
                assert data_of(caller.answer()) == ["while it is down"]
            except OSError:
                caller.close()
                assert data_of(try_to_poll(caller, "a", cursor=cursor)) == ["while it is down"]
        wait_for_another(server, before[0])
        assert workers_of(server)[1].pid == before[1].pid
        for caller in (stack.enter_context(server.caller()) for _ in range(CLIENTS)):
            assert data_of(caller.poll("a", cursor=cursor)) == ["while it is down"]
        assert server.metric("workers_replaced_total") == 1


def _published(caller: Caller, data: object) -> bool:
    try:
        return bool(caller.publish(["a"], data, key=str(data)))
    except OSError:
        caller.close()
        return False


def test_all_workers_die_and_nothing_is_lost(serve: Serve) -> None:
    """The parent has the state, even if the messages are only in memory."""
    with serve("--workers", "2") as server, server.caller() as caller:
        replaced(server, 1)
        replaced(server, 2)
        caller.publish(["a"], "kept")
        for worker in workers_of(server):
            worker.kill()
        caller.close()
        assert data_of(try_to_poll(caller, "a")) == ["kept"]


def test_a_stuck_worker_is_replaced(serve: Serve) -> None:
    """It sends no heartbeat. Meanwhile others serve new clients, and nothing is stable that it has not applied."""
    with serve("--workers", "2") as server:
        server.expect_log(r"killing worker 1: no heartbeat for 1\d s")
        server.expect_log("worker 1 died")
        server.expect_log("Fatal Python error|Current thread|File|Thread|^$|Extension")
        first = workers_of(server)[0]
        first.suspend()
        with server.caller() as caller:
            caller.move_to(server.address)
            wait_until(lambda: _stable(server) == "accepted", "a publication through the other worker")
        wait_until(lambda: first.pid not in [worker.pid for worker in workers_of(server)], "its end", 30)
        wait_until(lambda: _stable(server) == "stable", "stable again", 30)


def _stable(server: Server) -> str | None:
    """What a publication that should be stable reached; None if its connection was the stuck worker's."""
    body = json.dumps({"channels": ["a"], "data": 1, "ack": "stable", "ack_timeout": 0.3}).encode()
    with socket.create_connection(server.address.split(":"), timeout=1) as sock:  # type: ignore[arg-type]
        head = f"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        try:
            sock.sendall(head.encode() + body)
            answer = sock.recv(4096)
        except OSError:  # it did not answer in time, or was killed
            return None
    return json.loads(answer.partition(b"\r\n\r\n")[2])["ack"] if answer else None


def test_the_parent_hangs(serve: Serve) -> None:
    """Publishers, readiness and metrics are answered meanwhile; when it runs again, all is as before."""
    with serve("--workers", "2") as server, server.caller() as caller, server.caller() as publisher:
        server.expect_log("the parent process has not responded for . s; publishing is refused until it does")
        server.signal(signal.SIGSTOP)
        reply = publisher.call("POST", "/v1/messages", {"channels": ["a"], "data": 1, "ack": "stable"})
        assert (reply.status, "may or may not" in reply.value["detail"]) == (503, True)
        assert publisher.call("POST", "/v1/messages", {"channels": ["a"], "data": 2}).status == 503
        wait_until(lambda: caller.call("GET", "/readyz").status == 503, "the other not to be ready")
        assert server.metric("ready") == 0
        server.signal(signal.SIGCONT)
        wait_until(lambda: gauges(server, "ready") == {"1": 1.0, "2": 1.0}, "both to be ready again")
        assert publisher.call("POST", "/v1/messages", {"channels": ["a"], "data": 3}).status == 201
        assert data_of(publisher.poll("a")) == [1, 3]


def test_the_parent_is_killed(serve: Serve, stack: ExitStack, tmp_path: Path) -> None:
    """Its workers answer their clients and exit; another server can listen there at once, and has all."""
    journal = f"journal:{tmp_path / 'journal.db'}"
    with serve("--workers", "2", broadcast=journal, drain_seconds="3s") as server:
        waiting = hold(server, stack, "a")
        workers = workers_of(server)
        with server.caller() as caller:
            caller.publish(["b"], "kept")
        server.end(signal.SIGKILL)
        wait_until(lambda: not any(map(listens, workers)), "the workers to listen no more")
        assert all(worker.is_running() for worker in workers), "they drain"
        with serve("--workers", "2", "--listen", server.address, broadcast=journal) as next_server:
            for client in waiting:
                assert client.answer()["messages"] == []
            gone, alive = psutil.wait_procs(workers, timeout=10)
            assert len(gone) == 2
            assert not alive
            with next_server.caller() as caller:
                assert data_of(caller.poll("b")) == ["kept"]


def test_sigterm_drains_all_workers(serve: Serve, stack: ExitStack) -> None:
    """Held polls are answered over one drain window; then no process is left, and the exit status is 0."""
    with serve("--workers", "3", drain_seconds="1s") as server:
        waiting = hold(server, stack, "a", 300)
        workers = workers_of(server)
        began = time.monotonic()
        server.signal(signal.SIGTERM)
        for caller in waiting:
            reply = caller.finish()
            assert (reply.status, reply.value["messages"]) == (200, [])
        assert server.wait() == 0
        assert time.monotonic() - began > 0.9
        assert not any(worker.is_running() for worker in workers)


def test_a_second_signal_ends_all_at_once(serve: Serve, stack: ExitStack) -> None:
    """The parent ends by it, and its workers notice: they do not drain on, nor keep the port."""
    with serve("--workers", "2", drain_seconds="60s") as server:
        hold(server, stack, "a")
        workers = workers_of(server)
        server.signal(signal.SIGTERM)
        wait_until(lambda: sum("draining" in line for line in server.log_lines()) == 2, "both to drain")
        server.signal(signal.SIGTERM)
        assert server.wait() == -signal.SIGTERM
        assert psutil.wait_procs(workers, timeout=10)[1] == []


def test_idle_connections_of_workers_that_no_balancer_has_asked(serve: Serve, stack: ExitStack) -> None:
    """Its checks may have reached another worker: what it sends on a connection that was idle is still answered."""
    with serve("--workers", "2", drain_seconds="60s") as server:
        idle = [stack.enter_context(server.connect()) for _ in range(CLIENTS)]
        for client in idle:
            client.send(get("/healthz"))
            assert client.read_response().status == 200
        server.signal(signal.SIGTERM)
        wait_until(lambda: sum("draining" in line for line in server.log_lines()) >= 2, "both workers to drain")
        for client in idle:
            client.send(post("/v1/messages", {"channels": ["a"], "data": 1}))
            response = client.read_response()
            assert (response.status, response.headers["connection"]) == (201, "close")


def test_workers_without_connections_stop_at_once(serve: Serve) -> None:
    """No balancer can be using them."""
    with serve("--workers", "2", drain_seconds="60s") as server:
        server.end()


def test_a_worker_that_gets_sigterm_is_replaced(serve: Serve, stack: ExitStack) -> None:
    """It drains and exits; new clients get to the others at once. So an operator can restart them one by one."""
    with serve("--workers", "2", drain_seconds="1s") as server:
        waiting = hold(server, stack, "a")
        first = workers_of(server)[0]
        first.terminate()
        wait_until(lambda: not listens(first), "it to listen no more")
        for _ in range(CLIENTS):
            with server.caller() as caller:
                caller.poll("b", timeout=0)
        wait_for_another(server, first)
        with server.caller() as caller:
            caller.publish(["a"], "still here")
        answers = [caller.answer() for caller in waiting]
        assert {tuple(data_of(answer)) for answer in answers} == {(), ("still here",)}


def test_a_reload_reaches_all(serve: Serve, tmp_path: Path) -> None:
    """Also those that start later."""
    keys = tmp_path / "keys"
    keys.touch(0o600)
    keys.write_text(KEY)
    with serve("--workers", "2", publish_keys_file=str(keys)) as server:
        replaced(server)
        keys.write_text(OTHER_KEY)
        server.signal(signal.SIGHUP)
        wait_until(lambda: _statuses(server) == {201}, "the new key at all workers")
        first = workers_of(server)[0]
        first.kill()
        wait_for_another(server, first)
        assert _statuses(server) == {201}


def _statuses(server: Server) -> set[int]:
    """The statuses of publications with the other key, through several connections."""
    statuses = set()
    for _ in range(CLIENTS):
        with server.caller() as caller:
            headers = {"Authorization": f"Bearer {OTHER_KEY}"}
            try:
                reply = caller.call("POST", "/v1/messages", {"channels": ["a"], "data": 1}, headers)
                statuses.add(reply.status)
            except OSError:  # a worker that was just killed
                continue
    return statuses


def test_tickets_are_valid_at_all_workers(serve: Serve, tmp_path: Path) -> None:
    """Without a ticket key in the settings, too."""
    (tmp_path / "mine.py").write_text("def may_poll(channels, headers):\n    return True\n")
    environment = {"PYTHONPATH": str(tmp_path)}
    with serve("--workers", "2", authorizer="mine:may_poll", environment=environment) as server:
        with server.caller() as caller:
            ticket = caller.call("GET", poll_path("a", timeout=0)).value["ticket"]
        (tmp_path / "mine.py").unlink()
        for _ in range(CLIENTS):
            with server.caller() as caller:
                reply = caller.call("GET", poll_path("a", timeout=0), headers={"PushUp-Ticket": ticket})
                assert (reply.status, "ticket" in reply.value) == (200, False)


def test_other_addresses(serve: Serve, stack: ExitStack, tmp_path: Path) -> None:
    """A Unix socket, which all workers share, and IPv6: served until the end of the drain. Then the path is removed."""
    path = tmp_path / "pushup.sock"
    with serve("--workers", "2", "--listen", f"unix:{path}", "--listen", "[::1]:0", drain_seconds="2s") as server:

        def statuses() -> list[int]:
            found = []
            for address in server.addresses:
                with RawClient(address) as client:
                    client.send(get("/readyz"))
                    found.append(client.read_response().status)
            return found

        assert statuses() == [200, 200]
        first = workers_of(server)[0]
        first.terminate()
        wait_for_another(server, first)
        hold(server, stack, "a")
        server.signal(signal.SIGTERM)
        wait_until(lambda: sum("draining" in line for line in server.log_lines()) == 3, "both to drain")
        assert statuses() == [503, 503]
        assert server.wait() == 0
        assert not path.exists()


def test_another_server_on_the_same_port(serve: Serve) -> None:
    """It says that the port is taken, and takes no clients of the first."""
    with serve("--workers", "2") as server:
        said = f"cannot listen on {server.address}: Address already in use"
        assert said in error_of("serve", "--workers", "2", "--listen", server.address)
        assert said in error_of("serve", "--listen", server.address)


def test_two_servers_that_start_at_once_on_one_port(stack: ExitStack) -> None:
    """One of them serves. The other says that the port is taken, and what to do, although no worker listens yet."""
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "pushup", "serve", "--workers", "2", "--listen", address]
    both = [stack.enter_context(_started(command)) for _ in range(2)]
    wait_until(lambda: any(server.poll() is not None for server in both), "one of them to exit", 30)
    one, other = sorted(both, key=lambda server: server.poll() is None)
    assert one.returncode not in (None, 0)
    assert other.poll() is None
    assert one.stderr is not None
    said = f"cannot listen on {address}: Address already in use; stop the server that uses it"
    assert said in one.stderr.read().decode()
    with Caller(address) as caller:
        wait_until(lambda: _published(caller, "served"), "the other to serve", 30)


@contextmanager
def _started(command: list[str], folder: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment(), cwd=folder
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("name", ["msgspec.py", "signal.py", "pushup/__init__.py"])
def test_workers_run_no_code_of_the_current_directory(stack: ExitStack, tmp_path: Path, name: str) -> None:
    """The program `pushup` does not have it in its path, until it looks for the authorizer there."""
    wrong = tmp_path / name
    wrong.parent.mkdir(exist_ok=True)
    wrong.write_text(f"{MARK_RUN}raise SystemExit(1)\n")
    address = f"127.0.0.1:{free_port()}"
    (tmp_path / "mine.py").write_text("def may_poll(channels, headers):\n    return True\n")
    flags = ["--workers", "2", "--listen", address, "--set", "authorizer=mine:may_poll"]
    stack.enter_context(_started([str(Path(sys.executable).with_name("pushup")), "serve", *flags], tmp_path))
    with Caller(address) as caller:
        wait_until(lambda: _published(caller, "served"), "a worker to serve", 30)
    assert not list(wrong.parent.glob("*.was-run"))


def test_workers_run_the_code_of_the_current_directory_if_the_parent_does(stack: ExitStack, tmp_path: Path) -> None:
    """`python -m pushup` in a checkout: all processes run the checkout."""
    checkout = tmp_path / "pushup"
    checkout.mkdir()
    installed = Path(pushup.__file__).parent
    (checkout / "__init__.py").write_text(f"{MARK_RUN}__path__.append({str(installed)!r})\n__version__ = '0'\n")
    address = f"127.0.0.1:{free_port()}"
    (checkout / "__main__.py").write_text((installed / "__main__.py").read_text())
    command = [sys.executable, "-m", "pushup", "serve", "--workers", "2", "--listen", address]
    stack.enter_context(_started(command, tmp_path))
    with Caller(address) as caller:
        wait_until(lambda: _published(caller, "served"), "a worker to serve", 30)
    wait_until(lambda: len(list(checkout.glob("*.was-run"))) == 3, "the parent and both workers", 30)


def test_ctrl_c_while_workers_start(stack: ExitStack, tmp_path: Path) -> None:
    """Each process gets it, and workers cannot handle it yet. All stop, and the log is as ever."""
    command = [sys.executable, "-m", "pushup", "serve", "--workers", "2", "--listen", "127.0.0.1:0"]
    process = stack.enter_context(_started(command))
    server = Server(process, [], tmp_path)
    wait_until(lambda: len(workers_of(server)) == 2, "processes of both")
    for each in (*workers_of(server), server.process):
        each.send_signal(signal.SIGINT)
    assert server.wait() == 0
    assert process.stderr is not None
    log = process.stderr.read().decode()
    assert "Traceback" not in log
    assert "worker 1: stopped" in log


def test_a_worker_that_cannot_start_says_why(serve: Serve, tmp_path: Path) -> None:
    """In one line, and it is tried again."""
    module = tmp_path / "mine.py"
    module.write_text(allows := "def may_poll(channels, headers):\n    return True\n")
    with serve("--workers", "2", authorizer="mine:may_poll") as server:  # in its current directory
        replaced(server)
        server.expect_log("worker 1: this worker cannot start: authorizer: ")
        module.unlink()
        first = workers_of(server)[0]
        first.kill()
        wait_until(lambda: any("cannot start" in line for line in server.log_lines()), "the reason")
        module.write_text(allows)
        wait_for_another(server, first)


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5"])
def test_a_number_of_workers_that_cannot_be(value: str) -> None:
    assert "workers" in error_of("serve", PUSHUP_WORKERS=value)


def test_workers_with_redis(serve: Serve, stack: ExitStack, redis: RedisServer, tmp_path: Path) -> None:
    """Each follows the log itself, and has a mark of its own; the parent supervises."""
    redis.start()
    state = tmp_path / "state"
    with serve("--workers", "2", broadcast=redis.url, state_directory=str(state)) as server:
        replaced(server)
        server.expect_log("there is no message log in Redis")
        server.expect_log("publishing is refused until it is back")  # a worker that outlives this test for a moment
        wait_until(lambda: gauges(server, "ready") == {"1": 1.0, "2": 1.0}, "both are ready")
        waiting = hold(server, stack, "a")
        with server.caller() as caller:
            caller.publish(["a"], 1)
            wait_until(lambda: len(caller.call("GET", "/v1/nodes").value["nodes"]) == 2, "both nodes")
            nodes = caller.call("GET", "/v1/nodes").value["nodes"]
            assert not any("ticket_key" in node["settings"] for node in nodes)  # the parent made it, and nobody set it
        assert all(data_of(caller.answer()) == [1] for caller in waiting)
        wait_until(lambda: len(list(state.glob("*.mark"))) == 2, "both marks")
        first = workers_of(server)[0]
        first.kill()
        with server.caller() as caller:
            assert data_of(try_to_poll(caller, "a")) == [1]
        wait_for_another(server, first)


def test_one_worker_says_who_takes_the_memory(serve: Serve) -> None:
    """All of them evict the same messages, and count them."""
    told = "Key (none) takes 100 %"
    with serve(workers=2, retention_bytes="64KiB") as server, server.caller() as caller:
        server.expect_log(re.escape(told))
        for _ in range(100):
            caller.publish(["a"], 1)
        name = "publisher_evicted_messages_total"
        labels = 'key="(none)",limit="retention_bytes",prefix="(none)"'
        for worker in "12":
            metric = f'{name}{{{labels},worker="{worker}"}}'
            wait_until(lambda one=metric: server.metric(re.escape(one)) > 5, "the worker to evict")  # type: ignore[misc]
        time.sleep(2.2)  # each looks once a second
        assert [told in line for line in server.log_lines()].count(True) == 1
