"""Authorization: decisions become tickets, and every reply of the application is a decision or an error."""

from __future__ import annotations

import asyncio
import json
import math
import re
import string
import sys
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping

import pytest
from msgspec import structs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionLost
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher
from zope.interface import implementer

from pushup import __version__
from pushup.backends.authorization import EARLY, Authorization, Authorizer
from pushup.backends.decision import TICKET_LIMIT_SECONDS, Decision
from pushup.backends.function_authorizer import FunctionAuthorizer, load
from pushup.backends.helper_pool import HelperPool
from pushup.backends.limited_service import ServiceLimits
from pushup.backends.service_requestor import RETRY_SECONDS, ServiceRequestor
from pushup.backends.tickets import Tickets
from pushup.backends.url_authorizer import URL_LIMIT_BYTES, UrlAuthorizer
from pushup.core.errors import BadRequest, Forbidden, Overloaded, PushUpError, Unauthorized, Unavailable
from pushup.core.grant import SUBJECT_LIMIT_BYTES, Grant, Scope
from pushup.metrics import BackendCounters
from tests.backends.outcomes import Outcome
from tests.backends.stepped_agent import SteppedAgent, one_header_each
from tests.backends.stepped_threads import SteppedThreads, ThreadClock

START = 1_800_000_000.0
KEY = b"a key of all nodes"
LIMITS = ServiceLimits(at_most=2, queue_limit=10, deadline_seconds=10.0)
CHANNELS = ("a", "b")
NO_ANSWER = "the authorization service gave no usable answer; try again"


class ManualAuthorizer:
    """An authorizer that decides when the test says so."""

    def __init__(self) -> None:
        self.questions: list[tuple[tuple[str, ...], Mapping[bytes, bytes]]] = []
        self.decisions: list[Deferred[Decision]] = []

    def __call__(self, channels: tuple[str, ...], headers: Mapping[bytes, bytes]) -> Deferred[Decision]:
        self.questions.append((channels, headers))
        self.decisions.append(Deferred())
        return self.decisions[-1]

    def stop(self) -> None:
        raise AssertionError("not stopped here")

    def renew_connections(self) -> None:
        raise AssertionError("not reloaded here")


_check: type[Authorizer] = ManualAuthorizer


class Authorized:
    """An authorization, and its authorizer."""

    def __init__(
        self, random: Callable[[], float] = lambda: 0.0, ticket_seconds: float = 120.0, limit_seconds: float = 86_400.0
    ) -> None:
        self.clock = Clock()
        self.clock.advance(START)
        self.asked = ManualAuthorizer()
        self.authorization = Authorization(
            self.asked,
            tickets=Tickets(KEY),
            ticket_seconds=ticket_seconds,
            limit_seconds=limit_seconds,
            wall=self.clock.seconds,
            random=random,
        )

    def ask(self) -> Outcome:
        return Outcome(self.authorization.ask(CHANNELS, {b"cookie": b"c"}))

    def allowed(self, seconds: float | None, subject: str = "") -> tuple[str, float]:
        """The ticket and its expiry after a positive decision."""
        outcome = self.ask()
        self.asked.decisions[-1].callback(Decision(True, seconds, subject))
        grant: Grant = outcome.result
        return grant.new_ticket, grant.valid_until

    def expires(self, ticket: str, channels: tuple[str, ...] = CHANNELS) -> float | None:
        """When a ticket that is valid now expires."""
        grant = self.authorization.grant_of(ticket, channels)
        return None if grant is None else grant.valid_until

    def failed(self, error: Exception) -> BaseException:
        """The error that the request for authorization ends with."""
        outcome = self.ask()
        self.asked.decisions[-1].errback(error)
        return outcome.error


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """The lines logged by PushUp itself, as `level: text`."""

    @implementer(ILogObserver)
    class Observer:
        def __call__(self, event: LogEvent) -> None:
            if event["log_namespace"].startswith("pushup"):
                lines.append(f"{event['log_level'].name}: {formatEvent(event)}")

    lines: list[str] = []
    observer = Observer()
    globalLogPublisher.addObserver(observer)
    yield lines
    globalLogPublisher.removeObserver(observer)


# Tickets.


