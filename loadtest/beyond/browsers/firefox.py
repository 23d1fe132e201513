"""Firefox, by WebDriver BiDi, which it speaks itself: no driver is needed.

The protocol is https://w3c.github.io/webdriver-bidi/: JSON over a WebSocket, one answer to each command.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import websocket

from loadtest.beyond.browsers.processes import busiest
from loadtest.beyond.browsers.webdriver import installed

SECONDS = 20.0
"""The longest that a command may take."""

END_SECONDS = 3.0
"""How long it may take to end. After a page was killed it takes a minute."""

PREFERENCES = {
    "dom.ipc.processCount.webIsolated": 24,  # a process for each tab, also of one origin
    "browser.tabs.unloadOnLowMemory": False,
}

CALL = """(script, given) => {
  const result = Function(script).apply(null, JSON.parse(given));
  return JSON.stringify(result ?? null);
}"""


class BiDiError(Exception):
    """The browser refused a command."""


class Firefox:
    name = "Firefox"
    can_freeze = False
    can_disconnect = True
    survives_a_kill = True
    ends_requests = True

    def __init__(self, address: str, root: int) -> None:
        self._socket = websocket.create_connection(f"{address}/session", timeout=SECONDS, suppress_origin=True)
        self._root = root
        self._count = 0
        self.command("session.new", capabilities={"alwaysMatch": {"acceptInsecureCerts": True}})

    def command(self, method: str, **parameters: object) -> Any:
        """Send a command; its result. Raises: BiDiError; websocket.WebSocketException."""
        self._count += 1
        self._socket.send(json.dumps({"id": self._count, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self._socket.recv())
            if answer.get("id") != self._count:
                continue  # an event
            if answer["type"] == "error":
                raise BiDiError(f"{method}: {answer['error']}: {answer['message']}")
            return answer["result"]

    def open(self, url: str) -> str:
        tab: str = self.command("browsingContext.create", type="tab", background=True)["context"]
        self.command("browsingContext.navigate", context=tab, url=url, wait="none")
        return tab

    def run(self, tab: str, script: str, *arguments: object) -> Any:
        strings = [{"type": "string", "value": value} for value in (script, json.dumps(arguments))]
        answer = self.command(
            "script.callFunction", functionDeclaration=CALL, arguments=strings, target={"context": tab},
            awaitPromise=False,
        )  # fmt: skip
        if answer["type"] == "exception":
            raise BiDiError(answer["exceptionDetails"]["text"])
        return json.loads(answer["result"]["value"])

    def close(self, tab: str) -> None:
        self.command("browsingContext.close", context=tab)

    def process(self, tab: str) -> int:
        return busiest(self._root, "tab", lambda work: self.run(tab, work))

    def freeze(self, tab: str) -> None:
        raise NotImplementedError("Firefox has no command that freezes a page: `can_freeze`")

    def thaw(self, tab: str) -> None:
        raise NotImplementedError("Firefox has no command that freezes a page: `can_freeze`")

    def disconnect(self, tab: str, *, off: bool) -> None:
        conditions = {"type": "offline"} if off else None
        self.command("emulation.setNetworkConditions", networkConditions=conditions, contexts=[tab])

    @classmethod
    @contextmanager
    def started(cls) -> Iterator[Self]:
        with tempfile.TemporaryDirectory(prefix="firefox-", ignore_cleanup_errors=True) as folder:
            lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in PREFERENCES.items()]
            (Path(folder) / "user.js").write_text("".join(lines))
            log = Path(folder) / "log"
            command = [
                installed("firefox-esr", "firefox-esr"), "--headless", "--no-remote", "--profile", folder,
                "--remote-debugging-port", "0",
            ]  # fmt: skip
            with log.open("wb") as output:
                process = subprocess.Popen(  # noqa: S603
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=output, start_new_session=True,
                    env={**os.environ, "MOZ_CRASHREPORTER_DISABLE": "1"},
                )  # fmt: skip
            try:
                browser = cls(_address(process, log), process.pid)
                try:
                    yield browser
                    with suppress(BiDiError, websocket.WebSocketException, OSError):
                        browser.command("browser.close")
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(END_SECONDS)
                finally:
                    browser._socket.shutdown()  # type: ignore[no-untyped-call]
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where it listens, once it does: it says so on standard error."""
    deadline = time.monotonic() + SECONDS
    while True:
        found = re.search(r"WebDriver BiDi listening on (ws://\S+)", log.read_text(errors="replace"))
        if found:
            return found[1]
        assert process.poll() is None, "Firefox has ended"
        assert time.monotonic() < deadline, "Firefox does not listen"
        time.sleep(0.05)
