"""A relay that puts a distance before a server: what is sent by TCP or UDP arrives after half of a round trip."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import cast

import click

READ_BYTES = 64 * 1024

Address = tuple[str, int]


class Distance:
    """`delay`: in seconds, in each direction; `target`: the server."""

    def __init__(self, target: Address, delay: float) -> None:
        self.target = target
        self.delay = delay

    async def accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self.target)
        await asyncio.gather(self._pass_on(reader, back), self._pass_on(there, writer))

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        later = asyncio.get_running_loop().call_later
        with suppress(OSError):
            while data := await source.read(READ_BYTES):
                later(self.delay, sink.write, data)
        later(self.delay, sink.close)


class Queries(asyncio.DatagramProtocol):
    """Datagrams of clients; each is one query, which gets one answer."""

    def __init__(self, distance: Distance) -> None:
        self.distance = distance
        self._asking: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._clients = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: Address) -> None:
        task = asyncio.get_running_loop().create_task(self._ask(data, addr))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _ask(self, query: bytes, client: Address) -> None:
        await asyncio.sleep(self.distance.delay)
        loop = asyncio.get_running_loop()
        transport, answer = await loop.create_datagram_endpoint(Answer, remote_addr=self.distance.target)
        transport.sendto(query)
        data = await answer.data
        transport.close()
        await asyncio.sleep(self.distance.delay)
        self._clients.sendto(data, client)


class Answer(asyncio.DatagramProtocol):
    """The answer to one query."""

    def __init__(self) -> None:
        self.data: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: Address) -> None:
        if not self.data.done():
            self.data.set_result(data)


async def serve(listen: Address, distance: Distance) -> None:
    server = await asyncio.start_server(distance.accepted, *listen)
    host, port = server.sockets[0].getsockname()
    await asyncio.get_running_loop().create_datagram_endpoint(lambda: Queries(distance), local_addr=(host, port))
    click.echo(f"Server listens on http://{host}:{port}")
    await server.serve_forever()


@click.command()
@click.argument("command", type=click.Choice(["serve"]))
@click.option("--listen", required=True)
@click.option("--log-level", hidden=True)
@click.option("--target", required=True)
@click.option("--delay", type=float, required=True)
def main(command: str, *, listen: str, log_level: str | None, target: str, delay: float) -> None:
    asyncio.run(serve(_address(listen), Distance(_address(target), delay)))


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    main()
