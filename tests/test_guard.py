"""Tests that are not marked `processes` cannot start processes or use sockets."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable

import pytest


def _bind() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))


def _connect() -> None:
    with socket.socket() as sock:
        sock.connect(("127.0.0.1", 9))


def _send() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", ("127.0.0.1", 9))


@pytest.mark.parametrize(
    "attempt",
    [
        lambda: subprocess.run([sys.executable, "-c", ""]),
        _bind,
        _connect,
        _send,
        lambda: socket.getaddrinfo("localhost", 80),
    ],
    ids=["process", "bind", "connect", "send", "name"],
)
def test_an_unmarked_test_that_goes_outside_fails(attempt: Callable[[], object], gone_outside: list[str]) -> None:
    """Even if the code under test swallows the error."""
    with pytest.raises(RuntimeError, match="without the marker `processes`"):
        attempt()
    assert len(gone_outside) == 1
    gone_outside.clear()


@pytest.mark.processes
def test_a_marked_test_may_go_outside() -> None:
    """The marker is enough, in any folder."""
    _bind()
    assert subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True).stdout == b"42\n"


def test_a_socket_pair_is_allowed(gone_outside: list[str]) -> None:
    """No other process is at the other end."""
    one, other = socket.socketpair()
    with one, other:
        one.send(b"x")
        assert other.recv(1) == b"x"
    assert gone_outside == []


@pytest.mark.xdist_group("guard")
def test_groups_of_tests_stay_together(request: pytest.FixtureRequest) -> None:
    """The group is part of a test's id, from which pytest-xdist knows it: not with each version of pytest."""
    assert not request.config.getoption("loadgroup", default=False) or request.node.nodeid.endswith("@guard")
