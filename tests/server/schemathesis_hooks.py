"""What JSON Schema cannot say, for Schemathesis: what the schemas allow and the server does not is corrected here.

| the schema says | and the calls mean |
|---|---|
| `maxLength: 255` | 255 bytes of UTF-8, not characters |
| `type: integer` | digits: 5.0 is no whole number |
| `issued_before`, any number | a time that is not in the future |
| `token`, any text | a token that this server accepts |
| `ticket`, any text | a ticket of this server |
| `channel` and `owner` of what is deleted | exactly one of them; `until` a cursor of this order |
| events of a stream | those of JSON; with the format raw, data is what was published |
| `Idempotency-Key` and `producer` | one of them |
| a server out of rotation | not ready: each call that takes it out is followed by one that takes it back |
"""

from __future__ import annotations

import time
from typing import Any
from urllib.request import Request, urlopen

import schemathesis

NAME_LIMIT_BYTES = 255

NAMED = ("channel", "channels", "name", "messages", "sub", "jti", "for")
"""The fields that contain names, or more of these fields."""

EXISTING_CHANNEL = "existing"
"""A channel that the test has created."""


def _names(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [name for key in NAMED for name in _names(value.get(key))]
    return [name for item in value for name in _names(item)] if isinstance(value, list) else []


def _fits(value: Any) -> bool:
    return all(len(name) > NAME_LIMIT_BYTES or len(name.encode()) <= NAME_LIMIT_BYTES for name in _names(value))


@schemathesis.hook
def filter_body(context: schemathesis.HookContext, body: Any) -> bool:
    if isinstance(body, dict):
        revoked_before = body.get("issued_before")
        if isinstance(revoked_before, int | float) and revoked_before > time.time():
            return False
    return _fits(body)


@schemathesis.hook
def filter_query(context: schemathesis.HookContext, query: Any) -> bool:
    return _fits(query)


@schemathesis.hook
def filter_path_parameters(context: schemathesis.HookContext, path_parameters: Any) -> bool:
    return _fits(path_parameters)


@schemathesis.hook
def map_body(context: schemathesis.HookContext, body: Any) -> Any:
    if not isinstance(body, dict):
        return body
    body = {name: _digits(value) if name == "limit" else value for name, value in body.items()}
    if isinstance(producer := body.get("producer"), dict):
        body["producer"] = {name: _digits(value) for name, value in producer.items()}
    return body


def _digits(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


@schemathesis.hook
def map_path_parameters(context: schemathesis.HookContext, path_parameters: Any) -> Any:
    """Half of the calls are about a channel that exists; closing is always about another."""
    name = str((path_parameters or {}).get("channel", ""))
    if len(name) % 2 and context.operation is not None and context.operation.method != "delete":
        return {**path_parameters, "channel": EXISTING_CHANNEL}
    return path_parameters


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case[Any], kwargs: Any) -> None:
    if isinstance(case.body, dict):
        if isinstance(case.body.get("token"), str):
            del case.body["token"]
        if case.headers and "Idempotency-Key" in case.headers:
            case.body.pop("producer", None)
        if case.body.get("format") == "raw":
            del case.body["format"]
    if case.query:
        case.query.pop("ticket", None)
        if case.query.get("format") == "raw":
            del case.query["format"]
    if (case.method.lower(), case.path) == ("delete", "/v1/messages") and isinstance(case.query, dict):
        case.query.setdefault("channel", EXISTING_CHANNEL)
        case.query.pop("owner", None)
        case.query.pop("until", None)


@schemathesis.hook
def after_call(context: schemathesis.HookContext, case: schemathesis.Case[Any], response: Any) -> None:
    """A server that was taken out of rotation is taken back, because the next call may ask whether it is ready."""
    if case.path == "/v1/drain" and case.method == "POST" and response.status_code == 200:
        with urlopen(Request(response.request.url, method="DELETE"), timeout=10):
            pass
