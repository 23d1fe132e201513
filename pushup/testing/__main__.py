"""`python -m pushup.testing SETTINGS` serves on a free port, with settings given as a JSON object.

It prints its URL. For each line of standard input it stops, starts anew with nothing of before and the settings in this
line, and prints the URL again. It ends when standard input does, so also with the process that started it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from twisted.internet.stdio import StandardIO
from twisted.protocols.basic import LineReceiver
from twisted.python.failure import Failure

from pushup.clock import use_monotonic_clock
from pushup.host.host import Host
from pushup.host.logs import start_logging
from pushup.net.listener import address_of, open_socket
from pushup.net.wait import STRATEGIES
from pushup.parts import make_broadcast, make_node
from pushup.service import PushUpService
from pushup.settings.settings import SettingsError, read_settings
from pushup.testing.recorder import SETTINGS

DEFAULTS = {**SETTINGS, "drain_seconds": 0.01, "log_level": "warn"}


class Server(LineReceiver):
    """Starts and stops the server. Clients that connect meanwhile wait in the kernel, as the socket stays open."""

    delimiter = b"\n"
    transport: Any

    def __init__(self, reactor: Any, given: str) -> None:
        """Raises: SettingsError; OSError."""
        self._reactor = reactor
        self._socket = open_socket("127.0.0.1:0")
        self._service = self._make(given)

    def _make(self, given: str | bytes) -> PushUpService:
        settings = read_settings(flags={**DEFAULTS, **json.loads(given)})
        host = Host(self._reactor, STRATEGIES[settings.server.wait_strategy](self._reactor))
        broadcast = make_broadcast(settings, host)
        node = make_node(settings, host, broadcast)
        return PushUpService(
            settings, host, broadcast, node,
            open_sockets=lambda addresses: [], shared_sockets=[self._socket.dup()],
        )  # fmt: skip

    def connectionMade(self) -> None:
        self._service.startService()
        self.transport.write(f"http://{address_of(self._socket)}\n".encode())

    def lineReceived(self, line: bytes) -> None:
        def start(_: None) -> None:
            self._service = self._make(line)
            self.connectionMade()

        def failed(why: Failure) -> None:
            sys.stderr.write(f"pushup: {why.value}\n")
            self.transport.loseConnection()

        self._service.stopService().addCallback(start).addErrback(failed)

    def connectionLost(self, reason: Any = None) -> None:
        self._reactor.stop()


def main() -> None:
    from twisted.internet import reactor as any_reactor

    reactor: Any = any_reactor
    use_monotonic_clock(reactor)
    start_logging("warn", "text")
    try:
        server = Server(reactor, sys.argv[1])
    except (OSError, SettingsError) as error:
        sys.exit(f"pushup: {error}")
    reactor.callWhenRunning(StandardIO, server)
    reactor.run()


if __name__ == "__main__":
    main()
