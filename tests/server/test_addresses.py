"""Where a server listens."""

from __future__ import annotations

import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.command_line import run
from tests.server.conftest import Serve
from tests.server.raw_client import get
from tests.server.redis_server import free_port
from tests.server.server_process import clean_environment


def refusal(*flags: str) -> str:
    """The error of a server that does not start, which must be one line."""
    ended = run("serve", *flags)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "Traceback" not in ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("Error: ")]
    return line.removeprefix("Error: ")


def has_ipv6_loopback() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_ipv6(serve: Serve) -> None:
    """`[::1]` works like any address; without IPv6, it is refused with an error that names it."""
    if not has_ipv6_loopback():
        assert "cannot listen on [::1]:0" in refusal("--listen", "[::1]:0")
        return
    with serve("--listen", "[::1]:0") as server, server.caller() as caller:
        assert server.address.startswith("[::1]:")
        caller.publish(["a"], 1)
        assert len(caller.poll("a")["messages"]) == 1


def test_unix_socket(serve: Serve, tmp_path: Path) -> None:
    """A Unix socket works like any address, and its file is deleted when the server stops."""
    path = tmp_path / "pushup.sock"
    with serve("--listen", f"unix:{path}") as server:
        with server.caller() as caller:
            caller.publish(["a"], 1)
            assert len(caller.poll("a")["messages"]) == 1
        assert stat.S_ISSOCK(path.stat().st_mode)
        server.end()
    assert not path.exists()


def test_what_is_printed_can_be_pasted(tmp_path: Path) -> None:
    """The command that publishes, also with a space in the path of the socket."""
    command = [sys.executable, "-m", "pushup", "serve", "--listen", "unix:a socket"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            *_, publish = [server.stdout.readline() for _ in range(4)]
            said = subprocess.run(["sh", "-c", publish], cwd=tmp_path, capture_output=True, text=True, check=False)
            assert '"id"' in said.stdout, publish
        finally:
            server.kill()


def test_stale_unix_socket_is_replaced(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "pushup.sock"
    with serve("--listen", f"unix:{path}"):
        pass
    assert path.exists()
    with serve("--listen", f"unix:{path}") as server, server.caller() as caller:
        assert caller.call("GET", "/healthz").status == 200


def test_unix_socket_in_use_is_refused(serve: Serve, tmp_path: Path) -> None:
    """If another server listens there, or the path is a file, it is not replaced, and the error names the address."""
    path = tmp_path / "pushup.sock"
    with serve("--listen", f"unix:{path}") as server, server.caller() as caller:
        assert f"cannot listen on unix:{path}: Address already in use" in refusal("--listen", f"unix:{path}")
        assert caller.call("GET", "/healthz").status == 200
    path.unlink()
    path.write_text("precious")
    assert f"cannot listen on unix:{path}: a file that is not a socket already exists there" in refusal(
        "--listen", f"unix:{path}"
    )
    assert path.read_text() == "precious"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/tmp/" + "x" * 150, "too long"),
        ("", "unix:"),
    ],
    ids=["too long", "empty"],
)
def test_impossible_unix_socket_is_refused(path: str, reason: str) -> None:
    said = refusal("--listen", f"unix:{path}")
    assert reason in said
    assert "None" not in said


def test_several_addresses(serve: Serve, tmp_path: Path) -> None:
    flags = ("--listen", "127.0.0.1:0", "--listen", "127.0.0.2:0", "--listen", f"unix:{tmp_path}/s")
    with serve(*flags) as server:
        assert len(server.addresses) == 3
        assert server.addresses[1].startswith("127.0.0.2:")
        first, second, third = (server_at.caller() for server_at in [server] * 3)
        with first, second, third:
            for place, (caller, address) in enumerate(zip((first, second, third), server.addresses, strict=True)):
                caller.move_to(address)
                caller.publish(["a"], place)
            assert [m["data"] for m in third.poll("a")["messages"]] == [0, 1, 2]


def test_address_in_use_is_refused(serve: Serve, tmp_path: Path) -> None:
    """The error names an address in use; then the server listens at no other address either."""
    path = tmp_path / "s"
    with serve() as server:
        said = refusal("--listen", f"unix:{path}", "--listen", server.address)
        assert f"cannot listen on {server.address}: Address already in use" in said
        with server.connect() as client:
            client.send(get("/healthz"))
            assert client.read_response().status == 200


def test_port_can_be_reused_at_once(serve: Serve) -> None:
    """A server can start on the port of one that ended while clients were connected."""
    address = f"127.0.0.1:{free_port()}"
    with serve("--listen", address) as server, server.connect() as client:
        client.send(get("/healthz"))
        assert client.read_response().status == 200
        server.end(signal.SIGKILL)
        with serve("--listen", address) as again, again.caller() as caller:
            assert caller.call("GET", "/healthz").status == 200


@pytest.mark.parametrize("address", ["8080", "localhost:8080", "127.0.0.1:99999", "::1:80"])
def test_invalid_address_is_refused(address: str) -> None:
    """The error shows the syntax of an address."""
    assert "write 127.0.0.1:8080" in refusal("--listen", address)
