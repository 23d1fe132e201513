"""The commands that run and check a server. They import it only when they run: it takes longer than a client's call."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pushup.cli.client_commands import end_on_interrupt
from pushup.client.credentials import checked
from pushup.settings import LOG_FORMATS, LOG_LEVELS

if TYPE_CHECKING:
    from pushup.settings.settings import Settings


def _settings_options(function: Callable[..., None]) -> Callable[..., None]:
    """The flags that set settings."""
    for option in reversed((
        click.option(
            "--config", type=click.Path(path_type=Path), envvar="PUSHUP_CONFIG",
            help="TOML file with settings (or PUSHUP_CONFIG).",
        ),
        click.option(
            "--listen", multiple=True, metavar="ADDRESS",
            help="Address to listen on: 127.0.0.1:8080, [::1]:8080 or unix:/run/pushup.sock. Can be repeated.",
        ),
        click.option("--broadcast", metavar="URL", help="Message log: memory:, journal:PATH or redis://HOST."),
        click.option("--workers", metavar="N", help="Number of processes that serve clients; auto: one per core."),
        click.option("--log-level", type=click.Choice(LOG_LEVELS), help="Lowest level to log."),
        click.option("--log-format", type=click.Choice(LOG_FORMATS), help="Format of a log line."),
        click.option(
            "--set", "others", multiple=True, metavar="NAME=VALUE",
            help="Any other setting, e.g. --set retention_seconds=10m (docs/operate/settings.md). Can be repeated.",
        ),
    )):  # fmt: skip
        function = option(function)
    return function


@click.command()
@_settings_options
def serve(**given: Any) -> None:
    """Run a server until SIGTERM or Ctrl-C. It answers held polls before it exits; a second signal ends it at once.

    SIGHUP reloads the configuration files: publish keys, the ticket key and the log level change without a restart.
    """
    _keep_standard_error()
    # Before the slow imports: a SIGHUP from here on is a reload, and does not end the process.
    outlives_terminal = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN  # nohup
    early_hang_ups: list[int] = []
    signal.signal(signal.SIGHUP, lambda number, frame: early_hang_ups.append(number))
    settings = _read(**given)

    from pushup.cli.serving import run_server

    run_server(
        settings,
        read_again=lambda: _read_again(**given),
        early_hang_ups=early_hang_ups,
        outlives_terminal=outlives_terminal,
    )


def _keep_standard_error() -> None:
    """If it is closed, the log goes nowhere. Workers inherit that, and no socket gets its descriptor."""
    opened = -1
    while sys.stderr is None and opened < 2:
        opened = os.open(os.devnull, os.O_RDWR)
        os.set_inheritable(opened, True)


@click.command("check-config")
@_settings_options
def check_config(**given: Any) -> None:
    """Check the settings and print them as TOML, without secrets.

    Also reports what would keep a server from running here as this user: a journal directory that does not exist or is
    not writable, an address that this machine does not have, an authorizer that cannot be imported.
    """
    settings = _read(**given)

    from pushup.host.preflight import troubles, warnings
    from pushup.settings.settings import shown_settings

    for line in _toml(shown_settings(settings)):
        click.echo(line)
    for warning in warnings(settings):
        click.echo(f"Warning: {warning}", err=True)
    found = list(troubles(settings))
    if found:
        raise click.ClickException("\n".join(found))


@click.command()
@_settings_options
@click.option(
    "--through", "public_url", default="", metavar="URL",
    help="Also hold polls and a stream at this URL of the running server, as long as the settings allow.",
)  # fmt: skip
@click.option("--token", envvar="PUSHUP_TOKEN", default="", help="A token for them (or PUSHUP_TOKEN).")
def doctor(public_url: str, token: str, **given: Any) -> None:
    """Say what this machine, Redis or a proxy lacks for a server with these settings, before a user notices.

    Exits with status 1 if there is a problem.
    """
    end_on_interrupt()
    if public_url and not public_url.startswith(("http://", "https://")):
        raise click.UsageError("--through: write a URL such as https://push.example.org")
    try:
        token = token and checked(token, "token")
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    settings = _read(**given)

    from pushup.cli.doctor import examine

    levels = set()
    for level, text in examine(settings, public_url, token):
        click.echo(f"{level:8} {text}")
        levels.add(level)
    if "problem" in levels:
        raise SystemExit(1)


@click.command()
@click.option("--polls", type=click.IntRange(1), default=20_000, show_default=True, help="Polls to hold at most.")
@click.option("--workers", default="1", show_default=True, metavar="N", help="As of serve.")
@click.option("--seconds", type=click.FloatRange(2), default=45.0, show_default=True, help="How long to load it.")
def bench(polls: int, workers: str, seconds: float) -> None:
    """Measure what a server on this machine can do, and print settings to start from.

    It starts a server of its own, in memory, on a free port of this machine, and loads it from this process. Both share
    the cores, and a proxy would as well: take the figures for what such a machine does, not for the most it can do.
    """
    from pushup.cli.bench import run

    run(polls, workers, seconds)


def _toml(values: dict[str, Any]) -> Iterator[str]:
    """The lines of a TOML file with these values. Lists of tables come last: what follows one would be part of it."""
    last = []
    for name, value in values.items():
        if value and isinstance(value, list | tuple) and isinstance(value[0], dict):
            last += [(name, table) for table in value]
        else:
            yield f"{name} = {json.dumps(value, ensure_ascii=False)}"
    for name, table in last:
        yield f"[[{name}]]"
        yield from _toml(table)


@click.command("new-cluster")
@_settings_options
def new_cluster(**given: Any) -> None:
    """Give the message log in Redis a new cluster name, because it is a copy of another cluster's.

    Run it on the copy before any node, with the settings of a node; it refuses while nodes are alive. Then remove the
    marks (*.mark in state_directory) that were copied with it.
    """
    end_on_interrupt()
    settings = _read(**given)
    if not settings.server.broadcast.startswith("redis"):
        raise click.ClickException("broadcast: only a log in Redis can be given a new name; a journal: remove its mark")

    from pushup.cli.new_cluster import rename

    click.echo(rename(settings))


@click.command()
@click.argument("name", type=click.Choice(["pushup.js", "answers.js", "ai-sdk.js"]), default="pushup.js")
def script(name: str) -> None:
    """Print pushup.js, or another module for web pages, to be kept among an application's own static files."""
    click.echo(files("pushup.browser").joinpath(name).read_bytes(), nl=False)


def _read(config: Path | None, others: tuple[str, ...], **flags: Any) -> Settings:
    """The settings from all places. Exits if they cannot be used, and says why."""
    from pushup.settings.settings import SettingsError

    try:
        return _settings(config, others, **flags)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None


def _read_again(config: Path | None, **given: Any) -> Settings:
    """The settings, for a running server. Raises: SettingsError."""
    from pushup.settings.settings import SettingsError

    if config is not None and config.exists() and not config.is_file():
        raise SettingsError(f"{config} is not a regular file, so it cannot be read again")
    return _settings(config, **given)


def _settings(config: Path | None, others: tuple[str, ...], **flags: Any) -> Settings:
    """The settings from all places. Raises: SettingsError."""
    from pushup.settings.settings import SettingsError, read_settings

    given = {name: value for name, value in flags.items() if value is not None and value != ()}
    for other in others:
        name, equals, value = other.partition("=")
        if not equals:
            raise SettingsError(f"--set {other!r}: expected NAME=VALUE")
        given[name.strip()] = value
    return read_settings(config, os.environ, given)
