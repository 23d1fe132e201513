"""A listener: accepts connections on one address."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from ipaddress import ip_address

from twisted.internet.interfaces import IReactorFDSet, IReactorTime, IReadDescriptor
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from pushup.net.log_throttle import LogThrottle

ACCEPTS = 128
"""Connections accepted in one turn of the reactor."""

SHARED_ACCEPTS = 4
"""The same if other processes accept on the same socket: few, so that each gets about as many."""

BACKLOG = 4096
"""Connections that may wait in the kernel, which reduces it to net.core.somaxconn (4096 on today's Linux)."""

PAUSE_SECONDS = 1.0
"""How long accepting pauses when the process has no file descriptor left. New clients wait in the kernel meanwhile."""

UNIX_PATH_LIMIT_BYTES = 107
"""The maximum length of a path in Linux's `sockaddr_un`."""

_NONE_LEFT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_log = Logger()


def open_socket(address: str, *, share_port: bool = False) -> socket.socket:
    """A listening socket for `127.0.0.1:8080`, `[::1]:8080` or `unix:/run/pushup.sock`.

    `share_port`: other processes of this user may listen on the same TCP port; the kernel distributes the connections.
    Raises: ValueError for any other form, OSError when the system refuses.
    """
    if address.startswith("unix:"):
        return _open_unix(address.removeprefix("unix:"))
    return _listen(bind_socket(address, share_port=share_port))


def bind_socket(address: str, *, share_port: bool = False) -> socket.socket:
    """A TCP socket that has this address, but does not listen yet. Raises: as `open_socket`."""
    host, port = parse_address(address)
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted sockets inherit it
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
        return sock
    except BaseException:
        sock.close()
        raise


def open_sockets(
    addresses: Iterable[str], open_one: Callable[[str], socket.socket] = open_socket
) -> list[socket.socket]:
    """Listening sockets for all addresses, or for none. Raises: OSError."""
    sockets: list[socket.socket] = []
    try:
        for address in addresses:
            sockets.append(open_one(address))
    except OSError as error:
        for sock in sockets:
            sock.close()
        to_do = "; stop the server that uses it, or choose another address" if error.errno == errno.EADDRINUSE else ""
        raise OSError(error.errno, f"cannot listen on {address}: {error.strerror}{to_do}") from None
    return sockets


def is_public(address: str) -> bool:
    """Whether other machines can reach the address.

    Raises: ValueError when it is not an address (see `open_socket`).
    """
    if address.startswith("unix:"):
        size = len(os.fsencode(address.removeprefix("unix:")))
        if not 0 < size <= UNIX_PATH_LIMIT_BYTES:
            raise ValueError(f"cannot listen on {address!r}: the path is {'too long' if size else 'empty'}")
        return False
    return not ip_address(parse_address(address)[0]).is_loopback


def parse_address(address: str) -> tuple[str, int]:
    """The host, without brackets, and the port of a TCP address.

    Raises: ValueError.
    """
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    try:
        socket.inet_pton(socket.AF_INET6 if bracketed else socket.AF_INET, host)
    except OSError:
        host = ""
    if not (colon and host and port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ValueError(f"cannot listen on {address!r}: write 127.0.0.1:8080, [::1]:8080 or unix:/run/pushup.sock")
    return host, int(port)


def _open_unix(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        sock.bind(path)
        return _listen(sock)
    except BaseException:
        sock.close()
        raise


def _remove_stale(path: str) -> None:
    """Remove the socket of a server that was killed: one on which nothing listens any more."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)


def _listen(sock: socket.socket) -> socket.socket:
    sock.setblocking(False)
    sock.listen(BACKLOG)
    return sock


def address_of(sock: socket.socket) -> str:
    """The address of a listening socket, in the form that `open_socket` takes."""
    name = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        return f"unix:{name}"
    return f"[{name[0]}]:{name[1]}" if sock.family == socket.AF_INET6 else f"{name[0]}:{name[1]}"


class SocketFile:
    """The path of a Unix socket that was just opened."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = os.stat(path)

    def remove(self) -> None:
        """Remove it, unless it is the next server's by now, or gone."""
        with suppress(OSError):
            now = os.stat(self._path)  # the next server's may have got the same number, but later
            if os.path.samestat(now, self._file) and now.st_mtime_ns == self._file.st_mtime_ns:
                os.unlink(self._path)


@implementer(IReadDescriptor)
class Listener:
    """Passes each accepted socket, made non-blocking, to `accepted`, from `start` until `close`."""

    def __init__(
        self,
        sock: socket.socket,
        *,
        reactor: IReactorFDSet,
        clock: IReactorTime,
        accepted: Callable[[socket.socket], None],
        is_shared: bool = False,
    ) -> None:
        """`is_shared`: other processes accept on this very socket."""
        self._socket = sock
        self._file = SocketFile(sock.getsockname()) if sock.family == socket.AF_UNIX and not is_shared else None
        self._accepts = SHARED_ACCEPTS if is_shared else ACCEPTS
        self._reactor = reactor
        self._clock = clock
        self._accepted = accepted
        self._rarely = LogThrottle(clock.seconds)
        self.address = address_of(sock)
        self._closed = False

    def start(self) -> None:
        """Accept connections."""
        self._reactor.addReader(self)

    def close(self) -> None:
        """Remove a Unix socket's path, and stop accepting. Clients that wait are accepted first, or the kernel would
        reset their connections: nobody may be left who accepts on this socket."""
        if self._closed:
            return
        self._closed = True
        self._reactor.removeReader(self)
        if self._file is not None:
            self._file.remove()
        self._accept(BACKLOG)
        self._socket.close()

    # What the reactor calls.

    def fileno(self) -> int:
        return self._socket.fileno()

    def doRead(self) -> None:
        self._accept(self._accepts)

    def connectionLost(self, reason: Failure) -> None:
        """Part of the reactor's interface; never happens to a listening socket."""

    def logPrefix(self) -> str:
        return "listener"

    def _accept(self, most: int) -> None:
        """Accept clients that wait."""
        for _ in range(most):
            try:
                sock, _ = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _NONE_LEFT:
                    if not self._closed:
                        self._pause(error)
                    return
                continue  # the client left before it was accepted
            try:
                sock.setblocking(False)
                self._accepted(sock)
            except Exception:
                _log.failure("cannot serve a connection accepted on {address}, which is closed", address=self.address)
                sock.close()

    def _pause(self, error: OSError) -> None:
        """Stop watching for a while: a connection that cannot be accepted would be reported again and again."""
        if count := self._rarely.passes("pause"):
            _log.error(
                "cannot accept on {address}: {error}; new clients wait, and accepting is retried every second"
                + " (failed {times} times since last logged)" * (count > 1),
                address=self.address,
                error=os.strerror(error.errno or 0),
                times=count,
            )
        self._reactor.removeReader(self)
        self._clock.callLater(PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        if not self._closed:
            self._reactor.addReader(self)
