"""The command line: the `pushup` command, with its subcommands. `pushup.cli:main` is its entry point.

| file | what |
|---|---|
| `client_commands.py` | `publish`, `poll`, `outbox` and `channel`: they import no part of the server |
| `why_command.py`, `status_command.py` | `why` and `status` |
| `backup_commands.py` | `backup`, `verify` and `restore`, of journals |
| `drain_command.py` | `drain` |
| `bench.py`, `bench_load.py` | measures a server on this machine; the clients that load it |
| `server_commands.py` | the commands of a server: their flags; they import it late |
| `doctor.py` | what a machine, Redis or a proxy lacks for a server |
| `ask_redis.py` | asks Redis something, for a command |
| `new_cluster.py` | gives a copied log in Redis the name of a cluster of its own |
| `worker_command.py` | runs a worker, for the parent process of several |
| `serving.py` | runs a server: signals, reloading, the greeting |
"""

from __future__ import annotations

import codecs
import errno
import io
import json
import sys
from typing import Any

import click

from pushup import __version__
from pushup.cli import (
    backup_commands,
    client_commands,
    drain_command,
    server_commands,
    status_command,
    why_command,
)
from pushup.host.build_form import build


class _Commands(click.Group):
    """The commands. If what they print cannot be written, they say so in one line."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        _print_in_any_locale()
        try:
            return super().main(*arguments, **options)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            click.ClickException(f"writing {error.filename or 'the output'} failed: {error.strerror}").show()
            sys.exit(1)


def _print_in_any_locale() -> None:
    """Have letters that the locale lacks printed as escapes, as JSON has them."""
    codecs.register_error("json", _escaped)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="json")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message=f"%(prog)s, version %(version)s, {build()}", prog_name="pushup")
def main() -> None:
    """PushUp: publish messages, and deliver them to browsers by long polling."""


main.add_command(server_commands.serve)
main.add_command(server_commands.check_config)
main.add_command(server_commands.doctor)
main.add_command(server_commands.bench)
main.add_command(server_commands.new_cluster)
main.add_command(server_commands.script)
main.add_command(client_commands.publish)
main.add_command(client_commands.poll)
main.add_command(client_commands.outbox)
main.add_command(client_commands.channel)
main.add_command(status_command.status)
main.add_command(drain_command.drain)
main.add_command(why_command.why)
main.add_command(backup_commands.backup)
main.add_command(backup_commands.verify)
main.add_command(backup_commands.restore)
