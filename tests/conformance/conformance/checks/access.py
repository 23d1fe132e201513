"""Publish keys, origins, hosts and tickets."""

from __future__ import annotations

from conformance.registry import must, should
from conformance.trial import Trial
from conformance.wire import Response

STRANGE = "https://conformance.invalid"


def _guarded(t: Trial, authorization: str) -> list[Response]:
    """The responses of all calls that need a publish key."""
    client, name = t.client(), t.channel()
    calls: list[tuple[str, str, object]] = [
        ("POST", "/v1/messages", {"channels": [name], "data": 1}),
        ("POST", "/v1/channels", {"name": t.name()}),
        ("POST", f"/v1/channels/{name}/renew", None),
        ("DELETE", f"/v1/channels/{name}", None),
        ("GET", "/v1/channels", None),
        ("GET", f"/v1/channels/{name}", None),
        ("GET", "/v1/nodes", None),
    ]
    return [client.call(method, path, body, Authorization=authorization) for method, path, body in calls]


@must("ACC-1", "publish key")
def needs_a_key(t: Trial) -> None:
    """Without a key, publishing and the calls of channels and nodes get 401."""
    for authorization in ("", "Basic dXNlcjpwYXNz", "Bearer"):
        for response in _guarded(t, authorization):
            t.problem(response, 401, "unauthorized")


@must("ACC-1", "publish key")
def needs_a_known_key(t: Trial) -> None:
    """With an unknown key they get 403."""
    for key in ("x" * 24, t.options.publish_key + "x", t.options.publish_key[:-1]):
        for response in _guarded(t, f"Bearer {key}"):
            t.problem(response, 403, "forbidden")


@must("ACC-1", "publish key")
def takes_the_key(t: Trial) -> None:
    """With the key all of them work, whatever the case of Bearer."""
    client, name = t.client(), t.channel()
    for scheme in ("Bearer", "bearer", "BEARER"):
        body = {"channels": [name], "data": 1}
        response = client.call("POST", "/v1/messages", body, Authorization=f"{scheme} {t.options.publish_key}")
        t.status(response, 201)
    t.status(client.call("GET", "/v1/nodes"), 200)


@must("ACC-2", "publish key")
def needs_no_key_for_polls(t: Trial) -> None:
    """Polls, streams and the current cursor need no publish key."""
    client, name = t.client(), t.channel()
    t.status(client.call("GET", f"/v1/poll?channel={name}&timeout=0", Authorization=""), 200)
    t.status(client.call("GET", "/v1/cursor", Authorization=""), 200)
    client.stream(name, Authorization="")


@must("ACC-3", "no publish key")
def stops_pages_of_others(t: Trial) -> None:
    """Without keys, a page of an origin that is not allowed cannot publish or change channels."""
    client, name = t.client(), t.channel()
    client.publish(name, "mine")
    body = {"channels": [name], "data": "theirs"}
    for origin in (STRANGE, "null"):
        t.problem(client.call("POST", "/v1/messages", body, Origin=origin), 403, "forbidden")
        t.problem(client.call("DELETE", f"/v1/channels/{name}", Origin=origin), 403, "forbidden")
        t.problem(client.call("POST", "/v1/channels", {}, Origin=origin), 403, "forbidden")
    t.same("the messages", client.poll(name).data, ["mine"])


@must("ACC-3", "no publish key")
def lets_its_own_pages_publish(t: Trial) -> None:
    """Without keys, a page of the server itself can publish."""
    body = {"channels": [t.channel()], "data": 1}
    for scheme in ("http", "https"):
        origin = f"{scheme}://{t.addresses[0].host}"
        t.status(t.client().call("POST", "/v1/messages", body, Origin=origin), 201)


@must("ACC-4", "no publish key")
def answers_to_its_names_alone(t: Trial) -> None:
    """Without keys, a Host that is not one of the server's gets 421."""
    for host in ("conformance.invalid", "conformance.invalid:80", "localhost.conformance.invalid"):
        t.problem(t.client().call("GET", "/v1/cursor", Host=host), 421, "misdirected-request")


@must("ACC-4", "no publish key")
def answers_to_addresses(t: Trial) -> None:
    """Without keys, any IP address and localhost are good as Host."""
    for host in ("127.0.0.1", "192.0.2.1:8080", "[::1]", "localhost", "LOCALHOST:8080"):
        t.status(t.client().call("GET", "/v1/cursor", Host=host), 200)


