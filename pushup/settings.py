"""Settings: defaults < TOML file < `PUSHUP_*` environment < flags. An unknown key or a bad value is named.

Keys and the broadcast's address can be in files of their own instead (`SECRET_FILES`).

Durations are in seconds and sizes in bytes, as the names say; `"90s"`, `"5m"`, `"2h"`, `"64KiB"`, `"1MiB"` are taken,
too. All of them, with what they bound: docs/operations.md.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from unicodedata import category
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, fields, replace

from pushup.backends.authorization import AuthorizationLimits
from pushup.backends.verdict import TICKET_LIMIT_SECONDS
from pushup.broadcast.journal import JournalLimits
from pushup.broadcast.redis.address import parse_address, without_password
from pushup.broadcast.redis.limits import RedisLimits
from pushup.broadcast.waiting import WaitingLimits
from pushup.core.limits import HoldLimits, Limits
from pushup.core.wire import PublicationLimits
from pushup.logs import FORMATS, LEVELS
from pushup.net.limits import EdgeLimits, RequestLimits
from pushup.net.listener import is_public
from pushup.net.listener import parse_address as split_address
from pushup.net.origins import DEFAULT_PORTS, canonical_origin
from pushup.net.poll_parameters import PollLimits
from pushup.net.wait.strategies import STRATEGIES
from pushup.node import DrainLimits
from pushup.secret_files import SecretFileError, read_secret, read_secrets

PREFIX = "PUSHUP_"
MIN_KEY_LENGTH = 16
"""Characters of a key; below that one can be guessed."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""What a server that listens on loopback is called on its own machine."""

SECRETS = ("publish_keys", "ticket_key")
"""Settings whose values are never shown."""

SECRET_FILES = {"publish_keys_file": "publish_keys", "ticket_key_file": "ticket_key", "broadcast_file": "broadcast"}
"""Settings that name a file, and what is in it."""

RELOADABLE = (
    "publish_keys", "publish_keys_file", "ticket_key", "ticket_key_file", "log_level", "allow_public_without_keys",
)  # fmt: skip
"""Settings that can change while a server runs."""

NOT_SETTINGS = re.compile(r"PUSHUP_(CONFIG|URL|KEY|KEY_FILE|SERVICE_.*|PORT|PORT_.*)").fullmatch
"""Variables of the command line itself, and those that Kubernetes sets where a service is called `pushup`."""


class SettingsError(Exception):
    """A setting that cannot be; the text names it and where it came from."""


class ServerSettings(Struct, frozen=True, kw_only=True):
    """What belongs to no room but to the whole server."""

    listen: tuple[str, ...] = ("127.0.0.1:8080",)
    """Addresses: `127.0.0.1:8080`, `[::1]:8080`, `unix:/run/pushup.sock`."""
    broadcast: str = "memory:"
    """Where the order of entries comes from: `memory:`, which is this process; `journal:PATH`, a file of this machine;
    or `redis://HOST:PORT`, where several nodes follow it (docs/reliability.md)."""
    broadcast_file: str = ""
    """A file with that address, when there is a password in it."""
    node_name: str = ""
    """What this node is called in `GET /v1/nodes`; by default the machine's name."""
    wait_strategy: str = "epoll" if "epoll" in STRATEGIES else "reactor"
    """How the demultiplexer waits: `epoll`, or `reactor` where there is no epoll."""
    publish_keys: tuple[str, ...] = ()
    """Who may publish: `Authorization: Bearer <key>`. None: everybody who reaches the server."""
    publish_keys_file: str = ""
    """A file with these keys, one a line; `#` begins a comment."""
    allow_public_without_keys: bool = False
    """Listen beyond loopback even though everybody could publish then."""
    hosts: tuple[str, ...] = ()
    """Names that requests may be addressed to, e.g. `push.example.org`; `*` for any. Without publish keys: beside IP
    addresses and localhost, which always work. With publish keys: any name, unless some are given here."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose scripts may read answers, e.g. `https://example.org`; `*` for all."""
    log_level: str = "info"
    """`debug`, `info`, `warn` or `error`."""
    log_format: str = "text"
    """`text` or `json`."""


class Settings(Struct, frozen=True, kw_only=True):
    """All settings, by room. In files, environment and flags their names stand flat beside each other."""

    server: ServerSettings = ServerSettings()
    queue: Limits = Limits()
    hold: HoldLimits = HoldLimits()
    publication: PublicationLimits = PublicationLimits()
    poll: PollLimits = PollLimits()
    edge: EdgeLimits = EdgeLimits()
    request: RequestLimits = RequestLimits()
    drain: DrainLimits = DrainLimits()
    waiting: WaitingLimits = WaitingLimits()
    journal: JournalLimits = JournalLimits()
    redis: RedisLimits = RedisLimits()
    authorization: AuthorizationLimits = AuthorizationLimits()


