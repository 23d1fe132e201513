"""compose.yaml and the Dockerfile, without containers: each of their commands runs unchanged, on loopback.

With containers: test_containers.py.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from packaging.requirements import Requirement

from deploy.cluster import free_ports, installed
from deploy.front import HERE
from deploy.part import Part
from pushup.cli import main as pushup
from tests.deploy.containers.stand_ins import official_images
from tests.deploy.conversations import caller, wait_until
from tests.server.caller import Caller, data_of

COMPOSE: dict[str, Any] = yaml.safe_load((HERE / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
NODES = ["node1", "node2", "node3", "node4"]


def test_it_is_a_compose_file() -> None:
    """It is valid by the compose specification's schema."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, HERE / "compose.yaml"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_it_has_all_parts() -> None:
    """HAProxy, four nodes, Redis and the example; every service and volume that is referred to exists."""
    assert {*NODES, "haproxy", "redis", "example"} < SERVICES.keys()
    for name, service in SERVICES.items():
        assert service.get("depends_on", {}).keys() <= SERVICES.keys(), name
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert (HERE / source).is_file() if source.startswith("./") else source in COMPOSE["volumes"], volume


def test_only_haproxy_is_reached_from_outside() -> None:
    """By default only from this machine, on ports that HAProxy listens on; never the inside."""
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["haproxy"]
    published = [_resolved(port, {}).split(":") for port in SERVICES["haproxy"]["ports"]]
    assert all(host == "127.0.0.1" for host, _, _ in published)
    environment = SERVICES["haproxy"]["environment"]
    fronts = {environment[name].lstrip(":") for name in ("FRONT_PLAIN", "FRONT_TLS", "FRONT_STATS")}
    assert {port for _, _, port in published} == fronts
    assert COMPOSE["networks"]["inside"]["internal"]
    for name, service in SERVICES.items():
        if name not in ("haproxy", "certificate"):
            assert service["networks"] == ["inside"], name


def test_the_front_has_every_address() -> None:
    """Its environment sets every address and file of haproxy.cfg, using names and ports of services."""
    environment = SERVICES["haproxy"]["environment"]
    text = (HERE / "haproxy.cfg").read_text()
    defaults = dict(re.findall(r"presetenv (\w+) +(\S+)", text))
    places = {name for name, default in defaults.items() if re.search(r"127\.0\.0\.1|localhost|/", default)}
    assert len(places) > 5
    without_default = set(re.findall(r"\$\{(\w+)\}", text)) - defaults.keys()
    assert places | without_default <= environment.keys()
    for name in NODES:
        assert environment[name.upper()] == f"{name}:{_port(SERVICES[name]['command'], '--listen')}"
    assert environment["APPLICATION"] == f"example:{_port(SERVICES['example']['command'], '--bind')}"
    assert SERVICES["example"]["environment"]["PUSHUP_URL"] == "http://haproxy" + environment["FRONT_INSIDE"]


@pytest.mark.parametrize("given", [{}, {"PUBLISH_KEY": "k" * 20, "TICKET_KEY": "t" * 20}])
def test_pushup_accepts_the_commands(given: Mapping[str, str], tmp_path: Path) -> None:
    """`pushup check-config` accepts flags, settings file and environment, and nobody can publish without a key."""
    for name in NODES:
        service = SERVICES[name]
        command = [str(HERE / "image.toml") if part == "/etc/pushup.toml" else part for part in service["command"]]
        assert command[0] == "serve"
        environment = {key: _resolved(value, given) for key, value in service["environment"].items()}
        state = environment.pop("PUSHUP_STATE_DIRECTORY")
        assert f"{name}:{state}" in service["volumes"]
        environment["PUSHUP_STATE_DIRECTORY"] = str(tmp_path)
        done = CliRunner().invoke(pushup, ["check-config", *command[1:]], env=environment)
        assert done.exit_code == 0, done.output
        assert 'broadcast = "redis://redis:6379/0"' in done.output
        assert "can publish" not in done.output