@must("CORS-1", "origin")
def lets_allowed_pages_read(t: Trial) -> None:
    """Responses to an allowed origin say so, errors too."""
    client = t.client()
    for target in (f"/v1/poll?channel={t.channel()}&timeout=0", "/v1/cursor", "/v1/poll", "/v1/nowhere"):
        headers = client.call("GET", target, Origin=t.options.origin).headers
        allowed = headers.get("access-control-allow-origin")
        t.true(allowed in (t.options.origin, "*"), f"expected {t.options.origin} to be allowed, and {allowed} came")
        if allowed != "*":
            t.true(
                "origin" in headers.get("vary", "").lower(), f"expected Vary: Origin, and {headers.get('vary')} came"
            )


@must("CORS-2", "origin")
def lets_no_other_pages_read(t: Trial) -> None:
    """Responses to another origin, or to none, do not allow it."""
    client, target = t.client(), f"/v1/poll?channel={t.channel()}&timeout=0"
    allowed = client.call("GET", target, Origin=t.options.origin).headers.get("access-control-allow-origin")
    for origin in (STRANGE, t.options.origin + ".invalid", "null"):
        came = client.call("GET", target, Origin=origin).headers.get("access-control-allow-origin")
        t.true(came is None or allowed == "*", f"expected {origin} not to be allowed, and {came} came")


@must("CORS-3", "origin")
def answers_preflight_requests(t: Trial) -> None:
    """An allowed page may send the header fields of the protocol."""
    client = t.client()
    for path, method in (("/v1/poll", "GET"), ("/v1/events", "GET"), ("/v1/messages", "POST")):
        response = client.call("OPTIONS", path, Origin=t.options.origin, Access_Control_Request_Method=method)
        t.status(response, 204, 200)
        methods = response.headers.get("access-control-allow-methods", "")
        t.true(method in methods, f"expected {method} to be allowed, and {methods!r} came")
        fields = response.headers.get("access-control-allow-headers", "").lower()
        for field in ("authorization", "content-type", "idempotency-key", "last-event-id", "pushup-ticket"):
            t.true(field in fields, f"expected {field} to be allowed, and {fields!r} came")


@should("CORS-4", "origin")
def lets_allowed_pages_read_when_to_return(t: Trial) -> None:
    """Responses to an allowed origin, errors too, let its page read Retry-After."""
    client = t.client()
    for target in (f"/v1/poll?channel={t.channel()}&timeout=0", "/v1/cursor", "/v1/nowhere"):
        headers = client.call("GET", target, Origin=t.options.origin).headers
        exposed = headers.get("access-control-expose-headers", "").lower()
        t.true("retry-after" in exposed or exposed == "*", f"expected Retry-After to be exposed, and {exposed!r} was")


@must("TICKET-1", "credentials")
def keeps_strangers_out(t: Trial) -> None:
    """A poll without credentials gets 401 or 403, and nothing of the channel."""
    client, name = t.client(), t.channel()
    client.publish(name, "private")
    response = t.status(client.call("GET", f"/v1/poll?channel={name}&timeout=0", **t.without_credentials()), 401, 403)
    t.true(b"private" not in response.body, f"expected nothing of the channel, and {response} came")


def _ticket(t: Trial, name: str) -> str:
    value = t.status(t.client().call("GET", f"/v1/poll?channel={name}&timeout=0"), 200).json
    t.true(isinstance(value.get("ticket"), str), f"expected a ticket in the first answer, and {value} came")
    return str(value["ticket"])


@must("TICKET-2", "credentials")
def takes_tickets(t: Trial) -> None:
    """With the ticket of the first answer a poll needs no credentials, and gets no other ticket."""
    client, name = t.client(), t.channel()
    ticket = _ticket(t, name)
    client.publish(name, "private")
    response = client.call("GET", f"/v1/poll?channel={name}&timeout=0", PushUp_Ticket=ticket, **t.without_credentials())
    t.same("the messages", t.native.read_answer(response, "").data, ["private"])
    held = t.client()
    cursor = response.json["cursor"]
    headers = tuple((name.replace("_", "-"), value) for name, value in t.without_credentials().items())
    target = f"/v1/poll?channel={name}&cursor={cursor}&timeout=20"
    held.begin(t.native.call("GET", target, headers=(*headers, ("PushUp-Ticket", ticket))))
    t.sleep(0.1)
    client.publish(name, "more")
    t.same("the messages of a held poll", held.answer().data, ["more"])


@must("TICKET-3", "credentials")
def ignores_bad_tickets(t: Trial) -> None:
    """A ticket that is malformed, or for other channels, is as good as none."""
    client, name, other = t.client(), t.channel(), t.channel()
    ticket = _ticket(t, name)
    for channel, bad in ((other, ticket), (name, "nonsense"), (name, ticket[:-2] + "xx"), (name, "9" + ticket)):
        target = f"/v1/poll?channel={channel}&timeout=0"
        t.status(client.call("GET", target, PushUp_Ticket=bad, **t.without_credentials()), 401, 403)
        t.status(client.call("GET", target, PushUp_Ticket=bad), 200)
