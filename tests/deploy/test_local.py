"""`python -m deploy.local`: it starts everything, prints the addresses, and leaves nothing behind, however it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from deploy import cluster as cluster_module
from deploy.cluster import Cluster, ClusterError, free_ports
from deploy.front import HERE
from deploy.part import Part, PartFailed
from deploy.restarts import PAUSE_SECONDS, RESTARTS_LIMIT, WITHIN_SECONDS, Restarts
from tests.deploy.conversations import caller, publish, wait_until


class Command:
    """A run of the command; an environment variable marks all its processes."""

    def __init__(self, temporary: Path, *flags: str) -> None:
        self.temporary = temporary
        self._mark = str(uuid4())
        environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(HERE.parent), "MARK": self._mark}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "deploy.local", *flags],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    def facts(self) -> dict[str, dict[str, object]]:
        """The line of JSON that the command prints once everything runs."""
        assert self.process.stdout is not None
        facts: dict[str, dict[str, object]] = json.loads(self.process.stdout.readline())
        return facts

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Send it a signal; returns its exit code and its standard error."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=20)
        return self.process.returncode, errors

    def pid_of(self, address: str, *, not_: int) -> int | None:
        """The new process that serves at this address; None when the command has ended."""
        found: list[int] = []

        def is_there() -> bool:
            found[:] = [
                process.pid
                for process in psutil.process_iter()
                if process.pid != not_ and address in _command_line(process) and "setpriv" not in _command_line(process)
            ]
            return bool(found) or self.process.poll() is not None

        wait_until(is_there, f"another process at {address}")
        return found[0] if found else None

    def has_part(self, line: list[str], *, not_: int) -> bool:
        """Whether it runs another process with this command line."""
        parts = psutil.Process(self.process.pid).children()
        return any(part.pid != not_ and _command_line(part) == line for part in parts)

    def left_behind(self) -> list[object]:
        """Its remaining processes and files."""
        found: list[object] = list(self.temporary.iterdir())
        for process in psutil.process_iter():
            try:
                if process.environ().get("MARK") == self._mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process.cmdline())
            except psutil.Error:
                continue
        return found


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files, with a path short enough for a socket."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_runs_until_it_is_told_to_stop(temporary: Path, stack: ExitStack, number: signal.Signals) -> None:
    """Every address in the line of JSON responds; after Ctrl-C or SIGTERM it exits with 0 and leaves nothing."""
    command = Command(temporary, "--port", "0", "--nodes", "2", "--json")
    facts = command.facts()
    urls, pids = facts["urls"], facts["pids"]
    assert list(pids) == ["redis", "node1", "node2", "example", "haproxy"]
    assert caller(str(urls["plain"]), stack).call("GET", "/").status == 200
    assert caller(str(urls["inside"]), stack).call("GET", "/v1/cursor").status == 200
    for node in ("node1", "node2"):
        assert caller(str(urls[node]), stack).call("GET", "/readyz").status == 200
    assert len(command.left_behind()) > len(pids)
    assert command.end(number) == (0, ""), "some part had to be killed, or failed"
    assert command.left_behind() == []


@pytest.mark.parametrize("seconds", [0.3, 0.5, 0.8])
def test_ctrl_c_while_it_starts(temporary: Path, seconds: float) -> None:
    """Whenever it comes, everything that was started is stopped."""
    command = Command(temporary, "--port", "0", "--json")
    wait_until(lambda: any(temporary.iterdir()), "it to begin")
    time.sleep(seconds - 0.3)
    code, errors = command.end(signal.SIGINT)
    assert (code, errors) == (0, "")
    assert command.left_behind() == []


def test_ctrl_c_while_it_waits_for_a_part(temporary: Path) -> None:
    """It does not wait for a part that is not ready either: here Redis is missing."""
    [port] = free_ports(1)
    command = Command(temporary, "--port", "0", "--json", "--broadcast", f"redis://127.0.0.1:{port}")
    wait_until(lambda: any(temporary.glob("*/node4.log")), "it to begin")
    assert command.end(signal.SIGINT) == (0, "")
    assert command.left_behind() == []


def test_a_part_that_does_not_start(temporary: Path) -> None:
    """It shows the part and its last output, stops the others, and exits with 1."""
    command = Command(temporary, "--port", "0", "--json", "--set", "no_such_setting=1")
    code, errors = command.wait()
    assert code == 1
    assert "node1 exited with 1" in errors
    assert "unknown setting 'no_such_setting'" in errors
    assert command.left_behind() == []


def test_a_part_that_dies(temporary: Path, stack: ExitStack) -> None:
    """It reports the death and restarts the part; meanwhile HAProxy uses the other node, and nothing else ends."""
    command = Command(temporary, "--port", "0", "--nodes", "2", "--json", "--without", "example")
    facts = command.facts()
    urls, pids = facts["urls"], facts["pids"]
    for part in ("node1", "redis", "haproxy"):
        pid = pids[part]
        assert isinstance(pid, int)
        line = _command_line(psutil.Process(pid))
        os.kill(pid, signal.SIGKILL)
        if part == "node1":
            assert caller(str(urls["inside"]), stack).call("GET", "/v1/cursor").status == 200
        # Until it has died, or the others have noticed, all would seem to be well again.
        wait_until(lambda pid=pid, line=line: command.has_part(line, not_=pid), f"another {part}")  # type: ignore[misc]
        wait_until(lambda: _is_ready(str(urls["node1"]), stack), f"all to go on without the first {part}")
    wait_until(lambda: caller(str(urls["inside"]), stack).call("GET", "/v1/cursor").status == 200, "HAProxy to be back")
    code, errors = command.end(signal.SIGTERM)
    assert code == 0
    assert "node1 was ended by signal 9" in errors
    assert "listening on" in errors
    assert "Restarting node1 in 1 s." in errors
    assert "Restarting redis in 1 s." in errors
    assert command.left_behind() == []


def _is_ready(url: str, stack: ExitStack) -> bool:
    return caller(url, stack).call("GET", "/readyz").status == 200


def test_a_part_that_dies_again_and_again(temporary: Path) -> None:
    """After the sixth time within a minute it stays down; without its only node the cluster ends, with 1."""
    command = Command(
        temporary, "--port", "0", "--nodes", "1", "--json", "--broadcast", "memory:", "--without", "example"
    )
    facts = command.facts()
    address = str(facts["urls"]["node1"]).removeprefix("http://")
    pid: object = facts["pids"]["node1"]
    for _ in range(6):
        assert isinstance(pid, int)
        os.kill(pid, signal.SIGKILL)
        pid = command.pid_of(address, not_=pid)
    code, errors = command.wait()
    assert code == 1
    assert errors.count("Restarting node1") == 5
    assert "node1 has died 6 times within a minute, so it stays down." in errors
    assert command.left_behind() == []


class Patient:
    """A part that runs until a test says that it has died."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.runs = True
        self.starts = 0

    def obituary(self) -> str:
        return f"{self.name} died."

    def restart(self) -> None:
        self.runs = True
        self.starts += 1


