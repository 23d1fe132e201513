"""Who may poll what, with real servers and authorizers that block: a web application, and the operator's own code."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from pushup.backends.tickets import Tickets
from tests.server.blocking_backend import Question, Verdict, WebBackend, allowed
from tests.server.caller import Caller, Reply, data_of, poll_path
from tests.server.command_line import error_of
from tests.server.conftest import STRATEGIES, Serve
from tests.server.raw_client import get
from tests.server.server_process import Server, clean_environment, wait_until

KEY = "the-key-of-all-nodes"
each_strategy = pytest.mark.parametrize("wait_strategy", STRATEGIES, indirect=True)

IS_FAILING = "authorization is failing"


def sealed(*channels: str) -> dict[str, str]:
    """A header field with a ticket that any server with KEY accepts."""
    return {
        "PushUp-Ticket": Tickets(KEY.encode()).seal(
            channels, issued_at=int(time.time()), expires=int(time.time()) + 600, subject=""
        )
    }


def poll(caller: Caller, *channels: str, ticket: str = "", **parameters: object) -> Reply:
    """A poll and its response."""
    headers = {"PushUp-Ticket": ticket} if ticket else {}
    return caller.call("GET", poll_path(*channels, **{"timeout": 0, **parameters}), headers=headers)


def problem_of(reply: Reply) -> tuple[int, str]:
    assert reply.headers["Content-Type"] == "application/problem+json"
    return reply.status, reply.value["type"].removeprefix("urn:pushup:")


def is_at_rest(server: Server) -> bool:
    """Whether no question is running or waiting."""
    return all(server.metric(f'backend_{name}{{backend="authorization"}}') == 0 for name in ("busy", "waiting"))


def write_module(directory: Path, code: str, name: str = "mine") -> None:
    (directory / f"{name}.py").write_text(textwrap.dedent(code))


# The web application.


def test_the_application_is_asked_once(serve: Serve, backend: WebBackend) -> None:
    """Over many polls, the application is asked once, and the ticket is sent once, until it expires."""
    with serve(authorize_url=backend.url) as server, server.caller() as caller:
        answer = poll(caller, "a", "tag:c++").value
        ticket = answer["ticket"]
        for number in range(50):
            message = caller.publish(["a"], number)
            answer = poll(caller, "tag:c++", "a", ticket=ticket, cursor=answer["cursor"]).value
            assert "ticket" not in answer
            assert data_of(answer) == [number]
            assert answer["cursor"] == message["cursor"]
        assert [question.channels for question in backend.questions] == [["a", "tag:c++"]]
        backend.answer = lambda question: allowed(2)
        ticket = poll(caller, "a", "tag:c++").value["ticket"]
        ended = poll(caller, "a", "tag:c++", ticket=ticket, cursor=answer["cursor"], timeout=20)
        if ended.status == 401:  # otherwise the ticket had already expired
            assert problem_of(ended) == (401, "ticket-expired")
        caller.publish(["a"], "after")
        answer = poll(caller, "a", "tag:c++", ticket=ticket, cursor=answer["cursor"]).value
        assert data_of(answer) == ["after"]
        assert answer["ticket"] != ticket
        assert backend.count >= 3


@each_strategy
def test_a_ticket_says_who(serve: Serve, backend: WebBackend) -> None:
    """It carries the subject that the application named, on any node; one of a form before this one is none."""
    with serve(authorize_url=backend.url, ticket_key=KEY) as server, server.caller() as caller:
        before = int(time.time())
        backend.answer = lambda question: Verdict(body=b'{"allow": true, "subject": "mei"}')
        ticket = poll(caller, "a").value["ticket"]
        grant = Tickets(KEY.encode()).open(ticket, ("a",))
        assert grant is not None
        assert grant.subject == "mei"
        assert before <= grant.issued_at <= time.time()
        assert "ticket" not in poll(caller, "a", ticket=ticket).value
        assert "ticket" in poll(caller, "a", ticket=f"{int(grant.valid_until)}.{ticket[-32:]}").value
        assert backend.count == 2
        server.expect_log("gave a subject that cannot be used")
        backend.answer = lambda question: Verdict(body=b'{"allow": true, "subject": "a\\u0000"}')
        assert problem_of(poll(caller, "a")) == (503, "unavailable")


def test_what_the_application_receives(serve: Serve, backend: WebBackend) -> None:
    """The application gets the channels and what identifies the client, and nothing else that the client sent."""
    with serve(authorize_url=backend.url + "?realm=1") as server, server.caller() as caller:
        sent = {
            "Cookie": "session=1; x=2", "Authorization": "Bearer t", "Origin": "https://o", "X-Forwarded-For": "::1",
            "User-Agent": "Client", "Accept": "text/html", "X-Secret": "1", "Referer": "https://o/",
            "PushUp-Ticket": "x", "X-Forwarded-Host": "evil", "Accept-Language": "de", "X-Real-Ip": "1.2.3.4",
        }  # fmt: skip
        names = ("ä", "a b&c=d", "x\u2028y", "+/%?#")
        assert caller.call("GET", poll_path(*names, timeout=0), headers=sent).status == 200
    (question,) = backend.questions
    assert question.method == "GET"
    assert question.path.startswith("/may?realm=1&channel=")
    assert question.channels == list(names)
    assert set(question.headers) <= {
        "cookie", "authorization", "origin", "x-forwarded-for", "accept", "user-agent", "host", "connection",
    }  # fmt: skip
    assert {name: question.headers[name.lower()] for name in list(sent)[:4]} == dict(list(sent.items())[:4])
    assert question.headers["accept"] == "application/json"
    assert question.headers["user-agent"].startswith("PushUp/")


def test_verdicts(serve: Serve, backend: WebBackend) -> None:
    """Each client gets its own verdict: one that is logged in polls, others are told why they may not."""

    def answer(question: Question) -> Verdict:
        match question.headers.get("cookie"):
            case "session=good":
                return Verdict(204)
            case "session=other":
                return Verdict(403, b"no")
            case "session=json":
                return Verdict(body=b'{"allow": false}')
        return Verdict(401, b"<form>", (("WWW-Authenticate", "Cookie"),))

    backend.answer = answer
    with serve(authorize_url=backend.url) as server, server.caller() as caller:
        statuses = [
            caller.call("GET", poll_path("a", timeout=0), headers={"Cookie": cookie} if cookie else {}).status
            for cookie in ("session=good", "session=other", "session=json", "", "session=good")
        ]
        assert statuses == [200, 403, 403, 401, 200]
        assert backend.count == 5


REDIRECTED = Verdict(302, b"", (("Location", "/login"),))
NO_VERDICT = [
    Verdict(500, b"Traceback"),
    REDIRECTED,
    Verdict(200, b"<!DOCTYPE html><form>"),
    Verdict(200, b'{"allow": true, "x": "' + b"x" * 100_000 + b'"}'),
]


def test_a_missing_verdict_is_a_503(serve: Serve, backend: WebBackend) -> None:
    """If the application's response is not a verdict, clients get 503, while those with tickets keep polling."""
    with serve(authorize_url=backend.url, ticket_key=KEY, log_format="json") as server, server.caller() as caller:
        server.expect_log(IS_FAILING)
        for verdict in NO_VERDICT:
            backend.answer = lambda question, verdict=verdict: (  # type: ignore[misc]
                verdict if "/login" not in question.path else Verdict()
            )
            reply = caller.call("GET", poll_path("a", timeout=5), headers={"X-Forwarded-For": "192.0.2.1"})
            assert problem_of(reply) == (503, "unavailable"), verdict
            assert int(reply.headers["Retry-After"]) > 0
            assert reply.value["detail"] == "the authorization service gave no usable answer; try again"
            assert caller.call("GET", poll_path("a", timeout=0), headers=sealed("a")).status == 200
            reply = poll(caller, "a", timeout=5)  # from this machine, so with details for an operator
            assert "authorize_url" in reply.value["detail"], verdict
        assert not any("/login" in question.path for question in backend.questions)
        assert len([line for line in server.log_lines() if IS_FAILING in line]) == 1
        backend.answer = lambda question: allowed()
        for _ in range(3):
            assert poll(caller, "a").status == 200
        assert len([line for line in server.log_lines() if "authorization works again" in line]) == 1
        assert is_at_rest(server)


