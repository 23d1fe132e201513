"""The command line: `pushup serve`, and a client for every call."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any
from uuid import uuid4

import click

from pushup import __version__
from pushup.client import Client, ClientError
from pushup.log_options import FORMATS, LEVELS
from pushup.secret_files import SecretFileError, read_secrets
from pushup.settings import Settings, SettingsError, read_settings, shown_settings


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pushup")
def main() -> None:
    """PushUp: long polling and publishing beside your web application."""


def _settings_options(function: Callable[..., None]) -> Callable[..., None]:
    """The flags that set settings."""
    for option in (
        click.option("--config", type=click.Path(path_type=Path), envvar="PUSHUP_CONFIG", help="A TOML file."),
        click.option(
            "--listen", multiple=True, metavar="ADDRESS",
            help="127.0.0.1:8080, [::1]:8080 or unix:/run/pushup.sock; may be given several times.",
        ),
        click.option("--broadcast", metavar="URL", help="Where the order comes from: memory:, journal:PATH or redis://HOST"),
        click.option("--log-level", type=click.Choice(LEVELS)),
        click.option("--log-format", type=click.Choice(FORMATS)),
        click.option(
            "--set", "others", multiple=True, metavar="NAME=VALUE",
            help="Any other setting, e.g. --set retention_seconds=10m; see docs/operations.md.",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


def _read(config: Path | None, others: tuple[str, ...], **flags: Any) -> Settings:
    """The settings from all places, or exit with what is wrong with them."""
    try:
        return _settings(config, others, **flags)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None


def _settings(config: Path | None, others: tuple[str, ...], **flags: Any) -> Settings:
    """The settings from all places. Raises: SettingsError."""
    given = {name: value for name, value in flags.items() if value is not None and value != ()}
    for other in others:
        name, equals, value = other.partition("=")
        if not equals:
            raise SettingsError(f"--set {other!r}: write --set NAME=VALUE")
        given[name.strip()] = value
    return read_settings(config, os.environ, given)


def _check_surroundings(settings: Settings) -> None:
    """Exit with what keeps a server with these settings from running here, each on a line."""
    from pushup.surroundings import troubles

    found = list(troubles(settings))
    if found:
        raise click.ClickException("\n".join(found))


@main.command()
@_settings_options
def serve(**given: Any) -> None:
    """Run a server until SIGTERM or Ctrl-C, then let its clients go; a second signal ends it at once.

    SIGHUP reads the files again: publish keys, the ticket key and the log level change while the server runs.
    """
    early: list[int] = []
    outlives_terminal = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN  # nohup
    signal.signal(signal.SIGHUP, lambda number, frame: early.append(number))
    settings = _read(**given)

    from twisted.internet import reactor as any_reactor
    from twisted.logger import Logger

    from pushup.broadcast.journal_file import JournalError
    from pushup.logs import start_logging
    from pushup.service import make_service, raise_file_limit, tune_garbage_collector
    from pushup.supervisor import make_supervisor
    from pushup.surroundings import warnings

    faulthandler.enable()  # a watchdog ends a server that is stuck with SIGABRT: then it says where it was
    reactor: Any = any_reactor
    _check_surroundings(settings)
    tune_garbage_collector()
    set_log_level = start_logging(settings.server.log_level, settings.server.log_format)
    log = Logger()
    for warning in warnings(settings):
        log.warn("{warning}", warning=warning)
    raise_file_limit()
    try:
        service = make_service(settings, reactor)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None

    def stop(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        reactor.callFromThread(reactor.stop)

    def reload() -> None:
        try:
            wanted = _settings_again(**given)
            reloaded = service.reload(wanted)
        except SettingsError as error:
            log.error("cannot reload, the settings stay as they are: {error}", error=error)
            return
        set_log_level(reloaded.settings.server.log_level)
        log.info("settings reloaded; changed: {names}", names=", ".join(reloaded.applied) or "none")
        if reloaded.left:
            log.warn("restart to apply: {names}", names=", ".join(reloaded.left))
        for warning in warnings(reloaded.settings):
            log.warn("{warning}", warning=warning)

    def hang_up(number: int, frame: object) -> None:
        if ends_with_terminal and not _has_terminal():
            stop(number, frame)
        else:
            reactor.callFromThread(reload)

    ends_with_terminal = _has_terminal() and not outlives_terminal
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGHUP, hang_up)
    if early:
        reactor.callWhenRunning(reload)
    supervisor = make_supervisor(os.environ, clock=reactor, why_not_ready=service.why_not_ready)
    reactor.addSystemEventTrigger("before", "shutdown", supervisor.stopping)
    reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
    reactor.addSystemEventTrigger("during", "shutdown", supervisor.end)
    try:
        service.startService()
    except JournalError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(error.strerror or str(error)) from None
    supervisor.begin()
    _greet(service.addresses, with_key=bool(settings.server.publish_keys))
    reactor.run(installSignalHandlers=False)


def _settings_again(config: Path | None, **given: Any) -> Settings:
    """The settings, for a server that runs. Raises: SettingsError."""
    if config is not None and config.exists() and not config.is_file():
        raise SettingsError(f"{config} is not a regular file, and cannot be read a second time")
    return _settings(config, **given)


def _has_terminal() -> bool:
    """Whether there is a terminal that this process belongs to. When it is closed, SIGHUP means that it is gone."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _greet(addresses: list[str], *, with_key: bool) -> None:
    """Say where the server listens and what to try first."""
    for address in addresses:
        print(f"PushUp listens on {address if address.startswith('unix:') else 'http://' + address}")
    first = addresses[0]
    unix = f"--unix-socket {first.removeprefix('unix:')} " if first.startswith("unix:") else ""
    url = "http://localhost" if unix else f"http://{first}"
    key = " -H 'Authorization: Bearer <publish key>'" if with_key else ""
    print("Try, in one terminal and in another:")
    print(f"  curl {unix}'{url}/v1/poll?channel=news&timeout=60'")
    print(f'  curl {unix}\'{url}/v1/messages\'{key} -d \'{{"channels": ["news"], "data": "hello"}}\'', flush=True)


