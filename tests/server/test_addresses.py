"""Where a server listens, and who may publish there."""

from __future__ import annotations

import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.conftest import Serve
from tests.server.raw_client import get
from tests.server.redis_server import free_port
from tests.server.server_process import START_SECONDS, clean_environment

KEY = "a-publish-key-of-27-letters"


@pytest.fixture(scope="session")
def wait_strategy() -> str:
    """One is enough, since nothing here depends on it."""
    return "epoll"


def refusal(*flags: str, environment: dict[str, str] | None = None) -> str:
    """The error of a server that does not start, which must be short and have no traceback."""
    ended = subprocess.run(
        [sys.executable, "-m", "pushup", "serve", *flags],
        env=clean_environment(environment),
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )
    assert ended.returncode not in (0, -signal.SIGKILL)
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
    lines = [line for line in ended.stderr.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1, ended.stderr
    return lines[0].removeprefix("Error: ")


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
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    assert not path.exists()


def test_stale_unix_socket_is_replaced(serve: Serve, tmp_path: Path) -> None:
    """The socket file of a killed server does not prevent the next one from starting."""
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
        ("/nowhere/at/all.sock", "/nowhere/at does not exist; create it first"),
        ("/tmp/" + "x" * 150, "too long"),
        ("", "unix:"),
    ],
    ids=["no directory", "too long", "empty"],
)
def test_impossible_unix_socket_is_refused(path: str, reason: str) -> None:
    """A path that cannot be a socket is refused with the reason."""
    said = refusal("--listen", f"unix:{path}")
    assert reason in said
    assert "None" not in said


def test_several_addresses(serve: Serve, tmp_path: Path) -> None:
    """With several --listen, the same node serves each address."""
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
        server.process.kill()
        server.wait()
        with serve("--listen", address) as again, again.caller() as caller:
            assert caller.call("GET", "/healthz").status == 200


@pytest.mark.parametrize("address", ["8080", "localhost:8080", "127.0.0.1:99999", "::1:80"])
def test_invalid_address_is_refused(address: str) -> None:
    """The error shows the syntax of an address."""
    assert "write 127.0.0.1:8080" in refusal("--listen", address)


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_public_address_needs_keys(serve: Serve, address: str) -> None:
    """Beyond loopback, a server refuses to start if anybody could publish."""
    said = refusal("--listen", address)
    assert "publish_keys" in said
    assert "allow_public_without_keys" in said


def test_publish_keys(serve: Serve) -> None:
    """With publish keys, publishing without a key gets 401, with a wrong one 403; polling needs none."""
    message = {"channels": ["a"], "data": 1}
    with serve(environment={"PUSHUP_PUBLISH_KEYS": f"another-key-of-27-characters,{KEY}"}) as server:
        with server.caller() as caller:
            for method, path, body in (
                ("POST", "/v1/messages", message),
                ("POST", "/v1/channels", {"name": "b"}),
                ("POST", "/v1/channels/a/renew", {}),
                ("DELETE", "/v1/channels/a", None),
                ("GET", "/v1/channels", None),
                ("GET", "/v1/channels/a", None),
            ):
                reply = caller.call(method, path, body)
                assert reply.status == 401
                assert reply.headers["WWW-Authenticate"].startswith("Bearer")
                for wrong in (KEY[:-1], KEY + "x", KEY.upper(), "é" * 20):
                    headers = {"Authorization": f"Bearer {wrong}"}
                    assert caller.call(method, path, body, headers).status == 403
                assert caller.call(method, path, body, {"Authorization": f"Basic {KEY}"}).status == 401
            for scheme in ("Bearer", "bearer"):
                reply = caller.call("POST", "/v1/messages", message, {"Authorization": f"{scheme} {KEY}"})
                assert reply.status == 201
            assert len(caller.poll("a")["messages"]) == 2
            assert caller.cursor()
        assert not any(KEY in line for line in server.log_lines())


def test_cors(serve: Serve) -> None:
    """Scripts from listed origins may read responses; those from other origins may not."""
    good = "https://example.org"
    with serve(cors_origins=good) as server, server.caller() as caller:
        asked = {"Origin": good, "Access-Control-Request-Method": "GET"}
        leave = caller.call("OPTIONS", "/v1/poll", None, asked)
        assert leave.status == 204
        assert leave.headers["Access-Control-Allow-Origin"] == good
        assert "GET" in leave.headers["Access-Control-Allow-Methods"]
        for origin, allowed in ((good, good), ("https://example.com", None)):
            reply = caller.call("GET", "/v1/poll?channel=a&timeout=0", None, {"Origin": origin})
            assert reply.headers["Access-Control-Allow-Origin"] == allowed
            assert reply.headers["Vary"] == "Origin"