def test_the_settings_file_shows_the_defaults(tmp_path: Path) -> None:
    """Each commented-out line of pushup.toml shows the default: uncommenting it changes nothing. `workers` is set.

    What follows the comment [[channels]] is an example.
    """
    text = (HERE / "pushup.toml").read_text().partition("# [[channels]]")[0]
    shown = re.sub(r"(?m)^# (?=\w+ = )", "", text)
    shown = re.sub(r"(?m)^(authorize_url|cors_origins|webhook_url) = .*", "", shown)  # examples that have no default
    file = tmp_path / "all.toml"
    file.write_text(shown)
    outputs = [
        CliRunner().invoke(pushup, ["check-config", *flags]).output
        for flags in ([], ["--config", str(file)], ["--config", str(HERE / "pushup.toml")])
    ]
    assert shown.count(" = ") > 10
    assert outputs[0].replace("workers = 1\n", 'workers = "auto"\n') == outputs[1] == outputs[2]


def test_the_example_of_a_table_in_the_settings_file_works(tmp_path: Path) -> None:
    """Uncommented, it is read as it is written."""
    text = (HERE / "pushup.toml").read_text()
    _, begin, example = text.partition("# [[channels]]")
    file = tmp_path / "example.toml"
    file.write_text(re.sub(r"(?m)^# ", "", begin + example))
    shown = CliRunner().invoke(pushup, ["check-config", "--config", str(file)]).output
    assert '[[channels]]\nprefix = "chat:"\nretention_seconds = 604800.0\nretention_messages = 10000\n' in shown


def test_the_unit_allows_what_a_server_needs() -> None:
    """pushup.service allows enough files for all clients, and time to drain."""
    unit = dict(re.findall(r"(?m)^(\w+)=(.*)$", (HERE / "pushup.service").read_text()))
    defaults = dict(re.findall(r"(?m)^(\w+) = (.*)$", CliRunner().invoke(pushup, ["check-config"]).output))
    assert int(unit["LimitNOFILE"]) > int(defaults["connections_limit"])
    assert int(unit["TimeoutStopSec"].rstrip("s")) >= float(defaults["drain_seconds"]) + 5


def test_the_front_waits_longer_than_the_longest_hold() -> None:
    """The timeouts in both HAProxy files are longer than poll_timeout_limit_seconds."""
    output = CliRunner().invoke(pushup, ["check-config"]).output
    hold = re.search(r"(?m)^poll_timeout_limit_seconds = (.*)$", output)
    assert hold is not None
    for file in ("haproxy.cfg", "haproxy-tcp.cfg"):
        text = (HERE / file).read_text()
        for name in ("timeout client", "timeout server", "hard-stop-after"):
            found = re.search(rf"(?m)^ +{name} (\d+)s", text)
            assert found is not None
            assert int(found[1]) >= float(hold[1]) + 10, (file, name)


@pytest.mark.parametrize("name", [*NODES, "haproxy", "redis", "example"])
def test_a_service_runs_unprivileged(name: str) -> None:
    """It has no privileges, works on a machine that allows few open files, and can be stopped and restarted."""
    service = SERVICES[name]
    assert "ulimits" not in service
    assert (service["cap_drop"], service["read_only"], service["init"]) == (["ALL"], True, True)
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"


def test_a_node_has_time_to_drain() -> None:
    """It allows the drain time plus 5 s, like the systemd unit; Docker would kill it after 10 s."""
    defaults = dict(re.findall(r"(?m)^(\w+) = (.*)$", CliRunner().invoke(pushup, ["check-config"]).output))
    for name in NODES:
        assert float(SERVICES[name]["stop_grace_period"].rstrip("s")) >= float(defaults["drain_seconds"]) + 5


def test_all_versions_are_pinned() -> None:
    """Each third-party image is pinned to its minor version, the base also to its digest, and each Python package."""
    text = (HERE / "Dockerfile").read_text()
    images = official_images(text, SERVICES.values())
    assert len(images) == 3
    pattern = r"python:\d+\.\d+-[\w-]+@sha256:[0-9a-f]{64}|\w+:\d+\.\d+"
    assert all(re.fullmatch(pattern, image) for image in images), images
    pinned = {_normal(name): version for name, version in re.findall(r"(?m)^(\S+)==(\S+)", _constraints())}
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    wanted = [
        *project["build-system"]["requires"],
        *project["tool"]["pushup"]["compiler"],
        *project["project"]["dependencies"],
        *extras["example"],
        *extras["tls"],
    ]
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(pinned[_normal(requirement.name)]), requirement
    assert "--require-hashes --no-deps --only-binary :all: -r deploy/constraints.txt" in text
    assert "PIP_NO_INDEX=1" in text


def test_no_command_of_an_image_needs_a_shell() -> None:
    """Each is in the exec form, and starts Python or a program of the image's environment."""
    text = (HERE / "Dockerfile").read_text()
    commands = [json.loads(found) for found in re.findall(r"(?m)^(?:ENTRYPOINT| *CMD) (.*)", text)]
    assert {command[0] for command in commands} == {"pushup", "serve", "python", "gunicorn"}


