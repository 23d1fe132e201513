"""Keys and addresses from files: used, never shown, and reported where others can read them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.server.command_line import error_of, run
from tests.server.conftest import Serve
from tests.server.redis_server import RedisServer
from tests.server.reloading import secret
from tests.server.server_process import wait_until

KEY = "a-publish-key-of-27-letters"


def test_publish_with_a_key_from_a_file(serve: Serve, tmp_path: Path) -> None:
    """Server and client read the key from one file; it is not in their arguments, environment or logs, nor
    in the output of check-config."""
    file = secret(tmp_path / "keys", f"# of the application\nmailer {KEY}\n")
    with serve(publish_keys_file=file) as server:
        told = run("publish", "a", "-d", "1", "--key-file", str(file), PUSHUP_URL=server.url)
        assert told.returncode == 0, told.stderr
        assert run("publish", "a", "-d", "1", PUSHUP_URL=server.url, PUSHUP_KEY_FILE=str(file)).returncode == 0
        assert run("channel", "list", "--key-file", str(file), PUSHUP_URL=server.url).returncode == 0
        assert "401" in error_of("publish", "a", "-d", "1", PUSHUP_URL=server.url)
        assert KEY not in " ".join(server.process.cmdline())
        assert KEY not in repr(server.process.environ())
        assert KEY not in "\n".join(server.log_lines())
    shown = run("check-config", "--set", f"publish_keys_file={file}")
    assert f"publish_keys_file = {json.dumps(str(file))}" in shown.stdout.splitlines()
    assert "publish_keys = " not in shown.stdout
    assert KEY not in shown.stdout + shown.stderr
    again = secret(tmp_path / "pushup.toml", shown.stdout)
    assert run("check-config", "--config", str(again)).stdout == shown.stdout


def test_key_files_of_a_client_that_are_wrong(tmp_path: Path) -> None:
    """A key besides a file, a file with two keys, with none, or missing: an error that shows no key."""
    file = secret(tmp_path / "keys", f"{KEY}\n{KEY}2\n")
    call = ("publish", "a", "-d", "1", "--url", "http://127.0.0.1:9")
    for said in (
        error_of(*call, "--key-file", str(file)),
        error_of(*call, "--key-file", str(file), "--key", KEY),
        error_of(*call, "--key-file", str(file), PUSHUP_KEY=KEY),
        error_of(*call, "--key-file", str(secret(tmp_path / "none", "# nothing\n"))),
        error_of(*call, "--key-file", str(tmp_path / "missing")),
        error_of(*call, "--key-file", str(secret(tmp_path / "odd", f"{KEY}\u00e4"))),
        error_of(*call, PUSHUP_KEY=f"{KEY}\n"),
    ):
        assert "key" in said
        assert KEY not in said
        assert "cannot reach" not in said


def test_redis_by_a_password_in_a_file(serve: Serve, tmp_path: Path) -> None:
    """The address of a Redis with a password comes from a file, and the password appears nowhere else."""
    password = "a-password-of-redis"
    with RedisServer(tmp_path / "redis", password=password) as redis:
        file = secret(tmp_path / "address", f"redis://:{password}@127.0.0.1:{redis.port}\n")
        with serve(broadcast_file=file) as server, server.caller() as caller:
            server.expect_log("there is no message log in Redis")
            wait_until(lambda: caller.call("GET", "/readyz").status == 200, "the node to be ready")
            caller.publish(["a"], 1)
            for place in (repr(server.process.cmdline()), repr(server.process.environ()), *server.log_lines()):
                assert password not in place
        shown = run("check-config", "--set", f"broadcast_file={file}")
        assert shown.returncode == 0
        assert password not in shown.stdout + shown.stderr
        assert f"broadcast_file = {json.dumps(str(file))}" in shown.stdout.splitlines()


def test_a_secret_that_everybody_can_read(serve: Serve, tmp_path: Path) -> None:
    """The server starts, and both it and check-config warn; a file readable by its group is accepted silently."""
    file = secret(tmp_path / "keys", KEY, 0o644)
    with serve(publish_keys_file=file) as server:
        pattern = f"publish_keys_file: every user of this machine can read or change {file}; run chmod o= {file}"
        assert sum(pattern in line and " warn " in line for line in server.log_lines()) == 1
        server.expect_log(pattern)
    checked = run("check-config", "--set", f"publish_keys_file={file}")
    assert checked.returncode == 0
    assert f"Warning: {pattern}" in checked.stderr
    file.chmod(0o640)
    assert run("check-config", "--set", f"publish_keys_file={file}").stderr == ""
