"""DNS, a database and LDAP, as in Hsu §4.1: dnsmasq, PostgreSQL and slapd on loopback, each in a folder of its own.

Each knows the same players by number. Debian's packages are `dnsmasq-base`, `postgresql` and `slapd`.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg

from loadtest.hsu.player_records import DATABASE_USER, DNS, HOST, LDAP, LDAP_BASE, POSTGRES, address_of, records
from loadtest.load.servers import free_port

START_SECONDS = 30.0

CONNECTIONS = 20
"""That PostgreSQL accepts: it is the limited service of Hsu §4.3, and refuses one more."""

SCHEMA = Path("/etc/ldap/schema/core.schema")

SLAPD = """\
include {schema}
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile {folder}/pid
database mdb
suffix "{base}"
directory {folder}
maxsize 100000000
index cn eq
"""

Players = Sequence[int]


@contextmanager
def real_server(service: str, players: Players) -> Iterator[int]:
    """Run the server of a service that knows these players; yields its port."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        port = free_port()
        command = COMMANDS[service](folder, port, players)
        log = stack.enter_context((folder / "log").open("ab"))
        process = stack.enter_context(subprocess.Popen(command, stdout=log, stderr=log, cwd=folder))  # noqa: S603
        stack.callback(process.terminate)
        _wait_for(service, port, players[0], process, folder / "log")
        if service == POSTGRES:
            _fill_database(port, players)
        yield port


def _dnsmasq(folder: Path, port: int, players: Players) -> list[str]:
    hosts = folder / "hosts"
    hosts.write_text("".join(f"{address_of(number)} player-{number}.game.test\n" for number in players))
    return [
        _program("dnsmasq"), "--no-daemon", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--cache-size=0",
        f"--listen-address={HOST}", "--bind-interfaces", f"--port={port}", f"--addn-hosts={hosts}",
        "--local=/10.in-addr.arpa/",
    ]  # fmt: skip


def _postgres(folder: Path, port: int, players: Players) -> list[str]:
    """PostgreSQL does not run as root: then it runs as the user `postgres`."""
    as_user: list[str] = []
    if not os.getuid():
        shutil.chown(folder, "postgres", "postgres")
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    options = ("--auth=trust", f"--username={DATABASE_USER}", "--no-sync", "--no-instructions", "--locale=C")
    _do([*as_user, _program("initdb"), "-D", str(folder / "data"), *options])
    settings = {
        "listen_addresses": HOST,
        "port": port,
        "unix_socket_directories": "",
        "max_connections": CONNECTIONS,
        "superuser_reserved_connections": 0,
        "fsync": "off",
    }
    return [
        *as_user, _program("postgres"), "-D", str(folder / "data"),
        *(part for name, value in settings.items() for part in ("-c", f"{name}={value}")),
    ]  # fmt: skip


def _fill_database(port: int, players: Players) -> None:
    with psycopg.connect(host=HOST, port=port, user=DATABASE_USER, dbname="postgres") as connection:
        connection.execute("CREATE TABLE players (number integer PRIMARY KEY, games integer NOT NULL DEFAULT 0)")
        connection.execute("INSERT INTO players SELECT unnest(%s::integer[])", [list(players)])


def _slapd(folder: Path, port: int, players: Players) -> list[str]:
    configuration = folder / "slapd.conf"
    configuration.write_text(SLAPD.format(schema=SCHEMA, folder=folder, base=LDAP_BASE))
    entries = folder / "players.ldif"
    name = LDAP_BASE.partition("=")[2]
    entries.write_text(
        f"dn: {LDAP_BASE}\nobjectClass: organizationalUnit\nou: {name}\n\n"
        + "".join(f"dn: cn={number},{LDAP_BASE}\nobjectClass: device\ncn: {number}\n\n" for number in players)
    )
    _do([_program("slapadd"), "-q", "-f", str(configuration), "-l", str(entries)])
    return [_program("slapd"), "-f", str(configuration), "-h", f"ldap://{HOST}:{port}", "-d", "0"]


COMMANDS: Mapping[str, Callable[[Path, int, Players], list[str]]] = {
    DNS: _dnsmasq,
    POSTGRES: _postgres,
    LDAP: _slapd,
}
"""Prepare a folder, and return the command that runs the server in the foreground."""


def _program(name: str) -> str:
    """The path of a program; Debian has some of them where users do not look. Raises: FileNotFoundError."""
    places: Iterable[Path] = [Path("/usr/sbin"), *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    path = os.pathsep.join([os.environ["PATH"], *map(str, places)])
    if found := shutil.which(name, path=path):
        return found
    raise FileNotFoundError(f"{name} is not installed. On Debian: apt-get install dnsmasq-base postgresql slapd")


def _do(command: Sequence[str]) -> None:
    """Run a command to its end. Raises: RuntimeError with what it said, if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr[-2000:]}")


def _wait_for(service: str, port: int, player: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the server answers. Raises: RuntimeError if it does not."""
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if service == DNS:
                records(DNS, port, seconds=0.5)(player)
            elif service == POSTGRES:
                psycopg.connect(host=HOST, port=port, user=DATABASE_USER, dbname="postgres", connect_timeout=2).close()
            else:
                socket.create_connection((HOST, port), 2).close()
        except (OSError, psycopg.OperationalError, TimeoutError):
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"{process.args[0]!r} did not start: {log.read_text()[-2000:]}")  # type: ignore[index]