def test_the_readme_begins_with_the_image() -> None:
    """Its first block builds and runs it, and the text names the published one (test_containers.py runs the block)."""
    _, _, block, text, *_ = (HERE.parent / "README.md").read_text().split("\n\n")
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())
    run = block.partition(" $(")[0].strip()
    assert run.startswith("docker run ")
    assert f"`{run} {project['tool']['pushup']['image']}`" in text


def test_dockerignore_admits_only_what_is_copied() -> None:
    """.dockerignore admits every file that the Dockerfile copies and excludes the rest; both builders read it."""
    lines = (HERE.parent / ".dockerignore").read_text().splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    let_through = {pattern.removeprefix("!") for pattern in patterns if pattern.startswith("!")}
    copied = {
        source
        for line in re.findall(r"(?m)^COPY (?!--from)(.*)", (HERE / "Dockerfile").read_text())
        for source in line.split()[:-1]
    }
    assert patterns[0] == "*"
    assert let_through == copied
    assert not list(HERE.glob("*.dockerignore"))  # BuildKit would read such a file, the classic builder would not


def test_the_dockerfile_copies_existing_files() -> None:
    """Each COPY of the Dockerfile names files of the repository, or an earlier stage."""
    text = (HERE / "Dockerfile").read_text()
    stages = re.findall(r"(?m)^FROM \S+ AS (\S+)", text)
    for line in re.findall(r"(?m)^COPY (.*)", text):
        *sources, _ = line.split()
        if sources[0].startswith("--from="):
            assert sources[0].removeprefix("--from=") in stages
        else:
            assert all((HERE.parent / source).exists() for source in sources), line
    assert {service["build"]["target"] for service in SERVICES.values() if "build" in service} <= set(stages)


def test_the_commands_run(tmp_path: Path, stack: ExitStack) -> None:
    """All commands run with loopback addresses in place of service names: a question is asked, and a poll gets it."""
    operators = [f"{name} for operators" for name in NODES]
    names = [*NODES, *operators, "redis", "example", "FRONT_PLAIN", "FRONT_TLS", "FRONT_INSIDE", "FRONT_STATS"]
    at = {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(len(names)), strict=True)}
    _run_to_end("certificate", at, tmp_path)
    parts = [_part(name, at, tmp_path) for name in ("redis", *NODES, "example", "haproxy")]
    for part in parts:
        stack.callback(part.stop)
        part.start()
    for setting, value in {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}.items():
        assert _redis(at, "config", "get", setting) == f"{setting}\n{value}\n"
    for name in (*NODES, "example"):
        _run_health_check(at[name], "node" if name in NODES else name)
    subprocess.run(_health_check_of_haproxy(), env={**os.environ, "FRONT_INSIDE": at["FRONT_INSIDE"]}, check=True)
    outside = caller(f"http://{at['FRONT_PLAIN']}", stack)
    wait_until(lambda: outside.call("GET", "/").status == 200, "HAProxy to find the example")
    outside.begin_poll("tag:java", cursor=outside.cursor(), timeout=20)
    form = b"author=John&title=What+is+a+B-tree%3F&text=I+wonder.&tags=c%2B%2B+java"
    _post_form(at["FRONT_PLAIN"], "/questions", form)
    assert data_of(outside.answer())[0]["title"] == "What is a B-tree?"
    for name in NODES:
        assert caller(f"http://{at[name]}", stack).call("GET", "/metrics").status == 404
        assert caller(f"http://{at[f'{name} for operators']}", stack).call("GET", "/metrics").status == 200


def _part(name: str, at: Mapping[str, str], folder: Path) -> Part:
    return Part(
        name, _command(name, at, folder), environment=_environment(name, at, folder), folder=folder,
        is_ready=lambda: _is_ready(name, at),
    )  # fmt: skip


def _command(name: str, at: Mapping[str, str], folder: Path) -> list[str]:
    """The command of a service, with this machine's paths and names."""
    service = SERVICES[name]
    command = [str(part) for part in service["command"]]
    if name in NODES:
        entry = re.findall(r"(?m)^ENTRYPOINT \[\"(\w+)\"\]", (HERE / "Dockerfile").read_text())
        assert entry == ["pushup"]
        command = [sys.executable, "-m", *entry, *command]
    elif name == "redis":
        port = at["redis"].partition(":")[2]
        command = [installed(command[0]), *command[1:], "--dir", str(folder), "--port", port]
    elif name == "example":
        command = [sys.executable, "-m", *command]
    elif name == "haproxy":
        command = [installed(command[0]), *command[1:]]
    return [_here(part, name, at, folder) for part in command]


