"""A network of its own for a command, in which the kernel drops a share of the packets.

It drops them where they arrive, so that whoever sends them sees no error. It needs Linux with network namespaces
(`unshare`) and nftables (`nft`); and root, unless users may have namespaces.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

SAFE_ADDRESS = "127.0.0.2"
"""Nothing from or to this address is dropped."""

STEPS = 10_000
"""The share that is dropped is a multiple of one of these."""

_SET_FLAGS, _UP = 0x8914, 1
"""Of network interfaces in Linux: SIOCSIFFLAGS and IFF_UP."""


class Packets(NamedTuple):
    """Of this network since it began: TCP segments sent, those sent again, timeouts after which that was; dropped."""

    sent: int
    resent: int
    timeouts: int
    dropped: int

    def since(self, before: Packets) -> Packets:
        return Packets(*(now - then for now, then in zip(self, before, strict=True)))


def inside(command: Sequence[str]) -> list[str]:
    """The command, to be run in a network of its own, which has nothing yet."""
    return ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--net", "--", *command]


def why_not() -> str:
    """Why this system cannot do it; empty if it can."""
    help_text = "Install nftables and util-linux, and run as root or allow users to have namespaces."
    if missing := [program for program in ("unshare", "nft") if shutil.which(program) is None]:
        return f"packets cannot be dropped here: there is no {' and no '.join(missing)}. {help_text}"
    attempt = f"from {__name__} import begin, lose; begin(); lose(0.5)"
    done = subprocess.run(inside([sys.executable, "-c", attempt]), capture_output=True, text=True, check=False)  # noqa: S603
    error = done.stderr.strip().splitlines()[-1:] or ["no error was told"]
    return f"packets cannot be dropped here: {error[0]}. {help_text}" if done.returncode else ""


def begin() -> None:
    """Let this network, which has nothing, carry packets of this machine. Raises: OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SET_FLAGS, struct.pack("16sH14x", b"lo", _UP))


def lose(share: float) -> None:
    """Drop this share of the TCP packets from now on. Raises: CalledProcessError."""
    which = f"meta l4proto tcp ip saddr != {SAFE_ADDRESS} ip daddr != {SAFE_ADDRESS}"
    rules = (
        "add table inet loss\n"
        "add counter inet loss dropped\n"
        "add chain inet loss input { type filter hook input priority 0; }\n"
        f"add rule inet loss input {which} numgen random mod {STEPS} < {round(share * STEPS)}"
        " counter name dropped drop\n"
    )
    subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=True)  # noqa: S607


def packets() -> Packets:
    """The counts of the kernel, after `lose`."""
    listed = subprocess.run(["nft", "-j", "list", "counters"], capture_output=True, text=True, check=True)  # noqa: S607
    (dropped,) = (each["counter"]["packets"] for each in json.loads(listed.stdout)["nftables"] if "counter" in each)
    tcp, more = _counters("snmp", "Tcp"), _counters("netstat", "TcpExt")
    return Packets(tcp["OutSegs"], tcp["RetransSegs"], more["TCPTimeouts"], dropped)


def _counters(file: str, group: str) -> dict[str, int]:
    """Of two lines: a group's names, and its values."""
    lines = Path("/proc/net", file).read_text().splitlines()
    names, values = (line.split()[1:] for line in lines if line.startswith(f"{group}:"))
    return {name: int(value) for name, value in zip(names, values, strict=True)}