def test_a_decision_becomes_a_ticket() -> None:
    """An authorized client gets a ticket for these channels, valid for the default time."""
    node = Authorized()
    ticket, expires = node.allowed(None)
    assert node.asked.questions == [(CHANNELS, {b"cookie": b"c"})]
    assert expires == START + 120
    assert node.expires(ticket, CHANNELS) == expires
    assert node.expires(ticket, ("b", "a", "b")) == expires
    assert node.expires(ticket, ("a",)) is None


def test_a_grant() -> None:
    """A decision is a grant to read these channels, as of the moment at which the application was asked."""
    node = Authorized()
    outcome = node.ask()
    node.clock.advance(3.5)
    node.asked.decisions[-1].callback(Decision(True, 60.0, "mei"))
    grant: Grant = outcome.result
    scope = Scope(CHANNELS)
    known = Grant({"read": scope}, "mei", "", START, START + 63)
    ((key_id, _),) = node.authorization.key_ends().items()
    assert node.authorization.grant_of(grant.new_ticket, CHANNELS) == structs.replace(known, key_id=key_id)
    assert grant == structs.replace(known, new_ticket=grant.new_ticket)


def test_a_ticket_expires() -> None:
    """A ticket is valid until its expiry, exclusive."""
    node = Authorized()
    ticket, expires = node.allowed(60.0)
    node.clock.advance(59.999)
    assert node.expires(ticket, CHANNELS) == expires
    node.clock.advance(0.001)
    assert node.expires(ticket, CHANNELS) is None


@pytest.mark.parametrize(
    "ticket", ["", "nonsense", f"{int(START) + 60}." + "A" * 32, f"{int(START)}.{int(START) + 60}.." + "A" * 32]
)
def test_an_invalid_ticket(ticket: str) -> None:
    """An empty ticket, or one that was not sealed with this key, is not accepted."""
    assert Authorized().expires(ticket, CHANNELS) is None


@pytest.mark.parametrize(
    ("seconds", "lasting"),
    [
        (None, 120),
        (60.0, 60),
        (60.9, 60),
        (1.0, 1),
        (0.2, 1),
        (1e-9, 1),
        (TICKET_LIMIT_SECONDS, TICKET_LIMIT_SECONDS),
    ],
)
def test_how_long_a_ticket_lasts(seconds: float | None, lasting: float) -> None:
    """A ticket is valid as long as the application says, in whole seconds, and for at least one."""
    node = Authorized()
    ticket, expires = node.allowed(seconds)
    assert expires == START + lasting
    assert node.expires(ticket, CHANNELS) == expires


@pytest.mark.parametrize(("seconds", "lasting"), [(3599.0, 3599), (3600.0, 3600), (3601.0, 3600), (86_400.0, 3600)])
def test_the_limit(seconds: float, lasting: float) -> None:
    """No ticket lasts longer than a revocation (`token_lifetime_limit_seconds`), whatever the application says."""
    assert Authorized(limit_seconds=3600.0).allowed(seconds)[1] == START + lasting


def test_a_part_of_a_second() -> None:
    """A ticket that is issued in the middle of a second is valid for a while as well."""
    node = Authorized()
    node.clock.advance(0.75)
    ticket, expires = node.allowed(0.5)
    assert expires == START + 1
    assert node.expires(ticket, CHANNELS) == expires


def test_tickets_expire_early_by_a_random_part() -> None:
    """Tickets issued together do not expire together, and none is valid longer than the application said."""
    for random in (0.0, 0.5, 0.999):
        _, expires = Authorized(random=lambda random=random: random).allowed(1000.0)  # type: ignore[misc]
        assert expires == math.floor(START + 1000 * (1 - EARLY * random))


# Negative decisions, and failures to decide.


@pytest.mark.parametrize("error", [Unauthorized("?"), Forbidden("no"), Overloaded("many"), Unavailable("down")])
def test_errors_reach_the_client(error: PushUpError) -> None:
    """The client gets a denial, or the error that prevented a decision."""
    assert Authorized().failed(error) is error


def test_an_unexpected_error() -> None:
    """An unexpected error is passed on unchanged."""
    assert isinstance(Authorized().failed(ZeroDivisionError()), ZeroDivisionError)


def test_cancelled() -> None:
    """If the client is gone, the request for authorization is cancelled."""
    node = Authorized()
    cancelled = node.ask()
    question = Outcome(node.asked.decisions[0])
    cancelled.deferred.cancel()
    assert isinstance(cancelled.error, CancelledError)
    assert question.fired