@main.command("check-config")
@_settings_options
def check_config(**given: Any) -> None:
    """Check the settings and print those in force, as TOML; secrets are left out.

    Says, too, what keeps a server with these settings from running here, and as this user: a journal's directory that
    is missing or cannot be written to, an address that is not this machine's, an authorizer that cannot be imported.
    """
    from pushup.surroundings import warnings

    settings = _read(**given)
    for name, value in shown_settings(settings).items():
        print(f"{name} = {json.dumps(value)}")
    for warning in warnings(settings):
        click.echo(f"Warning: {warning}", err=True)
    _check_surroundings(settings)


def _client_options(function: Callable[..., None]) -> Callable[..., None]:
    """Where the server is, and the key to publish with, which the function is given as `key`."""

    @wraps(function)
    def with_key(*arguments: Any, key: str | None, key_file: Path | None, **options: Any) -> None:
        function(*arguments, key=_key(key, key_file), **options)

    for option in (
        click.option(
            "--key-file", envvar="PUSHUP_KEY_FILE", type=click.Path(path_type=Path),
            help="A file with a publish key (or PUSHUP_KEY_FILE).",
        ),
        click.option("--key", envvar="PUSHUP_KEY", help="A publish key (or PUSHUP_KEY); others see it in ps."),
        click.option(
            "--url", envvar="PUSHUP_URL", default="http://127.0.0.1:8080", show_default=True,
            help="The server, or unix:/run/pushup.sock (or PUSHUP_URL).",
        ),
    ):  # fmt: skip
        with_key = option(with_key)
    return with_key


def _key(key: str | None, file: Path | None) -> str | None:
    """The publish key, from wherever it comes, or exit with what is wrong."""
    if key is not None and file is not None:
        raise click.ClickException("give a key (--key, PUSHUP_KEY) or a file (--key-file, PUSHUP_KEY_FILE), not both")
    if file is not None:
        try:
            keys = read_secrets(file)
        except SecretFileError as error:
            raise click.ClickException(f"--key-file: {error}") from None
        if len(keys) > 1:
            raise click.ClickException(
                f"--key-file: there are {len(keys)} keys in {file}; put one into a file of its own"
            )
        (key,) = keys
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
        raise click.ClickException("a publish key is printable ASCII without spaces; this one is not")
    return key


