"""Settings from all places, as `pushup check-config` shows them or says what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.server.command_line import error_of, run

KEY = "a-publish-key-of-27-letters"


def test_check_config_joins_all_places(tmp_path: Path) -> None:
    """Flags win over the environment, that over the file, and that over the defaults; units are understood."""
    file = tmp_path / "pushup.toml"
    file.write_text('retention_seconds = "2m"\nretention_messages = 7\npoll_limit = 3\nlisten = ["127.0.0.1:1"]\n')
    ended = run(
        "check-config", "--config", str(file), "--set", "poll_limit=5", "--listen", "[::1]:2",
        PUSHUP_POLL_LIMIT="4", PUSHUP_RETENTION_MESSAGES="8", PUSHUP_RETENTION_BYTES="64MiB",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    for line in (
        "retention_seconds = 120.0", "retention_messages = 8", "retention_bytes = 67108864", "poll_limit = 5",
        'listen = ["[::1]:2"]', "connections_limit = 100000",
    ):  # fmt: skip
        assert line in lines
    file.write_text(ended.stdout)
    assert run("check-config", "--config", str(file)).stdout == ended.stdout


@pytest.mark.parametrize(
    ("place", "name", "value", "said"),
    [
        ("file", "retention_second", "1", "did you mean 'retention_seconds'?"),
        ("environment", "retention_second", "1", "did you mean 'retention_seconds'?"),
        ("flag", "retention_second", "1", "did you mean 'retention_seconds'?"),
        ("environment", "retention_seconds", "5 parsecs", "unit of ms, s, m, h, d"),
        ("flag", "retention_bytes", "64KB", "unit of B, KiB, MiB, GiB"),
        ("file", "poll_limit", "many", "poll_limit = 'many'"),
        ("environment", "poll_limit", "0", "must be above 0"),
        ("flag", "wait_strategy", "guess", "one of"),
        ("file", "broadcast", "carrier-pigeon:", "neither memory: nor"),
        ("environment", "listen", "nowhere", "write 127.0.0.1:8080"),
        ("flag", "output_limit_bytes", "1KiB", "it must hold an answer"),
    ],
)
def test_bad_setting_is_named(tmp_path: Path, place: str, name: str, value: str, said: str) -> None:
    """An unknown name and a bad value are told with the setting and what is right, wherever they stand."""
    arguments, environment = ["check-config"], {}
    if place == "file":
        (tmp_path / "pushup.toml").write_text(f"{name} = {json.dumps(value)}\n")
        arguments += ["--config", str(tmp_path / "pushup.toml")]
    elif place == "environment":
        environment[f"PUSHUP_{name.upper()}"] = value
    else:
        arguments += ["--set", f"{name}={value}"]
    error = error_of(*arguments, **environment)
    assert said in error
    assert name in error


def test_bad_file_is_named(tmp_path: Path) -> None:
    """A file that is not there, or not TOML, is named with the reason."""
    file = tmp_path / "pushup.toml"
    assert f"cannot read {file}: No such file" in error_of("check-config", "--config", str(file))
    file.write_text("retention_seconds: 5\n")
    assert f"{file} is not TOML" in error_of("check-config", "--config", str(file))


def test_check_config_shows_no_secret(tmp_path: Path) -> None:
    """Keys are never printed, also where something is wrong with them."""
    ended = run("check-config", PUSHUP_PUBLISH_KEYS=f"{KEY},{KEY}2")
    assert ended.returncode == 0
    assert 'publish_keys = "not shown"' in ended.stdout.splitlines()
    assert KEY not in ended.stdout + ended.stderr
    assert "at least 16" in error_of("check-config", PUSHUP_PUBLISH_KEYS="not-so-long")
    assert "not-so-long" not in error_of("check-config", PUSHUP_PUBLISH_KEYS="not-so-long")
    file = tmp_path / "pushup.toml"
    file.write_text(f'publish_keys = ["{KEY}", 5]\n')
    assert KEY not in error_of("check-config", "--config", str(file))