@each_strategy
def test_concurrent_questions_are_limited(serve: Serve, backend: WebBackend, stack: ExitStack) -> None:
    """The limit of concurrent questions is never exceeded; a limited number wait, and the rest are refused."""
    leave = threading.Event()
    lock = threading.Lock()
    busy, peak = 0, 0

    def answer(question: Question) -> Verdict:
        nonlocal busy, peak
        with lock:
            busy += 1
            peak = max(peak, busy)
        leave.wait(10)
        time.sleep(0.002)
        with lock:
            busy -= 1
        return allowed()

    backend.answer = answer
    stack.callback(leave.set)
    with serve(authorize_url=backend.url, authorize_at_most=3, authorize_queue_limit=40) as server:
        callers = [stack.enter_context(server.caller()) for _ in range(50)]
        for number, caller in enumerate(callers):
            caller.begin_poll(f"c{number}", timeout=0)
        refused = 'backend_calls_total{backend="authorization",outcome="refused"}'
        wait_until(lambda: server.metric(refused) == 7, "7 to be refused")
        wait_until(lambda: busy == 3, "the application to work on three questions")
        assert server.metric('backend_busy{backend="authorization"}') == 3
        assert server.metric('backend_waiting{backend="authorization"}') == 40
        leave.set()
        replies = [caller.finish() for caller in callers]
        assert sorted(reply.status for reply in replies) == [200] * 43 + [503] * 7
        for reply in replies:
            if reply.status == 503:
                assert problem_of(reply) == (503, "overloaded")
                assert int(reply.headers["Retry-After"]) > 0
        assert peak == 3
        assert backend.count == 43
        assert is_at_rest(server)
        assert server.metric('backend_calls_total{backend="authorization",outcome="ended"}') == 43
        assert server.metric('backend_wait_seconds_count{backend="authorization"}') == 43


