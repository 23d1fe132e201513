"""Settings from all sources, as `pushup check-config` shows them or reports errors in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pushup.broadcast.progress_mark import lock_file
from tests.server.command_line import error_of, run
from tests.server.server_process import clean_environment, running

KEY = "a-publish-key-of-27-letters"


def test_check_config_merges_all_sources(tmp_path: Path) -> None:
    """Flags override the environment, which overrides the file, which overrides the defaults; units are understood."""
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


def test_tables_are_shown_as_a_file_has_them(tmp_path: Path) -> None:
    """They come last, and what is printed can be used as a file, with any letters."""
    file = tmp_path / "pushup.toml"
    tables = '[[channels]]\nprefix = "a"\n[[channels]]\nprefix = "\U0001f600\\""\nretention_seconds = "7d"\nshare = 2\n'
    file.write_text(f'node_name = "Zürich \U0001f600"\n{tables}')
    ended = run("check-config", "--config", str(file))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith("\n" + tables.replace('"7d"', "604800.0").replace("2\n", "2.0\n"))
    file.write_text(ended.stdout)
    assert run("check-config", "--config", str(file)).stdout == ended.stdout
    file.write_text(ended.stdout.replace("share", "shares"))
    assert f"{file}: channels[1]: unknown setting 'shares' (did you mean 'share'?)" in error_of(
        "check-config", "--config", str(file)
    )


def test_a_server_that_anybody_may_use_is_warned_about() -> None:
    """Where anyone who reaches it may publish, it is allowed, but said; not on loopback, and not with keys."""
    allowed = {"PUSHUP_ALLOW_PUBLIC_WITHOUT_KEYS": "true"}
    public = run("check-config", "--listen", "127.0.0.1:1", "--listen", "0.0.0.0:2", **allowed)
    warning = "Warning: listen: anyone who can reach 0.0.0.0:2 can publish; set publish_keys\n"
    assert (public.returncode, public.stderr) == (0, warning)
    assert run("check-config", **allowed).stderr == ""
    assert run("check-config", "--listen", "0.0.0.0:2", **allowed, PUSHUP_PUBLISH_KEYS=KEY).stderr == ""


@pytest.mark.parametrize(
    ("place", "name", "value", "said"),
    [
        ("file", "retention_second", "1", "did you mean 'retention_seconds'?"),
        ("environment", "retention_seconds", "5 parsecs", "unit of ms, s, m, h, d"),
        ("flag", "retention_bytes", "64KB", "unit of B, KiB, MiB, GiB"),
        ("file", "poll_limit", "many", "poll_limit = 'many'"),
        ("flag", "hold_jitter", "-0.1", "must be at least 0"),
        ("file", "hold_jitter", "1", "must be below 1"),
        ("flag", "output_limit_bytes", "1KiB", "must be at least answer_limit_bytes + message_limit_bytes"),
        ("file", "cors_origins", "http://localhost:3000/", "write that"),
    ],
)
def test_bad_setting_is_named(tmp_path: Path, place: str, name: str, value: str, said: str) -> None:
    """An unknown name or a bad value is reported with the setting and what would be valid, wherever it comes from."""
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


def test_check_config_shows_no_secret(tmp_path: Path) -> None:
    """Keys are never printed, even when they are invalid."""
    ended = run("check-config", PUSHUP_PUBLISH_KEYS=f"{KEY},{KEY}2")
    assert ended.returncode == 0
    assert 'publish_keys = "not shown"' in ended.stdout.splitlines()
    assert KEY not in ended.stdout + ended.stderr
    assert "at least 16" in error_of("check-config", PUSHUP_PUBLISH_KEYS="not-so-long")
    assert "not-so-long" not in error_of("check-config", PUSHUP_PUBLISH_KEYS="not-so-long")
    file = tmp_path / "pushup.toml"
    file.write_text(f'publish_keys = ["{KEY}", 5]\n')
    assert KEY not in error_of("check-config", "--config", str(file))


def test_an_empty_flag_is_not_a_default() -> None:
    """A flag from an empty shell variable is an error: --broadcast '' does not silently mean memory."""
    assert "broadcast: '' is neither memory: nor" in error_of("check-config", "--broadcast", "")
    assert "cannot listen on ''" in error_of("check-config", "--listen", "")


# What the machine must provide.


def commands(*flags: str) -> list[str]:
    """The error that both commands print; `serve` must not start to listen."""
    said = []
    for command in ("check-config", "serve"):
        ended = run(command, *([] if "--listen" in flags else ["--listen", "127.0.0.1:0"]), *flags)
        assert ended.returncode == 1, ended.stdout
        assert "Traceback" not in ended.stderr
        assert "listens on" not in ended.stdout
        said.append(ended.stderr.partition("Error: ")[2])
    return said


def test_an_unusable_journal(tmp_path: Path) -> None:
    """A journal whose directory is missing, a file, or not writable even for root is refused, with the reason."""
    (tmp_path / "file").touch()
    for path, reason in (
        (tmp_path / "missing" / "journal.db", f"{tmp_path}/missing does not exist; create it first"),
        (tmp_path / "file" / "journal.db", f"{tmp_path}/file is not a directory"),
        (tmp_path, "it is a directory"),
        (Path("/proc/journal.db"), " cannot write to /proc"),
    ):
        for said in commands("--broadcast", f"journal:{path}"):
            assert said.startswith(f"broadcast: cannot write a journal to {path}: ")
            assert reason in said


def test_a_directory_of_another_user() -> None:
    """A user without write access to the journal's directory or file is told so before the server starts."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "journal.db").touch(0o644)
        directory.chmod(0o555)
        said = error_of_another_user("check-config", "--broadcast", f"journal:{directory}/journal.db")
        assert f"broadcast: cannot write a journal to {directory}/journal.db: user" in said
        assert f" cannot write to {directory}: " in said
        assert ": permission denied" in said
        said = error_of_another_user("check-config", "--listen", f"unix:{directory}/pushup.sock")
        assert f"listen: cannot listen on unix:{directory}/pushup.sock: user" in said
        directory.chmod(0o777)
        (directory / "journal.db").chmod(0o444)
        said = error_of_another_user("check-config", "--broadcast", f"journal:{directory}/journal.db")
        assert f"cannot write a journal to {directory}/journal.db: permission denied (as user" in said
        assert os.listdir(directory) == ["journal.db"]


