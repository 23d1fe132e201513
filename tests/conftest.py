"""Fixtures for all tests: a logged failure or a lost Deferred fails the test that caused it.

And the kinds of tests. A test that may start processes or use sockets is marked `processes`, as are all tests of some
folders; any other test that does so fails. The markers are described in pyproject.toml, and the commands that select by
them are in the Makefile.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent, globalLogPublisher
from zope.interface import implementer

FOLDERS = {
    "server": ("processes",),
    "browser": ("processes",),
    "conformance": ("processes",),
    "deploy": ("processes",),
    "loadtest": ("processes", "long"),
}
"""The markers of all tests of a folder."""

SHARED = {"_shared_cluster": "session", "_shared_server": "module", "shared": "module"}
"""Fixtures that start much for many tests, and their scope. With several workers one of them runs all these tests, or
each would start them for itself."""

RANDOM = ("seed", "batch")
"""Parameters of random tests. Only the first value is part of `make check`; the others are marked `thorough`."""

EXPERIMENTS = "loadtest"
"""The folder of tests that would be in each other's way, because most measure. A module of it that only waits, and that
decides nothing by how fast something is, has a group of its own."""

OUTSIDE = frozenset({
    "subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "pty.spawn",
    "socket.bind", "socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname",
})  # fmt: skip
"""Python's audit events of what needs the world outside of this process."""

# Each worker has its own ports for clusters, or another could take one that is chosen and not in use yet.
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 8
os.environ["FREE_PORTS"] = f"{20000 + 1500 * _worker}-{21500 + 1500 * _worker}"

# The same examples every time, however slow the machine, and whichever modules are imported: Hypothesis tries constants
# that it finds in their source, and has no setting against it (`test_examples.py`).
_no_constants = Constants()
providers._get_local_constants = lambda: _no_constants
settings.register_profile(
    "pushup", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("pushup")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell may run the tests in the background, where SIGINT is ignored; the processes they start need it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent
    for item in items:
        path = item.path.relative_to(tests)
        for marker in FOLDERS.get(path.parts[0], ()):
            item.add_marker(marker)
        if path.parts[0] == EXPERIMENTS and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("experiments"))
        if item.get_closest_marker("containers"):
            item.add_marker(pytest.mark.xdist_group("containers"))
        if isinstance(item, pytest.Function):
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            if any(str(parameters.get(name, 0)) != "0" for name in RANDOM) and not item.get_closest_marker(
                "interpreted"
            ):
                item.add_marker("thorough")
            strategy = str(parameters.get("wait_strategy", ""))
            for fixture in SHARED.keys() & set(item.fixturenames):
                group = path.stem + strategy if SHARED[fixture] == "module" else fixture.strip("_")
                item.add_marker(pytest.mark.xdist_group(group))


def pytest_collection_finish() -> None:
    """What is imported stays: the collector need not look at it each time that a test collects all garbage."""
    gc.collect()
    gc.freeze()


class _Guard:
    """Watches for processes and sockets; while it is `closed`, using one is an error, and is remembered."""

    def __init__(self) -> None:
        self.closed = False
        self.seen: list[str] = []

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.closed and event in OUTSIDE:
            self.seen.append(f"{event} {arguments}")
            raise RuntimeError(f"a test without the marker `processes` calls {event}: {arguments}")


_guard = _Guard()
sys.addaudithook(_guard)


@pytest.fixture(autouse=True)
def gone_outside(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """What a test without the marker `processes` attempted. A test that does so on purpose clears the list."""
    _guard.closed = request.node.get_closest_marker("processes") is None
    yield _guard.seen
    _guard.closed = False
    seen = _guard.seen.copy()
    _guard.seen.clear()
    assert not seen, "move this test to one of the folders that may, or mark it `processes`:\n" + "\n".join(seen)


@pytest.fixture(autouse=True)
def logged_failures() -> Iterator[list[str]]:
    """What was logged at level error or above. A test that causes errors on purpose clears the list."""
    observer = _Failures()
    globalLogPublisher.addObserver(observer)
    yield observer.seen
    gc.collect(0)  # a lost Deferred logs its failure when it is collected
    globalLogPublisher.removeObserver(observer)
    assert not observer.seen, "\n".join(observer.seen)


@pytest.fixture
def log(logged_failures: list[str]) -> Iterator[list[str]]:
    """The same, for a test that causes errors until its end."""
    yield logged_failures
    logged_failures.clear()


@implementer(ILogObserver)
class _Failures:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, event: LogEvent) -> None:
        if event["log_level"] >= LogLevel.error:
            failure = event.get("log_failure")
            self.seen.append(formatEvent(event) + ("\n" + failure.getTraceback() if failure else ""))
