"""Checks whether this machine can provide what the settings need: writable directories, addresses, a function to call.
They run before a server starts, and in `pushup check-config`.

Whether a directory is writable is tested by creating a temporary file in it. So root's rights, a read-only file system,
access control lists and quotas are all taken into account.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pushup.backends.function_authorizer import load
from pushup.broadcast.journal_file import ROOM_BYTES
from pushup.net.listener import bind_socket, is_public, open_sockets, parse_address
from pushup.secret_files import is_open_to_all
from pushup.settings.settings import SECRET_FILES, Settings, flat_settings


def troubles(settings: Settings) -> Iterator[str]:
    """The reasons why a server with these settings cannot run here, each with the name of its setting.

    A server that already runs here with the same settings is not one of them.
    """
    server = settings.server
    if server.broadcast.startswith("journal:"):
        text = _journal_trouble(Path(server.broadcast.removeprefix("journal:")))
        if text is not None:
            yield f"broadcast: {text}"
    if server.state_directory and server.broadcast.startswith("redis"):
        text = _state_trouble(Path(server.state_directory))
        if text is not None:
            yield f"state_directory: {text}"
    for name, addresses in (("listen", server.listen), ("operator_listen", server.operator_listen)):
        for address in addresses:
            unix = address.startswith("unix:")
            text = _socket_trouble(Path(address.removeprefix("unix:"))) if unix else address_trouble(address)
            if text is not None:
                yield f"{name}: {text}"
    if settings.authorization.authorizer:
        try:
            load(settings.authorization.authorizer)
        except ValueError as error:
            yield f"authorizer: {error}"


def warnings(settings: Settings) -> Iterator[str]:
    """Problems that do not keep a server from running, but that its operator should know."""
    values = flat_settings(settings)
    for setting in SECRET_FILES:
        file = values[setting]
        if file and is_open_to_all(Path(file)):
            yield f"{setting}: every user of this machine can read or change {file}; run chmod o= {file}"
    public = [address for address in settings.server.listen if is_public(address)]
    if public and not settings.server.publish_keys:
        yield f"listen: anyone who can reach {public[0]} can publish; set publish_keys"


def check_free(settings: Settings) -> None:
    """Raises: OSError if somebody has one of the addresses.

    To be called before a journal is opened: each start names the order anew, and only the last names are remembered. A
    server that is started again and again while its port is taken would use them up, and all cursors would be lost.
    """
    for sock in open_sockets((*settings.server.listen, *settings.server.operator_listen), _probe):
        sock.close()


def _probe(address: str) -> socket.socket:
    """A socket to be closed. Raises: OSError if this address is taken, or may not be used."""
    if not address.startswith("unix:"):
        return bind_socket(address)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    error = sock.connect_ex(address.removeprefix("unix:"))
    if error not in (errno.ECONNREFUSED, errno.ENOENT):  # that of a server that was killed, or none
        sock.close()
        error = errno.EADDRINUSE if error in (0, errno.EAGAIN) else error
        raise OSError(error, os.strerror(error))
    return sock


def _journal_trouble(path: Path) -> str | None:
    """Why SQLite cannot write to this file and to a second one in its directory."""
    trouble = _directory_trouble(path.parent)
    if trouble is not None:
        return f"cannot write a journal to {path}: {trouble}"
    try:
        with path.open("r+b") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return f"cannot write a journal to {path}: it is not a regular file"
            is_new = not status.st_size
    except FileNotFoundError:
        is_new = True
    except IsADirectoryError:
        return f"cannot write a journal to {path}: it is a directory; append a file name"
    except OSError as error:
        return f"cannot write a journal to {path}: {_reason(error)} (as {_who()})"
    if is_new:  # one with content can be served from while the disk is full
        try:
            with tempfile.TemporaryFile(dir=path.parent, prefix=".pushup-") as file:
                file.write(bytes(ROOM_BYTES))
        except OSError as error:
            return f"cannot create a journal at {path}: {_reason(error)}"
    return None


def _state_trouble(directory: Path) -> str | None:
    """Why this directory cannot be created, or files in it cannot."""
    existing = directory
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    return _directory_trouble(existing)


def _socket_trouble(path: Path) -> str | None:
    trouble = _directory_trouble(path.parent)
    if trouble is not None:
        return f"cannot listen on unix:{path}: {trouble}"
    try:
        is_socket = stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return None
    return None if is_socket else f"cannot listen on unix:{path}: a file that is not a socket already exists there"


def _directory_trouble(directory: Path) -> str | None:
    try:
        if not directory.is_dir():
            return f"{directory} {'is not a directory' if directory.exists() else 'does not exist; create it first'}"
        with tempfile.TemporaryFile(dir=directory, prefix=".pushup-"):
            return None
    except OSError as error:
        return f"{_who()} cannot write to {directory}: {_reason(error)}"


def address_trouble(address: str) -> str | None:
    """Why this machine, or this user, cannot have this address. That somebody has it already is no reason."""
    host, port = parse_address(address)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                return f"cannot listen on {address}: this machine does not have this address"
            if error.errno != errno.EADDRINUSE:
                return f"cannot listen on {address} as {_who()}: {_reason(error)}"
    return None


def _who() -> str:
    return f"user {os.geteuid()}"


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
