"""The Debian package for real: built, then installed, upgraded, removed and purged where systemd is the first process.

The machine is a container with nothing but Debian's base (tests/deploy/containers/install.sh), and without a network.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.front import HERE
from pushup import __version__
from tests.deploy.containers.cluster import Connection, publish, publish_while, reading, wait_until
from tests.deploy.containers.docker import Docker, DockerError, install
from tests.server.caller import Caller, data_of

BUILD_SECONDS = 900
"""How long building the package may take; it is compiled."""

LATER = "99.0"
"""The version of the package to which is upgraded."""

AS_A_MACHINE = (
    "--network", "host", "--cgroupns", "private", "--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE",
    "--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined",
    "--tmpfs", "/run", "--tmpfs", "/tmp", "--env", "container=docker", "--stop-signal", "SIGRTMIN+3",
)  # fmt: skip
"""Flags of `docker run` with which systemd can be the first process. The daemon itself has not all rights either."""

BOOT = """
for mount in /sys/fs/cgroup /sys/fs/cgroup/systemd; do mount -o remount,bind,rw $mount || true; done
exec /lib/systemd/systemd
"""


class Machine:
    """A Debian that runs."""

    def __init__(self, docker: Docker) -> None:
        self._docker = docker

    def run(self, *command: str) -> str:
        """Run a command as root; returns its output. Raises: DockerError."""
        return self._docker.run("exec", "--env", "DEBIAN_FRONTEND=noninteractive", "machine", *command)

    def runs(self, *command: str) -> bool:
        """Whether the command succeeds."""
        try:
            self.run(*command)
        except DockerError:
            return False
        return True

    def call(self) -> Caller:
        """A client of the server, at the address of the package's settings."""
        return Caller(Connection(self._docker, ("127.0.0.1", 8080)))

    def key(self) -> str:
        """The key that the package has made."""
        return self.run("cat", "/etc/pushup/keys").strip()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make deb` builds, of what is committed."""
    folder = tmp_path_factory.mktemp("built-here")
    done = subprocess.run(
        [HERE / "release/deb.sh", folder / "first"], env={**os.environ, "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    [package] = (folder / "first").iterdir()
    return package


@pytest.fixture(scope="module")
def content(package: Path) -> Path:
    """The package's files, and its control files in DEBIAN/."""
    folder = package.parent.parent / "content"
    subprocess.run(["dpkg-deb", "--raw-extract", package, folder], check=True)
    return folder


@pytest.fixture(scope="module")
def machine(package: Path, content: Path) -> Iterator[Machine]:
    """The package has been installed; /packages has it, and one of a later version with another settings file."""
    _make_later(content, package.parent)
    tools = install()
    with Docker(Path(tempfile.mkdtemp(prefix="pushup-docker-")), compose=tools / "docker-compose") as docker:
        docker.start("own")
        docker.run("import", tools / "debian.tar", "debian")
        mount = f"{package.parent}:/packages:ro"
        docker.run("run", "--detach", "--name", "machine", *AS_A_MACHINE, "--volume", mount, "debian", "sh", "-c", BOOT)
        machine = Machine(docker)
        wait_until(lambda: machine.runs("systemctl", "is-system-running"), lambda: docker.run("logs", "machine"))
        machine.run("apt-get", "install", "--yes", f"/packages/{package.name}")
        yield machine


pytestmark = pytest.mark.containers


def test_lintian_finds_nothing(package: Path) -> None:
    """Neither an error nor a warning; deploy/debian/pushup.lintian-overrides explains those that are no faults."""
    command = ["lintian", "--allow-root", "--fail-on", "error,warning", str(package)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_package_says_what_it_is(package: Path, content: Path) -> None:
    """Its names are those of the project, and it needs the Python that it was compiled for."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    control = dict(re.findall(r"(?m)^(\S+): (.*)$", (content / "DEBIAN/control").read_text()))
    assert (control["Package"], control["Version"]) == (project["name"], __version__)
    assert control["Homepage"] == project["urls"]["Homepage"]
    assert package.name == f"pushup_{__version__}_{control['Architecture']}.deb"
    [python] = re.findall(r"python3\.\d+", control["Depends"])
    assert (content / "usr/lib/pushup/bin/python").readlink().name == python
    assert [folder.name for folder in (content / "usr/lib/pushup/lib").iterdir()] == [python]


def test_nothing_depends_on_where_it_was_built(package: Path, content: Path) -> None:
    """No file names the folder of the build, and no library looks for others in a folder of its own."""
    place = package.parent.parent.name.encode()
    files = [path for path in content.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [path for path in files if place in path.read_bytes()] == []
    libraries = [path for path in files if path.suffix == ".so"]
    assert len(libraries) > 30
    headers = subprocess.run(["readelf", "--dynamic", *libraries], capture_output=True, text=True, check=True).stdout
    assert re.findall(r".*\((?:RPATH|RUNPATH)\).*", headers) == []


def test_the_installed_server_serves(machine: Machine) -> None:
    """As soon as it is installed: enabled, as its own user, compiled, with a key, a journal, and systemd's log."""
    with machine.call() as caller:
        assert caller.call("GET", "/healthz").status == 200
        begin = caller.cursor()
        assert caller.call("POST", "/v1/messages", {"channels": ["news"], "data": 1}).status == 401
        machine.run("pushup", "publish", "news", "--data", "hello", "--key-file", "/etc/pushup/keys")
        assert data_of(caller.poll("news", cursor=begin)) == ["hello"]
    assert machine.run("systemctl", "is-enabled", "pushup").strip() == "enabled"
    [process] = re.findall(r"\d+", machine.run("systemctl", "show", "--property", "MainPID", "pushup"))
    assert machine.run("stat", "--format", "%U %G", f"/proc/{process}").strip() == "pushup pushup"
    assert machine.run("stat", "--format", "%U %G %a", "/etc/pushup/keys").strip() == "root pushup 640"
    assert machine.run("stat", "--format", "%U", "/var/lib/pushup/journal.db").strip() == "pushup"
    log = machine.run("journalctl", "--unit", "pushup")
    assert "PushUp listens on http://127.0.0.1:8080" in log
    assert "connections_limit = " not in log
    assert re.search(rf"version {re.escape(__version__)}, commit \w+, compiled", machine.run("pushup", "--version"))


def test_all_bytecode_is_made_at_the_installation(machine: Machine) -> None:
    """The server cannot write there."""
    count = "find /usr/lib/pushup -name '*.%s' | wc -l"
    made, sources = (int(machine.run("sh", "-c", count % suffix)) for suffix in ("pyc", "py"))
    assert made == sources > 500


def test_an_upgrade_loses_nothing(machine: Machine) -> None:
    """Held polls are answered and go on, readers get each message once and in order; changed settings stay."""
    machine.run("sh", "-c", "echo 'drain_seconds = 2' >> /etc/pushup/pushup.toml && systemctl restart pushup")
    key = machine.key()
    with ExitStack() as stack:
        held = [stack.enter_context(machine.call()) for _ in range(20)]
        begin = held[0].cursor()
        for caller in held:
            caller.begin_poll("quiet", cursor=begin, timeout=60)
        publisher = stack.enter_context(machine.call())
        with reading(machine.call, "news", begin) as readers:
            numbers = publish_while(publisher, key, "news", lambda: _upgrade(machine))
            for reader in readers:
                reader.read_until(numbers[-1])
                assert (reader.seen, reader.gaps) == (numbers, [])
        answers = [caller.answer() for caller in held]
        assert [(answer["messages"], answer["gaps"]) for answer in answers] == [([], [])] * len(held)
        assert publish(publisher, key, "quiet", "upgraded").status == 201
        for caller, answer in zip(held, answers, strict=True):
            assert data_of(caller.poll("quiet", cursor=answer["cursor"], timeout=10)) == ["upgraded"]
        nodes = publisher.call("GET", "/v1/nodes", headers={"Authorization": f"Bearer {key}"}).value["nodes"]
        assert {node["version"].partition(",")[0] for node in nodes} == {LATER}
    assert machine.key() == key
    assert "\ndrain_seconds = 2" in machine.run("cat", "/etc/pushup/pushup.toml")
    assert LATER in machine.run("cat", "/etc/pushup/pushup.toml.dpkg-dist")
    log = machine.run("journalctl", "--unit", "pushup")
    assert not re.search("kill|timed out|Failed", log), log


def test_it_is_removed_and_purged(machine: Machine) -> None:
    """Removed, it is stopped, and its settings, key and messages are kept; purged, there is nothing but its user."""
    with machine.call() as caller:
        caller.begin_poll("news", cursor=caller.cursor(), timeout=60)
        machine.run("apt-get", "remove", "--yes", "pushup")
        assert caller.answer()["messages"] == []
        with pytest.raises(ConnectionRefusedError):
            caller.call("GET", "/healthz")
    for kept in ("/etc/pushup/pushup.toml", "/etc/pushup/keys", "/var/lib/pushup/journal.db"):
        assert machine.runs("test", "-f", kept), kept
    assert not machine.runs("test", "-e", "/usr/lib/pushup")
    machine.run("apt-get", "purge", "--yes", "pushup")
    find = ["find", "/", "-xdev", "(", "-iname", "*pushup*", "-o", "-user", "pushup", "-o", "-group", "pushup", ")"]
    assert machine.run(*find).split() == []
    assert "pushup" not in machine.run("systemctl", "list-units", "--all")
    assert not machine.runs("dpkg-query", "--show", "pushup")


def _upgrade(machine: Machine) -> None:
    """As an unattended upgrade does it: settings that were changed stay as they are."""
    machine.run(
        "apt-get", "install", "--yes", "--option", "Dpkg::Options::=--force-confold", f"/packages/pushup_{LATER}.deb"
    )


def _make_later(content: Path, folder: Path) -> None:
    """Make the same package with another version, and another settings file."""
    [source] = content.glob("usr/lib/pushup/lib/*/site-packages/pushup/__init__.py")
    for path, before, after in (
        (content / "DEBIAN/control", f"Version: {__version__}", f"Version: {LATER}"),
        (source, f'"{__version__}"', f'"{LATER}"'),
        (content / "etc/pushup/pushup.toml", "# /etc", f"# {LATER}\n# /etc"),
    ):
        text = path.read_text()
        assert before in text
        path.write_text(text.replace(before, after, 1))
    subprocess.run(["dpkg-deb", "--build", content, folder / f"pushup_{LATER}.deb"], check=True, capture_output=True)
