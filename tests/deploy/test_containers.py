"""The Dockerfile and compose.yaml for real: images are built, containers run, nodes are killed, HAProxy reloads.

The tests use their own Docker daemon and stand-ins for the official images (tests/deploy/containers), so they need no
image registry. Afterwards, only the folder that install.sh keeps is left.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from packaging.utils import canonicalize_name

from deploy.front import HERE
from deploy.release.checks import ADDED_BYTES
from pushup import __version__
from pushup.host.process_limits import usable_cores
from tests.deploy.containers.cluster import (
    NODES,
    WAIT_SECONDS,
    ComposeCluster,
    Connection,
    Reader,
    health,
    reading,
    wait_until,
)
from tests.deploy.containers.docker import Docker, DockerError, install
from tests.deploy.containers.stand_ins import make_stand_ins, official_images, proxies, without_digests
from tests.server.caller import Caller, data_of, poll_path
from tests.server.document_samples import sample

pytestmark = pytest.mark.containers

REPOSITORY = HERE.parent

KEY = "of-the-tests-only"
USERS = {"haproxy": "99", "redis": "999", "example": "1000"} | dict.fromkeys(NODES, "1000")


COMMIT = "0123456789abcdef0123456789abcdef01234567"
BASE_BYTES = 47_790_358
"""The compressed size of the official base image for amd64, by docker-library/repo-info."""

FIRST_LINE = sample("README.md", "docker run")


class Built(NamedTuple):
    """A Docker daemon with all images, and the builders' output; that of BuildKit, for a node's image."""

    docker: Docker
    source: Path
    classic: str
    buildkit: str


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    tools = install()
    with Docker(Path(tempfile.mkdtemp(prefix="pushup-docker-")), compose=tools / "docker-compose") as docker:
        source = tmp_path_factory.mktemp("source")
        _copy_repository(source)
        file = source / "deploy" / "compose.yaml"
        services = yaml.safe_load(file.read_text())["services"]
        docker.start("host")  # so that pip can reach the package index
        dockerfile = source / "deploy" / "Dockerfile"
        dockerfile.write_text(without_digests(dockerfile.read_text()))
        names = official_images(dockerfile.read_text(), services.values())
        make_stand_ins(docker, tools / "base.tar", names)
        arguments = [part for name, value in proxies().items() for part in ("--build-arg", f"{name}={value}")]
        classic = docker.run(
            "build", "--network", "host", *arguments, "--file", dockerfile,
            "--tag", "built-by-the-classic-builder", source,
        )  # fmt: skip
        build = {"network": "host", "args": {"VERSION": __version__, "COMMIT": COMMIT, **proxies()}}
        override = {"services": {name: {"build": build} for name, service in services.items() if "build" in service}}
        (source / "network.yaml").write_text(yaml.safe_dump(override))
        builds = [
            docker.compose([file, source / "network.yaml"], "build", *names, environment={"DOCKER_BUILDKIT": "1"})
            for names in (["node1"], [])  # the second is sent only what the first has not been sent
        ]
        docker.stop()
        docker.start("own")
        yield Built(docker, source, classic, builds[0])


@pytest.fixture(scope="module")
def _cluster(built: Built) -> Iterator[ComposeCluster]:
    cluster = ComposeCluster(
        built.docker, built.source / "deploy" / "compose.yaml", key=KEY, environment={"PUBLISH_KEY": KEY}
    )
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.compose("down", "--volumes")


@pytest.fixture
def cluster(_cluster: ComposeCluster) -> ComposeCluster:
    """All services are running and healthy. A test that kills one waits until it is back."""
    _cluster.wait_until_well()
    return _cluster


# --- the images ---


def test_the_build_context_is_small(built: Built) -> None:
    """Little more than the product; without BuildKit also the example, and each file in blocks of a tar file."""
    [classic] = _sent(r"Sending build context to Docker daemon +", built.classic)
    product = sum(path.stat().st_size for path in (built.source / "pushup").rglob("*.*") if path.suffix != ".pyc")
    assert classic < 1.3 * product
    assert 0.95 * product < max(_sent("transferring context: ", built.buildkit)) < 1.1 * product


@pytest.mark.parametrize("image", ["pushup", "pushup-example", "built-by-the-classic-builder"])
def test_an_image_has_the_pinned_packages(built: Built, image: str) -> None:
    """pip installed exactly the versions in constraints.txt."""
    pinned = re.findall(r"(?m)^(\S+)==(\S+)", (HERE / "constraints.txt").read_text())
    script = "from importlib.metadata import distributions\nfor d in distributions(): print(d.name, d.version)"
    printed = _run_image(built.docker, image, "-c", script, entry="python")
    installed = {(canonicalize_name(name), version) for name, version in map(str.split, printed.splitlines())}
    assert len(installed) > 10
    assert installed - set(pinned) == {("pushup", __version__)}


def test_an_image_is_small(built: Built) -> None:
    """Less than 80 MB are downloaded: the official base image, which the stand-in is not, and PushUp."""
    added = int(_run_image(built.docker, "pushup", "-c", ADDED_BYTES, entry="python"))
    assert BASE_BYTES + added < 80e6


def test_an_image_says_what_it_is(built: Built) -> None:
    """Its labels, and `--version`."""
    [image] = json.loads(built.docker.run("inspect", "pushup"))
    labels = {name.rpartition(".")[2]: text for name, text in image["Config"]["Labels"].items()}
    urls = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["urls"]
    assert (labels["version"], labels["revision"], labels["licenses"]) == (__version__, COMMIT, "MIT")
    assert (labels["source"], labels["documentation"]) == (urls["Homepage"], urls["Documentation"])
    assert f"version {__version__}, commit {COMMIT}, compiled" in _run_image(built.docker, "pushup", "--version")


def test_the_settings_of_an_image_can_be_checked(built: Built) -> None:
    """By default it serves on all processors, and warns that anyone may publish. TLS to Redis needs nothing else."""
    shown = _run_image(built.docker, "pushup", "check-config", "--broadcast", "rediss://redis")
    assert 'workers = "auto"\n' in shown
    assert 'state_directory = "/var/lib/pushup"\n' in shown
    assert "anyone who can reach 0.0.0.0:8080 can publish" in shown


def test_the_first_line_of_the_readme_serves(built: Built) -> None:
    """As it stands there: it builds the image, serves on all cores at the published port, and drains on Ctrl-C."""
    terminal = built.docker.shell(FIRST_LINE, built.source)
    try:
        wait_until(lambda: _running(built.docker) == ["healthy"], lambda: "a healthy container")
        with Caller(Connection(built.docker, ("127.0.0.1", 8080))) as client:
            client.begin_poll("news", cursor=client.cursor(), timeout=50)
            with Caller(Connection(built.docker, ("127.0.0.1", 8080))) as publisher:
                publisher.publish(["news"], "hello")
                assert data_of(client.answer()) == ["hello"]
                assert len(publisher.call("GET", "/v1/nodes").value["nodes"]) == usable_cores()
            client.begin_poll("news", cursor=client.cursor(), timeout=50)
            terminal.send_signal(signal.SIGINT)
            assert client.answer()["messages"] == []
        said, _ = terminal.communicate(timeout=WAIT_SECONDS)
        assert terminal.returncode == 0, said
        assert "PushUp listens on http://0.0.0.0:8080" in said
    finally:
        terminal.kill()
        terminal.communicate()
    assert built.docker.run("ps", "--all", "--quiet").split() == []


def test_an_image_needs_no_shell_and_writes_to_its_volume_only(built: Built) -> None:
    """Unprivileged, on a read-only file system, and without a shell, it serves, drains and keeps its journal."""
    docker = built.docker
    no_shell = [part for shell in ("dash", "bash") for part in ("--volume", f"/dev/null:/usr/bin/{shell}:ro")]
    docker.run(
        "run", "--detach", "--name", "contained", "--read-only", "--cap-drop", "ALL", "--network", "none", *no_shell,
        "--security-opt", "no-new-privileges", "--cpus", "1", "--env", f"PUSHUP_PUBLISH_KEYS={KEY}",
        "pushup", "serve", "--broadcast", "journal:/var/lib/pushup/journal.db",
    )  # fmt: skip
    try:
        wait_until(lambda: _running(docker) == ["healthy"], lambda: docker.run("logs", "contained"))
        with pytest.raises(DockerError, match="not found"):
            docker.run("exec", "contained", "sh", "-c", "true")
        assert len(docker.run("top", "contained", "-o", "pid").split()[1:]) == 1  # for one core, one process
        status = docker.run("exec", "contained", "python", "-c", "print(open('/proc/1/status').read())")
        assert re.search(r"(?m)^Uid:\t1000\t.*\nGid:\t1000\t", status)
        docker.run("exec", "--env", f"PUSHUP_KEY={KEY}", "contained", "pushup", "publish", "news", "--data", "kept")
        docker.run("stop", "contained")
        assert docker.run("inspect", "--format", "{{.State.ExitCode}}", "contained").strip() == "0"
        docker.run("start", "contained")
        wait_until(lambda: _running(docker) == ["healthy"], lambda: docker.run("logs", "contained"))
        assert '"data": "kept"' in docker.run("exec", "contained", "pushup", "poll", "--once", "news")
    finally:
        docker.run("rm", "--force", "--volumes", "contained")


# --- everything together ---


def test_everything_runs_unprivileged(cluster: ComposeCluster) -> None:
    """Each service runs as an ordinary user, without capabilities, on a read-only file system."""
    states = cluster.states()
    assert states.keys() == {*USERS, "certificate"}
    for name, user in USERS.items():
        status = cluster.execute(name, "cat", "/proc/self/status")
        assert re.search(r"(?m)^Uid:\t(\d+)", status)[1] == user, name  # type: ignore[index]
        assert re.search(r"(?m)^CapEff:\t0+$", status), name
        assert re.search(r"(?m)^NoNewPrivs:\t1$", status), name
        assert states[name]["HostConfig"]["ReadonlyRootfs"], name


def test_a_message_is_published_at_a_node_and_polled_through_tls(cluster: ComposeCluster) -> None:
    """It works through the port that HAProxy publishes; publishing there is refused."""
    with cluster.outside() as browser:
        browser.begin_poll("news", cursor=browser.cursor(), timeout=30)
        assert cluster.publish("news", "hello", to="node3").status == 201
        assert data_of(browser.answer()) == ["hello"]
        assert browser.call("POST", "/v1/messages", {"channels": ["news"], "data": 1}).status == 403


def test_plain_requests_are_redirected_to_tls(cluster: ComposeCluster) -> None:
    """It redirects to the address that is published to the outside."""
    with cluster.published(8000) as browser:
        reply = browser.call("GET", "/tags/c++")
    assert (reply.status, reply.headers["Location"]) == (308, "https://localhost:8443/tags/c++")


def test_the_example_publishes_a_question(cluster: ComposeCluster) -> None:
    """A question asked in a page reaches readers polling its tags."""
    form = "author=John&title=What+is+a+B-tree%3F&text=I+wonder.&tags=c%2B%2B+java"
    with cluster.outside() as reader, closing(cluster.connection("example", 5000)) as page:
        reader.begin_poll("tag:java", cursor=reader.cursor(), timeout=30)
        page.request("POST", "/questions", form, {"Content-Type": "application/x-www-form-urlencoded"})
        assert page.getresponse().status == 303
        assert data_of(reader.answer())[0]["title"] == "What is a B-tree?"


def test_a_killed_node_comes_back_and_nobody_notices(cluster: ComposeCluster) -> None:
    """Compose restarts it, it recovers everything from Redis, and readers get each message once and in order."""
    with cluster.outside() as browser:
        begin = browser.cursor()
    with reading(cluster.outside, "killed", begin) as readers:
        numbers = cluster.publish_while("killed", lambda: cluster.kill("node2"))
        _check(readers, numbers)
    alone = Reader(cluster.at("node2", 8080), "killed", begin)
    alone.start()
    alone.read_until(numbers[-1])
    assert (alone.seen, alone.gaps) == (numbers, [])


def test_a_killed_redis_comes_back_with_what_was_acknowledged(cluster: ComposeCluster) -> None:
    """Publications wait or are refused meanwhile, and succeed when retried.

    The epoch goes on under a new name. A poll that comes with it to a node that has yet to read of it gets a 503.
    """
    with cluster.outside() as browser:
        begin = browser.cursor()
    with reading(cluster.outside, "redis", begin) as readers:
        numbers = cluster.publish_while("redis", lambda: cluster.kill("redis"))
        _check(readers, numbers, refused="this node has not yet loaded the epoch of this cursor")


def _check(readers: list[Reader], numbers: list[int], *, refused: str | None = None) -> None:
    """All have read these numbers. HAProxy may close a poll that it is just connecting to a node that goes down.

    `refused`: why a poll may be refused.
    """
    for reader in readers:
        reader.read_until(numbers[-1])
        failed = [why for why in reader.failed if refused is None or refused not in why]
        assert (reader.seen, reader.gaps, failed) == (numbers, [], [])
        assert reader.closed <= 1


def test_polls_are_held_while_redis_is_away(cluster: ComposeCluster) -> None:
    """No node is ready, and HAProxy soon notices. All are alive, so it still gives them polls as a last resort."""
    with cluster.outside() as browser, ExitStack() as stack:
        stack.callback(cluster.compose, "start", "redis")
        cursor = browser.cursor()
        cluster.compose("stop", "redis")
        wait_until(lambda: not any(_is_ready(cluster, name) for name in NODES), lambda: "the nodes to miss Redis")
        for _ in range(8):
            assert browser.poll("away", cursor=cursor, timeout=1)["messages"] == []
        browser.begin_poll("away", cursor=cursor, timeout=50)
        stack.close()
        cluster.wait_until_well()
        wait_until(lambda: _is_ready(cluster, "node1"), lambda: "a node to reach Redis again")
        assert cluster.publish("away", "it is back", to="node1").status == 201
        assert data_of(browser.answer()) == ["it is back"]


def test_haproxy_reloads(cluster: ComposeCluster, built: Built) -> None:
    """With README.md's command, new connections follow the changed file, and a held poll completes."""
    file = built.source / "deploy" / "haproxy.cfg"
    before = file.read_text()
    [command] = re.findall(r"docker compose (kill -s SIGUSR2 haproxy)`", (HERE / "README.md").read_text())
    with cluster.outside() as browser:
        browser.begin_poll("reload", cursor=browser.cursor(), timeout=50)
        file.write_text(before + "\nfrontend added\n    bind :8999\n    http-request return status 200\n")
        cluster.compose(*command.split())
        wait_until(lambda: _status(cluster, 8999) == 200, lambda: "HAProxy to go by the changed file")
        assert cluster.publish("reload", "still here", to="node1").status == 201
        assert data_of(browser.answer()) == ["still here"]
    assert cluster.states()["haproxy"]["RestartCount"] == 0
    file.write_text(before)
    cluster.compose(*command.split())


