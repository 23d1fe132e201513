"""Checks pushup.service, as far as possible without systemd as the first process."""

from __future__ import annotations

import re
import subprocess
import sys

from deploy.front import HERE
from pushup.host.systemd_notify import EXTEND_SECONDS, STEP_SECONDS

TEXT = (HERE / "pushup.service").read_text()
UNIT = dict(re.findall(r"(?m)^(\w+)=(.*)$", TEXT))


def test_no_key_leaves_its_file() -> None:
    """Neither through the environment nor through a core dump, which the watchdog's SIGABRT would write."""
    lines = TEXT.splitlines()
    assert "LimitCORE=0" in lines
    settings = [line for line in lines if not line.startswith("#")]
    assert [line for line in settings if re.search("KEY|EnvironmentFile", line)] == [
        "Environment=PUSHUP_PUBLISH_KEYS_FILE=/etc/pushup.keys"
    ]


def test_a_start_logs_no_settings() -> None:
    """The server checks them itself; `check-config` before it would print them all into the journal."""
    commands = re.findall(r"(?m)^ExecStart.*$", TEXT)
    assert commands == ["ExecStart=/opt/pushup/bin/pushup serve --config /etc/pushup.toml"]


def test_systemd_goes_on_after_failures() -> None:
    """It never stops restarting the server; one worker that is killed for lack of memory does not end the others."""
    unit, _, service = TEXT.partition("\n[Service]\n")
    assert "StartLimitIntervalSec=0" in unit.splitlines()
    assert "OOMPolicy=continue" in service.splitlines()


def test_the_unit_watches_the_server() -> None:
    """systemd waits until the server is ready, and restarts one that gives no sign of life."""
    assert UNIT["Type"] == "notify"
    assert UNIT["Restart"] == "always"
    assert UNIT["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert "AF_UNIX" in UNIT["RestrictAddressFamilies"].split()
    assert STEP_SECONDS < int(UNIT["WatchdogSec"].removesuffix("s")) < 30
    assert STEP_SECONDS < EXTEND_SECONDS


def test_a_unix_socket_can_be_for_others_and_the_journal_not() -> None:
    """The umask decides who may connect to a socket; whatever it is, nobody else reads what the server stores."""
    assert (UNIT["StateDirectory"], UNIT["RuntimeDirectory"]) == ("pushup", "pushup")
    assert UNIT["StateDirectoryMode"] == "0700"


CONNECT = """
import ctypes, sys
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import StringTransport
from twisted.protocols.tls import TLSMemoryBIOFactory
from pushup.transport.client_tls import ClientTls
if sys.argv[1] == "yes":
    ctypes.CDLL(None).prctl(65, 1, 0, 0, 0)  # PR_SET_MDWE, from Linux 6.3 on
factory = TLSMemoryBIOFactory(ClientTls("redis.internal"), True, Factory.forProtocol(Protocol))
factory.buildProtocol(None).makeConnection(StringTransport())
"""
"""Begin a connection with TLS, in memory that is perhaps never both writable and executable."""


def test_the_server_can_connect_with_tls() -> None:
    """With the memory that the unit allows it, a connection to a `rediss://` or `https://` address begins."""
    denied = UNIT.get("MemoryDenyWriteExecute", "no")
    done = subprocess.run(
        [sys.executable, "-c", CONNECT, denied], cwd=HERE.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
