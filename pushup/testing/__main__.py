"""`python -m pushup.testing SETTINGS` serves on a free port, with settings given as a JSON object.

It prints its URL. For each line of standard input it stops, starts anew with nothing of before, and prints the URL
again. It ends when standard input does, so also with the process that started it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from twisted.internet.stdio import StandardIO
from twisted.protocols.basic import LineReceiver

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

    def __init__(self, reactor: Any, given: dict[str, object]) -> None:
        """Raises: SettingsError; OSError."""
        self._reactor = reactor
        self._socket = open_socket("127.0.0.1:0")
        self._settings = read_settings(flags={**DEFAULTS, **given})
        self._service = self._make()

    def _make(self) -> PushUpService:
        settings = self._settings
        host = Host(self._reactor, STRATEGIES[settings.server.wait_strategy](self._reactor))
        broadcast = make_broadcast(settings, host)
        node = make_node(settings, host, broadcast)
        return PushUpService(
            settings, host, broadcast, node,
            open_sockets=lambda addresses: [], shared_sockets=[self._socket.dup()],
        )  # fmt: skip

    def connectionMade(self) -> None:
        self._service.startService()
        assert self.transport is not None
        self.transport.write(f"http://{address_of(self._socket)}\n".encode())

    def lineReceived(self, line: bytes) -> None:
        def start(_: None) -> None:
            self._service = self._make()
            self.connectionMade()

        self._service.stopService().addCallback(start)

    def connectionLost(self, reason: Any = None) -> None:
        self._reactor.stop()


def main() -> None:
    from twisted.internet import reactor as any_reactor

    reactor: Any = any_reactor
    use_monotonic_clock(reactor)
    start_logging("warn", "text")
    try:
        server = Server(reactor, json.loads(sys.argv[1]))
    except (OSError, SettingsError) as error:
        sys.exit(f"pushup: {error}")
    reactor.callWhenRunning(StandardIO, server)
    reactor.run()


if __name__ == "__main__":
    main()
