"""Errors: problems of RFC 9457."""

from __future__ import annotations

import random

from conformance.checks.http import GET
from conformance.registry import must, should
from conformance.trial import Trial


@must("ERR-1")
def are_problems(t: Trial) -> None:
    """Each error is a problem with type, title, status and detail."""
    client = t.client()
    t.problem(client.call("GET", "/v1/poll"), 400, "bad-request")
    t.problem(client.call("GET", "/v1/nowhere"), 404, "unknown-resource")
    t.problem(client.call("GET", f"/v1/channels/{t.name()}"), 404, "unknown-channel")
    t.problem(client.call("GET", "/v1/messages"), 405, "method-not-allowed")


@must("ERR-1")
def never_are_the_servers_own(t: Trial) -> None:
    """Two hundred random requests get no status of 500 or above."""
    numbers, names = random.Random(1), ("channel", "cursor", "timeout", "limit", "from", "to", "_", "x")
    client = t.client()
    for n in range(200):
        pairs = [f"{numbers.choice(names)}={numbers.choice(VALUES)}" for _ in range(numbers.randint(0, 4))]
        method = numbers.choice(("GET", "POST", "DELETE", "PUT"))
        path = numbers.choice(("/v1/poll", "/v1/channels", "/v1/channels/%00", "/v1/messages", "/v1/cursor"))
        query = "&".join([*pairs, "timeout=0"]) if n % 2 else "&".join(pairs)
        if path == "/v1/poll" and "timeout=0" not in query:
            query += "&x=1"  # so that none is held
        body = numbers.choice(BODIES) if method in ("POST", "PUT") else None
        response = client.call(method, f"{path}?{query}", body)
        t.true(
            response.status < 500, f"expected no error of the server's own, and {method} {path}?{query} got {response}"
        )


VALUES = (
    "",
    "0",
    "-1",
    "a",
    "%00",
    "%ff",
    "nan",
    "1e999",
    "9" * 400,
    "now",
    "0-0",
    "2027-01-15T08:00:00Z",
    "%F0%9F%98%80",
)
BODIES = (
    b"",
    b"{}",
    b"[]",
    b"null",
    b'"',
    b"\xff",
    b'{"channels": 1}',
    b'{"channels": [""], "data": 1}',
    b"[" * 5000,
    b"1" * 5000,
)


@must("ERR-2")
def say_bad_request(t: Trial) -> None:
    """A malformed value gets 400 bad-request, in a query and in a body."""
    client, name = t.client(), t.channel()
    t.problem(client.call("GET", f"/v1/poll?channel={name}&timeout=soon"), 400, "bad-request")
    t.problem(client.call("POST", "/v1/messages", {"channels": name, "data": 1}), 400, "bad-request")


@should("ERR-3")
def name_the_parameter(t: Trial) -> None:
    """An error about a parameter names it."""
    client, name = t.client(), t.channel()
    for field in ("timeout", "limit", "from", "to", "cursor"):
        t.problem(client.call("GET", f"/v1/poll?channel={name}&{field}=!"), 400, "bad-request", field)


@should("ERR-3")
def name_the_field(t: Trial) -> None:
    """An error about a field of a body names its path."""
    messages = [{"channels": [t.channel()], "data": 1}, {"channels": "no list", "data": 1}]
    response = t.client().call("POST", "/v1/messages", {"messages": messages})
    t.problem(response, 400, "bad-request", "messages[1].channels")


@must("ERR-4", "publish key")
def say_how_to_authenticate(t: Trial) -> None:
    """A 401 has WWW-Authenticate."""
    response = t.client().call("POST", "/v1/messages", {"channels": [t.name()], "data": 1}, Authorization="")
    t.problem(response, 401, "unauthorized")
    t.true("www-authenticate" in response.headers, f"expected WWW-Authenticate, and {response.headers} came")


@must("ERR-5")
def change_nothing(t: Trial) -> None:
    """A publication that is refused leaves no channel and no message behind."""
    client, name = t.client(), t.name()
    body = {"messages": [{"channels": [name], "data": 1}, {"channels": [""], "data": 2}]}
    t.problem(client.call("POST", "/v1/messages", body), 400, "bad-request")
    t.problem(client.call("GET", f"/v1/channels/{name}"), 404, "unknown-channel")


@must("ERR-6")
def refuse_unknown_parameters(t: Trial) -> None:
    """A parameter that does not exist gets 400, so that no misspelt one is ignored."""
    client, name = t.client(), t.channel()
    for parameter in ("chanel", "Cursor", "since"):
        t.problem(client.call("GET", f"/v1/poll?channel={name}&timeout=0&{parameter}=1"), 400, "bad-request", parameter)
    t.problem(client.call("GET", "/v1/channels?before=1"), 400, "bad-request", "before")


@must("ERR-6")
def refuse_unknown_fields(t: Trial) -> None:
    """A field that does not exist gets 400."""
    client, name = t.client(), t.channel()
    for path, body in (
        ("/v1/messages", {"channels": [name], "data": 1, "ttl": 1}),
        ("/v1/poll", {"channels": [name], "timeout": 0, "wait": 1}),
        ("/v1/channels", {"name": name, "size": 1}),
    ):
        t.problem(client.call("POST", path, body), 400, "bad-request")


@must("ERR-6")
def ignore_the_underscore(t: Trial) -> None:
    """The parameter _, which libraries add against caches, is ignored."""
    response = t.client().call("GET", f"/v1/poll?channel={t.channel()}&timeout=0&_=1700000000000")
    t.status(response, 200)


@must("ERR-7")
def show_nothing_inside(t: Trial) -> None:
    """Errors contain no traceback and no path of the server."""
    client = t.client()
    responses = [client.call("POST", "/v1/messages", body) for body in BODIES]
    responses.append(t.raw(GET + b"X\x00: 1\r\n\r\n")[0])
    for response in responses:
        for secret in (b"Traceback", b"/usr/", b"/home/", b".py", b"line "):
            t.true(secret not in response.body, f"expected nothing of the server's inside, and {response} came")