def test_an_outage_is_logged_once(logged: list[str]) -> None:
    """However many polls get no decision, the log says so once, and once more when it works again."""
    node = Authorized()
    node.allowed(None)
    assert logged == []
    for _ in range(100):
        node.failed(Unavailable("the application cannot be reached"))
    (line,) = logged
    assert line.startswith("warn: authorization is failing, so polls without a valid ticket get 503: ")
    assert "the application cannot be reached" in line
    for _ in range(100):
        node.allowed(None)
    assert logged[1:] == ["info: authorization works again"]
    node.failed(Unavailable("again"))
    assert len(logged) == 3


@pytest.mark.parametrize("decision", [Unauthorized("?"), Forbidden("no")])
def test_a_denial_is_a_decision(decision: PushUpError, logged: list[str]) -> None:
    """An application that denies a poll is working again."""
    node = Authorized()
    node.failed(Unavailable("down"))
    node.failed(decision)
    assert logged[1:] == ["info: authorization works again"]


@pytest.mark.parametrize("neither", [Overloaded("many"), BadRequest("too long")])
def test_a_request_that_was_not_sent_is_not_an_outage(neither: PushUpError, logged: list[str]) -> None:
    """It neither starts nor ends an outage."""
    node = Authorized()
    node.failed(neither)
    assert logged == []
    node.failed(Unavailable("down"))
    node.failed(neither)
    assert len(logged) == 1


def test_the_log_has_what_operators_may_know(logged: list[str]) -> None:
    """The log contains the operator detail, which clients do not get."""
    error = Unavailable("the authorization service gave no usable answer", operator_detail="the secret reason")
    Authorized().failed(error)
    assert "the secret reason" in logged[0]


# authorize_url.


class Web:
    """Asks a web application through an agent controlled by the test."""

    def __init__(self, url: str = "http://app/may") -> None:
        self.agent = SteppedAgent()
        self.clock = Clock()
        self.requestor = ServiceRequestor(
            "authorize_url", LIMITS, reactor=self.clock, counters=BackendCounters(), agent=self.agent
        )
        self.authorizer = UrlAuthorizer(url, self.requestor)

    def ask(self, *channels: str, **headers: str) -> Outcome:
        fields = {name.replace("_", "-").encode(): value.encode("latin-1") for name, value in headers.items()}
        return Outcome(self.authorizer(channels, fields))

    def replied(self, status: int, body: bytes) -> Outcome:
        """The outcome of a reply."""
        outcome = self.ask("a")
        self.agent.last.reply(status, body)
        return outcome


def test_the_request_to_the_application() -> None:
    """The application gets a GET at its URL, with a parameter for each channel."""
    web = Web()
    web.ask("author:John", "tag:c++", "ä b&c=d/?#%")
    request = web.agent.last
    assert request.method == b"GET"
    assert request.url == (
        b"http://app/may?channel=author%3AJohn&channel=tag%3Ac%2B%2B&channel=%C3%A4%20b%26c%3Dd%2F%3F%23%25"
    )


def test_a_url_with_parameters() -> None:
    """Parameters of the URL are kept."""
    web = Web("https://app:8443/may?realm=x")
    web.ask("a")
    assert web.agent.last.url == b"https://app:8443/may?realm=x&channel=a"


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("http://app", b"http://app/?channel=a"),
        ("http://app/may?", b"http://app/may?channel=a"),
        ("http://app?x=1", b"http://app/?x=1&channel=a"),
        ("http://[::1]:8000/may", b"http://[::1]:8000/may?channel=a"),
    ],
)
def test_urls_of_other_forms(url: str, asked: bytes) -> None:
    """A URL without a path, with an empty query or with an address as its host works as well."""
    web = Web(url)
    web.ask("a")
    assert web.agent.last.url == asked


def test_the_headers_of_the_client() -> None:
    """Header fields that identify the client are forwarded, and no others."""
    web = Web()
    passed_on = {"cookie": "session=ä", "authorization": "Bearer x", "origin": "https://o", "x_forwarded_for": "::1"}
    web.ask(
        "a", **passed_on, host="evil", connection="close", content_length="5", transfer_encoding="chunked",
        accept="text/html", user_agent="Client/1", pushup_ticket="t", accept_encoding="gzip", x_forwarded_host="evil",
        referer="https://o/page", if_none_match="*", range="bytes=0-1", proxy_authorization="Basic x",
    )  # fmt: skip
    assert dict(one_header_each(web.agent.last.headers)) == {
        "cookie": "session=ä",
        "authorization": "Bearer x",
        "origin": "https://o",
        "x-forwarded-for": "::1",
        "accept": "application/json",
        "user-agent": f"PushUp/{__version__}",
    }


