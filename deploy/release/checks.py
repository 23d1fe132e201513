"""The checks of a release. Each returns what it found, in a few words, or raises NotReady with what to do."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

from deploy.cluster import free_ports

ROOT = Path(__file__).resolve().parents[2]

SECONDS = 1800
"""No command takes longer: images and wheels are compiled."""

START_SECONDS = 60
"""A server has answered by then."""

_VERSION = re.compile(r'^__version__ = "(.*)"$', re.MULTILINE)
_FINAL = re.compile(r"(\d+)\.(\d+)\.(\d+)")

README_TESTS = ("tests/server/test_samples.py", "tests/server/test_tutorial.py")

ADDED_BYTES = """
import gzip, tarfile
class Counter:
    count = 0
    def write(self, data):
        self.count += len(data)
        return len(data)
counter = Counter()
with gzip.GzipFile(fileobj=counter, mode="wb", compresslevel=6) as packed:
    with tarfile.open(fileobj=packed, mode="w|") as tar:
        tar.add("/opt/pushup")
print(counter.count)
"""
"""In the image, it prints the size of what the image adds to its base, compressed as a registry has it."""


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
        self.figures: dict[str, str] = {}
        """What the checks have measured: sizes and seconds."""

    def run(self, *command: str) -> str:
        """What the command prints to standard output. Raises: NotReady with the end of all it printed, if it fails."""
        try:
            done = subprocess.run(command, cwd=self.root, timeout=SECONDS, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise NotReady(f"this machine has no {command[0]}; install it") from None
        except subprocess.TimeoutExpired:
            raise NotReady(f"`{' '.join(command)}` has not ended within {SECONDS} s") from None
        if done.returncode:
            said = (done.stdout + done.stderr)[-4000:]
            raise NotReady(f"`{' '.join(command)}` failed with {done.returncode}:\n{said}")
        return done.stdout.strip()

    def measure(self, what: str, files: Iterable[Path]) -> None:
        """Note the size of these files."""
        self.figures[what] = _size(sum(file.stat().st_size for file in files))

    def measure_built(self, what: str, pattern: str) -> None:
        """Note the size of what a check has built below build/, of this version."""
        self.measure(what, (self.root / "build").glob(pattern.format(self.version)))


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


def results(release: Release) -> str:
    """The results of experiments are as new as the code that they measure."""
    release.run(sys.executable, "-m", "loadtest", "report", "--check", "--out", "docs/lab/results")
    return "as new as the code that they measure"


def artifacts(release: Release) -> str:
    """The sdist and the wheels can be built; a new environment with the wheel of this machine serves this commit, and
    another one, with the client alone, imports it."""
    release.run("make", "wheels")
    release.measure_built("compiled wheel", "dist/pushup-{}-*manylinux*.whl")
    release.measure_built("pure wheel", "dist/pushup-{}-*-none-any.whl")
    release.measure_built("client wheel", "dist/pushup_client-{}-*.whl")
    release.measure_built("sdist", "dist/pushup-{}.tar.gz")
    commit = release.run("git", "rev-parse", "--short=12", "HEAD")
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        found = ("--find-links", str(release.root / "build" / "dist"), f"pushup=={release.version}")
        begun = time.monotonic()
        release.run(f"{folder}/bin/pip", "install", "--quiet", "--no-cache-dir", "--only-binary", "pushup", *found)
        release.figures["`pip install` of the compiled wheel"] = f"{time.monotonic() - begun:.1f} s"
        says = release.run(f"{folder}/bin/pushup", "--version")
        if release.version not in says or commit not in says or "dirty" in says:
            raise NotReady(f"the installed wheel says {says!r}, not version {release.version} and commit {commit}")
        (port,) = free_ports(1)
        begun = time.monotonic()
        serve = (f"{folder}/bin/pushup", "serve", "--listen", f"127.0.0.1:{port}", "--log-level", "warn")
        with subprocess.Popen(serve, cwd=folder, stdout=subprocess.DEVNULL) as server:
            try:
                release.figures["from `pushup serve` to the first answer"] = _first_answer(port, begun)
            finally:
                server.terminate()
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        (client,) = (release.root / "build" / "dist").glob(f"pushup_client-{release.version}-*.whl")
        release.run(f"{folder}/bin/pip", "install", "--quiet", str(client))
        release.run(f"{folder}/bin/python", "-I", "-c", "from pushup.client import AsyncClient, Client")
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
    added = release.run("docker", "run", "--rm", "--entrypoint", "python", name, "-c", ADDED_BYTES)
    release.figures["image, compressed, without its base"] = _size(int(added))
    release.measure("what its build is sent", _context(release))
    (port,) = free_ports(1)
    begun = time.monotonic()
    container = release.run("docker", "run", "--detach", "--rm", "--publish", f"127.0.0.1:{port}:8080", name)
    try:
        release.figures["from `docker run` to the first answer"] = _first_answer(port, begun)
        return f"{name} answers at /healthz"
    finally:
        release.run("docker", "stop", container)


def _context(release: Release) -> list[Path]:
    """The files that BuildKit sends to the build of the server's image: it leaves out those of the example's."""
    lines = (release.root / ".dockerignore").read_text().splitlines()
    sources = [line[1:] for line in lines if line.startswith("!") and "example" not in line]
    return [release.root / name for name in release.run("git", "ls-files", *sources).splitlines()]


def _first_answer(port: int, begun: float) -> str:
    """Wait for a server on this port of loopback; returns how long after `begun` it answered. Raises: NotReady."""
    while time.monotonic() < begun + START_SECONDS:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=1):
                return f"{time.monotonic() - begun:.1f} s"
        except OSError:
            time.sleep(0.02)
    raise NotReady(f"no answer at /healthz within {START_SECONDS} s")


def _made(target: str, what: str, pattern: str) -> Callable[[Release], str]:
    """`make TARGET` succeeds, and makes files of this pattern below build/."""

    def check(release: Release) -> str:
        release.run("make", target)
        release.measure_built(what, pattern)
        return f"make {target}"

    return check


def _size(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"


def _number(version: str) -> tuple[int, ...] | None:
    match = _FINAL.fullmatch(version)
    return None if match is None else tuple(map(int, match.groups()))


CHECKS: dict[str, Callable[[Release], str]] = {
    "tree": tree,
    "version": version,
    "changelog": changelog,
    "results": results,
    "artifacts": artifacts,
    "readme": readme,
    "image": image,
    "npm": _made("npm", "npm package", "npm/*-{}.tgz"),
    "chart": _made("chart", "Helm chart", "chart/pushup-{}.tgz"),
    "deb": _made("deb", "Debian package", "deb/pushup_{}_*.deb"),
    "site": _made("site", "site, all files", "site/**/*.*"),
}
"""By name, in their order: the quick ones first."""
