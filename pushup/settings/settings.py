"""Reads the settings: defaults < TOML file < `PUSHUP_*` environment < flags. Errors name the setting and its place.

Keys and the broadcast's address can come from separate files (`SECRET_FILES`). Durations are in seconds and sizes in
bytes; `"90s"`, `"5m"`, `"2h"`, `"64KiB"` and `"1MiB"` are accepted, too. Only the file can contain tables
(`[[channels]]`). docs/operate/settings.md lists all settings. Each group is a struct in the module that uses it, and
checks itself if need be (`mistakes`).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from operator import attrgetter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct, to_builtins
from msgspec.structs import asdict, fields, replace

from pushup.backends.authorization import AuthorizationSettings
from pushup.backends.webhook import WebhookSettings
from pushup.broadcast.admission import WaitingLimits
from pushup.broadcast.journal import JournalLimits
from pushup.broadcast.redis.redis_settings import RedisLimits, without_password
from pushup.core.limits import HoldLimits, Limits
from pushup.net.api.cors import DEFAULT_PORTS
from pushup.net.api.quotas import QuotaSettings
from pushup.net.api.schemas import PollLimits, PublicationLimits, StreamLimits
from pushup.net.edge_limits import EdgeLimits, RequestLimits
from pushup.net.listener import parse_address
from pushup.node.drain import DrainLimits
from pushup.node.presence import PresenceLimits
from pushup.secret_files import SecretFileError, read_secret, read_secrets
from pushup.settings.channel_policies import ChannelSettings, policy_mistakes, rule_mistakes
from pushup.settings.convert import InTable, convert, is_text, suggestion
from pushup.settings.server import ServerSettings
from pushup.tokens.token_settings import TokenSettings

PREFIX = "PUSHUP_"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Names by which a server on a loopback address can be reached."""

SECRETS = ("publish_keys", "ticket_key", "token_secrets", "secrets", "webhook_key")
"""Settings whose values are never shown, those in tables included."""

SECRET_FILES = {
    "publish_keys_file": "publish_keys", "ticket_key_file": "ticket_key", "token_secrets_file": "token_secrets",
    "broadcast_file": "broadcast", "webhook_key_file": "webhook_key",
}  # fmt: skip
"""Settings that name a file, and the setting whose value it contains."""

RELOADABLE = (
    "publish_keys", "publish_keys_file", "ticket_key", "ticket_key_file", "log_level", "allow_public_without_keys",
    "webhook_key", "webhook_key_file",
    *[field.name for group in (TokenSettings, QuotaSettings) for field in fields(group)],
)  # fmt: skip
"""Settings that can change while a server runs."""

NOT_SETTINGS = re.compile(
    r"PUSHUP_(CONFIG|URL|KEY|KEY_FILE|TOKEN|TOKEN_FILE)=.*"
    r"|PUSHUP_(COMPILE|COMMIT)=.*"
    r"|PUSHUP_(\w+_)?(SERVICE_HOST|SERVICE_PORT|SERVICE_PORT_\w+|PORT_\d+_\w+)=.*"
    r"|PUSHUP_(\w+_)?PORT=\w+://.*",
    re.DOTALL,
).fullmatch
"""`NAME=VALUE` of the commands, of a build (setup.py), and of Kubernetes for the services `pushup` and `pushup-...`."""

MINIMUMS = (
    ("output_limit_bytes", ("answer_limit_bytes", "message_limit_bytes"), "a whole answer"),
    ("unsent_limit_bytes", ("output_limit_bytes",), "the output of one client"),
    ("waiting_requests_limit_bytes", ("header_limit_bytes", "body_limit_bytes"), "a whole request"),
    ("waiting_limit_bytes", ("body_limit_bytes",), "a whole publication"),
    ("retention_bytes", ("message_limit_bytes",), "one message"),
    ("ephemeral_bytes", ("message_limit_bytes",), "one message"),
    ("body_limit_bytes", ("message_limit_bytes",), "one message"),
    ("body_limit_bytes", ("poll_body_limit_bytes",), "the body of a poll"),
)
"""Settings that must be at least the sum of others, and what would not fit otherwise."""


