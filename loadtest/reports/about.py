"""How a result was measured: of which commit, when, on which machine, and what else the machine did meanwhile.

The program records all of it in each result. So a result that is older than the code that it measures is found, and a
commit that changes one experiment does not make the results of all others old.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import platform
import re
import resource
import subprocess
import tarfile
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]

QUICK = "--quick"
CHANGED = ", changed"
"""After a commit: what was measured is not committed."""

BUILT = (".pyc", ".so")

NOT_RUN = ("broadcast/journal_copy.py", "net/proxies.py")
"""Files of the server that no experiment runs: it makes no backups, and trusts no proxy."""

WORTH_TELLING = 0.01
"""The share of a processor from which on another process is a disturbance; the `MOST` greatest are named."""

MOST = 5


class NotOfThisCommit(Exception):
    """A result is not of the code of this commit. The text says which, and what to do."""


def commit() -> str:
    """The commit of this checkout; with `CHANGED` if the server or the experiments differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603, S607

    try:
        changed = git("status", "--porcelain", "--", "pushup", "loadtest")
        return git("rev-parse", "--short=12", "HEAD") + (CHANGED if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def digests(paths: Iterable[str], root: Path = ROOT) -> dict[str, str]:
    """A digest of what is in each of these files and folders; of Python, of its code."""
    return {path: _digest(root / path) for path in paths}


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file() and file.suffix not in BUILT and not any(map(file.match, NOT_RUN)):
            content = file.read_bytes()
            code = _code(content) if file.suffix == ".py" else content
            digest.update(f"{file.relative_to(path)}\n".encode() + code)
    return digest.hexdigest()[:12]


@cache
def _code(source: bytes) -> bytes:
    """A digest of Python without comments and docstrings, and however it is formatted."""
    return hashlib.sha256(ast.dump(_WithoutTexts().visit(ast.parse(source))).encode()).digest()


class _WithoutTexts(ast.NodeTransformer):
    """Removes docstrings, also those of attributes."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node


def changed_since(about: Mapping[str, Any], measures: Iterable[str], root: Path = ROOT) -> str:
    """What of the code that a result measures has changed since; empty if nothing has.

    A path whose digest is another or missing may still be as it was in the result's commit: another Python makes other
    digests. One that is no longer measured is ignored.
    """
    if "commit" not in about:
        return "does not say of which code it is"
    code, commit, now = about.get("code", {}), about["commit"], digests(measures, root)
    paths = [path for path in now if now[path] != code.get(path) and now[path] != _digest_in(commit, path, root)]
    return f"{', '.join(paths)} changed since {commit}" if paths else ""


@cache
def _digest_in(commit: str, path: str, root: Path) -> str:
    """The digest of what was in a file or folder in this commit; empty if that is not known."""
    git = ["git", "archive", "--format=tar", commit, path]
    try:
        archive = subprocess.run(git, cwd=root, capture_output=True, check=True).stdout  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return ""
    with TemporaryDirectory() as folder, tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
        return _digest(Path(folder, path))


def abouts(folder: Path) -> dict[str, Mapping[str, Any]]:
    """How each full result of a folder was measured, by the name of its table."""
    found = {}
    for file in sorted(folder.glob("*.json")):
        table = json.loads(file.read_text())
        if isinstance(table, dict) and QUICK not in table.get("about", {}).get("command", QUICK).split():
            found[file.stem] = table["about"]
    return found


class Measuring:
    """From its creation on, notes what the machine does, for `about`."""

    def __init__(self, measures: Iterable[str]) -> None:
        """`measures`: the files and folders whose code is measured, as they are now."""
        self._code = digests(measures)
        self._began = time.time()
        self._load = os.getloadavg()[0]
        self._own = _own_seconds()
        self._busy, self._stolen = _machine_seconds()
        self._others = _others()

    def about(self, command: str) -> dict[str, object]:
        """How a result was measured. If its code has changed since the beginning, the result counts as old."""
        took = time.time() - self._began
        own = _own_seconds()
        return {
            "command": command,
            "commit": commit(),
            "date": datetime.fromtimestamp(self._began, UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "machine": _machine(),
            "python": platform.python_version(),
            "seconds": round(took, 1),
            "this process's share of its processor": round((own[0] - self._own[0]) / took, 2),
            "load average": f"{self._load:.2f} before, {os.getloadavg()[0]:.2f} after",
            "disturbances": self._disturbances(took, sum(own) - sum(self._own)),
            "code": self._code,
        }

    def _disturbances(self, took: float, own: float) -> str:
        """The processors that others used, by name if they still run; and what the hypervisor gave to others."""
        busy, stolen = _machine_seconds()
        shares = {"others in all": max(0.0, busy - self._busy - own) / took, "stolen": (stolen - self._stolen) / took}
        named = {key: (seconds - self._others.get(key, 0.0)) / took for key, seconds in _others().items()}
        greatest = sorted(named, key=lambda key: -named[key])[:MOST]
        told = [*shares.items(), *((name, named[pid, name]) for pid, name in greatest)]
        return ", ".join(f"{name} {share:.2f}" for name, share in told if share >= WORTH_TELLING) or "none"


def _machine() -> str:
    """Its processors, memory and kernel."""
    memory = psutil.virtual_memory().total / 2**30
    system = f"{platform.system()} {platform.release()}"
    return f"{platform.machine()}, {os.cpu_count()} processors{_model()}, {memory:.1f} GB of memory, {system}"


def _model() -> str:
    """The name of the processors, in parentheses; empty if this system does not tell it."""
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return f" ({found[1].strip()})" if found else ""


def _own_seconds() -> tuple[float, float]:
    """The processor time of this process, and that of all that it has started."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    running = [times for child in _family()[1:] if (times := _seconds(child)) is not None]
    return time.process_time(), ended.ru_utime + ended.ru_stime + sum(running)


def _machine_seconds() -> tuple[float, float]:
    """The time that all processors were busy, and the time that was stolen."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    stolen = getattr(times, "steal", 0.0)
    guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # is part of user and nice
    return sum(times) - guest - idle - stolen, stolen


def _others() -> dict[tuple[int, str], float]:
    """The processor time of each process outside of our family, by its id and name."""
    ours = {process.pid for process in _family()}
    found = ((process, _seconds(process)) for process in psutil.process_iter(["name"]) if process.pid not in ours)
    return {(process.pid, process.info["name"]): seconds for process, seconds in found if seconds is not None}


def _family() -> list[psutil.Process]:
    """This process, and all that it has started."""
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


def _seconds(process: psutil.Process) -> float | None:
    try:
        times = process.cpu_times()
    except psutil.Error:  # it has ended
        return None
    return float(times.user + times.system)