def test_haproxy_uses_a_replaced_file_after_a_restart(cluster: ComposeCluster, built: Built) -> None:
    """Until then, the container has the file from when it started."""
    file = built.source / "deploy" / "haproxy.cfg"
    new = file.with_name("new.cfg")
    new.write_text(file.read_text() + "\n# a later version\n")
    new.replace(file)
    show = ["cat", "/usr/local/etc/haproxy/haproxy.cfg"]
    assert "# a later version" not in cluster.execute("haproxy", *show)
    [command] = re.findall(r"docker compose (restart haproxy)`", (HERE / "README.md").read_text())
    cluster.compose(*command.split())
    assert "# a later version" in cluster.execute("haproxy", *show)


def test_it_stops_in_time_and_leaves_nothing(cluster: ComposeCluster, built: Built) -> None:
    """Nodes answer the polls they hold, no process has to be killed, and all containers and networks are removed."""
    with ExitStack() as stack:
        clients = [stack.enter_context(cluster.at(name, 8080)) for name in NODES]
        for client in clients:
            client.begin("GET", poll_path("stop", cursor=client.cursor(), timeout=50))
        cluster.compose("stop")
        assert [client.answer()["messages"] for client in clients] == [[], [], [], []]
    ended = {name: state["State"]["ExitCode"] for name, state in cluster.states().items()}
    assert ended == dict.fromkeys(ended, 0)
    cluster.compose("down", "--volumes")
    assert built.docker.run("ps", "--all", "--quiet").split() == []
    assert built.docker.run("volume", "ls", "--quiet").split() == []
    assert "pushup" not in built.docker.run("network", "ls")


