"""`pushup why`: what became of a message, as the server knows it, in a few lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import click

from pushup.cli.client_commands import harmless, with_client
from pushup.client import Client


@click.command()
@click.argument("message_id")
@click.option("--cursor", help="A client's cursor: what does it get of the message?")
@click.option("--json", "as_json", is_flag=True, help="Print what the server answers.")
@with_client
def why(message_id: str, cursor: str | None, as_json: bool, client: Client) -> None:
    """Show what became of a message, and why it did not arrive."""
    query = "" if cursor is None else f"?cursor={quote(cursor, safe='')}"
    given = client.call("GET", f"/v1/messages/{quote(message_id, safe='')}{query}")
    for line in [json.dumps(given, ensure_ascii=False)] if as_json else _lines(given):
        print(harmless(line))


def _lines(given: dict[str, Any]) -> Iterator[str]:
    yield f"{given['id']}, as node {given.get('node') or '(unnamed)'} knows it"
    if "time" in given:
        by = f" with key {given['key']}" if given.get("key") else ""
        yield f"  published  {_time(given['time'])}{by}, {given['bytes']} bytes"
        yield f"  channels   {', '.join(given['channels'])}"
    if (acknowledged := given.get("acknowledged")) is not None:
        yield f"  accepted   {'by this node' if acknowledged else 'not by this node'}"
    if "traceparent" in given:
        yield f"  trace      {given['traceparent']}"
    yield f"  now        {_fate(given)}"
    for node in given.get("nodes", ()):
        yield f"  node       {_node(node)}"
    if reader := given.get("reader"):
        yield f"  cursor     {_reader(reader)}"
        for view in reader["channels"]:
            yield f"             {_view(view)}"


def _fate(given: dict[str, Any]) -> str:
    match given["fate"]:
        case "kept":
            kept, names = given.get("kept_by", []), given["channels"]
            return "kept" if kept == names else f"kept by {', '.join(kept)}; dropped by the other channels"
        case "dropped":
            drop = given["dropped"]
            by = f" because of {drop['limit']}" if drop.get("limit") else ""
            return f"dropped at {_time(drop['time'])}: {drop['reason']}{by}"
        case "forgotten":
            return f"no longer known: if it was a message, it was dropped before {_time(given['dropped_before'])}"
        case "ahead":
            return "not known here: this node has not applied its entry yet"
        case "lost":
            return "lost: it was the end of an order that continued without it"
        case other:
            return str(other)


def _node(node: dict[str, Any]) -> str:
    name = f"{node['name']} ({node['id']}{'' if node['is_alive'] else ', no longer reports'})"
    if not node["applied"]:
        return f"{name} has not applied it: its last report, {_time(node['seen_at'])}, was {node['cursor']}"
    before = f", and not yet at {_time(node['not_at'])}" if "not_at" in node else ""
    return f"{name} reported it as applied at {_time(node['by'])}{before}"


def _reader(reader: dict[str, Any]) -> str:
    if reader["has_passed"]:
        return (
            f"{reader['cursor']} is at the message or after it: its client was sent it, was told of a gap, or began "
            "after it"
        )
    return f"{reader['cursor']} is before the message: its client has not passed it"


def _view(view: dict[str, Any]) -> str:
    gets = [*(["the message"] if view["delivers"] else []), *([f"a gap ({view['gap']})"] if view["gap"] else [])]
    return f"a poll of {view['channel']} from there gets {' and '.join(gets) or 'neither the message nor a gap'}"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