@each_strategy
def test_a_client_that_disconnects_before_its_verdict(serve: Serve, backend: WebBackend, stack: ExitStack) -> None:
    """Clients that disconnect before their verdict leave nothing behind, and their waiting questions are dropped."""
    leave = threading.Event()
    stack.callback(leave.set)
    backend.answer = lambda question: Verdict(204 if leave.wait(10) else 500)
    with serve(authorize_url=backend.url, authorize_at_most=3) as server:
        clients = [stack.enter_context(server.connect()) for _ in range(20)]
        asked, waiting = clients[:3], clients[3:]
        for number, client in enumerate(clients):
            client.send(get(poll_path(f"c{number}", timeout=30)))
            if client is asked[-1]:
                wait_until(lambda: backend.count == 3, "the application to get three questions")
        wait_until(lambda: server.metric('backend_waiting{backend="authorization"}') == 17, "17 to wait")
        for number, client in enumerate(waiting):
            if number % 2:
                client.close()
            else:
                client.reset()
        wait_until(lambda: server.metric('backend_waiting{backend="authorization"}') == 0, "none to wait")
        asked[1].close()  # these last: each leaves its place to one that waits
        asked[2].reset()
        wait_until(lambda: server.metric('backend_busy{backend="authorization"}') == 1, "one question")
        leave.set()
        server.wait_for_held(1)
        wait_until(lambda: is_at_rest(server), "no questions")
        assert backend.count == 3
        asked[0].close()
        server.wait_for_held(0)


def test_tickets_of_other_nodes(serve: Serve, backend: WebBackend, tmp_path: Path) -> None:
    """A ticket is valid on every node with its key that continues the order, even after a restart, and on no other."""
    journal = f"journal:{tmp_path}/journal"
    with serve(authorize_url=backend.url, ticket_key=KEY, broadcast=journal) as server, server.caller() as caller:
        ticket = poll(caller, "a").value["ticket"]
    with (
        serve(authorize_url=backend.url, ticket_key=KEY, broadcast=journal) as one,
        serve(authorize_url=backend.url, ticket_key=KEY + "2") as other,
        serve(authorize_url=backend.url) as third,
    ):
        for server, asked in ((one, 1), (other, 2), (third, 3)):
            with server.caller() as caller:
                assert poll(caller, "a", ticket=ticket).status == 200
                assert backend.count == asked


def test_other_requests_need_no_ticket(serve: Serve, backend: WebBackend) -> None:
    """Publishing, channels and health need no question."""
    backend.answer = lambda question: Verdict(403)
    with serve(authorize_url=backend.url) as server, server.caller() as caller:
        caller.publish(["a"], 1)
        for path in ("/healthz", "/readyz", "/metrics", "/v1/channels", "/v1/channels/a", "/v1/cursor"):
            assert caller.call("GET", path).status == 200
        assert backend.count == 0


# Scripts of other origins.


# The operator's own code.

AUTHORIZER = """
    import math, time
    from pathlib import Path
    from pushup.core.errors import Unauthorized

    def may_poll(channels, headers):
        (channel,) = channels
        match channel:
            case "yes": return True
            case "short": return 1
            case "no": return False
            case "denied": raise PermissionError("secret")
            case "who": raise Unauthorized("log in first")
            case "cookie": return headers["cookie"] == "session=1" and headers["x-any"] == "2"
            case "fault": return 1 / 0
            case "exits": raise SystemExit(1)
            case "missing": return headers["no-such"]
            case "none": return None
            case "text": return "yes"
            case "zero": return 0
            case "past": return -5
            case "nan": return math.nan
            case "forever": return math.inf
            case "hangs":
                while not Path("may return").exists():
                    time.sleep(0.01)
        return True
"""


