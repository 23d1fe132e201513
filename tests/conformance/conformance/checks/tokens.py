"""Signed tokens, tickets for them in URLs, and their revocation."""

from __future__ import annotations

import hmac
import json
import time
from base64 import urlsafe_b64encode
from typing import Any

from conformance.registry import must
from conformance.trial import Client, Trial
from conformance.wire import Response


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def signed(t: Trial, *, poll: list[str], algorithm: str = "HS256", **changed: Any) -> str:
    """A token with these rights, signed with the secret of `--token`; None leaves a claim out."""
    issuer, audience, secret = t.options.token
    now = int(time.time())
    claims = {"iss": issuer, "aud": audience, "iat": now, "exp": now + 60, "sub": t.name(), "pushup": {"poll": poll}}
    claims = {name: value for name, value in {**claims, **changed}.items() if value is not None}
    head = json.dumps({"alg": algorithm, "typ": "JWT"})
    text = f"{_base64(head.encode())}.{_base64(json.dumps(claims).encode())}"
    return f"{text}.{_base64(hmac.digest(secret.encode(), text.encode(), 'sha256'))}"


def _poll(t: Trial, channel: str, token: str) -> Response:
    """A poll on a token, without other credentials."""
    fields = {**t.without_credentials(), "Authorization": f"Bearer {token}"}
    return t.client().call("GET", f"/v1/poll?channel={channel}&timeout=0", **fields)


@must("TOKEN-1", "token")
def takes_tokens_in_the_head_and_in_the_body(t: Trial) -> None:
    """Not in the URL."""
    name = t.channel()
    token = signed(t, poll=[name])
    t.client().publish(name, "private")
    answer = t.native.read_answer(_poll(t, name, token), "")
    t.same("the messages", answer.data, ["private"])
    body = {"channels": [name], "timeout": 0, "token": token}
    answer = t.native.read_answer(t.client().call("POST", "/v1/poll", body, Authorization=""), "")
    t.same("the messages of a poll with the token in its body", answer.data, ["private"])
    in_url = t.client().call("GET", f"/v1/poll?channel={name}&timeout=0&token={token}")
    t.problem(in_url, 400, "bad-request", "token")


@must("TOKEN-2", "token")
def allows_what_a_token_says_and_no_more(t: Trial) -> None:
    """Exactly its names and prefixes."""
    name = t.channel()
    token = signed(t, poll=[name, f"{name}-a:*"])
    for allowed in (name, f"{name}-a:", f"{name}-a:1"):
        t.status(_poll(t, allowed, token), 200)
    for other in (f"{name}x", f"{name}-a", f"{name}-b:1", name[:-1]):
        t.status(_poll(t, other, token), 401, 403)
    t.status(_poll(t, f"{name}&channel={name}-b:1", token), 400, 401, 403)


@must("TOKEN-3", "token")
def refuses_bad_tokens(t: Trial) -> None:
    """Even to a client that other credentials would allow the poll."""
    name = t.channel()
    token = signed(t, poll=[name])
    begin, _, signature = token.rpartition(".")
    long_ago = int(time.time()) - 1000
    bad = {
        "another signature": f"{begin}.{signature[::-1]}",
        "no signature": f"{begin}.",
        "no algorithm": signed(t, poll=[name], algorithm="none"),
        "an end that has passed": signed(t, poll=[name], iat=long_ago, exp=long_ago + 60),
        "a beginning that has not come": signed(t, poll=[name], nbf=int(time.time()) + 1000),
        "another audience": signed(t, poll=[name], aud="other"),
        "another issuer": signed(t, poll=[name], iss="other"),
        "no end": signed(t, poll=[name], exp=None),
        "a pattern": signed(t, poll=[name, "a*b"]),
    }
    for what, text in bad.items():
        response = t.client().call("GET", f"/v1/poll?channel={name}&timeout=0", Authorization=f"Bearer {text}")
        t.true(response.status == 401, f"expected 401 to a token with {what}, and {response} came")


