"""Listening: all addresses or none, a port that processes share, and accepting beside them."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from twisted.internet.interfaces import IReactorFDSet
from twisted.internet.task import Clock

from pushup.net.listener import (
    ACCEPTS,
    PAUSE_SECONDS,
    SHARED_ACCEPTS,
    Listener,
    address_of,
    bind_socket,
    open_socket,
    open_sockets,
)


class Accepted:
    """A connection."""

    def __init__(self) -> None:
        self.is_blocking = True
        self.is_closed = False

    def setblocking(self, flag: bool) -> None:
        self.is_blocking = flag

    def close(self) -> None:
        self.is_closed = True


class Listening:
    """A listening socket on which many clients wait."""

    def __init__(self, path: str = "", *, clients: int = 1000) -> None:
        self.family = socket.AF_UNIX if path else socket.AF_INET
        self.is_closed = False
        self.clients = clients
        self.errors: list[OSError] = []
        self._name = path or ("127.0.0.1", 80)

    def getsockname(self) -> object:
        return self._name

    def fileno(self) -> int:
        return 7

    def accept(self) -> tuple[Accepted, str]:
        if self.errors:
            raise self.errors.pop(0)
        if not self.clients:
            raise BlockingIOError
        self.clients -= 1
        return Accepted(), ""

    def close(self) -> None:
        self.is_closed = True


class Readers:
    """The reactor: who is told that there is something to read."""

    def __init__(self) -> None:
        self.readers: list[object] = []

    def addReader(self, reader: object) -> None:
        self.readers.append(reader)

    def removeReader(self, reader: object) -> None:
        self.readers.remove(reader)


class Door:
    """A listener on such a socket."""

    def __init__(self, sock: Listening, *, is_shared: bool = False) -> None:
        self.reactor, self.clock = Readers(), Clock()
        self.accepted: list[Accepted] = []
        self.on_accepted: Callable[[Accepted], None] = lambda sock: None
        self.listener = Listener(
            cast(socket.socket, sock),
            reactor=cast(IReactorFDSet, self.reactor),
            clock=self.clock,
            accepted=lambda sock: self._take(cast(Accepted, sock)),
            is_shared=is_shared,
        )
        self.listener.start()

    def _take(self, sock: Accepted) -> None:
        self.accepted.append(sock)
        self.on_accepted(sock)


# Sockets.


class Opened:
    """Opens addresses; one that contains `busy` is in use."""

    def __init__(self) -> None:
        self.sockets: list[Listening] = []

    def __call__(self, address: str) -> socket.socket:
        if "busy" in address:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        self.sockets.append(Listening(address))
        return cast(socket.socket, self.sockets[-1])


def test_all_addresses_are_opened() -> None:
    opened = Opened()
    assert [sock.getsockname() for sock in open_sockets(["a", "b"], opened)] == ["a", "b"]
    assert [sock.is_closed for sock in opened.sockets] == [False, False]
    assert open_sockets([], opened) == []


def test_if_one_cannot_be_opened_none_is() -> None:
    """Those before it are closed again, and the error names it."""
    opened = Opened()
    with pytest.raises(OSError, match="cannot listen on busy: Address already in use") as caught:
        open_sockets(["a", "b", "busy", "c"], opened)
    assert caught.value.errno == errno.EADDRINUSE
    assert [sock.is_closed for sock in opened.sockets] == [True, True]


@pytest.mark.processes
def test_processes_can_share_a_port() -> None:
    """One can keep it without taking connections; while others listen there nobody can have it alone."""
    with bind_socket("127.0.0.1:0", share_port=True) as kept:
        address = address_of(kept)
        with socket.socket() as client:
            assert client.connect_ex(kept.getsockname()) == errno.ECONNREFUSED
        with open_socket(address, share_port=True) as one, open_socket(address, share_port=True) as two:
            assert {address_of(one), address_of(two)} == {address}
            with socket.create_connection(one.getsockname(), timeout=5):
                pass
            with pytest.raises(OSError, match="in use"):
                open_socket(address)


@pytest.mark.processes
def test_a_port_is_not_shared_unless_it_is_asked_for() -> None:
    """With a server that listens there alone."""
    with open_socket("127.0.0.1:0") as alone:
        for share_port in (False, True):
            with pytest.raises(OSError, match="in use"):
                bind_socket(address_of(alone), share_port=share_port)


# Accepting.


@pytest.mark.parametrize(("is_shared", "expected"), [(False, ACCEPTS), (True, SHARED_ACCEPTS)])
def test_a_limited_number_is_accepted_in_a_turn(is_shared: bool, expected: int) -> None:
    """Few, if other processes accept on the same socket; none blocks."""
    door = Door(Listening(), is_shared=is_shared)
    door.listener.doRead()
    assert len(door.accepted) == expected
    assert not any(sock.is_blocking for sock in door.accepted)
    door.listener.doRead()
    assert len(door.accepted) == 2 * expected


def test_nobody_may_be_left_to_accept() -> None:
    """Another process was quicker."""
    door = Door(Listening(clients=2), is_shared=True)
    for _ in range(2):
        door.listener.doRead()
    assert len(door.accepted) == 2
    assert door.reactor.readers == [door.listener]


@pytest.mark.parametrize(("is_shared", "stays"), [(False, False), (True, True)])
def test_closing_removes_the_path_of_its_own_socket(tmp_path: Path, is_shared: bool, stays: bool) -> None:
    """That of a socket that processes share stays: others accept there. Closing twice is closing once."""
    path = tmp_path / "sock"
    path.touch()
    sock = Listening(str(path))
    door = Door(sock, is_shared=is_shared)
    door.listener.close()
    door.listener.close()
    assert (sock.is_closed, path.exists(), door.reactor.readers) == (True, stays, [])


def test_closing_leaves_the_path_of_the_next_server(tmp_path: Path) -> None:
    """Somebody had removed that of the first one."""
    path = tmp_path / "sock"
    path.touch()
    first = Door(Listening(str(path)))
    path.unlink()
    path.touch()
    os.utime(path, (1, 1))  # at another time: the file system may give it the number of the first one's
    second = Door(Listening(str(path)))
    first.listener.close()
    assert path.exists()
    second.listener.close()
    assert not path.exists()


@pytest.mark.parametrize("is_shared", [False, True])
def test_closing_accepts_those_who_wait(is_shared: bool) -> None:
    """Their connections would be reset. Others that share the socket may be closing it, too."""
    door = Door(Listening(clients=300), is_shared=is_shared)
    door.listener.close()
    assert len(door.accepted) == 300
    assert not any(sock.is_blocking or sock.is_closed for sock in door.accepted)


def test_closing_when_no_descriptor_is_left(logged_failures: list[str]) -> None:
    """Nobody is accepted, and it is not tried again."""
    sock = Listening()
    door = Door(sock)
    sock.errors = [OSError(errno.EMFILE, "too many")]
    door.listener.close()
    assert (door.accepted, sock.is_closed, door.clock.getDelayedCalls()) == ([], True, [])


def test_closing_after_the_path_has_gone(tmp_path: Path) -> None:
    path = tmp_path / "gone"
    path.touch()
    sock = Listening(str(path))
    door = Door(sock)
    path.unlink()
    door.listener.close()
    assert sock.is_closed


def test_accepting_pauses_when_no_descriptor_is_left(logged_failures: list[str]) -> None:
    """It is tried again after a second, unless the listener was closed; the log says so once."""
    sock = Listening()
    door = Door(sock)
    for _ in range(2):
        sock.errors = [OSError(errno.EMFILE, "too many")]
        door.listener.doRead()
        assert (door.accepted, door.reactor.readers) == ([], [])
        door.clock.advance(PAUSE_SECONDS)
        assert door.reactor.readers == [door.listener]
    assert ["cannot accept on 127.0.0.1:80" in line for line in logged_failures] == [True]
    logged_failures.clear()


def test_closing_while_accepting_pauses(logged_failures: list[str]) -> None:
    """It does not begin again."""
    sock = Listening()
    door = Door(sock)
    sock.errors = [OSError(errno.EMFILE, "too many")]
    door.listener.doRead()
    door.reactor.addReader(door.listener)  # `close` removes it
    door.listener.close()
    door.clock.advance(PAUSE_SECONDS)
    assert door.reactor.readers == []
    logged_failures.clear()


def test_a_client_that_has_left_is_skipped() -> None:
    sock = Listening(clients=1)
    sock.errors = [OSError(errno.ECONNABORTED, "gone")]
    door = Door(sock)
    door.listener.doRead()
    assert len(door.accepted) == 1


def test_a_connection_that_cannot_be_served_is_closed(logged_failures: list[str]) -> None:
    door = Door(Listening(clients=2))

    def fails(sock: Accepted) -> None:
        if sock is door.accepted[0]:
            raise ValueError("a bug")

    door.on_accepted = fails
    door.listener.doRead()
    assert [sock.is_closed for sock in door.accepted] == [True, False]
    assert len(logged_failures) == 1
    logged_failures.clear()