class SettingsError(Exception):
    """A setting cannot be used; the text names it and where it came from."""


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings in groups. Files, environment and flags have no groups, so names are unique across all of them."""

    server: ServerSettings = ServerSettings()
    queue: Limits = Limits()
    hold: HoldLimits = HoldLimits()
    publication: PublicationLimits = PublicationLimits()
    poll: PollLimits = PollLimits()
    stream: StreamLimits = StreamLimits()
    edge: EdgeLimits = EdgeLimits()
    request: RequestLimits = RequestLimits()
    drain: DrainLimits = DrainLimits()
    presence: PresenceLimits = PresenceLimits()
    waiting: WaitingLimits = WaitingLimits()
    journal: JournalLimits = JournalLimits()
    redis: RedisLimits = RedisLimits()
    authorization: AuthorizationSettings = AuthorizationSettings()
    webhook: WebhookSettings = WebhookSettings()
    tokens: TokenSettings = TokenSettings()
    quotas: QuotaSettings = QuotaSettings()
    channels: ChannelSettings = ChannelSettings()


class Reloaded(Struct, frozen=True):
    """The result of new settings in a running server."""

    settings: Settings
    """The settings now in effect."""
    applied: tuple[str, ...]
    """Names of the settings that changed."""
    left: tuple[str, ...]
    """Names of the settings that change only with a restart."""


_GROUP_OF = {
    setting.encode_name: (group.name, setting.type) for group in fields(Settings) for setting in fields(group.type)
}
"""Group and type of each setting. `channels` is that of the last group, from which that of `Limits` is made."""


def read_settings(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Settings:
    """The settings from all places; later ones win. Raises: SettingsError."""
    given: dict[str, dict[str, object]] = {}
    origins: dict[str, str] = {}
    for where, values in (
        (str(file), _read_file(file) if file else {}),
        ("environment", _read_environment(environment or {})),
        ("command line", flags or {}),
    ):
        for name, value in values.items():
            group, converted = _setting(name, value, where)
            given.setdefault(group, {})[name] = converted
            origins[name] = where
    _read_secret_files(given, origins)
    settings = Settings(**{group.name: group.type(**given.get(group.name, {})) for group in fields(Settings)})
    poll = settings.poll
    if "poll_timeout_seconds" not in origins:  # the default must not exceed a lower limit
        seconds = min(poll.poll_timeout_seconds, poll.poll_timeout_limit_seconds)
        settings = replace(settings, poll=replace(poll, poll_timeout_seconds=seconds))
    if "channel_ttl_seconds" not in origins:  # the default must not close channels whose messages are still kept
        ttl = max(settings.queue.channel_ttl_seconds, settings.queue.retention_seconds)
        settings = replace(settings, queue=replace(settings.queue, channel_ttl_seconds=ttl))
    for name, text in _mistakes(settings):
        origin = origins.get(name.partition("[")[0], "the defaults")
        raise SettingsError(f"{origin}: {name}: {text}")
    # By prefix: two nodes have the same limits, in whichever order their files have them.
    tables = tuple(sorted(settings.channels.channels, key=attrgetter("prefix")))
    limits = replace(settings.queue, channels=tuple([table.policy for table in tables]))
    return replace(settings, queue=limits, channels=ChannelSettings(channels=tables))


def reload_settings(current: Settings, wanted: Settings) -> Reloaded:
    """Apply the wanted settings that can change while a server runs; the others stay as they are.

    Raises: SettingsError when the result is inconsistent, e.g. without keys for an address that stays public.
    """
    groups: dict[str, Any] = {}
    applied: list[str] = []
    left: list[str] = []
    for group in fields(Settings):
        old, new = getattr(current, group.name), getattr(wanted, group.name)
        names = [setting.name for setting in fields(old) if getattr(old, setting.name) != getattr(new, setting.name)]
        taken = [name for name in names if name in RELOADABLE]
        groups[group.name] = replace(old, **{name: getattr(new, name) for name in taken})
        applied += taken
        left += [name for name in names if name not in (*RELOADABLE, *left)]  # `channels` is in two groups
    settings = Settings(**groups)
    for name, text in _mistakes(settings):
        raise SettingsError(f"{name}, whose value changes only with a restart: {text}")
    return Reloaded(settings, tuple(applied), tuple(left))


def shown_settings(settings: Settings) -> dict[str, object]:
    """All settings by name, without secrets, tables as dicts. A value that comes from a file is represented by the
    file's name.
    """
    values = flat_settings(settings)
    in_files = {name for file, name in SECRET_FILES.items() if values[file]}
    return {name: to_builtins(shown_setting(name, value)) for name, value in values.items() if name not in in_files}


def shown_setting(name: str, value: object) -> object:
    """The value without secrets."""
    if name in SECRETS and value:
        return "not shown"
    if name == "token_issuers" and isinstance(value, tuple):
        return [{field: shown_setting(field, text) for field, text in asdict(table).items()} for table in value]
    return without_password(value) if name == "broadcast" and isinstance(value, str) else value


def flat_settings(settings: Settings) -> dict[str, Any]:
    """All values by name."""
    return {name: value for group in asdict(settings).values() for name, value in asdict(group).items()}


def _read_file(file: Path) -> dict[str, object]:
    try:
        return tomllib.loads(file.read_text("utf-8-sig"))
    except OSError as error:
        raise SettingsError(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{file} is not valid TOML: {error}") from None


def _read_secret_files(given: dict[str, dict[str, object]], origins: dict[str, str]) -> None:
    """Add the values that are in secret files. Raises: SettingsError."""
    for setting, name in SECRET_FILES.items():
        group, wanted = _GROUP_OF[name]
        values = given.get(group, {})
        path = values.get(setting)
        if not path:
            continue
        if values.get(name):
            raise SettingsError(f"{origins[setting]}: set either {setting} or {name} (from: {origins[name]}), not both")
        try:
            values[name] = read_secret(Path(str(path))) if wanted is str else read_secrets(Path(str(path)))
        except SecretFileError as error:
            raise SettingsError(f"{origins[setting]}: {setting}: {error}") from None
        origins[name] = f"{setting} {path}"
        if not is_text(values[name]):
            raise SettingsError(f"{origins[name]}: contains a control character")


def _read_environment(environment: Mapping[str, str]) -> dict[str, object]:
    given = ((name, value) for name, value in environment.items() if name.startswith(PREFIX))
    return {name.removeprefix(PREFIX).lower(): value for name, value in given if not NOT_SETTINGS(f"{name}={value}")}


def _setting(name: str, value: object, where: str) -> tuple[str, object]:
    """The group of a setting and its converted value. Raises: SettingsError."""
    if name not in _GROUP_OF:
        raise SettingsError(f"{where}: unknown setting {name!r}{suggestion(name, _GROUP_OF)}")
    group, wanted = _GROUP_OF[name]
    try:
        converted = convert(name, value, wanted)
    except InTable as error:
        raise SettingsError(f"{where}: {error}") from None
    except ValueError as error:
        shown = "(not shown)" if name in (*SECRETS, "token_issuers") else repr(shown_setting(name, value))
        raise SettingsError(f"{where}: {name} = {shown}: {error}") from None
    return group, converted


def _mistakes(settings: Settings) -> Iterator[tuple[str, str]]:
    """Each setting whose value cannot be used, and why: first within each group, then across groups.

    A later check may rely on an earlier one, so only the first mistake is certain.
    """
    for group in asdict(settings).values():
        if hasattr(group, "mistakes"):
            yield from group.mistakes()
    values = flat_settings(settings)
    for name, parts, content in MINIMUMS:
        least = sum(values[part] for part in parts)
        if values[name] < least:
            yield name, f"must be at least {' + '.join(parts)} ({least}), to hold {content}; it is {values[name]}"
    tables = settings.channels.channels
    yield from policy_mistakes(tables, settings.queue, settings.publication.message_limit_bytes)
    has_tokens, has_keys = bool(settings.tokens.issuers), bool(values["publish_keys"])
    asks, calls = bool(values["authorize_url"] or values["authorizer"]), bool(values["webhook_url"])
    yield from rule_mistakes(tables, has_tokens=has_tokens, has_keys=has_keys, asks=asks, calls=calls)
    if settings.authorization.ticket_seconds > settings.queue.token_lifetime_limit_seconds:
        yield "ticket_seconds", "must not exceed token_lifetime_limit_seconds, or a revocation would be forgotten first"
    if settings.tokens.token_url_tickets and not settings.authorization.ticket_key:
        yield "token_url_tickets", "set ticket_key or ticket_key_file, the same on all nodes: it seals the tickets"
    urls = {"authorize_url": settings.authorization.authorize_url, "webhook_url": settings.webhook.webhook_url}
    for name in [name for name, url in urls.items() if _asks_itself(url, settings.server.listen)]:
        yield name, "PushUp itself listens at this address; write the address of your application"


def _asks_itself(url: str, listen: tuple[str, ...]) -> bool:
    """Whether this URL leads back to this server, as far as is known without resolving names."""
    parts = urlsplit(url)
    target = (parts.hostname, parts.port or DEFAULT_PORTS.get(parts.scheme))
    for host, port in (parse_address(address) for address in listen if not address.startswith("unix:")):
        is_local = ip_address(host).is_loopback or ip_address(host).is_unspecified
        if port and target in {(name, port) for name in (host, *(LOOPBACK if is_local else ()))}:
            return True
    return False