def _environment(name: str, at: Mapping[str, str], folder: Path) -> dict[str, str]:
    service = SERVICES[name].get("environment", {})
    mine = {key: _here(_resolved(value, {}), name, at, folder) for key, value in service.items()}
    mine |= {key: address for key, address in at.items() if key.startswith("FRONT_") and key in mine}
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PUSHUP_")}
    return {**inherited, "PYTHONPATH": str(HERE.parent), **mine}


def _here(text: str, name: str, at: Mapping[str, str], folder: Path) -> str:
    """A text of the compose file, with its names replaced by this machine's addresses and paths."""
    text = text.replace("0.0.0.0:9090", at.get(f"{name} for operators", ""))
    text = re.sub(r"0\.0\.0\.0:\d+", at.get(name, ""), text)
    text = text.replace("haproxy:8100", at["FRONT_INSIDE"])
    text = re.sub(r"\b(node\d|redis|example):\d+", lambda found: at[found[1]], text)
    for there, here in {
        "/usr/local/etc/haproxy": str(HERE), "/etc/pushup.toml": str(HERE / "image.toml"),
        "/certificate.sh": str(HERE / "certificate.sh"), "/certificate/": f"{folder}/",
        "/run/haproxy/": f"{folder}/", "/var/lib/example": str(folder), "/var/lib/pushup": str(folder / name),
    }.items():  # fmt: skip
        text = text.replace(there, here)
    return text


def _run_to_end(name: str, at: Mapping[str, str], folder: Path) -> None:
    """The one-shot service; without root, files keep their owner."""
    [script] = SERVICES[name]["command"]
    if os.geteuid() != 0:
        script = script.partition(" && chown")[0]
    subprocess.run([*SERVICES[name]["entrypoint"], _here(script, name, at, folder)], check=True)
    if os.geteuid() == 0:
        assert (folder / "localhost.pem").stat().st_uid == 99


def _run_health_check(address: str, target: str) -> None:
    """The HEALTHCHECK of an image."""
    text = (HERE / "Dockerfile").read_text().partition(f"AS {target}\n")[2].partition("\nFROM ")[0]
    found = re.search(r"HEALTHCHECK [^\n]*\\\n +CMD (\[.*\])", text)
    assert found is not None
    python, flags, script = json.loads(found[1])
    assert python == "python"
    script, replaced = re.subn(r"\b(8080|5000)\b", address.rpartition(":")[2], script)
    assert replaced == 1
    subprocess.run([sys.executable, flags, script], check=True)


def _health_check_of_haproxy() -> list[str]:
    kind, *command = SERVICES["haproxy"]["healthcheck"]["test"]
    assert kind == "CMD"
    return [part.replace("$$", "$") for part in command]


def _is_ready(name: str, at: Mapping[str, str]) -> bool:
    if name == "redis":
        return _redis(at, *SERVICES["redis"]["healthcheck"]["test"][2:]) == "PONG\n"
    address, path = (at["FRONT_INSIDE"], "/v1/cursor") if name == "haproxy" else (at[name], "/healthz")
    with Caller(address) as client:
        return client.call("GET", "/" if name == "example" else path).status == 200


def _redis(at: Mapping[str, str], *command: str) -> str:
    return subprocess.run(
        ["redis-cli", "-p", at["redis"].partition(":")[2], *command], capture_output=True, text=True, check=False
    ).stdout


def _post_form(address: str, path: str, form: bytes) -> None:
    connection = http.client.HTTPConnection(address, timeout=9)
    connection.request("POST", path, form, {"Content-Type": "application/x-www-form-urlencoded"})
    assert connection.getresponse().status == 303
    connection.close()


def _constraints() -> str:
    return (HERE / "constraints.txt").read_text()


def _normal(name: str) -> str:
    """The normalized name of a package, as package indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _port(command: list[str], flag: str) -> str:
    return command[command.index(flag) + 1].rpartition(":")[2]


def _resolved(value: object, given: Mapping[str, str]) -> str:
    """With its variables substituted as compose does: ${NAME:-default}."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: given.get(found[1], found[2]), str(value))
