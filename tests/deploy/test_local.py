"""`python -m deploy.local`: it starts everything, says where it is, and leaves nothing behind, however it ends."""

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
from deploy.cluster import Cluster, ClusterError, PartFailed, free_ports
from deploy.front import HERE
from deploy.part import Part
from tests.deploy.conversations import caller, wait_until


class Command:
    """A run of the command; all its processes are known by a mark in their environment."""

    def __init__(self, temporary: Path, *flags: str) -> None:
        self.temporary = temporary
        self._mark = str(uuid4())
        environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(HERE.parent), "MARK": self._mark}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "deploy.local", *flags],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    def facts(self) -> dict[str, dict[str, object]]:
        """The line of JSON that says that everything runs."""
        assert self.process.stdout is not None
        facts: dict[str, dict[str, object]] = json.loads(self.process.stdout.readline())
        return facts

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Send it a signal; its exit code, and what it said on standard error."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=20)
        return self.process.returncode, errors

    def left_behind(self) -> list[object]:
        """Processes and files that are still there."""
        found: list[object] = list(self.temporary.iterdir())
        for process in psutil.process_iter():
            try:
                if process.environ().get("MARK") == self._mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process.cmdline())
            except psutil.Error:
                continue
        return found


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files, and a short path: a socket may be in it."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_runs_until_it_is_told_to_stop(temporary: Path, stack: ExitStack, number: signal.Signals) -> None:
    """Everything that the line of JSON names answers; after Ctrl-C or SIGTERM it exits with 0 and nothing is left."""
    command = Command(temporary, "--port", "0", "--nodes", "2", "--json")
    facts = command.facts()
    urls, pids = facts["urls"], facts["pids"]
    assert list(pids) == ["redis", "node1", "node2", "example", "haproxy"]
    assert caller(str(urls["plain"]), stack).call("GET", "/").status == 200
    assert caller(str(urls["inside"]), stack).call("GET", "/v1/cursor").status == 200
    for node in ("node1", "node2"):
        assert caller(str(urls[node]), stack).call("GET", "/readyz").status == 200
    assert len(command.left_behind()) > len(pids)
    assert command.end(number) == (0, ""), "some part did not end by itself, or not in good order"
    assert command.left_behind() == []


@pytest.mark.parametrize("seconds", [0.3, 0.5, 0.8])
def test_ctrl_c_while_it_starts(temporary: Path, seconds: float) -> None:
    """At whatever moment it comes, what has been started is ended."""
    command = Command(temporary, "--port", "0", "--json")
    wait_until(lambda: any(temporary.iterdir()), "it to begin")
    time.sleep(seconds - 0.3)
    code, errors = command.end(signal.SIGINT)
    assert (code, errors) == (0, "")
    assert command.left_behind() == []


def test_ctrl_c_while_it_waits(temporary: Path) -> None:
    """It does not wait for a part that is not ready, either: here nobody is where Redis should be."""
    [port] = free_ports(1)
    command = Command(temporary, "--port", "0", "--json", "--broadcast", f"redis://127.0.0.1:{port}")
    wait_until(lambda: any(temporary.glob("*/node4.log")), "it to begin")
    assert command.end(signal.SIGINT) == (0, "")
    assert command.left_behind() == []


def test_a_part_that_does_not_start(temporary: Path) -> None:
    """It says which and what that said last, ends the others, and exits with 1."""
    command = Command(temporary, "--port", "0", "--json", "--set", "no_such_setting=1")
    code, errors = command.wait()
    assert code == 1
    assert "node1 exited with 1" in errors
    assert "there is no setting 'no_such_setting'" in errors
    assert command.left_behind() == []