def test_headers_that_the_client_did_not_send() -> None:
    """Header fields that the client did not send are not added."""
    web = Web()
    web.ask("a")
    assert {name for name, _ in one_header_each(web.agent.last.headers)} == {"accept", "user-agent"}


def test_too_long_a_url() -> None:
    """If the channels make the URL too long for web servers, the poll is refused without asking the application."""
    web = Web()
    name = "x" * 100
    room = URL_LIMIT_BYTES - len("http://app/may?channel=")
    assert not web.ask("x" * room).fired
    error = web.ask("x" * (room + 1)).error
    assert isinstance(error, BadRequest)
    assert error.field == "channels"
    assert isinstance(web.ask(*(name + str(n) for n in range(80))).error, BadRequest)
    assert len(web.agent.requests) == 1


@pytest.mark.parametrize(
    ("status", "body", "seconds"),
    [
        (204, b"", None),
        (204, b'{"allow": false}', None),
        (200, b'{"allow": true}', None),
        (200, b' {"allow":true,"seconds":null}\n', None),
        (200, b'{"allow": true, "seconds": 60}', 60.0),
        (200, b'{"allow": true, "seconds": 0.5}', 0.5),
        (200, b'{"allow": true, "seconds": 86400}', TICKET_LIMIT_SECONDS),
        (200, b'{"allow": true, "seconds": 86401}', TICKET_LIMIT_SECONDS),
        (200, b'{"allow": true, "seconds": 1e300}', TICKET_LIMIT_SECONDS),
    ],
)
def test_an_allowing_reply(status: int, body: bytes, seconds: float | None) -> None:
    """204, and 200 with `allow`, allow the poll for the seconds that the reply gives, up to a day."""
    assert Web().replied(status, body).result == Decision(True, seconds)


LONGEST = "é" * (SUBJECT_LIMIT_BYTES // 2) + "x"


@pytest.mark.parametrize("subject", ["", "7", "Zoë@example.org", "a b, c.d", LONGEST])
def test_who_it_is(subject: str) -> None:
    """A reply and a function may name the user."""
    allowed = {"allow": True, "subject": subject}
    assert Web().replied(200, json.dumps(allowed).encode()).result == Decision(True, None, subject)
    assert Function(lambda channels, headers: allowed).ask().result == Decision(True, None, subject)
    assert Function(lambda channels, headers: {**allowed, "seconds": 5}).ask().result == Decision(True, 5, subject)
    assert isinstance(Function(lambda channels, headers: {**allowed, "allow": False}).ask().error, Forbidden)


@pytest.mark.parametrize("subject", [LONGEST + "x", "a\n", "\0", "\x85", "\ud800", 7, None, ["7"]])
def test_who_it_cannot_be(subject: object) -> None:
    """What is no short text without control characters is no decision; the log says what was expected."""
    allowed = {"allow": True, "subject": subject}
    for error in (
        Web().replied(200, json.dumps(allowed).encode()).error,
        Function(lambda channels, headers: allowed).ask().error,
    ):
        assert isinstance(error, Unavailable)
        assert error.detail == NO_ANSWER
        assert "subject" in error.operator_detail or "unexpected" in error.operator_detail


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"allow": true}'])
def test_a_denying_status(body: bytes) -> None:
    """401 and 403 deny the poll, whatever the body."""
    assert isinstance(Web().replied(401, body).error, Unauthorized)
    assert isinstance(Web().replied(403, body).error, Forbidden)


@pytest.mark.parametrize(
    "body", [b'{"allow": false}', b'{"allow": false, "seconds": 60}', b'{"allow":false,"seconds":-1}']
)
def test_a_denying_body(body: bytes) -> None:
    """`allow: false` denies the poll, whatever else the body says."""
    assert isinstance(Web().replied(200, body).error, Forbidden)


