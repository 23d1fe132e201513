"""The reactor of a simulated server: its time, and the connections that an HTTP client of Twisted's makes from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.internet.error import UserError
from twisted.internet.interfaces import (
    IAddress,
    IConnector,
    IHostnameResolver,
    IHostResolution,
    IReactorPluggableNameResolver,
    IResolutionReceiver,
)
from twisted.python.failure import Failure
from zope.interface import implementer

from pushup.testing.in_memory import InMemoryReactor
from tests.simulation.network import End, Network
from tests.simulation.sockets import SimulatedTransport
from tests.simulation.world import Process

APPLICATION = "application"
"""The only host whose name is resolved, and to which all such connections lead."""

ADDRESS = IPv4Address("TCP", "10.0.0.1", 80)


@implementer(IReactorPluggableNameResolver)
class SimulatedReactor(InMemoryReactor):
    """The time of a process, who wants to read, and connections to the application."""

    def __init__(self, process: Process, network: Network) -> None:
        super().__init__()
        self.seconds = process.reactor.seconds
        self.callLater = process.reactor.callLater
        self.nameResolver = _Resolver()
        self._process = process
        self._network = network

    def connectTCP(
        self,
        host: str,
        port: int,
        factory: Any,
        timeout: float = 30,
        bindAddress: Any = None,  # noqa: N803
    ) -> IConnector:
        assert (host, port) == (ADDRESS.host, ADDRESS.port)
        return _Connector(self._process, self._network, factory)

    def installNameResolver(self, resolver: IHostnameResolver) -> IHostnameResolver:
        raise NotImplementedError("there is one resolver for good; Twisted's interface has this method")


@implementer(IHostnameResolver)
class _Resolver:
    def resolveHostName(
        self,
        resolutionReceiver: IResolutionReceiver,  # noqa: N803
        hostName: str,  # noqa: N803
        portNumber: int = 0,  # noqa: N803
        addressTypes: Sequence[type[IAddress]] | None = None,  # noqa: N803
        transportSemantics: str = "TCP",  # noqa: N803
    ) -> IHostResolution:
        assert hostName == APPLICATION, hostName
        resolution = _Resolution()
        resolutionReceiver.resolutionBegan(resolution)
        resolutionReceiver.addressResolved(ADDRESS)
        resolutionReceiver.resolutionComplete()
        return resolution


@implementer(IHostResolution)
class _Resolution:
    name = APPLICATION

    def cancel(self) -> None:
        raise AssertionError("it is complete at once")


@implementer(IConnector)
class _Connector:
    """One attempt to connect."""

    def __init__(self, process: Process, network: Network, factory: Any) -> None:
        self._factory = factory
        self._is_over = False
        factory.startedConnecting(self)
        network.connect(process.name, process, APPLICATION, self._made, lambda: self._failed(Refused()))  # type: ignore[no-untyped-call]

    def _made(self, end: End) -> None:
        if self._is_over:
            end.close()
            return
        self._is_over = True
        _Transport(end, self._factory.buildProtocol(ADDRESS))

    def _failed(self, error: Exception) -> None:
        if not self._is_over:
            self._is_over = True
            self._factory.clientConnectionFailed(self, Failure(error))  # type: ignore[no-untyped-call]

    def stopConnecting(self) -> None:
        self._failed(UserError())  # type: ignore[no-untyped-call]

    def connect(self) -> None:
        raise NotImplementedError("it connects once; Twisted's interface has this method")

    def disconnect(self) -> None:
        raise NotImplementedError("transports do this; Twisted's interface has this method")

    def getDestination(self) -> IPv4Address:
        return ADDRESS


class _Transport(SimulatedTransport):
    """What else an HTTP client needs of a transport."""

    def writeSequence(self, parts: Iterable[bytes]) -> None:
        self.write(b"".join(parts))

    def unregisterProducer(self) -> None:
        """The producer is the protocol."""

    def stopProducing(self) -> None:
        self.loseConnection()
