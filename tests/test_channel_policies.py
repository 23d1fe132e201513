"""`[[channels]]` in the settings file: read like other settings, checked, and shown so that they can be read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from pushup.core.limits import ChannelPolicy
from pushup.settings.channel_policies import POLICIES_LIMIT
from pushup.settings.settings import Settings, SettingsError, read_settings, reload_settings, shown_settings

EXAMPLE = """
[[channels]]
prefix = "chat:"
retention_seconds = "7d"
retention_messages = 10000
retention_bytes = "64MiB"
channel_ttl_seconds = "30d"
share = 2

[[channels]]
prefix = "a"
"""


def read(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "pushup.toml"
    file.write_text(text)
    return read_settings(file)


def error_of(tmp_path: Path, text: str) -> str:
    """The error, which names the file; without it."""
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, text)
    where, _, error = str(caught.value).partition(": ")
    assert where == f"{tmp_path}/pushup.toml"
    return error


def test_all_fields_and_none(tmp_path: Path) -> None:
    """Units are those of other settings. What is left out is None, which stands for the setting of the same name."""
    assert read(tmp_path, EXAMPLE).queue.channels == (
        ChannelPolicy(prefix="a"),
        ChannelPolicy(
            prefix="chat:",
            retention_seconds=604800.0,
            retention_messages=10000,
            retention_bytes=67108864,
            channel_ttl_seconds=2592000.0,
            share=2.0,
        ),
    )
    assert read(tmp_path, "channels = []").queue.channels == read(tmp_path, "").queue.channels == ()


def test_the_order_in_the_file_does_not_matter(tmp_path: Path) -> None:
    """Nodes with the same policies have the same shared settings."""
    text = '[[channels]]\nprefix = "{}"\n[[channels]]\nprefix = "{}"\n'
    assert read(tmp_path, text.format("a", "b")) == read(tmp_path, text.format("b", "a"))


def test_only_the_file_can_have_tables() -> None:
    """The environment and flags are text."""
    said = r"channels = '.*?': can be set only in the settings file, as tables that begin with \[\[channels\]\]"
    for text in ("", "chat:", '[{"prefix": "a"}]'):
        with pytest.raises(SettingsError, match=f"environment: {said}"):
            read_settings(environment={"PUSHUP_CHANNELS": text})
        with pytest.raises(SettingsError, match=f"command line: {said}"):
            read_settings(flags={"channels": text})


@pytest.mark.parametrize("text", ['channels = "chat:"', 'channels = ["chat:"]', '[channels]\nprefix = "chat:"'])
def test_anything_but_a_list_of_tables(tmp_path: Path, text: str) -> None:
    """The error says how a table begins."""
    assert error_of(tmp_path, text).endswith(
        ": can be set only in the settings file, as tables that begin with [[channels]]"
    )


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("retention_second = 5", ": unknown setting 'retention_second' (did you mean 'retention_seconds'?)"),
        ("retention = 5", "(did you mean 'retention_seconds' or 'retention_messages' or 'retention_bytes'?)"),
        ("poll_limit = 5", "; a table has prefix, retention_seconds, "),
        ('retention_seconds = "7x"', ".retention_seconds = '7x': expected a number, optionally with a unit of ms, s"),
        ('retention_bytes = "7d"', ".retention_bytes = '7d': expected a number, optionally with a unit of B, KiB"),
        ("retention_seconds = 0", ".retention_seconds = 0: must be above 0"),
        ("retention_seconds = inf", ".retention_seconds = inf: must be finite"),
        ("channel_ttl_seconds = -1", ".channel_ttl_seconds = -1: must be above 0"),
        ("retention_messages = 0", ".retention_messages = 0: must be above 0"),
        ("retention_messages = 1.5", ".retention_messages = 1.5: Expected `int`"),
        ("retention_bytes = -1", ".retention_bytes = -1: must be above 0"),
        ("share = 0", ".share = 0: must be above 0"),
        ("share = nan", ".share = nan: must be finite"),
        (f'retention_bytes = "{"9" * 400}GiB"', "GiB': must be finite"),
        ("share = true", ".share = True: Expected `float`"),
        ("share = [1]", ".share = [1]: Expected `float`"),
        ("share = 1e999", ".share = inf: must be finite"),
        (f"share = 1{'0' * 400}", "Number out of range"),
    ],
)
def test_mistakes_in_a_field(tmp_path: Path, field: str, said: str) -> None:
    """The error names the table by its number and the field, and says what is possible."""
    error = error_of(tmp_path, f'{EXAMPLE}[[channels]]\nprefix = "b"\n{field}\n')
    assert error.startswith("channels[2]")
    assert said in error


@pytest.mark.parametrize(
    ("prefix", "said"),
    [
        ("", "'' would be all channels; write what is to hold for all outside of [[channels]]"),
        ("*", "'*' would be all channels"),
        ("chat:*", "'chat:*' needs no *; write 'chat:'"),
        ("chat:*:a", "not a pattern"),
        ("a,b", "write a [[channels]] table for each prefix"),
        ("é" * 128, "1 to 255 bytes"),
        ("a\\u0007", "contains a control character"),
        ("a\\u007f", "contains a control character"),
    ],
)
def test_prefixes_that_no_channel_has(tmp_path: Path, prefix: str, said: str) -> None:
    """They are refused, with what to write instead."""
    error = error_of(tmp_path, f'[[channels]]\nprefix = "{prefix}"\n')
    assert error.startswith("channels[0].prefix")
    assert said in error


def test_a_prefix_must_be_given(tmp_path: Path) -> None:
    assert error_of(tmp_path, "[[channels]]\nshare = 2\n") == "channels[0]: prefix is missing; each table needs it"
    assert "channels[0].prefix = 5: Expected `str`" in error_of(tmp_path, "[[channels]]\nprefix = 5\n")
    for prefix in ("é" * 127, "12", " ", "a b", "\U0001f600"):
        assert read(tmp_path, f'[[channels]]\nprefix = "{prefix}"\n').queue.channels == (ChannelPolicy(prefix=prefix),)


def test_a_prefix_can_stand_there_once(tmp_path: Path) -> None:
    """The error names both tables, by their places in the file."""
    text = '[[channels]]\nprefix = "b"\n[[channels]]\nprefix = "a"\n[[channels]]\nprefix = "b"\n'
    assert error_of(tmp_path, text) == "channels[2].prefix: channels[0] has 'b', too; remove one of them"


def test_how_many_policies_there_can_be(tmp_path: Path) -> None:
    tables = [f'[[channels]]\nprefix = "{number}"\n' for number in range(POLICIES_LIMIT + 1)]
    assert len(read(tmp_path, "".join(tables[1:])).queue.channels) == POLICIES_LIMIT
    error = error_of(tmp_path, "".join(tables))
    assert error == f"channels: there are {POLICIES_LIMIT + 1} tables, and there can be at most {POLICIES_LIMIT}"


def test_one_message_must_fit(tmp_path: Path) -> None:
    """In what the channels of a policy keep together, and among the ephemeral messages."""
    text = 'message_limit_bytes = {}\n[[channels]]\nprefix = "a"\nretention_bytes = 1000\n'
    assert read(tmp_path, text.format(1000)).queue.channels[0].retention_bytes == 1000
    assert error_of(tmp_path, text.format(1001)) == (
        "channels[0].retention_bytes (for 'a'): must be at least message_limit_bytes (1001), to hold one message; "
        "it is 1000"
    )
    text = "message_limit_bytes = 1000\nephemeral_bytes = {}\n"
    assert read(tmp_path, text.format(1000)).queue.ephemeral_bytes == 1000
    assert error_of(tmp_path, text.format(999)).startswith("ephemeral_bytes: must be at least message_limit_bytes")


@pytest.mark.parametrize(
    ("settings", "ttl", "kept"),
    [
        ("", 'retention_seconds = "1h"\nchannel_ttl_seconds = "59m"', "3600"),
        ("", 'channel_ttl_seconds = "4m"', "300"),
        ('retention_seconds = "2h"\n', 'channel_ttl_seconds = "1h"', "7200"),
        ("", 'retention_seconds = "1h"\nchannel_ttl_seconds = "1h"', ""),
        ("", 'retention_seconds = "2h"', ""),
        ('channel_ttl_seconds = "1m"\n', "share = 2", ""),
    ],
)
def test_channels_stay_open_while_they_keep_messages(tmp_path: Path, settings: str, ttl: str, kept: str) -> None:
    """A shorter lifetime would drop messages before their time."""
    text = f'{settings}[[channels]]\nprefix = "a"\n{ttl}\n'
    if not kept:
        read(tmp_path, text)
        return
    error = error_of(tmp_path, text)
    assert error.startswith(f"channels[0].channel_ttl_seconds (for 'a'): must be at least retention_seconds ({kept})")


def test_they_are_shown_as_they_are_read(tmp_path: Path) -> None:
    """As tables of what is not the default."""
    shown = shown_settings(read(tmp_path, EXAMPLE))["channels"]
    assert isinstance(shown, list | tuple)
    assert shown[0] == {"prefix": "a"}
    assert shown[1]["share"] == 2.0


def test_what_says_that_a_channel_is_occupied(tmp_path: Path) -> None:
    """Members are counted only with `presence`, and somebody must be called."""
    text = '{}[[channels]]\nprefix = "a"\noccupancy_webhooks = true\n{}'
    calls = f'webhook_url = "http://127.0.0.1:5000/"\nwebhook_key = "whsec_{"A" * 32}"\n'
    for settings, table in ((calls, ""), ("", "presence = true\n")):
        error = error_of(tmp_path, text.format(settings, table))
        assert error.endswith("needs presence = true in this table, and a webhook_url")
    read(tmp_path, text.format(calls, "presence = true\n"))


def test_a_reload_leaves_them(tmp_path: Path) -> None:
    """They are part of the shared state, as `retention_seconds` is; keys change all the same."""
    current = read(tmp_path, EXAMPLE)
    wanted = read(tmp_path, 'log_level = "debug"\n' + EXAMPLE.replace("7d", "8d"))
    reloaded = reload_settings(current, wanted)
    assert (reloaded.applied, reloaded.left) == (("log_level",), ("channels",))
    assert reloaded.settings.queue == current.queue
