"""Both configuration files, in front of servers that record their requests and can be made to fail."""

from __future__ import annotations

import csv
import http.client
import os
import pwd
import re
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

from deploy.cluster import can_drop_privileges, free_ports, installed
from deploy.front import HERE, front_configuration
from deploy.part import Part
from tests.deploy.conversations import wait_until
from tests.server.caller import Caller, Reply

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
HELD_SECONDS = 30.0
"""Longer than any test holds a request."""

NOT_NOW = ANSWER.replace(b"200 OK", b"503 Service Unavailable")


class Stub:
    """A server that answers health checks, and records all other requests.

    answer: the response to everything but checks
    ready_answer: the response to /readyz; other checks succeed
    breaks: close the connection instead of answering, except for checks
    hangs: never answer any request that is still unanswered
    holds: answer only checks until this event is set
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.address = "{}:{}".format(*sock.getsockname())
        self.requests: list[str] = []
        self.answer = self.ready_answer = ANSWER
        self.breaks = self.hangs = False
        self.holds: threading.Event | None = None

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._sock.accept()
            except OSError:
                return
            threading.Thread(target=self._converse, args=[connection], daemon=True).start()

    def close(self) -> None:
        """Stop accepting connections."""
        with suppress(OSError):  # it is already closed
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

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
                if self.holds is not None and not is_check:
                    self.holds.wait(HELD_SECONDS)
                if self.hangs:
                    file.read()  # until HAProxy closes the connection
                    return
                if is_check:
                    connection.sendall(self.ready_answer if is_check[1] == "readyz" else ANSWER)
                    return
                connection.sendall(self.answer)

    def _read(self, readline: Callable[[], bytes]) -> str:
        lines = []
        while (line := readline().decode()) not in ("\r\n", ""):
            lines.append(line)
        return "".join(lines)


@contextmanager
def stub() -> Iterator[Stub]:
    """A running server."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        server = Stub(sock)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.close()
            thread.join(5)


class Front:
    """HAProxy with haproxy.cfg in front of three such servers."""

    def __init__(self, nodes: list[Stub], application: Stub, part: Part, ports: Mapping[str, int]) -> None:
        self.nodes = nodes
        self.application = application
        self.part = part
        self.ports = ports
        self.outside = Caller(f"127.0.0.1:{ports['plain']}")
        self.inside_address = f"127.0.0.1:{ports['inside']}"

    def states(self) -> dict[str, str]:
        """HAProxy's status of each server, such as `polls/node1`."""
        return {name: row["status"] for name, row in self._statistics().items()}

    def counted(self, name: str) -> int:
        """How many 5xx responses HAProxy has counted for a backend, such as `publications/BACKEND`."""
        return int(self._statistics()[name]["hrsp_5xx"])

    def log_lines(self, backend: str) -> list[str]:
        """The log's lines about requests to a backend."""
        return [line for line in self.part.log.read_text().splitlines() if f" {backend}/" in line and '"' in line]

    def command(self, text: str) -> None:
        """Send an operator's command to the admin socket."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(self.part.log.parent / "admin.sock"))
            sock.sendall(text.encode() + b"\n")
            answer = sock.makefile().read()
        assert answer.strip() == "", answer

    def publish(self, *, key: str = "", data: object = 1, ack: str = "") -> Reply:
        """Publish from inside, each time in a single write on a new connection."""
        headers = {"Idempotency-Key": key} if key else {}
        body = {"channels": ["a"], "data": data} | ({"ack": ack} if ack else {})
        with Caller(self.inside_address) as publisher:
            return publisher.call("POST", "/v1/messages", body, headers)

    def hold(self, clients: Iterable[Caller]) -> None:
        """Let these clients poll, one after the other: HAProxy's threads may choose the same node for two at a time."""
        for client in clients:
            before = len(self.sent_to_nodes())
            client.begin("GET", "/v1/poll?channel=a")
            wait_until(lambda before=before: len(self.sent_to_nodes()) == before + 1, "a poll to be held")  # type: ignore[misc]

    def _statistics(self) -> dict[str, dict[str, str]]:
        with Caller(f"127.0.0.1:{self.ports['stats']}") as stats:
            text = stats.call("GET", "/;csv").text.removeprefix("# ")
        return {f"{row['pxname']}/{row['svname']}": row for row in csv.DictReader(text.splitlines())}

    def sent_to_nodes(self) -> list[str]:
        """The requests that the nodes received, except health checks."""
        return [request for node in self.nodes for request in node.requests]

    def break_nodes(self) -> None:
        """From now on, the nodes accept requests and then close the connection."""
        for node in self.nodes:
            node.breaks = True


