"""Images named like the official ones in compose.yaml and the Dockerfile, but made from Debian's packages."""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.deploy.containers.docker import HERE, Docker, DockerError

_PIP_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "proxy", "default-timeout", "timeout", "retries")
"""Settings that pip needs to reach the package index. Those with paths of this machine mean nothing in an image."""

_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
"""Debian's file of trusted certificates."""


def official_images(dockerfile: str, services: Iterable[dict[str, object]]) -> set[str]:
    """The images that are not built here: base images of stages, and those of services without `build`."""
    stages = set(re.findall(r"(?m)^FROM \S+ AS (\S+)", dockerfile))
    begun = set(re.findall(r"(?m)^FROM (\S+)", dockerfile)) - stages
    return begun | {str(service["image"]) for service in services if "build" not in service}


def without_digests(dockerfile: str) -> str:
    """The same, with any build of its base images: a stand-in has no digest."""
    return re.sub(r"@sha256:[0-9a-f]{64}", "", dockerfile)


def make_stand_ins(docker: Docker, root: Path, names: Iterable[str]) -> None:
    """Build an image of each name; `root` is the tar file that install.sh has made. Raises: DockerError."""
    docker.run("import", root, "base")
    context = docker.folder / "images"
    shutil.copytree(HERE / "images", context)
    settings = _pip_settings()
    certificates = settings.get("cert") or ssl.get_default_verify_paths().cafile or _CERTIFICATES
    shutil.copy(certificates, context / "certificates.pem")
    lines = [f"{name} = {settings[name]}" for name in _PIP_SETTINGS if name in settings]
    (context / "pip.conf").write_text("\n".join(["[global]", f"cert = {_CERTIFICATES}", *lines, ""]))
    targets = re.findall(r"(?m)^FROM base AS (\S+)", (context / "Dockerfile").read_text())
    for name in names:
        target = name.partition(":")[0]
        if target not in targets:
            raise DockerError(f"there is no stand-in for the image {name}: add one to {HERE / 'images' / 'Dockerfile'}")
        docker.run("build", "--network", "none", "--target", target, "--tag", name, context)


def proxies() -> dict[str, str]:
    """Build arguments that make a build use this machine's proxy."""
    return {
        name: value for name, value in os.environ.items() if name.upper() in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
    }


def _pip_settings() -> dict[str, str]:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    files = dict(re.findall(r"(?m)^\w+\.(\S+)='(.*)'$", output))
    return files | dict(re.findall(r"(?m)^:env:\.(\S+)='(.*)'$", output))
