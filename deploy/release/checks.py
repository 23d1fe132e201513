"""The checks of a release. Each returns what it found, in a few words, or raises NotReady with what to do."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from deploy.cluster import free_ports

ROOT = Path(__file__).resolve().parents[2]

SECONDS = 1800
"""No command takes longer: images and wheels are compiled."""

_VERSION = re.compile(r'^__version__ = "(.*)"$', re.MULTILINE)
_FINAL = re.compile(r"(\d+)\.(\d+)\.(\d+)")

README_TESTS = ("tests/server/test_samples.py", "tests/server/test_tutorial.py")


class NotReady(Exception):
    """No release can be made yet; the text says why, and what to do."""


class Release:
    """The release that this checkout would be."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self.version: str
        source = (root / "pushup" / "__init__.py").read_text()
        (self.version,) = _VERSION.findall(source)
        self.tag = f"v{self.version}"

    def run(self, *command: str) -> str:
        """What the command prints. Raises: NotReady with the end of what it printed, if it fails."""
        done = subprocess.run(
            command, cwd=self.root, timeout=SECONDS,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise NotReady(f"`{' '.join(command)}` failed with {done.returncode}:\n{done.stdout[-4000:]}")
        return done.stdout.strip()


def tree(release: Release) -> str:
    """Everything is committed, on main."""
    changed = release.run("git", "status", "--porcelain")
    if changed:
        raise NotReady(f"not everything is committed; commit or remove:\n{changed}")
    branch = release.run("git", "rev-parse", "--abbrev-ref", "HEAD")
    if branch != "main":
        raise NotReady(f"this is branch {branch}; releases are made from main")
    return "clean, " + release.run("git", "rev-parse", "--short=12", "HEAD")


def version(release: Release) -> str:
    """The version is a final one, later than every tag."""
    new = _number(release.version)
    if new is None:
        raise NotReady(f"{release.version} is not a final version; set __version__ in pushup/__init__.py, as 1.2.3")
    tags = release.run("git", "tag", "--list", "v*").split()
    former = max(filter(None, (_number(tag[1:]) for tag in tags)), default=(0, 0, 0))
    if new <= former:
        last = ".".join(map(str, former))
        raise NotReady(f"{release.version} is not later than {last}; raise __version__ in pushup/__init__.py")
    return release.version


def changelog(release: Release) -> str:
    """What has changed stands under this version and today's date (UTC), with what users must do."""
    text = (release.root / "docs" / "changelog.md").read_text()
    heading = f"## [{release.version}] - {datetime.now(UTC):%Y-%m-%d}"
    if f"\n{heading}\n" not in text:
        raise NotReady(f"docs/changelog.md has no `{heading}`; rename `## [Unreleased]`")
    unreleased = re.search(r"^## \[Unreleased\]\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    if unreleased is not None and unreleased[1].strip():
        raise NotReady("docs/changelog.md has changes under `## [Unreleased]`; put them under the new version")
    if "\n### Upgrading\n" not in text.partition(heading)[2].partition("\n## ")[0]:
        raise NotReady(
            f"{release.version} has no `### Upgrading` in docs/changelog.md: say what users must do, or nothing"
        )
    return heading


def artifacts(release: Release) -> str:
    """The sdist and the wheels can be built; a new environment with the wheel of this machine runs this commit."""
    release.run("make", "wheels")
    commit = release.run("git", "rev-parse", "--short=12", "HEAD")
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        found = ("--find-links", str(release.root / "build" / "dist"), f"pushup=={release.version}")
        release.run(f"{folder}/bin/pip", "install", "--quiet", "--only-binary", "pushup", *found)
        says = release.run(f"{folder}/bin/pushup", "--version")
    if release.version not in says or commit not in says or "dirty" in says:
        raise NotReady(f"the installed wheel says {says!r}, not version {release.version} and commit {commit}")
    return f"{len(list((release.root / 'build' / 'dist').glob('*')))} in build/dist; {says}"


def readme(release: Release) -> str:
    """The lines of README.md and of the tutorial do what they say."""
    return release.run(sys.executable, "-m", "pytest", "-q", *README_TESTS).splitlines()[-1]


def image(release: Release) -> str:
    """The image can be built, and a container answers."""
    name = f"pushup:{release.version}"
    commit = release.run("git", "rev-parse", "--short=12", "HEAD")
    docker = ("docker", "build", "--quiet", "--file", "deploy/Dockerfile", "--target", "node")
    release.run(*docker, "--build-arg", f"COMMIT={commit}", "--tag", name, ".")
    (port,) = free_ports(1)
    container = release.run("docker", "run", "--detach", "--rm", "--publish", f"127.0.0.1:{port}:8080", name)
    try:
        url = f"http://127.0.0.1:{port}/healthz"
        release.run("curl", "--silent", "--show-error", "--fail", "--retry", "30", "--retry-all-errors", url)
        return f"{name} answers at /healthz"
    finally:
        release.run("docker", "stop", container)


def _made(target: str) -> Callable[[Release], str]:
    """`make TARGET` succeeds."""

    def check(release: Release) -> str:
        release.run("make", target)
        return f"make {target}"

    return check


def _number(version: str) -> tuple[int, ...] | None:
    match = _FINAL.fullmatch(version)
    return None if match is None else tuple(map(int, match.groups()))


CHECKS: dict[str, Callable[[Release], str]] = {
    "tree": tree,
    "version": version,
    "changelog": changelog,
    "artifacts": artifacts,
    "readme": readme,
    "image": image,
    "chart": _made("chart"),
    "deb": _made("deb"),
    "site": _made("site"),
}
"""By name, in their order: the quick ones first."""