NONSENSE = [
    b"",
    b"true",
    b"null",
    b"[]",
    b"{}",
    b'{"allow": "true"}',
    b'{"allow": 1}',
    b'{"allow": null}',
    b'{"allowed": true}',
    b'{"allow": true, "second": 5}',
    b'{"allow": true, "seconds": "60"}',
    b'{"allow": true, "seconds": 0}',
    b'{"allow": true, "seconds": -5}',
    b'{"allow": true, "seconds": NaN}',
    b'{"allow": true, "seconds": 1e400}',
    b'{"allow": true, "seconds": 1' + b"0" * 400 + b"}",
    b'{"allow": true',
    b'{"allow": true}{"allow": false}',
    b'\xef\xbb\xbf{"allow": true}',
    b'{"allow": true, "\xff": 1}',
    b'{"allow": \xff}',
    b"[" * 20_000,
    b'{"x": ' + b"[" * 20_000,
    b"<!DOCTYPE html><form>please log in</form>",
    b"\0\0\0\0",
]


@pytest.mark.parametrize("body", NONSENSE)
def test_a_body_that_is_not_a_decision(body: bytes) -> None:
    """200 with any other body is an error, and the client does not see the body."""
    error = Web().replied(200, body).error
    assert isinstance(error, Unavailable)
    assert error.detail == NO_ANSWER
    assert error.retry_after is not None
    assert error.operator_detail.startswith("authorize_url ")
    assert "expected" in error.operator_detail or "seconds" in error.operator_detail


@pytest.mark.parametrize(
    "status", [201, 202, 206, 300, 301, 302, 303, 307, 400, 404, 405, 407, 418, 429, 500, 502, 503]
)
def test_a_status_that_is_not_a_decision(status: int) -> None:
    """A redirect to a login form, a server error and a missing page are errors, whatever the body."""
    error = Web().replied(status, b'{"allow": true}').error
    assert isinstance(error, Unavailable)
    assert error.detail == NO_ANSWER
    assert error.operator_detail == f"authorize_url answered {status}; expected 200, 204, 401 or 403"


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "Connection refused"), ConnectionLost()])
def test_an_application_that_cannot_be_reached(error: Exception) -> None:
    """Operators see where the application is and what went wrong; clients do not."""
    web = Web("http://app.internal:5000/may")
    outcome = web.ask("a")
    while not outcome.fired:
        web.agent.last.fail(error)
        web.clock.advance(RETRY_SECONDS)
    failed = outcome.error
    assert isinstance(failed, Unavailable)
    assert failed.detail == NO_ANSWER
    assert failed.operator_detail.startswith(
        f"no reply from authorize_url at app.internal:5000: {type(error).__name__}: "
    )


def test_an_application_that_is_too_slow() -> None:
    """After the timeout clients get the same error, and operators the reason."""
    web = Web()
    outcome = web.ask("a")
    web.clock.advance(LIMITS.deadline_seconds)
    failed = outcome.error
    assert isinstance(failed, Unavailable)
    assert failed.detail == NO_ANSWER
    assert failed.operator_detail == "authorize_url did not answer within 10 s"


def test_too_many_polls_to_authorize() -> None:
    """If the queue is full, the error explains it to the client."""
    web = Web()
    for _ in range(LIMITS.at_most + LIMITS.queue_limit):
        web.ask("a")
    failed = web.ask("a").error
    assert isinstance(failed, Overloaded)
    assert failed.detail == "too many polls are waiting for authorization; try again"
    assert failed.retry_after is not None


# The operator's own function.


class Function:
    """Calls a function in threads controlled by the test."""

    def __init__(self, function: Callable[[tuple[str, ...], dict[str, str]], object]) -> None:
        self.threads = SteppedThreads()
        self.pool = HelperPool(
            "the authorizer", LIMITS, reactor=ThreadClock(), counters=BackendCounters(), threads=self.threads
        )
        self.authorizer = FunctionAuthorizer(function, self.pool)

    def ask(self) -> Outcome:
        outcome = Outcome(self.authorizer(("a", "ä"), {b"cookie": b"session=\xe4", b"x": b"y"}))
        assert not outcome.fired, "called at once and not in a thread"
        self.threads.step_all()
        return outcome