class Patients:
    """Parts, and the messages about them."""

    def __init__(self, *names: str) -> None:
        self.parts = {name: Patient(name) for name in names}
        self.said: list[str] = []
        nodes = [name for name in names if name.startswith("node")]
        self.restarts = Restarts(self.parts, nodes, say=self.said.append)

    def die(self, name: str, now: float) -> None:
        """Let a part die, be noticed, and be restarted if that is due."""
        self.parts[name].runs = False
        self.restarts.check(now)
        self.restarts.check(now + PAUSE_SECONDS)


def test_a_restart_takes_a_moment() -> None:
    """A part is restarted after a pause, once, and each death is reported once."""
    patients = Patients("node1", "node2")
    patients.parts["node1"].runs = False
    for hundredths in range(round(100 * PAUSE_SECONDS)):
        patients.restarts.check(10 + hundredths / 100)
    assert (patients.parts["node1"].starts, patients.said) == (0, ["node1 died.\nRestarting node1 in 1 s."])
    patients.restarts.check(10 + PAUSE_SECONDS)
    patients.restarts.check(11 + PAUSE_SECONDS)
    assert (patients.parts["node1"].starts, patients.parts["node2"].starts, len(patients.said)) == (1, 0, 1)


def test_old_deaths_do_not_count() -> None:
    """A part that dies rarely is always restarted."""
    patients = Patients("node1", "node2")
    for number in range(50):
        patients.die("node1", number * (WITHIN_SECONDS / RESTARTS_LIMIT + 1))
    assert patients.parts["node1"].starts == 50


def test_some_nodes_may_stay_down() -> None:
    """The cluster goes on without a node that stays down, but not without the last one or any other part."""
    patients = Patients("redis", "node1", "node2")
    for number in range(RESTARTS_LIMIT + 3):
        patients.die("node1", float(number))
    assert patients.parts["node1"].starts == RESTARTS_LIMIT
    assert patients.said[-1] == "node1 died.\nnode1 has died 6 times within a minute, so it stays down."
    for name in ("node2", "redis"):
        for number in range(RESTARTS_LIMIT):
            patients.die(name, 100.0 + number)
        with pytest.raises(PartFailed, match=f"{name} has died 6 times"):
            patients.die(name, 100.0 + RESTARTS_LIMIT)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process does not end with its parent")
