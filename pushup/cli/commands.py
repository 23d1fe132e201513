"""The `pushup` command, with its subcommands."""

from __future__ import annotations

import click

from pushup import __version__
from pushup.cli.client_commands import channel, poll, publish
from pushup.cli.server_commands import check_config, new_cluster, serve
from pushup.host.build_form import build


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message=f"%(prog)s, version %(version)s, {build()}", prog_name="pushup")
def main() -> None:
    """PushUp: publish messages, and deliver them to browsers by long polling."""


for command in (serve, check_config, new_cluster, publish, poll, channel):
    main.add_command(command)