def test_a_part_that_dies(temporary: Path) -> None:
    """It says which, and how; the others end, too."""
    command = Command(temporary, "--port", "0", "--nodes", "1", "--json")
    pid = command.facts()["pids"]["node1"]
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGKILL)
    code, errors = command.wait()
    assert code == 1
    assert "node1 was ended by signal 9" in errors
    assert "listening on" in errors
    assert command.left_behind() == []


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process does not end with its parent")
def test_killed_it_leaves_no_process(temporary: Path) -> None:
    """kill -9 of the command ends all parts; only files are left then."""
    command = Command(temporary, "--port", "0", "--nodes", "1", "--json", "--without", "example")
    folder = Path(str(command.facts()["folder"]))
    assert command.end(signal.SIGKILL)[0] == -signal.SIGKILL
    wait_until(lambda: command.left_behind() == [folder], "all parts to end")


def test_one_node_without_redis(temporary: Path, stack: ExitStack) -> None:
    """`--broadcast memory:` is for one node, and says so if there are more."""
    command = Command(temporary, "--port", "0", "--nodes", "1", "--json", "--broadcast", "memory:")
    facts = command.facts()
    assert "redis" not in facts["pids"]
    assert caller(str(facts["urls"]["plain"]), stack).call("GET", "/v1/cursor").status == 200
    assert command.end(signal.SIGTERM) == (0, "")
    code, errors = Command(temporary, "--broadcast", "memory:").wait()
    assert (code, errors) == (1, "Error: 4 nodes need a broadcast that they share; 'memory:' is for one node\n")


def test_a_port_that_is_taken() -> None:
    """It is named before anything starts."""
    [first] = free_ports(1)
    with socket.create_server(("127.0.0.1", first + 81)), pytest.raises(ClusterError, match=f"{first + 81}, for node1"):
        Cluster(first_port=first)


def test_a_program_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to install."""
    monkeypatch.setitem(cluster_module.PACKAGES, "no-such-program", "its-package")
    with pytest.raises(ClusterError, match=r"no-such-program[.] On Debian: apt-get install its-package"):
        Cluster().start()


def test_a_part_that_is_never_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while the cluster gives up, and says who it was."""
    monkeypatch.setattr("deploy.part.START_SECONDS", 1.0)
    [port] = free_ports(1)
    with pytest.raises(PartFailed, match="node1 was not ready after 1 s"):
        Cluster(nodes=1, broadcast=f"redis://127.0.0.1:{port}", without=["haproxy", "example"]).start()


def test_a_part_that_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is killed after a while, and whoever waits for it is told."""
    monkeypatch.setattr("deploy.part.STOP_SECONDS", 1.0)
    deaf = "trap '' TERM; touch deaf; while true; do sleep 0.1; done"
    part = Part(
        "node1", ["sh", "-c", deaf], environment=os.environ, folder=tmp_path, is_ready=(tmp_path / "deaf").exists
    )
    part.start()
    part.stop()
    assert not part.runs
    assert capsys.readouterr().err == "node1 has not ended after 1 s and is killed.\n"


def test_parts_come_and_go(stack: ExitStack, capsys: pytest.CaptureFixture[str]) -> None:
    """A part that was killed, frozen or stopped comes back where it was, and Redis with what it had."""
    with Cluster(nodes=1, without=["example", "haproxy"]) as cluster:
        node = caller(cluster.urls["node1"], stack)
        key = {"Authorization": f"Bearer {cluster.publish_key}"}
        node.call("POST", "/v1/messages", {"channels": ["a"], "data": 1}, key)
        cluster.kill_part("node1")
        cluster.kill_part("redis")
        assert cluster.pids == {"redis": None, "node1": None}
        cluster.start_part("redis")
        cluster.start_part("node1")
        node.close()
        assert len(node.poll("a", timeout=0)["messages"]) == 1
        cluster.freeze_part("node1")
        process = psutil.Process(cluster.pids["node1"])
        wait_until(lambda: process.status() == psutil.STATUS_STOPPED, "it to be frozen")
        cluster.thaw_part("node1")
        assert node.call("GET", "/healthz").status == 200
        cluster.freeze_part("node1")  # and it can be ended all the same
        folder = cluster.folder
    assert capsys.readouterr().err == "", "nothing had to be killed"
    assert not folder.exists()