@contextmanager
def _told() -> Iterator[None]:
    """Exit with what went wrong between client and server, for people."""
    try:
        yield
    except ClientError as error:
        raise click.ClickException(str(error)) from None


def _print(value: object) -> None:
    print(json.dumps(value, ensure_ascii=False), flush=True)


@main.command()
@click.argument("channels", nargs=-1, required=True)
@click.option(
    "-d",
    "--data",
    required=True,
    help="JSON, or - to publish each line of standard input; other text is a string.",
)
@click.option("--idempotency-key", help="Publish only once however often this is run with the same key.")
@click.option(
    "--ack", type=click.Choice(["accepted", "replicated", "stable"]), help="How sure to be: see docs/reliability.md."
)
@_client_options
def publish(
    channels: tuple[str, ...], data: str, idempotency_key: str | None, ack: str | None, url: str, key: str | None
) -> None:
    """Publish a message on one or several CHANNELS."""
    with _told():
        client = Client(url, key)
        key_of_all = idempotency_key or str(uuid4())
        for number, line in enumerate(sys.stdin if data == "-" else (data,)):
            try:
                value = json.loads(line)
            except ValueError:
                value = line.rstrip("\n")
            key_of_one = f"{key_of_all}-{number}" if data == "-" else key_of_all
            _print(client.publish(list(channels), value, idempotency_key=key_of_one, ack=ack))


@main.command()
@click.argument("channels", nargs=-1, required=True)
@click.option("--cursor", default="", help="Where to begin: a cursor, 'now', or 'earliest' (the default).")
@click.option("--once", is_flag=True, help="Poll once and stop.")
@_client_options
def poll(channels: tuple[str, ...], cursor: str, once: bool, url: str, key: str | None) -> None:
    """Follow one or several CHANNELS and print each message; goes on when the server comes back."""

    def trouble(error: ClientError, pause: float) -> None:
        click.echo(f"{error}; asking again in {pause:.1f} s", err=True)

    try:
        with _told():
            for answer in Client(url, key).follow(list(channels), cursor, on_trouble=trouble):
                for gap in answer["gaps"]:
                    click.echo(f"gap: messages of {gap['channel']!r} are missing ({gap['reason']})", err=True)
                for closed in answer["closed"]:
                    click.echo(f"closed: {closed!r}", err=True)
                for message in answer["messages"]:
                    _print(message)
                if once:
                    return
    except KeyboardInterrupt:
        sys.exit(130)


@main.group()
def channel() -> None:
    """Create, renew, close and look at channels."""


@channel.command()
@click.argument("name", required=False)
@click.option("--ttl", type=float, help="Seconds without a publication after which it closes.")
@_client_options
def create(name: str | None, ttl: float | None, url: str, key: str | None) -> None:
    """Create a channel."""
    with _told():
        _print(Client(url, key).create(name, ttl))


@channel.command()
@click.argument("name")
@click.option("--ttl", type=float, help="A new ttl in seconds.")
@_client_options
def renew(name: str, ttl: float | None, url: str, key: str | None) -> None:
    """Begin a channel's ttl anew."""
    with _told():
        _print(Client(url, key).renew(name, ttl))


@channel.command()
@click.argument("name")
@_client_options
def close(name: str, url: str, key: str | None) -> None:
    """Close a channel; its subscribers are told."""
    with _told():
        Client(url, key).close_channel(name)


@channel.command("list")
@_client_options
def list_channels(url: str, key: str | None) -> None:
    """The channels that live, one a line."""
    with _told():
        for each in Client(url, key).channels():
            _print(each)


@channel.command()
@click.argument("name")
@_client_options
def show(name: str, url: str, key: str | None) -> None:
    """One channel."""
    with _told():
        _print(Client(url, key).channel(name))


if __name__ == "__main__":
    main()