def test_a_killed_command_leaves_no_process(temporary: Path) -> None:
    """kill -9 of the command ends all parts; only files are left."""
    command = Command(temporary, "--port", "0", "--nodes", "1", "--json", "--without", "example")
    folder = Path(str(command.facts()["folder"]))
    assert command.end(signal.SIGKILL)[0] == -signal.SIGKILL
    wait_until(lambda: command.left_behind() == [folder], "all parts to end")


def test_one_node_without_redis(temporary: Path, stack: ExitStack) -> None:
    """`--broadcast memory:` is for one node; with more, the command fails and says so."""
    command = Command(temporary, "--port", "0", "--nodes", "1", "--json", "--broadcast", "memory:")
    facts = command.facts()
    assert "redis" not in facts["pids"]
    assert caller(str(facts["urls"]["plain"]), stack).call("GET", "/v1/cursor").status == 200
    assert command.end(signal.SIGTERM) == (0, "")
    code, errors = Command(temporary, "--broadcast", "memory:").wait()
    assert (code, errors) == (1, "Error: 4 nodes need a shared broadcast, such as redis; 'memory:' is for one node\n")


def test_a_port_that_is_taken() -> None:
    """The error names the port, before anything starts."""
    # Another cluster that runs now may have one of the ports that follow from the first.
    first = next(first for first in free_ports(100) if not _taken(first))
    with socket.create_server(("127.0.0.1", first + 81)), pytest.raises(ClusterError, match=f"{first + 81}, for node1"):
        Cluster(first_port=first)


def _taken(first: int) -> bool:
    """Whether one of the ports that follow from the first is in use."""
    try:
        Cluster(first_port=first)
    except ClusterError:
        return True
    return False


def test_several_haproxies_need_the_tcp_front() -> None:
    """The other front's ports are for one HAProxy."""
    with pytest.raises(ClusterError, match="2 HAProxies need front='tcp'"):
        Cluster(haproxies=2)


def test_a_program_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    monkeypatch.setitem(cluster_module.PACKAGES, "no-such-program", "its-package")
    with pytest.raises(ClusterError, match=r"no-such-program[.] On Debian: apt-get install its-package"):
        Cluster().start()


def test_a_part_that_is_never_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while the cluster gives up, and names the part."""
    monkeypatch.setattr("deploy.part.START_SECONDS", 1.0)
    [port] = free_ports(1)
    with pytest.raises(PartFailed, match="node1 was not ready after 1 s"):
        Cluster(nodes=1, broadcast=f"redis://127.0.0.1:{port}", without=["haproxy", "example"]).start()


def test_a_part_that_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is killed after a while, and a message says so."""
    monkeypatch.setattr("deploy.part.STOP_SECONDS", 1.0)
    deaf = "trap '' TERM; touch deaf; while true; do sleep 0.1; done"
    part = Part(
        "node1", ["sh", "-c", deaf], environment=os.environ, folder=tmp_path, is_ready=(tmp_path / "deaf").exists
    )
    part.start()
    part.stop()
    assert not part.runs
    assert capsys.readouterr().err == "node1 has not stopped within 1 s; killing it.\n"


def test_parts_can_be_killed_and_started_again(stack: ExitStack, capsys: pytest.CaptureFixture[str]) -> None:
    """A part that was killed, frozen or stopped comes back at the same address, and Redis with its data."""
    with Cluster(nodes=1, without=["example", "haproxy"]) as cluster:
        publish(cluster, ["a"], 1, at="node1")
        cluster.kill_part("node1")
        cluster.kill_part("redis")
        assert cluster.pids == {"redis": None, "node1": None}
        cluster.start_part("redis")
        cluster.start_part("node1")
        node = caller(cluster.urls["node1"], stack)
        assert len(node.poll("a", timeout=0)["messages"]) == 1
        cluster.freeze_part("node1")
        process = psutil.Process(cluster.pids["node1"])
        wait_until(lambda: process.status() == psutil.STATUS_STOPPED, "it to be frozen")
        cluster.thaw_part("node1")
        assert node.call("GET", "/healthz").status == 200
        cluster.freeze_part("node1")  # a frozen part can be stopped, too
        folder = cluster.folder
    assert capsys.readouterr().err == "", "nothing had to be killed"
    assert not folder.exists()
