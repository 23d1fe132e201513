"""The commands that call a server: `publish`, `poll` and `channel`."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from functools import partial, wraps
from pathlib import Path
from typing import Any
from uuid import uuid4

import click

from pushup.client import Ack, Client, ClientError, Closed, Gap, Item, Message
from pushup.secret_files import SecretFileError, parts_of_key, read_secret, read_secrets


def client_options(function: Callable[..., None]) -> Callable[..., None]:
    """Flags for the server's URL and the publish key, which the function gets as `key`."""

    @wraps(function)
    def with_key(*arguments: Any, key: str | None, key_file: Path | None, **options: Any) -> None:
        end_on_interrupt()
        function(*arguments, key=_key(key, key_file), **options)

    for option in (
        click.option(
            "--key-file", envvar="PUSHUP_KEY_FILE", type=click.Path(path_type=Path),
            help="File that contains a publish key (or PUSHUP_KEY_FILE).",
        ),
        click.option(
            "--key", envvar="PUSHUP_KEY",
            help="Publish key. Other users can see it in ps: use --key-file or PUSHUP_KEY instead.",
        ),
        click.option(
            "--url", envvar="PUSHUP_URL", default="http://127.0.0.1:8080", show_default=True,
            help="URL of the server, or unix:/run/pushup.sock (or PUSHUP_URL).",
        ),
    ):  # fmt: skip
        with_key = option(with_key)
    return with_key


