"""Both configuration files, before servers that say what they were sent and can be made to fail."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from deploy.cluster import free_ports, installed
from deploy.front import HERE, front_configuration
from deploy.part import Part
from tests.deploy.conversations import caller
from tests.server.caller import Caller
from tests.server.raw_client import RawClient, post

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
NOT_NOW = ANSWER.replace(b"200 OK", b"503 Service Unavailable")


class Stub:
    """A server that answers checks, and keeps what else it is sent; `breaks` makes it hang up instead of answering."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.address = "{}:{}".format(*sock.getsockname())
        self.requests: list[str] = []
        self.answer = ANSWER
        self.breaks = False

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._sock.accept()
            except OSError:
                return
            threading.Thread(target=self._converse, args=[connection], daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        with suppress(ConnectionError), connection, connection.makefile("rb") as file:
            while head := self._read(file.readline):
                length = re.search(r"(?im)^content-length: (\d+)", head)
                head += file.read(int(length[1]) if length else 0).decode()
                is_check = re.match(r"GET /(readyz|healthz)? HTTP/1.0", head)
                if not is_check:
                    self.requests.append(head)
                if self.breaks and not is_check:
                    return
                connection.sendall(ANSWER if is_check else self.answer)
                if is_check:
                    return

    def _read(self, readline: Callable[[], bytes]) -> str:
        lines = []
        while (line := readline().decode()) not in ("\r\n", ""):
            lines.append(line)
        return "".join(lines)


@contextmanager
def stub() -> Iterator[Stub]:
    """A server that runs."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        server = Stub(sock)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            sock.shutdown(socket.SHUT_RDWR)
            thread.join(5)


class Front:
    """HAProxy with haproxy.cfg before three such servers."""

    def __init__(self, nodes: list[Stub], application: Stub, outside: Caller, inside_address: str) -> None:
        self.nodes = nodes
        self.application = application
        self.outside = outside
        self.inside_address = inside_address

    def sent_to_nodes(self) -> list[str]:
        """What the nodes were sent, checks left out."""
        return [request for node in self.nodes for request in node.requests]

    def break_nodes(self) -> None:
        """From now on the nodes take requests, and hang up."""
        for node in self.nodes:
            node.breaks = True


@pytest.fixture
def front(tmp_path: Path, stack: ExitStack) -> Front:
    """HAProxy, which has seen that all are ready."""
    nodes, application = [stack.enter_context(stub()) for _ in range(2)], stack.enter_context(stub())
    plain, tls, inside, stats = free_ports(4)
    certificate = tmp_path / "localhost.pem"
    subprocess.run(["sh", HERE / "certificate.sh", certificate], check=True)
    configuration = tmp_path / "haproxy.cfg"
    configuration.write_text(front_configuration("haproxy.cfg", 2))
    environment = os.environ | {
        "FRONT_PLAIN": f"127.0.0.1:{plain}", "FRONT_TLS": f"127.0.0.1:{tls}", "FRONT_CERTIFICATE": str(certificate),
        "FRONT_INSIDE": f"127.0.0.1:{inside}", "FRONT_STATS": f"127.0.0.1:{stats}",
        "APPLICATION": application.address, "NODE1": nodes[0].address, "NODE2": nodes[1].address,
    }  # fmt: skip

    def listens() -> bool:
        with socket.create_connection(("127.0.0.1", plain)):
            return True

    part = Part(
        "haproxy", [installed("haproxy"), "-W", "-f", str(configuration)],
        environment=environment, folder=tmp_path, is_ready=listens,
    )  # fmt: skip
    stack.callback(part.stop)
    part.start()
    return Front(
        nodes, application,
        caller(f"http://127.0.0.1:{plain}", stack), f"127.0.0.1:{inside}",
    )  # fmt: skip


@pytest.mark.parametrize("file", ["haproxy.cfg", "haproxy-tcp.cfg"])
def test_haproxy_takes_the_file_without_a_warning(file: str, tmp_path: Path) -> None:
    """As it is in the repository, with its own defaults."""
    subprocess.run(["sh", HERE / "certificate.sh", tmp_path / "certificate/localhost.pem"], check=True)
    done = subprocess.run(
        [installed("haproxy"), "-c", "-f", HERE / file], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr


@pytest.mark.parametrize("file", ["haproxy.cfg", "haproxy-tcp.cfg"])
def test_the_file_is_what_it_would_be_made(file: str) -> None:
    """The lines of its four nodes are those that any other number would get; only default addresses differ."""
    made, written = (
        re.sub(r"127\.0\.0\.1:808\d", "NODE", text)
        for text in (front_configuration(file, 4), (HERE / file).read_text())
    )
    assert sorted(made.splitlines()) == sorted(written.splitlines())


def test_credentials_go_through_and_the_address_is_ours(front: Front) -> None:
    """Cookie, Authorization, Host and PushUp-Ticket arrive as they were sent; X-Forwarded-For is who really asked."""
    headers = {
        "Cookie": "session=abc; other=1", "Authorization": "Basic dTpw", "Host": "example.org",
        "PushUp-Ticket": "t", "X-Forwarded-For": "6.6.6.6", "X-Forwarded-Proto": "gopher",
    }  # fmt: skip
    for path in ("/v1/poll?channel=a", "/page"):
        assert front.outside.call("GET", path, headers=headers).status == 200
    for request in (*front.sent_to_nodes(), *front.application.requests):
        lines = request.lower().splitlines()
        assert {"cookie: session=abc; other=1", "authorization: basic dtpw", "pushup-ticket: t"} < set(lines)
        assert "host: example.org" in lines
        assert [line for line in lines if line.startswith("x-forwarded-for")] == ["x-forwarded-for: 127.0.0.1"]
        assert "x-forwarded-proto: http" in lines
    assert len(front.sent_to_nodes()) == len(front.application.requests) == 1


def test_a_node_that_cannot_is_not_the_last_word(front: Front) -> None:
    """The 503 of one node: the poll goes to another. A publisher is told instead."""
    front.nodes[0].answer = front.nodes[1].answer = NOT_NOW
    assert front.outside.call("GET", "/v1/poll?channel=a").status == 503
    assert len(front.sent_to_nodes()) == 3
    with RawClient(front.inside_address) as publisher:
        publisher.send(post("/v1/messages", {"channels": ["a"], "data": 1}))
        assert publisher.read_response().status == 503
    assert len(front.sent_to_nodes()) == 4
    front.nodes[1].answer = ANSWER
    assert [front.outside.call("GET", "/v1/poll?channel=a").status for _ in range(4)] == [200] * 4


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_polls_are_asked_again(front: Front, method: str) -> None:
    """A node that hangs up before it answers: the same poll, with its body, goes to others, three times in all."""
    front.break_nodes()
    body = {"channels": ["a"]} if method == "POST" else None
    reply = front.outside.call(method, "/v1/poll?channel=a", body)
    assert (reply.status, reply.value["type"]) == (502, "urn:pushup:unavailable")
    assert reply.headers["Retry-After"] == "1"
    sent = front.sent_to_nodes()
    assert len(sent) == 3
    assert len(set(sent)) == 1
    assert len(front.nodes[0].requests) in (1, 2)  # both were asked
    assert ('{"channels": ["a"]}' in sent[0]) == (method == "POST")


def test_publications_are_sent_once(front: Front) -> None:
    """A node that hangs up may have published. The publisher is told what to do, and nothing is repeated."""
    front.break_nodes()
    with RawClient(front.inside_address) as publisher:  # in one piece, so that HAProxy has all of it at once
        publisher.send(post("/v1/messages", {"channels": ["a"], "data": 1}))
        reply = publisher.read_response()
    assert (reply.status, reply.value["type"]) == (502, "urn:pushup:unavailable")
    assert "Idempotency-Key" in reply.value["detail"]
    assert len(front.sent_to_nodes()) == 1


def test_questions_are_sent_once(front: Front) -> None:
    """What people send to the application is not repeated either."""
    front.application.breaks = True
    assert front.outside.call("POST", "/questions", {}).status == 502
    assert len(front.application.requests) == 1
