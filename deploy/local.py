"""`python -m deploy.local`: a whole cluster on this machine, without containers; Ctrl-C ends it."""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import Literal

import click

from deploy.cluster import Cluster, ClusterError, Interrupted, PartFailed
from deploy.restarts import Restarts


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--nodes", default=4, show_default=True, type=click.IntRange(1, 16), help="PushUp nodes.")
@click.option(
    "--port",
    "first_port",
    default=8000,
    show_default=True,
    type=click.IntRange(0, 64000),
    help="The first port; the others follow from it. 0: ports that are free.",
)
@click.option(
    "--broadcast",
    default="redis",
    show_default=True,
    help="redis: a Redis of its own. redis://HOST:PORT/DB: one that runs already. memory: for one node.",
)
@click.option(
    "--front",
    default="http",
    show_default=True,
    type=click.Choice(["http", "tcp"]),
    help="HAProxy as in haproxy.cfg, or as in haproxy-tcp.cfg.",
)
@click.option("--without", multiple=True, type=click.Choice(["haproxy", "example"]), help="Do not start this part.")
@click.option("--set", "others", multiple=True, metavar="NAME=VALUE", help="A setting of the nodes.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one line of JSON, for programs, and nothing else on standard output."
)
def main(
    *, nodes: int, first_port: int, broadcast: str, front: Literal["http", "tcp"], without: tuple[str, ...],
    others: tuple[str, ...], as_json: bool,
) -> None:  # fmt: skip
    """Run Redis, PushUp nodes, HAProxy and the example on this machine, until Ctrl-C or SIGTERM.

    A part that dies is started again.
    """
    asked: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: asked.append(number))
    try:
        settings = dict(_pair(other) for other in others)
        cluster = Cluster(
            nodes=nodes, broadcast=broadcast, front=front, first_port=first_port, settings=settings,
            without=without, interrupted=lambda: bool(asked),
        )  # fmt: skip
        with cluster:
            click.echo(json.dumps(_facts(cluster)) if as_json else _greeting(cluster))
            sys.stdout.flush()
            restarts = Restarts(cluster.parts, cluster.nodes, say=lambda text: click.echo(text, err=True))
            while not asked:
                time.sleep(0.1)
                restarts.look(time.monotonic())
            if not as_json:
                click.echo("Stopping.")
    except Interrupted:
        pass
    except (ClusterError, PartFailed) as error:
        raise click.ClickException(str(error)) from None


def _pair(other: str) -> tuple[str, str]:
    name, equals, value = other.partition("=")
    if not equals:
        raise ClusterError(f"--set {other!r}: write --set NAME=VALUE")
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
    lines = ["Everything runs. Ctrl-C ends it and leaves nothing behind.", ""]
    if "example" in cluster.parts and "haproxy" in cluster.parts and "tls" in urls:
        lines += [
            f"  the example   {urls['plain']}   (open it twice, and ask something in one of the two)",
            f"                {urls['tls']}   (HTTP/2; the browser warns of the home-made certificate)",
            f"  HAProxy       {urls['stats']}   its page of statistics",
        ]
    lines += [f"  {name:13} {urls[name]}" for name in cluster.nodes]
    lines += [
        f"  logs          {cluster.folder}",
        "",
        "Poll, from outside, and publish, from the inside:",
        f"  curl '{urls['plain']}/v1/poll?channel=news&timeout=60'",
        f"  curl {urls['inside']}/v1/messages -H 'Authorization: Bearer {cluster.publish_key}' \\",
        '      -d \'{"channels": ["news"], "data": "hello"}\'',
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main(prog_name="python -m deploy.local")
