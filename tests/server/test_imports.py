"""The command line starts fast, because client commands do not import the server."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.server.server_process import clean_environment

HEAVY = ("twisted", "zope", "psutil", "prometheus_client", "httptools", "hiredis", "msgspec", "sortedcontainers")
"""Modules that only a server needs; Twisted alone takes longer to import than a client command runs."""

NOT_OF_A_SERVER = {
    "pushup",
    "pushup.cli",
    "pushup.client",
    "pushup.host",
    "pushup.host.build_form",
    "pushup.settings",
    "pushup.secret_files",
}

CODE = """
import sys
from pushup.cli import main
try:
    main(sys.argv[1:])
finally:
    sys.stderr.write("\\nimported: " + " ".join(sys.modules))
"""


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("--version", 0),
        ("--help", 0),
        ("serve --help", 0),
        ("check-config --help", 0),
        ("publish a -d 1", 1),
        ("poll a --url nowhere", 1),
        ("channel create a", 1),
        ("channel renew a", 1),
        ("channel close a", 1),
        ("channel list", 1),
        ("channel show a", 1),
    ],
)
def test_client_commands_import_no_server(command: str, code: int) -> None:
    """A command that calls a server, or prints help, imports neither Twisted nor any other part of the server."""
    ended = subprocess.run(
        [sys.executable, "-c", CODE, *command.split()],
        env=clean_environment({"PUSHUP_URL": "http://127.0.0.1:9"}),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == code, ended.stderr
    imported = set(ended.stderr.rpartition("imported: ")[2].split())
    assert "pushup.cli" in imported
    assert {name for name in imported if name.partition(".")[0] in HEAVY} == set()
    ours = {".".join(name.split(".")[:2]) for name in imported if name.partition(".")[0] == "pushup"}
    assert ours <= NOT_OF_A_SERVER
