"""The servers that are compared: how each is started, and its requests as templates of `load.c`.

PushUp is measured as it is in this checkout, and if that is interpreted, in the copy that `make compiled` makes, too.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from loadtest.beyond import nchan
from loadtest.beyond.peers import BROWSER_FIELDS
from loadtest.kit.values import form
from loadtest.load.programs import program
from loadtest.load.servers import SERVER_CORE, START_SECONDS, free_port, pin, running
from loadtest.load.swarm import POLL_SECONDS

CHANNEL, PART_1, PART_2, MESSAGE = "\1\2\3\4"
"""What `load.c` replaces in a template."""

ROOT = Path(__file__).parents[3]
COMPILED = ROOT / ".venv" / "compiled"

INTERPRETED_NAME, COMPILED_NAME, NCHAN, LIMIT, BARE = "interpreted", "compiled", "Nchan", "limit", "bare"


class Requests(Protocol):
    """A server's interface. `parts`: what precedes the one or two parts of a cursor; `part_end`: what follows each."""

    parts: tuple[str, str]
    part_end: str

    def cursor(self, port: int) -> str:
        """The first part of the cursor of everybody's first poll."""

    def poll(self, *, is_first: bool, is_browser: bool) -> str: ...

    def publish(self, name_bytes: int, message_bytes: int) -> str:
        """`name_bytes`: the length of a channel's name."""


class Target(NamedTuple):
    """A running server; `folder`: of its checkout."""

    port: int
    pids: list[int]
    requests: Requests


class PushUpRequests:
    parts = '"cursor":"', ""
    part_end = '"'

    def cursor(self, port: int) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/cursor") as response:
            return str(json.load(response)["cursor"])

    def poll(self, *, is_first: bool, is_browser: bool) -> str:
        return _get(f"/v1/poll?channel={CHANNEL}&cursor={PART_1}&timeout={POLL_SECONDS}", is_browser)

    def publish(self, name_bytes: int, message_bytes: int) -> str:
        body = f'{{"channels":["{CHANNEL}"],"data":"{MESSAGE}"}}'
        return _post("/v1/messages", "application/json", body, len(body) - 2 + name_bytes + message_bytes)


class MinimalRequests(PushUpRequests):
    """Of `limit.c` and `bare_server.py`."""

    def cursor(self, port: int) -> str:
        return "0"


class NchanRequests:
    parts = "Last-Modified: ", "Etag: "
    part_end = "\r"

    def cursor(self, port: int) -> str:
        return ""

    def poll(self, *, is_first: bool, is_browser: bool) -> str:
        after = "" if is_first else f"If-Modified-Since: {PART_1}\r\nIf-None-Match: {PART_2}\r\n"
        return _get(f"/sub/{CHANNEL}", is_browser, after)

    def publish(self, name_bytes: int, message_bytes: int) -> str:
        return _post(f"/pub/{CHANNEL}", "text/plain", MESSAGE, message_bytes)


def _get(target: str, is_browser: bool, fields: str = "") -> str:
    browser = "".join(f"{field}\r\n" for field in BROWSER_FIELDS) if is_browser else ""
    return f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n{browser}{fields}\r\n"


def _post(target: str, content_type: str, body: str, length: int) -> str:
    head = f"POST {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n"
    return f"{head}\r\n{body}"


Start = Callable[[], AbstractContextManager[Target]]


def servers() -> Mapping[str, Start]:
    """Those that can be started here, by name; Nchan first, with which the others are compared."""
    found: dict[str, Start] = {NCHAN: _nchan} if nchan.is_installed() else {}
    found |= {name: partial(_pushup, folder) for name, folder in pushups().items()}
    return found | {LIMIT: _limit, BARE: _bare}


def pushups() -> Mapping[str, Path]:
    """The folders of PushUp, by form."""
    if form() == COMPILED_NAME:
        return {COMPILED_NAME: ROOT}
    is_there = any((COMPILED / "pushup" / "core").glob("state.*.so"))
    return {INTERPRETED_NAME: ROOT} | ({COMPILED_NAME: COMPILED} if is_there else {})


def fastest_pushup() -> tuple[str, Start]:
    """The compiled one, if there is one."""
    name, folder = list(pushups().items())[-1]
    return name, partial(_pushup, folder)


@contextmanager
def _pushup(folder: Path) -> Iterator[Target]:
    with running(folder=folder) as server:
        yield Target(server.port, [server.pid], PushUpRequests())


@contextmanager
def _nchan() -> Iterator[Target]:
    with nchan.running() as (port, pids):
        yield Target(port, pids, NchanRequests())


def _limit() -> AbstractContextManager[Target]:
    return _minimal([program(Path(__file__).with_name("limit.c"))])


def _bare() -> AbstractContextManager[Target]:
    return _minimal([sys.executable, str(Path(__file__).with_name("bare_server.py"))])


@contextmanager
def _minimal(command: list[str]) -> Iterator[Target]:
    port = free_port()
    process = subprocess.Popen([*command, str(port)], stdin=subprocess.DEVNULL)  # noqa: S603
    try:
        pin(process.pid, SERVER_CORE)
        _wait_until_it_listens(port)
        yield Target(port, [process.pid], MinimalRequests())
    finally:
        process.kill()
        process.wait()


def _wait_until_it_listens(port: int) -> None:
    """Raises: OSError if it does not."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return