def test_the_arguments_of_the_function() -> None:
    """It gets the channel names and all header fields as text, each time as new objects."""
    given: list[tuple[object, dict[str, str]]] = []

    def authorizer(channels: tuple[str, ...], headers: dict[str, str]) -> bool:
        given.append((channels, dict(headers)))
        headers.clear()
        return True

    function = Function(authorizer)
    function.ask()
    function.ask()
    assert given == [(("a", "ä"), {"cookie": "session=ä", "x": "y"})] * 2


@pytest.mark.parametrize(
    ("value", "seconds"), [(True, None), (60, 60.0), (0.5, 0.5), (1, 1.0), (10**400, TICKET_LIMIT_SECONDS)]
)
def test_a_function_that_allows(value: object, seconds: float | None) -> None:
    """True allows the poll, and a number allows it for that many seconds, up to a day."""
    result = Function(lambda channels, headers: value).ask().result
    assert result == Decision(True, seconds)
    assert type(result.seconds) is type(seconds)


def test_a_function_that_denies() -> None:
    """False and PermissionError deny the poll."""

    def raises(channels: tuple[str, ...], headers: dict[str, str]) -> object:
        raise PermissionError(13, "the disk says so")

    for function in (raises, lambda channels, headers: False):
        error = Function(function).ask().error
        assert isinstance(error, Forbidden)
        assert "disk" not in error.detail


@pytest.mark.parametrize(
    "value",
    [None, "yes", "", b"", [], {}, (True,), 0, 0.0, -1, -0.5, math.nan, math.inf, -math.inf, 1j, object(), print],
)
def test_a_function_that_returns_something_else(value: object) -> None:
    """A result that is not a boolean or a time is an error."""
    error = Function(lambda channels, headers: value).ask().error
    assert isinstance(error, Unavailable)
    assert error.detail == NO_ANSWER
    assert error.operator_detail.startswith("the authorizer ")


@pytest.mark.parametrize(
    "raised",
    [
        KeyError("x"),
        OSError("x"),
        TimeoutError(),
        MemoryError(),
        CancelledError(),
        StopIteration(),
        SystemExit(1),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
    ],
)
def test_a_function_that_fails(raised: BaseException) -> None:
    """An exception in the function is an error; it is logged, and the client does not see it."""

    def authorizer(channels: tuple[str, ...], headers: dict[str, str]) -> object:
        raise raised

    error = Function(authorizer).ask().error
    assert isinstance(error, Unavailable)
    assert error.detail == NO_ANSWER
    assert error.retry_after is not None
    assert error.__cause__ is raised
    assert error.operator_detail == f"the authorizer raised {type(raised).__name__}"


@pytest.mark.parametrize("raised", [Unauthorized("log in first"), Forbidden("no"), Unavailable("later")])
def test_a_function_that_raises_an_error_for_the_client(raised: PushUpError) -> None:
    """An error of pushup.core.errors is what the client gets."""

    def authorizer(channels: tuple[str, ...], headers: dict[str, str]) -> object:
        raise raised

    assert Function(authorizer).ask().error is raised


@pytest.fixture
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo the changes that `load` makes to the path."""
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.usefixtures("_path")
def test_load() -> None:
    """A function is found by its module and name."""
    loaded: list[object] = [load("string:capwords"), load("collections:ChainMap"), load("builtins:max")]
    assert loaded == [string.capwords, ChainMap, max]


@pytest.mark.usefixtures("_path")
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("json", "'json' is not of the form package.module:function"),
        ("json:", "'json:' is not of the form package.module:function"),
        (":dumps", "':dumps' is not of the form package.module:function"),
        ("", "'' is not of the form package.module:function"),
        ("no_such_module:f", "cannot import 'no_such_module': ModuleNotFoundError"),
        ("json.nothing:f", "cannot import 'json.nothing': ModuleNotFoundError"),
        (".json:f", "cannot import '.json': TypeError"),
        ("json:nothing", "there is no function 'nothing' in 'json'"),
        ("json:__name__", "there is no function '__name__' in 'json'"),
        ("json:dumps:more", "there is no function 'dumps:more' in 'json'"),
        ("json:dumps", "'dumps' in 'json' must take two arguments: dumps(channels, headers)"),
        ("asyncio:sleep", "'sleep' in 'asyncio' must be a plain function"),
        ("os:fwalk", "'fwalk' in 'os' must be a plain function"),
    ],
)
def test_load_says_what_is_wrong(path: str, said: str) -> None:
    """The error names what cannot be loaded, and the reason."""
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        load(path)
