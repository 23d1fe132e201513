"""docs/guide/openapi.yaml says what the code does: the calls, the fields of each body and answer, their types."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import yaml
from msgspec import Struct, structs

from pushup.broadcast import Member
from pushup.core import tracing
from pushup.core.answer import Answer, Gap, Received
from pushup.core.commands import ChannelState
from pushup.core.members import ChannelPresence, View
from pushup.net.api import poll_parameters, schemas
from pushup.net.api.bodies import NAME_LIMIT_BYTES
from pushup.net.api.browser_client import NAMES
from pushup.net.api.channel_routes import TTL_LIMIT_SECONDS
from pushup.net.api.publishing import ACK_LIMIT_SECONDS, RESERVED_EVENTS
from pushup.net.api.schemas import Format, PollLimits, PublicationLimits
from pushup.net.http_errors import PROBLEM_TYPES, Problem

DOCS = Path(__file__).parents[1] / "docs"
DOCUMENT: dict[str, Any] = yaml.safe_load((DOCS / "guide" / "openapi.yaml").read_text())
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]

API = DOCS.parent / "pushup" / "net" / "api"

OPERATIONS: dict[tuple[str, str], Any] = {
    (method.upper(), path): operation
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
    if method in ("get", "post", "delete", "put", "patch")
}

REQUESTS: dict[str, type[Struct]] = {
    "Message": schemas.MessageBody,
    "Publication": schemas.PublicationBody,
    "Creation": schemas.CreateBody,
    "Renewal": schemas.RenewBody,
    "Poll": schemas.PollBody,
    "UrlTicketRequest": schemas.ChannelsBody,
}

ONLY_OF_STREAMS = {("Poll", name) for name in poll_parameters.ONLY_OF_STREAMS}
"""Fields of a struct that a poll may not have; `Events` has them."""

RESPONSES: dict[str, type[Struct]] = {
    "PublishedOne": schemas.PublishedOne,
    "PublishedMany": schemas.PublishedMany,
    "Received": Received,
    "Gap": Gap,
    "Answer": schemas.AnswerBeforeEnd,
    "ChannelState": ChannelState,
    "Channel": schemas.ChannelView,
    "Node": Member,
    "Trace": tracing.Trace,
    "Drop": tracing.Drop,
    "Applied": tracing.Applied,
    "Reader": tracing.Reader,
    "Presence": ChannelPresence,
    "PresenceMember": View,
    "Problem": Problem,
}


def test_every_call_is_there() -> None:
    """The calls of the document are those in the table of `net.api.application`; those that ask for a right say so."""
    source = (API / "application.py").read_text()
    table = set(re.findall(r'Call\("([A-Z]+)", "([^"]+)"', source)) | {("GET", f"/v1/{name}") for name in NAMES}
    assert len(table) > 10
    assert OPERATIONS.keys() == table
    asking = set(re.findall(r'Call\("([A-Z]+)", "([^"]+)", [^"\n]*, "', source)) | {("DELETE", "/v1/messages")}
    assert {call for call, operation in OPERATIONS.items() if operation.get("security")} == asking


@pytest.mark.parametrize("name", [*REQUESTS, *RESPONSES])
def test_a_schema_is_that_of_its_struct(name: str) -> None:
    """The same fields, the same of them required, the same types."""
    struct = (REQUESTS | RESPONSES)[name]
    schema = SCHEMAS[name]
    fields = [f for f in structs.fields(struct) if (name, f.encode_name) not in ONLY_OF_STREAMS]
    assert set(schema["properties"]) == {field.encode_name for field in fields}
    required = {field.encode_name for field in fields if field.required} - {"ticket"}  # see `Answer`
    assert set(schema.get("required", ())) == required
    (inferred,), components = msgspec.json.schema_components([struct])
    own = _resolved(inferred, components)["properties"]
    for field in schema["properties"]:
        expected = _types(own[field], components)
        if name in RESPONSES:
            expected -= {"null"}  # it is left out instead
        assert _types(schema["properties"][field], SCHEMAS) == expected, field


@pytest.mark.parametrize("name", REQUESTS)
def test_unknown_fields_are_refused(name: str) -> None:
    """As the structs refuse them, so do the schemas."""
    assert SCHEMAS[name]["additionalProperties"] is False
    assert REQUESTS[name].__struct_config__.forbid_unknown_fields


def test_limits_are_the_defaults() -> None:
    """Numbers in the schemas are the defaults of the settings, and the constants of the code."""
    publication, poll = PublicationLimits(), PollLimits()
    properties = SCHEMAS["Publication"]["properties"]
    assert properties["messages"]["maxItems"] == publication.batch_limit
    assert properties["channels"]["maxItems"] == publication.message_channels_limit
    assert SCHEMAS["Poll"]["properties"]["channels"]["maxItems"] == poll.poll_channels_limit
    assert properties["ack_timeout"]["maximum"] == ACK_LIMIT_SECONDS
    assert SCHEMAS["Ttl"]["maximum"] == TTL_LIMIT_SECONDS
    assert SCHEMAS["Name"]["maxLength"] == NAME_LIMIT_BYTES


def test_reserved_events_are_excluded() -> None:
    assert set(SCHEMAS["EventName"]["not"]["enum"]) == RESERVED_EVENTS


def test_every_event_has_one_schema() -> None:
    """Those that streams send."""
    names = set(re.findall(r'\.event % \(b"(\w+)"', (API / "event_encoding.py").read_text()))
    assert len(names) > 4
    assert {each["properties"]["event"]["const"] for each in SCHEMAS["Event"]["oneOf"][1:]} == names
    assert set(SCHEMAS["ServerSentEvent"]["oneOf"][-1]["properties"]["event"]["not"]["enum"]) == names | {"cursor"}


def test_the_parameters_of_a_poll_are_there() -> None:
    """The query parameters are those that `poll_parameters` reads."""
    parameters = DOCUMENT["paths"]["/v1/poll"]["get"]["parameters"]
    assert tuple(p["name"] for p in parameters if p.get("in") == "query") == poll_parameters.PARAMETERS


def test_the_parameters_of_a_stream_are_there() -> None:
    """Those of a poll, without the ones that streams do not have, and with the one that only they have."""
    ours = [name for name in poll_parameters.PARAMETERS if name not in poll_parameters.NOT_OF_STREAMS]
    ours += poll_parameters.ONLY_OF_STREAMS
    parameters = DOCUMENT["paths"]["/v1/events"]["get"]["parameters"]
    assert [p["name"] for p in parameters if p.get("in") == "query"] == ours
    body, poll = SCHEMAS["Events"], SCHEMAS["Poll"]
    left = {name: schema for name, schema in poll["properties"].items() if name not in ("timeout", "limit")}
    left |= {name: body["properties"][name] for name in poll_parameters.ONLY_OF_STREAMS}
    assert body == {**poll, "properties": left}
    assert tuple(SCHEMAS["Format"]["enum"]) == get_args(Format)


def test_answers_may_lack_a_ticket() -> None:
    """Those that have none, and no token that ends soon, have the other fields; so those are not required."""
    assert {field.name for field in structs.fields(Answer)} | {"ticket", "expires_in"} == set(
        SCHEMAS["Answer"]["properties"]
    )


def test_the_types_of_problems_are_open() -> None:
    """Programs that are generated from the document must not fail when a type is added."""
    kind = SCHEMAS["Problem"]["properties"]["type"]
    assert not {"enum", "const", "pattern"} & kind.keys()
    assert len(kind["examples"]) == len({problem.code for problem in PROBLEM_TYPES.values()})


def test_every_problem_is_in_the_protocol() -> None:
    """The table of docs/internals/protocol.md has the status and type of each error, and no others."""
    protocol = (DOCS / "internals" / "protocol.md").read_text()
    rows = re.findall(r"^\| (\d{3}) \| `urn:pushup:([a-z-]+)` \|", protocol, re.MULTILINE)
    assert {(int(status), code) for status, code in rows} == {(k.status, k.code) for k in PROBLEM_TYPES.values()}


def _resolved(schema: Any, components: dict[str, Any]) -> Any:
    reference = schema.get("$ref") if isinstance(schema, dict) else None
    return components[reference.rpartition("/")[2]] if reference else schema


def _types(schema: Any, components: dict[str, Any]) -> set[str]:
    """The JSON types that a schema allows; empty: any. Those of an array's items count as `array of ...`."""
    schema = _resolved(schema, components)
    if "type" not in schema and ("anyOf" in schema or "allOf" in schema):
        return {kind for part in schema.get("anyOf", schema.get("allOf")) for kind in _types(part, components)}
    if "enum" in schema:
        return {"string"}
    kinds = schema.get("type", [])
    kinds = {kinds} if isinstance(kinds, str) else set(kinds)
    if "items" in schema:
        kinds |= {f"array of {kind}" for kind in _types(schema["items"], components)}
    return kinds
