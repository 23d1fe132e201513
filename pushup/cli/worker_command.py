"""Runs a worker in this process.

    python -m pushup.cli.worker_command NUMBER LINKS LISTENING

Only the parent process starts it (`pushup.workers.worker_process`). LINKS are the file descriptors of its links to the
parent, for control and for the order (none with Redis); LISTENING are those of the listening sockets.
"""

from __future__ import annotations

import socket
import sys

from pushup.workers.worker import Worker


def main(number: str, links: str, listening: str) -> None:
    from twisted.internet import reactor

    Worker(int(number), sockets(links), sockets(listening), reactor).run()


def sockets(files: str) -> list[socket.socket]:
    """Those with these file descriptors. Programs that the authorizer starts do not get them, too."""
    found = [socket.socket(fileno=int(file)) for file in files.split(",") if file]
    for sock in found:
        sock.set_inheritable(False)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