def _sent(begin: str, output: str) -> list[float]:
    """The bytes after each of these words in the output of a builder."""
    sizes = re.findall(rf"{begin}([\d.]+)(B|kB|MB)\b", output)
    return [float(number) * {"B": 1, "kB": 1e3, "MB": 1e6}[unit] for number, unit in sizes]


def _run_image(docker: Docker, image: str, *command: str, entry: str = "pushup") -> str:
    """What a command in a new container of the image prints; `pushup` is what the image runs."""
    return docker.run("run", "--rm", "--network", "none", "--entrypoint", entry, image, *command)


def _running(docker: Docker) -> list[str]:
    """The health of each running container."""
    ids = docker.run("ps", "--quiet").split()
    return [health(each["State"]) for each in json.loads(docker.run("inspect", *ids))] if ids else []


def _copy_repository(source: Path) -> None:
    """A working copy as a builder finds it: the files, their history, and a virtual environment of 50 MB."""
    left_out = shutil.ignore_patterns(
        ".git", ".venv", ".hypothesis", ".*_cache", "__pycache__", "*.egg-info", "results"
    )
    shutil.copytree(REPOSITORY, source, dirs_exist_ok=True, ignore=left_out)
    for folder in (".git", ".venv"):
        (source / folder).mkdir()
        (source / folder / "large").write_bytes(bytes(25_000_000))


def _is_ready(cluster: ComposeCluster, name: str) -> bool:
    with cluster.at(name, 8080) as caller:
        return caller.call("GET", "/readyz").status == 200


def _status(cluster: ComposeCluster, port: int) -> int:
    with cluster.at("haproxy", port) as caller:
        return caller.call("GET", "/").status
