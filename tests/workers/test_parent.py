"""The parent keeps its addresses for its workers, from when it starts until it stops."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from pushup.net.listener import address_of, bind_socket, open_socket
from pushup.workers import parent
from pushup.workers.parent import ReservedAddresses, reserve

pytestmark = pytest.mark.processes


def has(family: socket.AddressFamily, host: str) -> bool:
    try:
        with socket.socket(family) as sock:
            sock.bind((host, 0))
    except OSError:
        return False
    return True


ALL_ADDRESSES = [("127.0.0.1", "0.0.0.0"), *([("[::1]", "[::]")] if has(socket.AF_INET6, "::1") else [])]
OTHER_SERVERS = [open_socket, reserve]
"""How they start: with one process, and with several."""


def start_is_refused(start: Callable[[str], socket.socket], address: str) -> bool:
    try:
        start(address).close()
    except OSError as error:
        assert error.strerror == "Address already in use"  # noqa: PT017
        return True
    return False


@pytest.mark.parametrize(("host", "wildcard"), ALL_ADDRESSES)
@pytest.mark.parametrize("start", OTHER_SERVERS)
def test_no_other_server_starts_on_a_reserved_address(
    host: str, wildcard: str, start: Callable[[str], socket.socket]
) -> None:
    """Nor on one that includes it; whether workers listen, have not begun, or are being replaced. Later it may."""
    for mine in (host, wildcard):
        with reserve(f"{mine}:0") as reserved:
            address = address_of(reserved)
            port = reserved.getsockname()[1]
            for listening in range(3):
                with ExitStack() as workers:
                    for _ in range(listening):
                        workers.enter_context(open_socket(address, share_port=True))
                    assert start_is_refused(start, f"{host}:{port}")
                    assert start_is_refused(start, f"{wildcard}:{port}")
        assert not start_is_refused(start, address)


@pytest.mark.parametrize("rival", OTHER_SERVERS)
@pytest.mark.parametrize("is_chosen", [False, True])
def test_two_servers_that_start_at_once(
    rival: Callable[[str], socket.socket], is_chosen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other is refused after each step of the first, also if the system chooses the port."""
    refused: list[bool] = []

    def watched(step: Callable[..., socket.socket]) -> Callable[..., socket.socket]:
        def then_the_rival(address: str, **more: bool) -> socket.socket:
            sock = step(address, **more)
            with monkeypatch.context() as plain:
                plain.setattr(parent, "bind_socket", bind_socket)
                plain.setattr(parent, "open_socket", open_socket)
                refused.append(start_is_refused(rival, address_of(sock)))
            return sock

        return then_the_rival

    address = "127.0.0.1:0"
    if not is_chosen:
        with open_socket(address) as free:
            address = address_of(free)
    monkeypatch.setattr(parent, "bind_socket", watched(bind_socket))
    monkeypatch.setattr(parent, "open_socket", watched(open_socket))
    with reserve(address):
        assert refused == [True] * len(refused)
    assert len(refused) >= 2


def test_a_server_that_listens_there_is_found() -> None:
    """With one process, or with several whose parent was killed and that have not noticed yet."""
    for share_port in (False, True):
        with open_socket("127.0.0.1:0", share_port=share_port) as other:
            assert start_is_refused(reserve, address_of(other))


def test_connections_of_the_last_server_do_not_matter() -> None:
    """Neither those that are open, nor those that it has closed (TIME_WAIT)."""
    with reserve("127.0.0.1:0") as reserved, open_socket(address_of(reserved), share_port=True) as worker:
        address = address_of(reserved)
        worker.setblocking(True)
        open_client = socket.create_connection(worker.getsockname(), timeout=5)
        open_end, _ = worker.accept()
        client = socket.create_connection(worker.getsockname(), timeout=5)
        end, _ = worker.accept()
    end.close()
    assert client.recv(1) == b""
    client.close()
    with open_client, open_end, reserve(address), open_socket(address, share_port=True) as worker:
        worker.setblocking(True)
        with socket.create_connection(worker.getsockname(), timeout=5):
            worker.accept()[0].close()


def test_no_client_gets_to_the_parent() -> None:
    """It does not listen: while no worker does, clients are refused at once."""
    with reserve("127.0.0.1:0") as reserved, socket.socket() as client, pytest.raises(ConnectionRefusedError):
        client.connect(reserved.getsockname())


def test_what_stays_while_the_workers_drain(tmp_path: Path) -> None:
    """The next server can have an address once no worker listens there; until then clients find a Unix socket."""
    path = tmp_path / "a"
    reserved = ReservedAddresses((f"unix:{path}", "127.0.0.1:0"))
    reserved.startService()
    worker = reserved.shared()[0].dup()
    reserved.free_ports()
    with open_socket(reserved.addresses[1]), worker, socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    with socket.socket(socket.AF_UNIX) as client, pytest.raises(ConnectionRefusedError):
        client.connect(str(path))
    reserved.stopService()
    assert not path.exists()


def test_the_next_server_takes_a_unix_socket_while_the_first_is_still_stopping(tmp_path: Path) -> None:
    """Its workers send what is left to their clients. When they have ended, the path is the next server's."""
    first, second = (ReservedAddresses((f"unix:{tmp_path}/a",)) for _ in range(2))
    first.startService()
    first.free_ports()
    second.startService()
    os.utime(tmp_path / "a", (1, 1))  # at another time: the file system may give it the number of the first one's
    first.stopService()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"{tmp_path}/a")
    second.stopService()


def test_a_socket_of_another_time_is_not_removed(tmp_path: Path) -> None:
    """It is the next server's, even if the file system has given it the number of the first one's."""
    reserved = ReservedAddresses((f"unix:{tmp_path}/a",))
    reserved.startService()
    os.utime(tmp_path / "a", (1, 1))
    reserved.stopService()
    assert (tmp_path / "a").exists()


def test_a_unix_socket_that_somebody_has_removed(tmp_path: Path) -> None:
    """The parent has nothing to remove, and goes on to stop its workers."""
    reserved = ReservedAddresses((f"unix:{tmp_path}/a", f"unix:{tmp_path}/b"))
    reserved.startService()
    (tmp_path / "a").unlink()
    reserved.stopService()
    assert [*tmp_path.iterdir()] == []
