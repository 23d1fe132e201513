"""`python -m deploy.local`: runs a whole cluster on this machine, without containers, until Ctrl-C."""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import Literal

import click

from deploy.cluster import Cluster, ClusterError
from deploy.part import Interrupted, PartFailed
from deploy.restarts import Restarts


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--nodes", default=4, show_default=True, type=click.IntRange(1, 16), help="Number of PushUp nodes.")
@click.option(
    "--port",
    "first_port",
    default=8000,
    show_default=True,
    type=click.IntRange(0, 64000),
    help="First port; the others follow from it. 0 picks free ports.",
)
@click.option(
    "--broadcast",
    default="redis",
    show_default=True,
    help="redis: start a Redis. redis://HOST:PORT/DB: use a running one. memory: no Redis; for one node only.",
)
@click.option(
    "--front",
    default="http",
    show_default=True,
    type=click.Choice(["http", "tcp"]),
    help="HAProxy's configuration: haproxy.cfg (http) or haproxy-tcp.cfg (tcp).",
)
@click.option("--without", multiple=True, type=click.Choice(["haproxy", "example"]), help="Do not start this part.")
@click.option("--set", "others", multiple=True, metavar="NAME=VALUE", help="Change a setting of the nodes.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print only one line of JSON on standard output, for use by programs."
)
def main(
    *, nodes: int, first_port: int, broadcast: str, front: Literal["http", "tcp"], without: tuple[str, ...],
    others: tuple[str, ...], as_json: bool,
) -> None:  # fmt: skip
    """Run Redis, PushUp nodes, HAProxy and the example on this machine, until Ctrl-C or SIGTERM.

    A part that dies is restarted.
    """
    signals: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: signals.append(number))
    try:
        settings = dict(_pair(other) for other in others)
        cluster = Cluster(
            nodes=nodes, broadcast=broadcast, front=front, first_port=first_port, settings=settings,
            without=without, interrupted=lambda: bool(signals),
        )  # fmt: skip
        with cluster:
            click.echo(json.dumps(_facts(cluster)) if as_json else _greeting(cluster))
            sys.stdout.flush()
            restarts = Restarts(cluster.parts, cluster.nodes, say=lambda text: click.echo(text, err=True))
            while not signals:
                time.sleep(0.1)
                restarts.check(time.monotonic())
            if not as_json:
                click.echo("Stopping.")
    except Interrupted:
        pass
    except (ClusterError, PartFailed) as error:
        raise click.ClickException(str(error)) from None


def _pair(other: str) -> tuple[str, str]:
    name, equals, value = other.partition("=")
    if not equals:
        raise ClusterError(f"--set {other!r} has no value; write --set NAME=VALUE")
    return name, value


def _facts(cluster: Cluster) -> dict[str, object]:
    return {
        "urls": cluster.urls,
        "pids": cluster.pids,
        "publish_key": cluster.publish_key,
        "folder": str(cluster.folder),
    }


def _greeting(cluster: Cluster) -> str:
    urls = cluster.urls
    lines = ["The cluster is running. Ctrl-C stops it and deletes its files.", ""]
    if "example" in cluster.parts and "haproxy" in cluster.parts and "tls" in urls:
        lines += [
            f"  the example   {urls['plain']}   (open it in two windows, and ask a question in one)",
            f"                {urls['tls']}   (HTTP/2; the browser warns about the self-signed certificate)",
            f"  HAProxy       {urls['stats']}   (statistics)",
        ]
    lines += [f"  {name:13} {urls[name]}" for name in cluster.nodes]
    lines += [
        f"  logs          {cluster.folder}",
        "",
        "Poll from outside, and publish from inside:",
        f"  curl '{urls['plain']}/v1/poll?channel=news&timeout=60'",
        f"  curl {urls['inside']}/v1/messages -H 'Authorization: Bearer {cluster.publish_key}' \\",
        '      -d \'{"channels": ["news"], "data": "hello"}\'',
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main(prog_name="python -m deploy.local")
