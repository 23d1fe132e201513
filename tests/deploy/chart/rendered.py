"""The chart, rendered with some values, and its pod as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from tests.server.server_process import clean_environment

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy" / "chart"
RELEASE = "pushup"

Ports = Mapping[int, int]
"""The ports of a pod, and those of this machine that stand for them."""


def helm(tools: Path, *arguments: str | Path, values: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run Helm with these values; `tools` is the folder that install.sh prints."""
    return subprocess.run(
        [tools / "helm", *arguments, "--values", "-"],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        check=False,
    )


def render(tools: Path, values: Mapping[str, Any]) -> str:
    """All objects, as YAML."""
    done = helm(tools, "template", RELEASE, CHART, values=values)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Objects:
    """What was rendered, by kind."""

    def __init__(self, text: str) -> None:
        self._objects = [each for each in yaml.safe_load_all(text) if each is not None]

    def kinds(self) -> set[str]:
        return {each["kind"] for each in self._objects}

    def of(self, kind: str) -> dict[str, Any]:
        """The only object of this kind."""
        [found] = [each for each in self._objects if each["kind"] == kind]
        return dict(found)

    @property
    def pod(self) -> dict[str, Any]:
        """The specification of a node's pod."""
        return dict(self.of("StatefulSet")["spec"]["template"]["spec"])

    @property
    def container(self) -> dict[str, Any]:
        """Its only container."""
        [container] = self.pod["containers"]
        return dict(container)

    def mount(self, folder: Path, secrets: Mapping[str, Mapping[str, str]], ports: Ports) -> None:
        """Put the files of /etc/pushup there, as Kubernetes does, where `secrets` has the Secrets by their names.

        The paths of the pod become paths of this folder, and its ports these.
        """
        [files] = [volume for volume in self.pod["volumes"] if volume["name"] == "files"]
        (folder / "etc").mkdir(parents=True)
        (folder / "lib").mkdir()
        for source in files["projected"]["sources"]:
            if "configMap" in source:
                config = self.of("ConfigMap")
                assert source["configMap"]["name"] == config["metadata"]["name"]
                texts = {name: here(text, folder, ports) for name, text in config["data"].items()}
            else:
                secret = secrets[source["secret"]["name"]]
                texts = {item["path"]: secret[item["key"]] for item in source["secret"]["items"]}
            for name, text in texts.items():
                (folder / "etc" / name).write_text(text)
                (folder / "etc" / name).chmod(files["projected"]["defaultMode"])


def here(text: str, folder: Path, ports: Ports) -> str:
    """A text of the pod, with the paths and the ports of a process of this machine."""
    mounts = {"/etc/pushup": folder / "etc", "/var/lib/pushup": folder / "lib"}
    for path, directory in mounts.items():
        text = text.replace(path, str(directory))
    for port, place in ports.items():
        text = text.replace(f":{port}", f":{place}")
    return text


class PodProcess:
    """A node's container as a process, with its files in `folder`."""

    def __init__(self, objects: Objects, folder: Path, ports: Ports) -> None:
        self.address, self.operators = (f"127.0.0.1:{ports[port]}" for port in (8080, 9090))
        self._log = (folder / "log").open("wb")
        arguments = [here(text, folder, ports) for text in objects.container["args"]]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pushup", *arguments],
            env=clean_environment(), cwd=folder, stdout=self._log, stderr=self._log,
        )  # fmt: skip

    def stop(self, seconds: float) -> int:
        """Stop it in good order; the status with which it exits. Raises: TimeoutExpired."""
        self._process.terminate()
        return self._process.wait(seconds)

    def close(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        self._log.close()