@pytest.fixture
def front(tmp_path: Path, stack: ExitStack) -> Front:
    """HAProxy, once it has seen that all servers are ready."""
    nodes, application = [stack.enter_context(stub()) for _ in range(2)], stack.enter_context(stub())
    front = start_front(nodes, application, tmp_path, stack)
    stack.callback(front.outside.close)
    return front


def start_front(
    nodes: list[Stub], application: Stub, folder: Path, stack: ExitStack, *, as_user: int | None = None,
    uncommented: Iterable[str] = (),
) -> Front:  # fmt: skip
    """HAProxy with haproxy.cfg in front of these servers; as an unprivileged user if possible.

    `uncommented`: how the lines begin that shall have an effect.
    """
    ports = dict(zip(("plain", "tls", "inside", "stats"), free_ports(4), strict=True))
    subprocess.run(["sh", HERE / "certificate.sh", folder / "localhost.pem"], check=True)
    configuration = folder / "haproxy.cfg"
    text = front_configuration("haproxy.cfg", len(nodes))
    for line in uncommented:
        assert text.count(f"    # {line}") == 1, line
        text = text.replace(f"# {line}", line)
    configuration.write_text(text)
    environment = os.environ | {
        "FRONT_PLAIN": f"127.0.0.1:{ports['plain']}", "FRONT_TLS": f"127.0.0.1:{ports['tls']}",
        "FRONT_CERTIFICATE": str(folder / "localhost.pem"), "FRONT_ADMIN": str(folder / "admin.sock"),
        "FRONT_INSIDE": f"127.0.0.1:{ports['inside']}", "FRONT_STATS": f"127.0.0.1:{ports['stats']}",
        "APPLICATION": application.address, "NODE1": nodes[0].address, "NODE2": nodes[1].address,
    }  # fmt: skip
    if as_user is not None or not can_drop_privileges():
        environment["FRONT_UNPRIVILEGED"] = "1"
    command = [installed("haproxy"), "-W", "-f", str(configuration)]
    if as_user is not None:
        command = ["setpriv", f"--reuid={as_user}", f"--regid={as_user}", "--clear-groups", *command]
        for path in (folder, *folder.iterdir()):
            os.chown(path, as_user, as_user)
    part = Part(
        "haproxy", command, environment=environment, folder=folder,
        is_ready=lambda: all(server.states()[f"ready/node{n}"] == "UP" for n in (1, 2)),
    )  # fmt: skip
    server = Front(nodes, application, part, ports)
    stack.callback(part.stop)
    part.start()
    return server