def error_of_another_user(*arguments: str) -> str:
    """The error of a call that must fail, when the user is not root."""
    drop = "os.setgroups([]); os.setgid(65534); os.setuid(65534); " if os.geteuid() == 0 else ""
    imports = "import os, tempfile, msgspec, pushup.host.preflight; from pushup.cli import main"
    code = f"{imports}; {drop}main({[*arguments]!r})"
    ended = subprocess.run(
        [sys.executable, "-c", code], env=clean_environment(), capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.returncode == 1, ended.stderr
    return ended.stderr


def test_addresses_that_cannot_be_listened_on(tmp_path: Path) -> None:
    """A socket in a missing directory, a file in the socket's place, an address of another machine."""
    (tmp_path / "file").touch()
    for address, reason in (
        (f"unix:{tmp_path}/missing/pushup.sock", f"{tmp_path}/missing does not exist; create it first"),
        (f"unix:{tmp_path}/file", "a file that is not a socket already exists there"),
        ("192.0.2.1:8080", "this machine does not have this address"),
    ):
        for said in commands("--listen", address, "--set", f"publish_keys={KEY}"):
            assert said.startswith(f"listen: cannot listen on {address}: {reason}")


def test_check_config_beside_a_server(tmp_path: Path) -> None:
    """The settings of a running server are valid, too, and checking them changes nothing."""
    flags = (
        "--listen",
        f"unix:{tmp_path}/a.sock",
        "--listen",
        "127.0.0.1:0",
        "--broadcast",
        f"journal:{tmp_path}/a.db",
    )
    with running(tmp_path / "log", flags) as server:
        files = sorted(os.listdir(tmp_path))
        checked = run("check-config", *(word.replace("127.0.0.1:0", server.addresses[1]) for word in flags))
        assert checked.returncode == 0, checked.stderr
        assert sorted(os.listdir(tmp_path)) == files
        with server.caller() as caller:
            caller.publish(["a"], 1)
        assert server.trouble() == []


def test_all_errors_are_reported(tmp_path: Path) -> None:
    """Everything that would prevent a server from running is reported at once, each on its own line."""
    said = error_of(
        "check-config", "--broadcast", f"journal:{tmp_path}/no/a.db", "--listen", f"unix:{tmp_path}/no/a.sock",
        "--set", "authorizer=no_such_module:f",
    )  # fmt: skip
    assert [line.removeprefix("Error: ").partition(":")[0] for line in said.splitlines()] == [
        "broadcast", "listen", "authorizer",
    ]  # fmt: skip


def test_a_state_directory_of_another_server_is_refused(tmp_path: Path) -> None:
    """Two nodes would put each other's mark back."""
    arguments = ("--broadcast", "redis://127.0.0.1:1", "--set", f"state_directory={tmp_path}")
    with lock_file(tmp_path / "pushup.lock"):
        error = error_of("serve", "--listen", "127.0.0.1:0", *arguments)
    assert f"state_directory: {tmp_path} is in use by another server" in error


def test_a_state_directory_is_created_or_refused(tmp_path: Path) -> None:
    """It need not exist, but files in it must be possible; without Redis it is not used."""
    redis = ("--broadcast", "redis://127.0.0.1:1")
    for name in ("", str(tmp_path), str(tmp_path / "new" / "one")):
        assert run("check-config", *redis, "--set", f"state_directory={name}").returncode == 0
    file = tmp_path / "file"
    file.write_text("")
    for directory in (file, file / "below"):
        error = error_of("check-config", *redis, "--set", f"state_directory={directory}")
        assert f"state_directory: {file} is not a directory" in error
        assert error_of("serve", *redis, "--listen", "127.0.0.1:0", "--set", f"state_directory={directory}") == error
        assert run("check-config", "--set", f"state_directory={directory}").returncode == 0
