"""Signed tokens and their revocation."""

from __future__ import annotations

import hmac
import json
import time
from base64 import urlsafe_b64encode
from typing import Any

from conformance.registry import must
from conformance.trial import Trial
from conformance.wire import Response


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _token(t: Trial, *, poll: list[str], algorithm: str = "HS256", **changed: Any) -> str:
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
    others = {name.replace("-", "_"): "" for name, _ in t.options.credentials}
    fields = {**others, "Authorization": f"Bearer {token}"}
    return t.client().call("GET", f"/v1/poll?channel={channel}&timeout=0", **fields)


@must("TOKEN-1", "token")
def takes_tokens_in_the_head_and_in_the_body(t: Trial) -> None:
    """Not in the URL."""
    name = t.channel()
    token = _token(t, poll=[name])
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
    token = _token(t, poll=[name, f"{name}-a:*"])
    for allowed in (name, f"{name}-a:", f"{name}-a:1"):
        t.status(_poll(t, allowed, token), 200)
    for other in (f"{name}x", f"{name}-a", f"{name}-b:1", name[:-1]):
        t.status(_poll(t, other, token), 401, 403)
    t.status(_poll(t, f"{name}&channel={name}-b:1", token), 400, 401, 403)


@must("TOKEN-3", "token")
def refuses_bad_tokens(t: Trial) -> None:
    """Even to a client that other credentials would allow the poll."""
    name = t.channel()
    token = _token(t, poll=[name])
    begin, _, signature = token.rpartition(".")
    long_ago = int(time.time()) - 1000
    bad = {
        "another signature": f"{begin}.{signature[::-1]}",
        "no signature": f"{begin}.",
        "no algorithm": _token(t, poll=[name], algorithm="none"),
        "an end that has passed": _token(t, poll=[name], iat=long_ago, exp=long_ago + 60),
        "a beginning that has not come": _token(t, poll=[name], nbf=int(time.time()) + 1000),
        "another audience": _token(t, poll=[name], aud="other"),
        "another issuer": _token(t, poll=[name], iss="other"),
        "no end": _token(t, poll=[name], exp=None),
        "a pattern": _token(t, poll=[name, "a*b"]),
    }
    for what, text in bad.items():
        response = t.client().call("GET", f"/v1/poll?channel={name}&timeout=0", Authorization=f"Bearer {text}")
        t.true(response.status == 401, f"expected 401 to a token with {what}, and {response} came")


@must("REVOKE-1", "token")
def ends_what_is_revoked(t: Trial) -> None:
    """A poll that is held gets 401, later ones as well, and what is published then reaches nobody on that token."""
    name, user = t.channel(), t.name()
    token = _token(t, poll=[name], sub=user)
    held = t.client()
    target = f"/v1/poll?channel={name}&cursor=now&timeout=20"
    held.begin(t.native.call("GET", target, headers=(("Authorization", f"Bearer {token}"),)))
    t.sleep(0.2)
    t.status(t.client().call("POST", "/v1/revoke", {"sub": user}), 200)
    t.problem(held.finish(), 401, "revoked")
    t.client().publish(name, "later")
    t.problem(_poll(t, name, token), 401, "revoked")
    t.status(_poll(t, name, _token(t, poll=[name])), 200)
