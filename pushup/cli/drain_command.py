"""`pushup drain`: takes a server out of rotation, or back."""

from __future__ import annotations

import click

from pushup.cli.client_commands import client_options, errors_shown, make_client


@click.command()
@click.option("--undo", is_flag=True, help="Take the server back.")
@client_options
def drain(url: str, key: str | None, *, undo: bool) -> None:
    """Take the server at URL out of rotation, without ending it: load balancers send new clients elsewhere.

    Its held polls are answered over drain_seconds. A restart takes it back. Give the address of the server itself, not
    that of a load balancer, which would pass this on to any of them.
    """
    with errors_shown(), make_client(url, key) as client:
        client.call("DELETE" if undo else "POST", "/v1/drain")
    print(f"{url} is {'back in' if undo else 'out of'} rotation")
