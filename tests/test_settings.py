"""Settings: defaults, file, environment and flags; every mistake is reported with its place."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import fields, replace

from pushup.host.preflight import warnings
from pushup.secret_files import SIZE_LIMIT_BYTES, parts_of_key
from pushup.settings.digests import digests
from pushup.settings.settings import (
    SECRET_FILES,
    Settings,
    SettingsError,
    read_settings,
    reload_settings,
    shown_settings,
)

KEY = "sixteen-characters-at-least"


def in_file(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "pushup.toml"
    file.write_text(text)
    return file


def test_defaults() -> None:
    """Without any configuration the defaults apply, and they are valid."""
    settings = read_settings()
    assert settings == Settings()
    assert settings.server.listen == ("127.0.0.1:8080",)


def test_precedence(tmp_path: Path) -> None:
    """The file overrides defaults, the environment the file, and flags everything."""
    file = in_file(tmp_path, "poll_limit = 1\nbatch_limit = 1\nchannels_limit = 1\n")
    environment = {"PUSHUP_BATCH_LIMIT": "2", "PUSHUP_CHANNELS_LIMIT": "2", "HOME": "/", "PUSHUP_URL": "http://x"}
    settings = read_settings(file, environment, {"channels_limit": "3"})
    assert settings.poll.poll_limit == 1
    assert settings.publication.batch_limit == 2
    assert settings.queue.channels_limit == 3
    assert settings.queue.retention_messages == Settings().queue.retention_messages


def test_names_are_unique_across_groups() -> None:
    """Files, environment and flags have no groups, so no two groups have a setting of the same name."""
    names = [setting.name for group in fields(Settings) for setting in fields(group.type)]
    names.remove("channels")  # in `Limits`, which are made from the tables
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("retention_seconds", "25", 25.0),
        ("retention_seconds", "0.5", 0.5),
        ("retention_seconds", "90s", 90.0),
        ("retention_seconds", "1.5 m", 90.0),
        ("retention_seconds", "250ms", 0.25),
        ("retention_seconds", "2h", 7200.0),
        ("retention_seconds", "1d", 86400.0),
        ("message_limit_bytes", "5", 5),
        ("message_limit_bytes", "5B", 5),
        ("message_limit_bytes", "64KiB", 65536),
        ("retention_bytes", "1.5 MiB", 1572864),
        ("retention_bytes", "2GiB", 2147483648),
        ("connections_limit", "5", 5),
        ("strict_channels", "true", True),
        ("strict_channels", "0", False),
        ("log_level", "debug", "debug"),
        ("cors_origins", "https://a, https://b,", ("https://a", "https://b")),
        ("publish_keys", KEY, (KEY,)),
    ],
)
def test_text_with_units(tmp_path: Path, name: str, text: str, wanted: object) -> None:
    """Durations, sizes, lists and booleans are read from text in the file, the environment and flags."""
    for settings in (
        read_settings(environment={f"PUSHUP_{name.upper()}": text}),
        read_settings(flags={name: text}),
        read_settings(in_file(tmp_path, f'{name} = "{text}"\n')),
    ):
        assert value(settings, name) == wanted


def value(settings: Settings, name: str) -> object:
    (found,) = [
        getattr(getattr(settings, g.name), name) for g in fields(Settings) if hasattr(getattr(settings, g.name), name)
    ]
    return found


def test_values_of_toml(tmp_path: Path) -> None:
    """A file may have TOML numbers, lists and booleans."""
    file = in_file(
        tmp_path, f'drain_seconds = 3\nstrict_channels = true\nlisten = ["[::1]:1"]\npublish_keys = ["{KEY}"]\n'
    )
    settings = read_settings(file)
    assert (settings.drain.drain_seconds, settings.queue.strict_channels) == (3.0, True)
    assert (settings.server.listen, settings.server.publish_keys) == (("[::1]:1",), (KEY,))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("poll_timeout_seconds", "soon"),
        ("poll_timeout_seconds", "5 parsecs"),
        ("poll_timeout_seconds", "-5"),
        ("poll_timeout_seconds", "0"),
        ("poll_timeout_seconds", "inf"),
        ("poll_timeout_seconds", "1e5"),
        ("message_limit_bytes", "64KB"),
        ("message_limit_bytes", "5s"),
        ("connections_limit", "0"),
        ("connections_limit", "-1"),
        ("connections_limit", "many"),
        ("connections_limit", "1.5"),
        ("chanels_limit", "5"),
        ("strict_channels", "perhaps"),
        ("log_level", "loud"),
        ("log_format", "xml"),
        ("wait_strategy", "patience"),
        ("broadcast", "pigeon:"),
        ("listen", ""),
        ("listen", "localhost:8080"),
        ("listen", "127.0.0.1"),
        ("listen", "127.0.0.1:70000"),
        ("listen", "::1:8080"),
        ("listen", "0.0.0.0:8080"),
        ("listen", "127.0.0.1:1, [::]:8080"),
        ("listen", "127.0.0.1:1, 127.0.0.1:1"),
        ("listen", "unix:/run/a, unix:/run/a"),
        ("operator_listen", "localhost:9090"),
        ("operator_listen", "127.0.0.1:1, 127.0.0.1:1"),
        ("operator_listen", "127.0.0.1:8080"),
        ("node_name", "node\\u0001"),
        ("broadcast", "journal::memory:"),
        ("broadcast", "journal:/var/lib/a\\u0000b"),
        ("poll_timeout_seconds", "61s"),
        ("ticket_seconds", "86401s"),
        ("authorize_url", "http://127.0.0.1:8080/may-poll"),
        ("authorize_url", "http://localhost:8080/may-poll"),
        ("authorize_url", "http://127.0.0.1:5000/#may-poll"),
        ("webhook_timeout_seconds", "15"),
        ("webhook_key", f"whsec_{'ä' * 32}"),
        ("publish_keys", "short"),
        ("publish_keys", "sixteen characters at least"),
        ("publish_keys", f"{KEY} {KEY}"),
        ("publish_keys", f"two names {KEY}"),
        ("publish_keys", "a-name short"),
        ("publish_keys", f"-name {KEY}"),
        ("publish_keys", f"näme {KEY}"),
        ("publish_keys", f"one {KEY}, two {KEY}"),
        ("publish_keys", f"one {KEY}, {KEY}"),
        ("publish_keys", "sixteen-characters-ät-least"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, name: str, text: str) -> None:
    """The error for an invalid value names the setting, and the file, the environment or the command line."""
    file = in_file(tmp_path, f'{name} = "{text}"\n')
    text = text.encode().decode("unicode_escape")
    for where, given in (
        (str(file), {"file": file}),
        ("environment", {"environment": {f"PUSHUP_{name.upper()}": text}}),
        ("command line", {"flags": {name: text}}),
    ):
        with pytest.raises(SettingsError) as caught:
            read_settings(**given)
        assert name in str(caught.value)
        assert where in str(caught.value)


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("workers = 'all'", "workers = 'all': expected a number or auto"),
        ("workers = 2.0", "workers = 2.0: expected a number or auto"),
        ("strict_channels = 'yes'", "strict_channels = 'yes': expected true or false"),
        ("[[quotas]]\nper = 'ip'", "quotas[0].per = 'ip': expected key or subject or address"),
        ("[[channels]]\nprefix = 'a'\npublish = 'keys'", "channels[0].publish = 'keys': expected token or key"),
    ],
)
def test_a_word_that_is_none_of_a_few(tmp_path: Path, text: str, mistake: str) -> None:
    """The error says which there are."""
    with pytest.raises(SettingsError, match=re.escape(mistake) + "$"):
        read_settings(in_file(tmp_path, text))


@pytest.mark.parametrize(
    "origin",
    [
        "https://example.org", "http://example.org", "https://example.org:8443", "http://localhost:3000",
        "http://a.example:443", "https://a.example:80", "http://127.0.0.1:3000", "http://[::1]:3000", "http://intranet",
        "https://xn--bcher-kva.example", "https://a_b.example", "https://a.example.", "chrome-extension://abcdefgh",
        "moz-extension://2c127fa4-62c7-7e4f-90e5-472b45eecfdc", "capacitor://localhost",
    ],
)  # fmt: skip
def test_origins_that_browsers_send(origin: str) -> None:
    """An origin is accepted as a browser writes it."""
    assert read_settings(flags={"cors_origins": (origin,)}).server.cors_origins == (origin,)


@pytest.mark.parametrize(
    ("origin", "write"),
    [
        ("http://localhost:3000/", "http://localhost:3000"),
        ("https://example.org/app", "https://example.org"),
        ("https://example.org?a=b", "https://example.org"),
        ("https://example.org#a", "https://example.org"),
        ("https://EXAMPLE.org", "https://example.org"),
        ("HTTPS://example.org", "https://example.org"),
        ("https://example.org:443", "https://example.org"),
        ("http://example.org:80/", "http://example.org"),
        ("https://example.org:", "https://example.org"),
        ("http://localhost:03000", "http://localhost:3000"),
        ("https://me@example.org", "https://example.org"),
        (" https://example.org", "https://example.org"),
        ("https://example.org\n", "https://example.org"),
        ("http://[0:0:0::1]:80", "http://[::1]"),
        ("http://127.1:3000", "http://127.0.0.1:3000"),
        ("localhost:3000", "http://localhost:3000"),
        ("192.168.1.5", "http://192.168.1.5"),
        ("[::1]:3000", "http://[::1]:3000"),
        ("example.org", "https://example.org"),
        ("//example.org/", "https://example.org"),
        ("Example.org:443/app", "https://example.org"),
        ("null", "https://example.org"),
        ("https:/example.org", "https://example.org"),
        ("https://", "https://example.org"),
        ("https://:443", "https://example.org"),
        ("https://example.org:99999", "https://example.org"),
        ("https://example.org:port", "https://example.org"),
        ("https://exa%20mple.org", "https://example.org"),
        ("https://300.1.1.1", "https://example.org"),
        ("https://a.example https://b.example", "as a list"),
        ("https://*.example.org", "each origin in full"),
        ("https://bücher.example", "location.origin"),
        ("wss://example.org", "https://"),
        ("htps://example.org", "https://"),
        ("file:///home/me/page.html", "http://"),
    ],
)  # fmt: skip
def test_origins_that_no_browser_sends(origin: str, write: str) -> None:
    """An origin that would never match an Origin header is refused with a correction."""
    with pytest.raises(SettingsError) as caught:
        read_settings(flags={"cors_origins": ("https://good.example", origin)})
    assert "cors_origins" in str(caught.value)
    assert write in str(caught.value)


def test_all_origins_and_some() -> None:
    """`*` together with names is refused: the names would have no effect, and cookies would not be sent."""
    assert read_settings(flags={"cors_origins": ("*",)}).server.cors_origins == ("*",)
    with pytest.raises(SettingsError, match="either"):
        read_settings(flags={"cors_origins": ("*", "https://example.org")})


def test_bytes_that_are_not_text() -> None:
    """Bytes that are not text, as an environment may contain, are refused."""
    for name in ("node_name", "ticket_key", "redis_prefix", "authorize_url", "broadcast"):
        with pytest.raises(SettingsError, match=rf"{name}.*UTF-8"):
            read_settings(environment={f"PUSHUP_{name.upper()}": "sixteen-characters-\udcff"})
    assert read_settings(environment={"PUSHUP_NODE_NAME": "Zürich 1"}).server.node_name == "Zürich 1"


def test_how_long_a_poll_waits() -> None:
    """A limit below the default timeout shortens it; a timeout above the limit is refused."""
    settings = read_settings(flags={"poll_timeout_limit_seconds": "10s"})
    assert (settings.poll.poll_timeout_seconds, settings.poll.poll_timeout_limit_seconds) == (10.0, 10.0)
    assert read_settings(flags={"poll_timeout_limit_seconds": "90s"}).poll.poll_timeout_seconds == 25.0
    with pytest.raises(SettingsError, match="poll_timeout_seconds: must not exceed poll_timeout_limit_seconds"):
        read_settings(flags={"poll_timeout_limit_seconds": "10s", "poll_timeout_seconds": "25s"})


def test_how_long_a_channel_stays_open() -> None:
    """By default as long as messages are kept, because a channel that closes drops its messages."""
    for seconds, ttl in (("5m", 3600.0), ("2h", 7200.0)):
        assert read_settings(flags={"retention_seconds": seconds}).queue.channel_ttl_seconds == ttl
    given = {"retention_seconds": "2h", "channel_ttl_seconds": "1h"}
    assert read_settings(flags=given).queue.channel_ttl_seconds == 3600.0


@pytest.mark.parametrize(
    ("listen", "url", "taken"),
    [
        ("127.0.0.1:80", "http://127.0.0.1/may", False),
        ("127.0.0.1:80", "http://localhost/may", False),
        ("127.0.0.1:80", "http://LOCALHOST:80/may", False),
        ("[::1]:8080", "http://[::1]:8080/may", False),
        ("0.0.0.0:8080", "http://127.0.0.1:8080/may", False),
        ("127.0.0.1:8080", "http://127.0.0.1:8081/may", True),
        ("127.0.0.1:8080", "http://app.example:8080/may", True),
        ("192.0.2.1:8080", "http://127.0.0.1:8080/may", True),
        ("127.0.0.1:0", "http://127.0.0.1/may", True),
        ("unix:/run/pushup.sock", "http://127.0.0.1:8080/may", True),
    ],
)
def test_pushup_does_not_ask_itself(listen: str, url: str, taken: bool) -> None:
    """An authorize_url that leads to PushUp itself, which would answer 404, is refused."""
    flags = {"listen": (listen,), "authorize_url": url, "publish_keys": (KEY,)}
    if taken:
        assert read_settings(flags=flags).authorization.authorize_url == url
    else:
        with pytest.raises(SettingsError, match="authorize_url: PushUp itself"):
            read_settings(flags=flags)


def test_what_nodes_compare() -> None:
    """Settings that are not the default, but for those that each node has of its own."""
    own = {"listen": ("127.0.0.1:1",), "operator_listen": ("127.0.0.1:2",), "node_name": "one", "workers": 2}
    assert digests(read_settings(flags=own)) == {}
    assert [*digests(read_settings(flags={**own, "drain_seconds": 7}))] == ["drain_seconds"]


def test_an_unknown_setting_suggests_the_nearest(tmp_path: Path) -> None:
    """An unknown setting is refused with the one that was probably meant."""
    for given in ({"flags": {"chanels_limit": 5}}, {"environment": {"PUSHUP_CHANELS_LIMIT": "5"}}):
        with pytest.raises(SettingsError, match=r"'chanels_limit'.*'channels_limit'"):
            read_settings(**given)
    with pytest.raises(SettingsError, match="'server'"):
        read_settings(in_file(tmp_path, "[server]\nlog_level = 'info'\n"))


@pytest.mark.parametrize(
    "variables",
    [
        {"PUSHUP_CONFIG": "/etc/pushup.toml", "PUSHUP_URL": "http://x", "PUSHUP_KEY": "k", "PUSHUP_KEY_FILE": "/k"},
        {"PUSHUP_TOKEN": "t", "PUSHUP_TOKEN_FILE": "/t"},
        {"PUSHUP_COMPILE": "1", "PUSHUP_COMMIT": "0123abc"},
        {"PUSHUP_SERVICE_HOST": "10.0.0.1", "PUSHUP_SERVICE_PORT": "80", "PUSHUP_SERVICE_PORT_HTTP": "80"},
        {"PUSHUP_PORT": "tcp://10.0.0.1:80", "PUSHUP_PORT_80_TCP": "tcp://10.0.0.1:80"},
        {"PUSHUP_REDIS_SERVICE_HOST": "10.0.0.2", "PUSHUP_REDIS_PORT": "tcp://10.0.0.2:6379"},
        {"PUSHUP_REDIS_PORT_6379_TCP_ADDR": "10.0.0.2", "PUSHUP_REDIS_SERVICE_PORT_REDIS": "6379"},
    ],
)
def test_variables_that_are_no_settings(variables: dict[str, str]) -> None:
    """What the commands read themselves, what a build reads, and what Kubernetes sets for services of such a name."""
    assert read_settings(environment=variables) == Settings()


@pytest.mark.parametrize("name", ["PORT", "LISTEN_PORT", "PORT_NUMBER", "SERVICE_NAME", "URLS", "COMPILED", ""])
def test_variables_that_look_like_them(name: str) -> None:
    """Whoever sets these expects an effect, so they are errors, as other unknown settings are."""
    with pytest.raises(SettingsError, match=f"environment: unknown setting '{name.lower()}'"):
        read_settings(environment={f"PUSHUP_{name}": "9000"})


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("retention", ["retention_seconds", "retention_messages", "retention_bytes"]),
        ("retention_second", ["retention_seconds"]),
        ("poll_timeout", ["poll_timeout_seconds", "poll_timeout_limit_seconds"]),
        ("authorize", 5),
        ("", []),
        ("nothing_like_it", []),
    ],
)
def test_suggestions(name: str, suggested: list[str] | int) -> None:
    """For an unknown setting, those with the same beginning are suggested, then similar ones, at most five."""
    with pytest.raises(SettingsError, match=f"unknown setting '{name}'") as caught:
        read_settings(flags={name: "5m"})
    names = re.findall("'(.*?)'", str(caught.value))[1:]
    assert (len(names) if isinstance(suggested, int) else names) == suggested


def test_a_file_of_a_windows_editor(tmp_path: Path) -> None:
    """It may begin with a byte order mark, and its lines end with a carriage return."""
    (tmp_path / "pushup.toml").write_bytes(b'\xef\xbb\xbfretention_seconds = "10m"\r\npoll_limit = 7\r\n')
    settings = read_settings(tmp_path / "pushup.toml")
    assert (settings.queue.retention_seconds, settings.poll.poll_limit) == (600.0, 7)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """The error for a file that is missing or not TOML names it."""
    with pytest.raises(SettingsError, match=r"missing\.toml"):
        read_settings(tmp_path / "missing.toml")
    for text in ("a = = b", f"a = {'9' * 5000}", f"a = {'[' * 5000}"):
        with pytest.raises(SettingsError, match=r"pushup\.toml is not valid TOML"):
            read_settings(in_file(tmp_path, text))
    (tmp_path / "latin.toml").write_bytes(b'log_level = "\xe9"')
    with pytest.raises(SettingsError, match=r"latin\.toml"):
        read_settings(tmp_path / "latin.toml")


@pytest.mark.parametrize("address", ["0.0.0.0:8080", "[::]:8080", "192.0.2.1:80", "[2001:db8::1]:80"])
def test_a_public_address_needs_keys(address: str) -> None:
    """An address other than loopback needs publish keys, or a setting that says none are wanted."""
    for name, right in (("listen", "publish"), ("operator_listen", "operate")):
        with pytest.raises(SettingsError, match=rf"{name}: .* could {right}; set publish_keys, or set allow_"):
            read_settings(flags={name: (address,)})
    assert read_settings(flags={"listen": (address,), "publish_keys": (KEY,)}).server.listen == (address,)
    assert read_settings(flags={"listen": (address,), "allow_public_without_keys": True}).server.listen == (address,)


@pytest.mark.parametrize("address", ["127.0.0.1:80", "127.8.8.8:80", "[::1]:80", "unix:/run/x.sock"])
def test_a_local_address_needs_no_keys(address: str) -> None:
    """Loopback and Unix sockets can only be reached from the same machine."""
    assert read_settings(flags={"listen": (address,)}).server.listen == (address,)


def test_limits_that_contradict_each_other() -> None:
    """An answer must fit the output buffer, and a message the cache."""
    flags = {"output_limit_bytes": 1000, "answer_limit_bytes": 600, "message_limit_bytes": 400}
    assert read_settings(flags=flags).edge.output_limit_bytes == 1000
    for name, size in (("output_limit_bytes", 999), ("answer_limit_bytes", 601), ("message_limit_bytes", 401)):
        with pytest.raises(SettingsError, match="output_limit_bytes"):
            read_settings(flags={**flags, name: size})
    with pytest.raises(SettingsError, match="retention_bytes"):
        read_settings(flags={**flags, "retention_bytes": 399})
    with pytest.raises(SettingsError, match=r"unsent_limit_bytes: must be at least output_limit_bytes \(1000\)"):
        read_settings(flags={**flags, "unsent_limit_bytes": 999})
    with pytest.raises(SettingsError, match="waiting_requests_limit_bytes"):
        read_settings(flags={"waiting_requests_limit_bytes": "1MiB"})
    with pytest.raises(SettingsError, match=r"body_limit_bytes: must be at least poll_body_limit_bytes \(2097152\)"):
        read_settings(flags={"poll_body_limit_bytes": "2MiB"})
    with pytest.raises(SettingsError, match="ticket_seconds: must not exceed token_lifetime_limit_seconds"):
        read_settings(flags={"ticket_seconds": "61s", "token_lifetime_limit_seconds": "60s"})
    large = {"message_limit_bytes": "2MiB", "output_limit_bytes": "4MiB"}
    with pytest.raises(SettingsError, match="the defaults: body_limit_bytes: must be at least message_limit_bytes"):
        read_settings(flags=large)
    assert read_settings(flags={**large, "body_limit_bytes": "2MiB"}).publication.message_limit_bytes == 2 * 1024**2


def test_the_largest_publication_may_wait() -> None:
    """Otherwise a body could be accepted that can never be published."""
    flags = {"body_limit_bytes": "2MiB", "waiting_limit_bytes": "2MiB"}
    assert read_settings(flags=flags).waiting.waiting_limit_bytes == 2 * 1024**2
    with pytest.raises(SettingsError, match="waiting_limit_bytes: must be at least body_limit_bytes"):
        read_settings(flags={**flags, "waiting_limit_bytes": 2 * 1024**2 - 1})


def test_errors_do_not_reveal_keys(tmp_path: Path) -> None:
    """An error about publish keys does not log valid ones, and one about a URL not its password."""
    for name, text in (
        ("authorize_url", f"http://me:{KEY}@app/may"),
        ("broadcast", f"redis://:{KEY}@"),
        ("broadcast", f"redis://:{KEY}\x01@host"),
        ("ticket_key", f"{KEY}\udcff"),
    ):
        with pytest.raises(SettingsError) as caught:
            read_settings(flags={name: text})
        assert name in str(caught.value)
        assert KEY not in str(caught.value)
    for text in (f'publish_keys = ["{KEY}", "short"]', f'publish_keys = ["{KEY}", 5]'):
        with pytest.raises(SettingsError) as caught:
            read_settings(in_file(tmp_path, text))
        assert KEY not in str(caught.value)


# Secrets in separate files.


@pytest.mark.parametrize("setting", SECRET_FILES)
def test_secrets_are_not_shown(setting: str) -> None:
    """Neither `check-config` nor the log of a start shows one."""
    name = SECRET_FILES[setting]
    (group,) = (each for each in fields(Settings) if name in each.type.__struct_fields__)
    value: Any = {"publish_keys": (KEY,), "token_secrets": (KEY,), "broadcast": f"redis://:{KEY}@host"}.get(name, KEY)
    shown = shown_settings(replace(Settings(), **{group.name: group.type(**{name: value})}))
    assert name in shown
    assert KEY not in str(shown)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("publish_keys", KEY, f"{KEY}-2"),
        ("ticket_key", KEY * 3, KEY * 4),
        ("webhook_key", f"whsec_{'A' * 32}", f"whsec_{'B' * 32}"),
    ],
)
def test_a_secret_can_change_while_a_server_runs(tmp_path: Path, name: str, before: str, after: str) -> None:
    """Also with the name of its file."""
    read = []
    for number, value in enumerate((before, after)):
        (tmp_path / str(number)).write_text(value)
        read.append(read_settings(flags={f"{name}_file": str(tmp_path / str(number))}))
    reloaded = reload_settings(*read)
    assert (set(reloaded.applied), reloaded.left) == ({name, f"{name}_file"}, ())


def test_keys_with_names(tmp_path: Path) -> None:
    """A name stands before its key, in a list, in text and in a file; two keys may have one name."""
    keys = (f"ci {KEY}-1", f"name.of:15@char {KEY}-2", f"{KEY}-3", f"ci   {KEY}-4")
    (tmp_path / "keys").write_text("\n".join(f" {key}  # comment" for key in keys))
    for settings in (
        read_settings(flags={"publish_keys": keys}),
        read_settings(environment={"PUSHUP_PUBLISH_KEYS": ",".join(keys)}),
        read_settings(flags={"publish_keys_file": str(tmp_path / "keys")}),
    ):
        assert settings.server.publish_keys == keys
    assert [parts_of_key(key)[:2] for key in keys] == [
        ("ci", f"{KEY}-1"), ("name.of:15@char", f"{KEY}-2"), ("", f"{KEY}-3"), ("ci", f"{KEY}-4"),
    ]  # fmt: skip


def test_keys_and_addresses_from_files(tmp_path: Path) -> None:
    """A file of publish keys has one per line, with comments; one with a ticket key or an address has nothing else."""
    (tmp_path / "keys").write_text(f"# of the web application\n{KEY}-1\n\n   {KEY}-2\t # of the mailer\r\n{KEY}#3")
    (tmp_path / "ticket").write_text(f"\ufeff {KEY} #4\n\n")
    (tmp_path / "address").write_text(f"redis://:{KEY}@redis.internal:6379/2\n")
    settings = read_settings(
        in_file(tmp_path, f'publish_keys_file = "{tmp_path}/keys"\nbroadcast_file = ""\npublish_keys = []\n'),
        {"PUSHUP_TICKET_KEY_FILE": f"{tmp_path}/ticket"},
        {"broadcast_file": f"{tmp_path}/address"},
    )
    assert settings.server.publish_keys == (f"{KEY}-1", f"{KEY}-2", f"{KEY}#3")
    assert settings.authorization.ticket_key == f"{KEY} #4"
    assert settings.server.broadcast == f"redis://:{KEY}@redis.internal:6379/2"
    shown = shown_settings(settings)
    assert KEY not in repr(shown)
    assert shown["publish_keys_file"] == f"{tmp_path}/keys"
    assert not {"publish_keys", "ticket_key", "broadcast"} & shown.keys()
    assert shown_settings(read_settings())["broadcast"] == "memory:"


@pytest.mark.parametrize("setting", SECRET_FILES)
def test_a_secret_and_its_file(tmp_path: Path, setting: str) -> None:
    """A value together with a file for it is an error that names both, whatever their sources."""
    (tmp_path / "secret").write_text(KEY)
    name = SECRET_FILES[setting]
    value = "memory:" if name == "broadcast" else KEY
    file = in_file(tmp_path, f'{setting} = "{tmp_path}/secret"\n')
    with pytest.raises(SettingsError) as caught:
        read_settings(file, {f"PUSHUP_{name.upper()}": value})
    for part in (str(file), setting, f"set either {setting} or {name} (from: environment), not both"):
        assert part in str(caught.value)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("setting", SECRET_FILES)
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", ""),
        (b" \n\n", ""),
        (b"short", ""),
        (f"{KEY}-1\n{KEY} 2\n".encode(), ""),
        (KEY.encode() + b"\x00", ""),
        (KEY.encode() + b"\xff", "not UTF-8 text"),
        (KEY.encode() * (SIZE_LIMIT_BYTES // 16), "larger than 64 KiB"),
    ],
)
def test_errors_name_the_file_and_not_its_content(tmp_path: Path, setting: str, content: bytes, said: str) -> None:
    """The error for an empty or malformed file names it and does not show its content."""
    path = tmp_path / "secret"
    path.write_bytes(content)
    refused(setting, path, said)


@pytest.mark.parametrize(
    ("setting", "content"),
    [
        ("publish_keys_file", f"# {KEY}"),
        ("broadcast_file", f"redis://:{KEY}@host:no-port"),
        ("broadcast_file", f"redis://:{KEY}@"),
        ("broadcast_file", f"root:{KEY}:20000:0:99999:7:::"),
        ("broadcast_file", f"redis-{KEY}"),
    ],
)
def test_errors_of_one_file(tmp_path: Path, setting: str, content: str) -> None:
    """A file of only comments, or an invalid address: the content is not shown either."""
    (tmp_path / "secret").write_text(content)
    refused(setting, tmp_path / "secret", "")


@pytest.mark.parametrize("setting", SECRET_FILES)
def test_a_path_that_is_not_a_file(tmp_path: Path, setting: str) -> None:
    """A missing file, a directory and a pipe without a writer are refused without waiting."""
    refused(setting, tmp_path / "missing", "No such file")
    refused(setting, tmp_path, "Is a directory")
    os.mkfifo(tmp_path / "pipe")
    refused(setting, tmp_path / "pipe", "not a regular file")


def test_a_path_that_is_not_a_file_leaves_nothing_open(tmp_path: Path) -> None:
    """However often a reload meets it: a server would run out of descriptors."""

    def next_descriptor() -> int:
        descriptor = os.open(os.devnull, os.O_RDONLY)
        os.close(descriptor)
        return descriptor

    os.mkfifo(tmp_path / "pipe")
    free = next_descriptor()
    for path in (tmp_path, tmp_path / "pipe"):
        refused("publish_keys_file", path, "")
    assert next_descriptor() == free


@pytest.mark.parametrize("setting", SECRET_FILES)
def test_a_secret_file_that_everybody_can_read(tmp_path: Path, setting: str) -> None:
    """The warning says what to do; there is none if only its owner and its group can."""
    (group,) = (each for each in fields(Settings) if setting in each.type.__struct_fields__)
    settings = replace(Settings(), **{group.name: group.type(**{setting: str(tmp_path / "secret")})})
    (tmp_path / "secret").touch()
    (tmp_path / "secret").chmod(0o644)
    (warning,) = warnings(settings)
    assert warning.startswith(f"{setting}: every user of this machine can read")
    (tmp_path / "secret").chmod(0o640)
    assert [*warnings(settings)] == []


def refused(setting: str, path: Path, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings(flags={setting: str(path)})
    for part in (setting, str(path), said):
        assert part in str(caught.value)
    for part in (KEY, "short"):
        assert part not in str(caught.value)