def test_a_certificate_is_whole_or_missing(tmp_path: Path) -> None:
    """When the disk is full, nothing is left that the next call would keep."""
    file = tmp_path / "localhost.pem"
    text = (HERE / "certificate.sh").read_text()
    failing = ["sh", "-c", f'cat() {{ command cat "$1"; return 1; }}\n{text}', "certificate.sh", str(file)]
    assert subprocess.run(failing, check=False).returncode != 0
    assert [*tmp_path.iterdir()] == []
    subprocess.run(["sh", HERE / "certificate.sh", file], check=True)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(file)
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("file", ["haproxy.cfg", "haproxy-tcp.cfg"])
def test_haproxy_accepts_the_file_without_a_warning(file: str, tmp_path: Path) -> None:
    """The unchanged file is valid with its defaults, even without a certificate."""
    done = subprocess.run(
        [installed("haproxy"), "-c", "-f", HERE / file], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr


@pytest.mark.parametrize("file", ["haproxy.cfg", "haproxy-tcp.cfg"])
def test_the_file_equals_the_generated_one(file: str) -> None:
    """Its lines for four nodes equal the generated ones, except for the default addresses."""
    made, written = (
        re.sub(r"127\.0\.0\.1:808\d", "NODE", text)
        for text in (front_configuration(file, 4), (HERE / file).read_text())
    )
    assert sorted(made.splitlines()) == sorted(written.splitlines())


def test_credentials_pass_and_the_client_address_is_set_by_haproxy(front: Front) -> None:
    """Cookie, Authorization, Host and PushUp-Ticket arrive unchanged; X-Forwarded-For is the real client."""
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


def test_the_application_has_all_other_paths(front: Front) -> None:
    """Also for requests that PushUp does not take: only its own paths are refused."""
    for path in ("/v1/pushup.js", "/v1/cursor", "/v1/messages"):
        assert front.outside.call("POST", path, {}).status == 403, path
    for path in ("/pages/main.js", "/v1.js", "/cursor"):
        assert front.outside.call("POST", path, {}).status == 200, path
    assert (len(front.application.requests), front.sent_to_nodes()) == (3, [])


def test_pages_may_publish_if_the_operator_wants_it(tmp_path: Path, stack: ExitStack) -> None:
    """With the lines that haproxy.cfg has for it; nothing is published twice."""
    nodes, application = [stack.enter_context(stub()) for _ in range(2)], stack.enter_context(stub())
    lines = ("http-request allow if { path /v1/messages }", "use_backend publications if { path /v1/messages }")
    front = start_front(nodes, application, tmp_path, stack, uncommented=lines)
    stack.callback(front.outside.close)
    assert front.outside.call("POST", "/v1/messages", {"channels": ["a"], "data": 1}).status == 200
    assert front.outside.call("DELETE", "/v1/messages").status == 403
    assert front.outside.call("POST", "/v1/channels", {}).status == 403
    front.break_nodes()
    front.outside.close()  # of a new connection, HAProxy answers the first request in any case
    assert front.outside.call("POST", "/v1/messages", {"channels": ["a"], "data": 2}).status == 502
    assert len(front.sent_to_nodes()) == 2


def test_a_poll_refused_by_one_node_goes_to_another(front: Front) -> None:
    """If a node answers 503, a poll goes to another node. A publisher gets the 503."""
    front.nodes[0].answer = front.nodes[1].answer = NOT_NOW
    assert front.outside.call("GET", "/v1/poll?channel=a").status == 503
    assert len(front.sent_to_nodes()) == 3
    assert front.publish(key="k").status == 503
    assert len(front.sent_to_nodes()) == 4
    front.nodes[1].answer = ANSWER
    assert [front.outside.call("GET", "/v1/poll?channel=a").status for _ in range(4)] == [200] * 4


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_polls_are_retried(front: Front, method: str) -> None:
    """If a node closes the connection without a response, the poll is retried with its body, three times in all."""
    front.break_nodes()
    body = {"channels": ["a"]} if method == "POST" else None
    reply = front.outside.call(method, "/v1/poll?channel=a", body)
    assert (reply.status, reply.value["type"]) == (502, "urn:pushup:unavailable")
    assert reply.headers["Retry-After"] == "1"
    sent = front.sent_to_nodes()
    assert len(sent) == 3
    assert len(set(sent)) == 1
    assert len(front.nodes[0].requests) in (1, 2)  # both nodes were tried
    assert ('{"channels": ["a"]}' in sent[0]) == (method == "POST")


def test_publications_are_sent_once(front: Front) -> None:
    """A node that closes the connection may have published. The publisher is told what to do; nothing is repeated."""
    front.break_nodes()
    reply = front.publish()
    assert (reply.status, reply.value["type"]) == (502, "urn:pushup:unavailable")
    assert "Idempotency-Key" in reply.value["detail"]
    assert len(front.sent_to_nodes()) == 1


@pytest.mark.parametrize("fault", ["breaks", "hangs"])
def test_a_connection_that_had_a_response_before_ends_without_one(front: Front, fault: str) -> None:
    """HAProxy expects its client to know what that means; a publication without a key is not repeated there either."""
    with Caller(front.inside_address) as publisher:
        assert publisher.call("POST", "/v1/messages", {}).status == 200
        for node in front.nodes:
            setattr(node, fault, True)
        with pytest.raises(http.client.RemoteDisconnected):
            publisher.call("POST", "/v1/messages", {})
    assert len(front.sent_to_nodes()) == 2


def test_publications_with_a_key_are_retried(front: Front) -> None:
    """With an Idempotency-Key, the same publication is retried at another node, three times in all."""
    front.break_nodes()
    assert front.publish(key="k").status == 502
    sent = front.sent_to_nodes()
    assert len(sent) == 3
    assert len(set(sent)) == 1
    assert '"data": 1' in sent[0]
    front.nodes[1].breaks = False
    assert [front.publish(key=f"k{number}").status for number in range(4)] == [200] * 4


def test_a_publication_that_does_not_fit_the_buffer_is_sent_once(front: Front) -> None:
    """HAProxy cannot resend what it has discarded."""
    front.break_nodes()
    assert front.publish(key="k", data="x" * 40_000).status == 502
    assert len(front.sent_to_nodes()) == 1


def test_questions_are_sent_once(front: Front) -> None:
    """Requests to the application are not repeated either."""
    front.application.breaks = True
    assert front.outside.call("POST", "/questions", {}).status == 502
    assert len(front.application.requests) == 1


def test_publications_at_a_node_that_hangs(front: Front) -> None:
    """Publishers are told that the outcome is unknown; publications with a key are retried at another node."""
    front.nodes[0].hangs = True
    front.nodes[0].requests.clear()
    with ThreadPoolExecutor(8) as threads:
        replies = [threads.submit(front.publish, key=f"k{number}" if number < 4 else "") for number in range(8)]
        told = sorted(reply.result().status for reply in replies[4:])
        assert [reply.result().status for reply in replies[:4]] == [200] * 4
    assert set(told) <= {200, 502, 504}
    assert len([status for status in told if status != 200]) == sum(
        "idempotency-key" not in request.lower() for request in front.nodes[0].requests
    )


@pytest.mark.parametrize("is_last", [False, True])
def test_a_node_that_is_not_ready_keeps_what_it_holds(front: Front, is_last: bool) -> None:
    """A node whose check returns 503 is not hung: it keeps its held polls. New ones go to other nodes if possible."""
    front.nodes[0].holds = front.nodes[1].holds = threading.Event()
    with ExitStack() as stack:
        clients = [stack.enter_context(Caller(f"127.0.0.1:{front.ports['plain']}")) for _ in range(6)]
        front.hold(clients[:4])
        stopping = front.nodes if is_last else front.nodes[:1]
        for node in stopping:
            node.ready_answer = NOT_NOW
        wait_until(lambda: [*front.states().values()].count("NOLB") == 3 * len(stopping), "HAProxy to see it")
        for client in clients[4:]:
            client.begin("GET", "/v1/poll?channel=new")
        wait_until(lambda: len(front.sent_to_nodes()) == 6, "the new polls")
        if not is_last:
            assert [len(node.requests) for node in front.nodes] == [2, 4]
        front.nodes[0].holds.set()
        assert [client.finish().status for client in clients] == [200] * 6
        assert len(front.sent_to_nodes()) == 6, "some were asked again"


def test_a_publication_that_takes_long(front: Front) -> None:
    """4 s are enough for any publication, unless the publisher requested an acknowledgement that may take longer."""
    front.nodes[0].holds = front.nodes[1].holds = threading.Event()
    with ThreadPoolExecutor(2) as threads:
        plain, stable = threads.submit(front.publish), threads.submit(front.publish, ack="stable")
        reply = plain.result()
        assert (reply.status, reply.value["type"]) == (504, "urn:pushup:unavailable")
        assert "Idempotency-Key" in reply.value["detail"]
        front.nodes[0].holds.set()
        assert stable.result().status == 200


def test_it_gives_up_root(front: Front) -> None:
    """The process that handles clients has no privileges and sees no files, if it was started with privileges."""
    (worker,) = psutil.Process(front.part.pid).children()
    root = Path(f"/proc/{worker.pid}/root").resolve()
    if os.geteuid() == 0:
        user = pwd.getpwnam("haproxy")
        assert set(worker.uids()) == {user.pw_uid}
        assert set(worker.gids()) == {user.pw_gid}
        assert root == Path("/var/lib/haproxy")
    assert worker.uids().effective != 0
    assert (front.part.log.parent / "admin.sock").stat().st_mode & 0o777 == 0o600


def test_it_runs_without_root() -> None:
    """With FRONT_UNPRIVILEGED it keeps running as the user that started it."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        nodes, application = [stack.enter_context(stub()) for _ in range(2)], stack.enter_context(stub())
        user = 65534 if os.geteuid() == 0 else os.geteuid()
        front = start_front(nodes, application, folder, stack, as_user=user if os.geteuid() == 0 else None)
        stack.callback(front.outside.close)
        (worker,) = psutil.Process(front.part.pid).children()
        assert set(worker.uids()) == {user}
        assert front.outside.call("GET", "/v1/poll?channel=a").status == 200


def test_security_headers(front: Front) -> None:
    """Every response has nosniff, and HSTS over TLS. The application's own headers take precedence."""
    paths = ["/v1/poll?channel=a", "/v1/messages", "/page"]
    plain = [front.outside.call("GET", path) for path in paths]
    tls = _TlsCaller(front.ports["tls"])
    told = [tls.call(path) for path in paths]
    assert [reply.status for reply in plain] == [headers.status for headers in told] == [200, 403, 200]
    for reply in plain:
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Strict-Transport-Security"] is None
    for response in told:
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Strict-Transport-Security"] == "max-age=31536000"
    front.application.answer = ANSWER.replace(b"Content-Type", b"Strict-Transport-Security: max-age=5\r\nContent-Type")
    assert tls.call("/page").headers.get_all("Strict-Transport-Security") == ["max-age=5"]


class _TlsCaller:
    """GET is redirected to TLS, whoever signed the certificate."""

    def __init__(self, port: int) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._port, self._context = port, context

    def call(self, path: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, context=self._context, timeout=10)
        with closing(connection):
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            return response


@pytest.mark.parametrize("are_gone", [False, True])
def test_many_refusals_are_logged_in_few_lines(front: Front, are_gone: bool) -> None:
    """Requests that nodes refuse or nobody accepts are counted; the log has a few lines about them, not one each."""
    if are_gone:
        for node in front.nodes:
            node.close()
        wait_until(lambda: front.states()["publications/BACKEND"] == "DOWN", "HAProxy to notice")
    front.nodes[0].answer = front.nodes[1].answer = NOT_NOW
    assert {front.publish().status for _ in range(300)} == {503}
    assert {front.outside.call("GET", "/v1/poll?channel=a").status for _ in range(100)} == {503}
    # HAProxy counts and logs a response when its own work on it ends, a moment after the client has it.
    wait_until(lambda: front.counted("publications/BACKEND") == 300, "all publications to be counted")
    wait_until(lambda: front.counted("polls/BACKEND") >= 100, "all polls to be counted")
    assert len(front.log_lines("publications")) < 30
    assert len(front.log_lines("polls")) < 30
    if not are_gone:
        assert front.log_lines("publications")


def test_a_single_failure_is_logged(front: Front) -> None:
    """If they are rare, each is logged."""
    front.break_nodes()
    assert [front.publish().status for _ in range(3)] == [502] * 3
    wait_until(lambda: len(front.log_lines("publications")) == 3, "the lines")


def test_an_operator_drains_a_node(front: Front) -> None:
    """Drained by the admin socket, it keeps what it holds; new requests go to others, until it is enabled again."""
    front.nodes[0].holds = front.nodes[1].holds = threading.Event()
    with ExitStack() as stack:
        clients = [stack.enter_context(Caller(f"127.0.0.1:{front.ports['plain']}")) for _ in range(6)]
        front.hold(clients[:2])
        assert [len(node.requests) for node in front.nodes] == [1, 1]
        front.command("set server ready/node1 state drain")
        assert front.states()["polls/node1"].startswith("DRAIN")
        for client in clients[2:]:
            client.begin("GET", "/v1/poll?channel=a")
        wait_until(lambda: [len(node.requests) for node in front.nodes] == [1, 5], "the others")
        front.command("set server ready/node1 state ready")
        assert front.states()["polls/node1"] == "UP"
        front.nodes[0].holds.set()
        assert [client.finish().status for client in clients] == [200] * 6