class Reloaded(Struct, frozen=True):
    """What comes of new settings in a server that runs."""

    settings: Settings
    """Those in force from now on."""
    applied: tuple[str, ...]
    """The names of those that have changed."""
    left: tuple[str, ...]
    """The names of those that would have, but need a restart."""


_ROOM_OF = {
    setting.encode_name: (room.name, setting.type) for room in fields(Settings) for setting in fields(room.type)
}
"""Which room a setting belongs to, and of what type it is."""

_HOST_NAME = re.compile(r"\*|[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?").fullmatch

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def read_settings(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Settings:
    """The settings in force, from all three places; the later ones win.

    Raises: SettingsError.
    """
    given: dict[str, dict[str, object]] = {}
    origins: dict[str, str] = {}
    for where, values in (
        (str(file), _read_file(file) if file else {}),
        ("the environment", _read_environment(environment or {})),
        ("the command line", flags or {}),
    ):
        for name, value in values.items():
            room, converted = _setting(name, value, where)
            given.setdefault(room, {})[name] = converted
            origins[name] = where
    _read_secret_files(given, origins)
    settings = Settings(**{room.name: room.type(**given.get(room.name, {})) for room in fields(Settings)})
    if "poll_timeout_seconds" not in origins:
        settings = replace(settings, poll=_within_limit(settings.poll))
    mistake = _mistake(settings)
    if mistake is not None:
        name, text = mistake
        raise SettingsError(f"{origins.get(name, 'the defaults')}: {name}: {text}")
    return settings


def reload_settings(in_force: Settings, wanted: Settings) -> Reloaded:
    """The settings in force, with those wanted that can change while a server runs.

    Raises: SettingsError when they do not go together: no keys any more, say, for an address that is still listened on.
    """
    rooms, applied, left = {}, [], []
    for room in fields(Settings):
        old, new = getattr(in_force, room.name), getattr(wanted, room.name)
        names = [setting.name for setting in fields(old) if getattr(old, setting.name) != getattr(new, setting.name)]
        taken = [name for name in names if name in RELOADABLE]
        rooms[room.name] = replace(old, **{name: getattr(new, name) for name in taken})
        applied += taken
        left += [name for name in names if name not in RELOADABLE]
    settings = Settings(**rooms)
    mistake = _mistake(settings)
    if mistake is not None:
        name, text = mistake
        raise SettingsError(f"{name}, as it is until a restart: {text}")
    return Reloaded(settings, tuple(applied), tuple(left))


def shown_settings(settings: Settings) -> dict[str, object]:
    """All settings by name, as they may be shown; what comes from a file is only there as that file's name."""
    values = {name: value for room in asdict(settings).values() for name, value in asdict(room).items()}
    in_files = {name for file, name in SECRET_FILES.items() if values[file]}
    return {name: shown_setting(name, value) for name, value in values.items() if name not in in_files}


def shown_setting(name: str, value: object) -> object:
    """The value as it may be shown: without what is secret in it."""
    if name in SECRETS and value:
        return "not shown"
    return without_password(value) if name == "broadcast" and isinstance(value, str) else value


def _read_file(file: Path) -> dict[str, object]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise SettingsError(f"cannot read {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} is not TOML: {error}") from None


def _read_secret_files(given: dict[str, dict[str, object]], origins: dict[str, str]) -> None:
    """Add what is in files of its own to the values given.

    Raises: SettingsError.
    """
    for setting, name in SECRET_FILES.items():
        room, wanted = _ROOM_OF[name]
        values = given.get(room, {})
        path = values.get(setting)
        if not path:
            continue
        if values.get(name):
            raise SettingsError(
                f"{origins[setting]}: {setting}: {name} is set, too ({origins[name]}); remove one of them"
            )
        try:
            values[name] = read_secret(Path(str(path))) if wanted is str else read_secrets(Path(str(path)))
        except SecretFileError as error:
            raise SettingsError(f"{origins[setting]}: {setting}: {error}") from None
        origins[name] = f"{setting} {path}"
        if not _is_text(values[name]):
            raise SettingsError(f"{origins[name]}: there is a control character in it")


def _read_environment(environment: Mapping[str, str]) -> dict[str, object]:
    names = (name for name in environment if name.startswith(PREFIX) and not NOT_SETTINGS(name))
    return {name.removeprefix(PREFIX).lower(): environment[name] for name in names}


def _setting(name: str, value: object, where: str) -> tuple[str, object]:
    """The room of a setting and its value.

    Raises: SettingsError.
    """
    if name not in _ROOM_OF:
        near = get_close_matches(name, _ROOM_OF, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise SettingsError(f"{where}: there is no setting {name!r}{hint}")
    room, wanted = _ROOM_OF[name]
    try:
        if not _is_text(value):
            raise ValueError("it is not UTF-8 text, or has a control character in it")
        if isinstance(value, str):
            value = _from_text(name, value, wanted)
        converted = msgspec.convert(value, wanted, strict=not isinstance(value, str))
        if isinstance(converted, int | float) and not isinstance(converted, bool) and not 0 < converted < math.inf:
            raise ValueError("it must be above 0")
    except (ValueError, msgspec.ValidationError) as error:
        shown = "(not shown)" if name in SECRETS else repr(shown_setting(name, value))
        raise SettingsError(f"{where}: {name} = {shown}: {error}") from None
    return room, converted


def _is_text(value: object) -> bool:
    """Whether texts can be written and read again: arguments and environment may hold any bytes."""
    if isinstance(value, str):
        return not any(category(letter) in ("Cc", "Cs") for letter in value)
    return all(map(_is_text, value)) if isinstance(value, list | tuple) else True


def _from_text(name: str, text: str, wanted: object) -> object:
    """A value from text, as it stands in the environment, or in a file with a unit."""
    if wanted is float and name.endswith("_seconds"):
        return _with_unit(text, _SECONDS)
    if wanted is int and name.endswith("_bytes"):
        return int(_with_unit(text, _BYTES))
    if wanted == tuple[str, ...]:
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def _with_unit(text: str, units: Mapping[str, float]) -> float:
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*([A-Za-z]*)", text.strip())
    if match is None or (match[2] and match[2] not in units):
        raise ValueError(f"it is a number, or one with a unit of {', '.join(units)}")
    return float(match[1]) * units.get(match[2], 1)


def _within_limit(poll: PollLimits) -> PollLimits:
    """With a default that is not above a limit which somebody has set."""
    return replace(poll, poll_timeout_seconds=min(poll.poll_timeout_seconds, poll.poll_timeout_limit_seconds))


def _mistake(settings: Settings) -> tuple[str, str] | None:
    """What single values cannot show: a setting that cannot be, and why."""
    server, queue, publication = settings.server, settings.queue, settings.publication
    for name, value, choices in (
        ("log_level", server.log_level, LEVELS),
        ("log_format", server.log_format, FORMATS),
        ("wait_strategy", server.wait_strategy, tuple(STRATEGIES)),
    ):
        if value not in choices:
            return name, f"{value!r} is not one of {', '.join(choices)}"
    for number, key in enumerate(server.publish_keys, 1):
        if len(key) < MIN_KEY_LENGTH or not key.isascii() or not key.isprintable() or " " in key:
            which = f"key {number} of {len(server.publish_keys)}"
            return "publish_keys", f"{which}: a key has at least {MIN_KEY_LENGTH} characters, ASCII without spaces"
    for name, text in (
        ("broadcast", _broadcast_mistake(server.broadcast, shown=not server.broadcast_file)),
        ("hosts", _hosts_mistake(server.hosts)),
        ("cors_origins", _origins_mistake(server.cors_origins)),
        ("listen", _listen_mistake(server)),
    ):
        if text is not None:
            return name, text
    mistake = _authorization_mistake(settings)
    if mistake is not None:
        return mistake
    if settings.poll.poll_timeout_seconds > settings.poll.poll_timeout_limit_seconds:
        return "poll_timeout_seconds", "no poll waits longer than poll_timeout_limit_seconds"
    if queue.answer_limit_bytes + publication.message_limit_bytes > settings.edge.output_limit_bytes:
        return "output_limit_bytes", "it must hold an answer, which is answer_limit_bytes and one message"
    if settings.poll.poll_body_limit_bytes > settings.request.body_limit_bytes:
        return "poll_body_limit_bytes", "it is more than body_limit_bytes, which holds for all requests"
    largest = settings.request.body_limit_bytes + settings.request.header_limit_bytes
    if settings.edge.waiting_requests_limit_bytes < largest:
        text = "it must hold one request, which is header_limit_bytes and body_limit_bytes"
        return "waiting_requests_limit_bytes", text
    if settings.request.body_limit_bytes > settings.waiting.waiting_limit_bytes:
        return "waiting_limit_bytes", "it must hold one publication, whose body has up to body_limit_bytes"
    if publication.message_limit_bytes > queue.retention_bytes:
        return "retention_bytes", "it must hold one message of message_limit_bytes"
    if publication.message_limit_bytes > settings.request.body_limit_bytes:
        return "body_limit_bytes", "it must hold one message of message_limit_bytes"
    return None


def _listen_mistake(server: ServerSettings) -> str | None:
    if not server.listen:
        return "there is no address to listen on"
    open_to_all = not server.publish_keys and not server.allow_public_without_keys
    for address in server.listen:
        try:
            public = is_public(address)
        except ValueError as error:
            return str(error)
        if public and open_to_all:
            return (
                f"everybody who reaches {address} could publish; set publish_keys, or say "
                "allow_public_without_keys if that is what you want"
            )
        if server.listen.count(address) > 1 and not address.endswith(":0"):
            return f"{address} stands there twice"
    return None


def _hosts_mistake(hosts: tuple[str, ...]) -> str | None:
    for host in hosts:
        if not _HOST_NAME(host):
            return f"{host!r} is not a name such as push.example.org, without http:// and without a port"
    return None


def _origins_mistake(origins: tuple[str, ...]) -> str | None:
    """What a browser's `Origin` would never match."""
    if "*" in origins:
        return None if set(origins) == {"*"} else "* is for all origins; write either * or their names"
    for origin in origins:
        try:
            wanted = canonical_origin(origin)
        except ValueError as error:
            return str(error)
        if wanted != origin:
            return f"{origin!r} would never match, for browsers send {wanted!r}; write that"
    return None


def _broadcast_mistake(broadcast: str, *, shown: bool) -> str | None:
    """`shown`: whether the address may be; what is in a file may be anything."""
    if broadcast.startswith("journal::memory:"):
        return "SQLite keeps ':memory:' in memory only, and not in a file; write journal:PATH, or memory:"
    if broadcast == "memory:" or re.fullmatch(r"journal:.+", broadcast):
        return None
    forms = "neither memory: nor journal:PATH nor redis://HOST:PORT"
    if not broadcast.startswith("redis"):
        return f"{broadcast!r} is {forms}" if shown else f"what is in it is {forms}"
    try:
        address = parse_address(broadcast)
    except ValueError as error:
        return f"{without_password(broadcast)!r}: {error}" if shown else f"what is in it is {forms}"
    if address.tls and find_spec("OpenSSL") is None:
        return "rediss needs more packages: pip install 'pushup[tls]'"
    return None


def _authorization_mistake(settings: Settings) -> tuple[str, str] | None:
    authorization = settings.authorization
    if authorization.authorize_url and authorization.authorizer:
        return "authorizer", "either the web backend is asked (authorize_url) or a function, not both"
    if authorization.authorize_url:
        text = _url_mistake(authorization.authorize_url, settings.server.listen)
        if text is not None:
            return "authorize_url", text
    if authorization.ticket_key and len(authorization.ticket_key) < MIN_KEY_LENGTH:
        return "ticket_key", f"a key has at least {MIN_KEY_LENGTH} characters"
    if authorization.ticket_seconds > TICKET_LIMIT_SECONDS:
        return "ticket_seconds", "no ticket lasts longer than a day (1d), for it cannot be taken back"
    return None


def _url_mistake(url: str, listen: tuple[str, ...]) -> str | None:
    """Why one cannot ask at an HTTP URL, if so."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return f"{url!r} is not of the form http://host:port/path"
    if parts.username is not None or parts.password is not None:
        return "a URL with a user or a password in it is not taken"
    plain = url.isascii() and url.isprintable() and " " not in url and not parts.fragment
    if not plain or parts.scheme not in DEFAULT_PORTS or not host or port == 0:
        return f"{url!r} is not of the form http://host:port/path"
    if parts.scheme == "https" and find_spec("OpenSSL") is None:
        return "https needs more packages: pip install 'pushup[tls]'"
    if (host, port or DEFAULT_PORTS[parts.scheme]) in _reached_at(listen):
        return "PushUp itself listens there; write the address of your application"
    return None


def _reached_at(listen: tuple[str, ...]) -> set[tuple[str, int]]:
    """By which hosts and ports this server is reached from its own machine, as far as is seen without asking."""
    found = set()
    for host, port in (split_address(address) for address in listen if not address.startswith("unix:")):
        if port:
            names = LOOPBACK if ip_address(host).is_loopback or ip_address(host).is_unspecified else ()
            found |= {(name, port) for name in (host, *names)}
    return found