def with_client(function: Callable[..., None]) -> Callable[..., None]:
    """The same flags. The function gets `client`, which has the key, or a token; its errors are shown."""

    @wraps(function)
    def with_it(
        *arguments: Any, url: str, key: str | None, token: str | None = None, token_file: Path | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        with errors_shown(), make_client(url, key, token, token_file) as client:
            function(*arguments, client=client, **options)

    return client_options(with_it)


# A command with these, below `with_client`, takes a token instead of a key.
_TOKEN = click.option(
    "--token", envvar="PUSHUP_TOKEN",
    help="Signed token. Other users can see it in ps: use --token-file or PUSHUP_TOKEN instead.",
)  # fmt: skip
_TOKEN_FILE = click.option(
    "--token-file", envvar="PUSHUP_TOKEN_FILE", type=click.Path(path_type=Path),
    help="File that contains a signed token; it is read again when that ends (or PUSHUP_TOKEN_FILE).",
)  # fmt: skip


def end_on_interrupt() -> None:
    """Let Ctrl-C end the process by the signal itself, unless it is ignored (`nohup`, or `&` in a script).

    Python's KeyboardInterrupt can be lost: in a destructor, or when the signal arrives just before a wait begins.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _key(key: str | None, file: Path | None) -> str | None:
    """The publish key from a flag or a file. Exits if it cannot be used, and says why."""
    if key is not None and file is not None:
        raise click.ClickException(
            "set either a key (--key, PUSHUP_KEY) or a key file (--key-file, PUSHUP_KEY_FILE), not both"
        )
    if file is not None:
        try:
            keys = read_secrets(file)
        except SecretFileError as error:
            raise click.ClickException(f"--key-file: {error}") from None
        if len(keys) > 1:
            raise click.ClickException(
                f"--key-file: {file} contains {len(keys)} keys; use a file that contains only one"
            )
        try:
            _, key, _ = parts_of_key(keys[0])
        except ValueError as error:
            raise click.ClickException(f"--key-file: the key in {file} {error}") from None
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
        raise click.ClickException("the publish key is not valid; a key is printable ASCII without spaces")
    return key


def make_client(url: str, key: str | None, token: str | None = None, token_file: Path | None = None) -> Client:
    """A client with one of these, or none. Raises: ClientError; SecretFileError; ValueError.

    It shows an error at once, and does not try again: whoever types a command should see it.
    """
    if sum(each is not None for each in (key, token, token_file)) > 1:
        raise click.ClickException("set either a key, a token (--token, PUSHUP_TOKEN) or a token file, not several")
    if token_file is None:
        return Client(url, key, token=token, patience=0)
    read_secret(token_file)  # a later failure may pass
    return Client(url, token=partial(read_secret, token_file), patience=0)


@contextmanager
def errors_shown() -> Iterator[None]:
    """Turn an error of the client, or of what it was given, into a line on standard error and exit code 1."""
    try:
        yield
    except (ClientError, SecretFileError, ValueError) as error:
        raise click.ClickException(str(error)) from None


def _print(value: Any, *, without: str = "") -> None:
    """Print a dataclass as JSON, without the fields that have their default."""
    shown = [field for field in fields(value) if field.name != without and getattr(value, field.name) != field.default]
    text = json.dumps({field.name: getattr(value, field.name) for field in shown}, ensure_ascii=False)
    print(harmless(text), flush=True)


def harmless(text: str) -> str:
    """The text with escapes, as JSON has them, for those control characters that JSON lets through."""
    return text.translate({code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)})


def _value(text: str) -> Any:
    """What JSON says, or else the text itself, without the end of its line."""
    try:
        return json.loads(text, parse_constant=int)  # which refuses NaN and Infinity: they are no JSON
    except (ValueError, RecursionError):
        return text.rstrip("\n")


@click.command()
@click.argument("channels", nargs=-1, required=True)
@click.option(
    "-d",
    "--data",
    required=True,
    help="JSON; other text is published as a string. With - each line of standard input is a message.",
)
@click.option("--event", help="A name for the message, which subscribers receive with it.")
@click.option("--ephemeral", is_flag=True, help="Keep the message for 5 s only, such as a typing notice.")
@click.option("--unread-after", type=float, help="Seconds, after which the application hears who has not seen it.")
@click.option("--for", "unread_for", multiple=True, help="A user who should see it until then; may be repeated.")
@click.option("--idempotency-key", help="Publish only once, even if this is run again with the same key.")
@click.option(
    "--ack",
    type=click.Choice(["accepted", "replicated", "stable"]),
    help="Acknowledgement to wait for; docs/guide/publishing.md explains them.",
)
@with_client
@_TOKEN
@_TOKEN_FILE
def publish(
    channels: tuple[str, ...],
    data: str,
    event: str | None,
    ephemeral: bool,
    unread_after: float | None,
    unread_for: tuple[str, ...],
    idempotency_key: str | None,
    ack: Ack | None,
    client: Client,
) -> None:
    """Publish a message on one or more CHANNELS."""
    if data == "-" and sys.stdin is None:
        raise click.UsageError("--data - reads standard input, which is closed")
    key_of_all = idempotency_key or str(uuid4())
    for number, line in enumerate(sys.stdin if data == "-" else (data,)):
        key_of_one = f"{key_of_all}-{number}" if data == "-" else key_of_all
        published = client.publish(
            list(channels), _value(line), event=event, ephemeral=ephemeral,
            unread_after=unread_after, unread_for=unread_for or None, idempotency_key=key_of_one, ack=ack,
        )  # fmt: skip
        _print(published)


@click.command()
@click.argument("channels", nargs=-1, required=True)
@click.option("--cursor", default="", help="Where to start: a cursor, 'now' or 'earliest' (default).")
@click.option("--once", is_flag=True, help="Exit after one poll.")
@click.option("--stream", is_flag=True, help="Receive a stream of events instead of polling.")
@click.option("--text", is_flag=True, help="Print lines to read: time (UTC), channels, event, data; not JSON.")
@with_client
@_TOKEN
@_TOKEN_FILE
def poll(channels: tuple[str, ...], cursor: str, once: bool, stream: bool, text: bool, client: Client) -> None:
    """Print each message on one or more CHANNELS, and reconnect if the server is unavailable."""
    if once and stream:
        raise click.UsageError("--once is for polls; a stream has no end")

    def report(error: ClientError, pause: float) -> None:
        click.echo(f"{error}; retrying in {pause:.1f} s", err=True)

    items: Iterable[Item]
    if once:
        items = client.poll(channels, cursor).items
    else:
        items = client.follow(channels, cursor, transport="stream" if stream else "poll", on_trouble=report)
    for item in items:
        match item:
            case Gap():
                click.echo(f"gap: messages on {item.channel!r} were lost ({item.reason})", err=True)
            case Closed():
                click.echo(f"closed: channel {item.channel!r}", err=True)
            case _ if text:
                print(harmless(_line(item)), flush=True)
            case _:
                _print(item, without="cursor")


def _line(message: Message) -> str:
    """A message as a line to read, such as `09:41:05.250  news, sport  goal  {"by": 7}`."""
    time = datetime.fromtimestamp(message.time, UTC).strftime("%H:%M:%S.%f")[:-3]
    data = json.dumps(message.data, ensure_ascii=False)
    return "  ".join(part for part in (time, ", ".join(message.channels), message.event, data) if part)


@click.command()
@click.argument("database_url")
@click.option("--listen", is_flag=True, help="Publish at once what PostgreSQL notifies of.")
@client_options
def outbox(database_url: str, url: str, key: str | None, *, listen: bool) -> None:
    """Publish the outbox in the database at DATABASE_URL, until SIGTERM (docs/guide/outbox.md)."""
    from pushup.outbox.database import connector, run  # the other commands need no database

    with errors_shown():
        run(connector(database_url), Client(url, key), listen=listen)


@click.group()
def channel() -> None:
    """Create, renew, close, list and show channels."""


@channel.command()
@click.argument("name", required=False)
@click.option("--ttl", type=float, help="Close the channel after this many seconds without a publication.")
@with_client
def create(name: str | None, ttl: float | None, client: Client) -> None:
    """Create a channel."""
    _print(client.create(name, ttl))


@channel.command()
@click.argument("name")
@click.option("--ttl", type=float, help="New ttl in seconds.")
@with_client
def renew(name: str, ttl: float | None, client: Client) -> None:
    """Restart a channel's ttl, so that it stays open."""
    _print(client.renew(name, ttl))


@channel.command()
@click.argument("name")
@with_client
def close(name: str, client: Client) -> None:
    """Close a channel, and notify its subscribers."""
    client.close_channel(name)


@channel.command("list")
@with_client
def list_channels(client: Client) -> None:
    """List the open channels, one per line."""
    for each in client.channels():
        _print(each)


@channel.command()
@click.argument("name")
@with_client
def show(name: str, client: Client) -> None:
    """Show one channel."""
    _print(client.channel(name))