_PAGE = "https://page.example"


def _url_ticket(t: Trial, channel: str, token: str) -> str:
    """A URL ticket for this channel and a page of `_PAGE`."""
    fields = {"Authorization": f"Bearer {token}", "Origin": _PAGE}
    response = t.status(t.client().call("POST", "/v1/url-tickets", {"channels": [channel]}, **fields), 200)
    t.true(response.json.keys() >= {"ticket", "expires_in"}, f"expected ticket and expires_in, and {response} came")
    t.same("Cache-Control", response.headers.get("cache-control"), "no-store")
    return str(response.json["ticket"])


def _open(t: Trial, query: str, origin: str = _PAGE) -> Client:
    """Begin a stream as an `EventSource` of a page does, without other credentials."""
    others = tuple((name, "") for name, _ in t.options.credentials)
    client = t.client()
    fields = (*others, ("Authorization", ""), ("Origin", origin))
    client.begin(t.native.call("GET", f"/v1/events?{query}", headers=fields))
    return client


@must("URL-1", "token", "URL tickets")
def opens_streams_on_url_tickets(t: Trial) -> None:
    """Whatever the token allows, without it."""
    name = t.channel()
    ticket = _url_ticket(t, name, signed(t, poll=[name, "other"]))
    stream = t.opened(_open(t, f"channel={name}&ticket={ticket}").wire)
    t.client().publish(name, "private")
    t.same("the message", stream.message(), "private")


@must("URL-2", "token", "URL tickets")
def refuses_url_tickets_elsewhere(t: Trial) -> None:
    """For other channels, on pages of other origins, with another seal, without one, and in polls."""
    name, other = t.channel(), t.channel()
    token = signed(t, poll=[name, other])
    ticket = _url_ticket(t, name, token)
    begin, _, seal = ticket.rpartition(".")
    for query in (
        f"channel={other}&ticket={ticket}",
        f"channel={name}&channel={other}&ticket={ticket}",
        f"channel={name}&ticket={begin}.{seal[::-1]}",
        f"channel={name}&ticket=",
    ):
        t.status(_open(t, query).finish(), 401, 403)
    t.status(_open(t, f"channel={name}&ticket={ticket}", "https://other.example").finish(), 401, 403)
    t.problem(t.client().call("GET", f"/v1/poll?channel={name}&ticket={ticket}"), 400, "bad-request", "ticket")


@must("URL-3", "token", "URL tickets")
def ends_url_tickets_that_are_revoked(t: Trial) -> None:
    """With 204, after which an `EventSource` does not connect again."""
    name, token_name = t.channel(), t.name()
    query = f"channel={name}&ticket={_url_ticket(t, name, signed(t, poll=[name], jti=token_name))}"
    stream = t.opened(_open(t, query).wire)
    t.status(t.client().call("POST", "/v1/revoke", {"jti": token_name}), 200)
    t.same("the last event's type", stream.named("error").data["type"], "urn:pushup:revoked")
    t.status(_open(t, query).finish(), 204)


@must("REVOKE-1", "token")
def ends_what_is_revoked(t: Trial) -> None:
    """A poll that is held gets 401, later ones as well, and what is published then reaches nobody on that token."""
    name, user = t.channel(), t.name()
    token = signed(t, poll=[name], sub=user)
    held = t.client()
    target = f"/v1/poll?channel={name}&cursor=now&timeout=20"
    held.begin(t.native.call("GET", target, headers=(("Authorization", f"Bearer {token}"),)))
    t.sleep(0.2)
    t.status(t.client().call("POST", "/v1/revoke", {"sub": user}), 200)
    t.problem(held.finish(), 401, "revoked")
    t.client().publish(name, "later")
    t.problem(_poll(t, name, token), 401, "revoked")
    t.status(_poll(t, name, signed(t, poll=[name])), 200)
