"""`pushup status`: the nodes of a cluster on one screen, and in which settings they differ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from pushup.cli.client_commands import with_client
from pushup.client import Client, ClientError


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print what the server answers.")
@with_client
def status(as_json: bool, client: Client) -> None:
    """Show the nodes of the cluster, how far each is, and in which settings they differ.

    Exits with status 1 if the node that is asked is not ready, or if settings differ.
    """
    try:
        ready = client.call("GET", "/readyz")
    except ClientError as error:
        if error.problem.get("status") != "not ready":
            raise
        ready = dict(error.problem)
    nodes = sorted(client.call("GET", "/v1/nodes")["nodes"], key=lambda node: (node["name"] or node["id"], node["id"]))
    named = _named(nodes)
    differing = dict(_differing(named))
    for line in [json.dumps({"ready": ready, "nodes": nodes})] if as_json else _lines(ready, named, differing):
        click.echo(line)
    if ready["status"] != "ready" or differing:
        raise SystemExit(1)


def _named(nodes: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The nodes by name; nodes with the same name, such as two on one machine, also show their ids."""
    names = [node["name"] or node["id"] for node in nodes]
    labels = [
        name if names.count(name) == 1 else f"{name} ({node['id']})" for name, node in zip(names, nodes, strict=True)
    ]
    return dict(zip(labels, nodes, strict=True))


def _lines(
    ready: dict[str, Any], nodes: dict[str, dict[str, Any]], differing: dict[str, dict[str, str]]
) -> Iterator[str]:
    yield "ready" if ready["status"] == "ready" else f"not ready: {ready.get('reason', '')}"
    yield ""
    last = max(int(node["cursor"].rpartition("-")[2] or 0) for node in nodes.values())
    rows = [("node", "behind", "held polls", "addresses", "version")]
    for name, node in nodes.items():
        behind = last - int(node["cursor"].rpartition("-")[2] or 0)
        shown = name + (" (draining)" if node.get("draining") else "")
        rows.append((shown, str(behind), str(node["held_polls"]), " ".join(node["addresses"]), node["version"]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
    for name, values in differing.items():
        yield ""
        yield f"{name} differs:"
        for node_name, digest in values.items():
            yield f"  {node_name}  {digest or 'the default'}"


def _differing(nodes: dict[str, dict[str, Any]]) -> Iterator[tuple[str, dict[str, str]]]:
    """Each setting that differs, with the digest of each node. Nodes of an earlier release tell none."""
    told = {name: node["settings"] for name, node in nodes.items() if node.get("settings") is not None}
    for name in sorted({name for settings in told.values() for name in settings}):
        values = {node: settings.get(name, "") for node, settings in told.items()}
        if len({*values.values()}) > 1:
            yield name, values