def test_authorizer_function(serve: Serve, tmp_path: Path) -> None:
    """The function's results are verdicts; anything else, or an error, is a 503, and the log says why once."""
    write_module(tmp_path, AUTHORIZER)
    with serve(authorizer="mine:may_poll", log_format="json") as server, server.caller() as caller:
        server.expect_log(IS_FAILING)
        statuses = {
            200: ("yes", "short"), 403: ("no", "denied", "cookie"), 401: ("who",),
            503: ("fault", "exits", "missing", "none", "text", "zero", "past", "nan", "forever"),
        }  # fmt: skip
        headers = {"Cookie": "none"}
        for status, channels in statuses.items():
            for channel in channels:
                assert (caller.call("GET", poll_path(channel, timeout=0), headers=headers).status, channel) == (
                    status,
                    channel,
                )
        lines = [json.loads(line)["text"] for line in server.log_lines()]
        (told,) = [line for line in lines if IS_FAILING in line]
        assert "ZeroDivisionError" in told
        assert "mine.py" in told, "where it happened"
        assert caller.call("GET", poll_path("denied", timeout=0)).text.count("secret") == 0
        good = {"Cookie": "session=1", "X-Any": "2"}
        assert caller.call("GET", poll_path("cookie", timeout=0), headers=good).status == 200
        assert len([line for line in server.log_lines() if "authorization works again" in line]) == 1


def test_authorizer_function_that_hangs(serve: Serve, tmp_path: Path) -> None:
    """A function that does not return occupies its thread until it does, and delays no client that has a ticket."""
    write_module(tmp_path, AUTHORIZER)
    with (
        serve(authorizer="mine:may_poll", ticket_key=KEY, authorize_at_most=1, authorize_timeout_seconds=1) as server,
        server.caller() as hangs,
        server.caller() as waits,
        server.caller() as caller,
    ):
        server.expect_log("")
        hangs.begin_poll("hangs")
        wait_until(lambda: server.metric('backend_busy{backend="authorization"}') == 1, "it to hang")
        waits.begin_poll("yes", timeout=0)
        for _ in range(100):  # none waits until it returns
            assert caller.call("GET", poll_path("yes", timeout=0), headers=sealed("yes")).status == 200
        assert problem_of(hangs.finish()) == (503, "unavailable")
        assert problem_of(waits.finish()) == (503, "unavailable")
        assert server.metric('backend_busy{backend="authorization"}') == 1
        (tmp_path / "may return").touch()
        wait_until(lambda: is_at_rest(server), "it to return")
        assert poll(waits, "yes").status == 200


def test_stopping_while_an_authorizer_function_hangs(serve: Serve, tmp_path: Path) -> None:
    write_module(tmp_path, "import time\ndef f(channels, headers):\n    time.sleep(60)\n")
    with serve(authorizer="mine:f") as server, server.connect() as client:
        client.send(get(poll_path("a")))
        wait_until(lambda: server.metric('backend_busy{backend="authorization"}') == 1, "it to hang")
        server.signal(signal.SIGTERM)
        assert server.wait(30) == 0


@pytest.mark.parametrize(
    ("authorizer", "said"),
    [
        ("no_such_module:f", "cannot import 'no_such_module': ModuleNotFoundError"),
        ("broken:f", "cannot import 'broken': ZeroDivisionError"),
        ("wrong:f", "cannot import 'wrong': SyntaxError"),
        ("exits:f", "cannot import 'exits': SystemExit"),
    ],
)
@pytest.mark.parametrize("command", ["serve", "check-config"])
def test_unusable_authorizer_function(tmp_path: Path, command: str, authorizer: str, said: str) -> None:
    """A server whose authorizer is unusable does not start and prints why on one line; so does check-config."""
    write_module(tmp_path, "1 / 0\n", "broken")
    write_module(tmp_path, "def f(:\n", "wrong")
    write_module(tmp_path, "import sys\nsys.exit(0)\n", "exits")
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "pushup", command, "--listen", "127.0.0.1:0", "--set", f"authorizer={authorizer}"],
        env=clean_environment(), capture_output=True, text=True, timeout=30, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    (line,) = [line for line in ended.stderr.splitlines() if not re.match(r"\S+ info ", line)]
    assert line.startswith(f"Error: authorizer: {said}")
    assert "listens on" not in ended.stdout


def test_authorizer_and_url() -> None:
    assert "not both" in error_of("serve", "--set", "authorizer=mine:f", "--set", "authorize_url=http://127.0.0.1:1/")
