"""docs/guide/answers.md in Chromium, with the releases of `ai` and `@ag-ui/client` in `answers_npm`: three tabs
always show the produced text, or say that the answer was cut off.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.browser.answer_site import CHANNEL, CLIENT, HERE, PAGES, Site, build, run, serving, workshop
from tests.browser.answer_tabs import CUT_OFF, SECONDS, Tabs
from tests.browser.answer_writer import Writer, text_of
from tests.server.caller import data_of
from tests.server.chromium import chromium
from tests.server.document_samples import ROOT
from tests.server.redis_server import free_port
from tests.server.server_process import Server, running, wait_until

COUNT = 300
"""Pieces of an answer."""

RELOADS = int(os.environ.get("PUSHUP_RELOADS", "10"))
"""At how many of their boundaries a tab of each page is reloaded; 300: at each."""


@pytest.fixture(scope="module")
def address() -> str:
    """Of the server, in every test."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return workshop(tmp_path_factory.mktemp("answers"))


@pytest.fixture(scope="module")
def scripts(shop: Path, address: str) -> dict[str, bytes]:
    """Of the pages."""
    return {name: build(shop, name, f"http://{address}") for name in PAGES}


class Scene(Tabs):
    """Three tabs of a browser, their application, and PushUp with a journal."""

    def __init__(self, stack: ExitStack, folder: Path, address: str, scripts: dict[str, bytes]) -> None:
        self._stack = stack
        self._folder = folder
        self._address = address
        self.server = self._started()
        self.writer = Writer(address, CHANNEL)
        self.site = stack.enter_context(serving(Site(scripts, self._begin, self._ask_to_stop)))
        super().__init__(stack.enter_context(chromium(log="ALL")), self.site.url)

    def _started(self) -> Server:
        flags = (
            "--listen", self._address, "--broadcast", f"journal:{self._folder}/journal.db", "--set", "cors_origins=*",
            "--set", "retention_seconds=1h",
        )  # fmt: skip
        return self._stack.enter_context(running(self._folder / "log", flags))

    def restart(self) -> None:
        """The server dies, and comes back after a while."""
        self.server.signal(signal.SIGKILL)
        self.server.wait()
        time.sleep(0.5)
        self.server = self._started()

    def _begin(self) -> None:
        thread = threading.Thread(target=self.writer.write, args=(COUNT, 0.05))
        thread.start()
        self._stack.callback(thread.join)

    def _ask_to_stop(self) -> None:
        with self.server.caller() as caller:
            caller.publish([f"{CHANNEL}:stop"], "stop")


@pytest.fixture
def answer(tmp_path: Path, address: str, scripts: dict[str, bytes]) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(stack, tmp_path, address, scripts)


@pytest.mark.parametrize("name", PAGES)
def test_a_reload_at_each_boundary(name: str, answer: Scene) -> None:
    """One of three tabs is reloaded; then all three show exactly what there is; in the end, all of it."""
    answer.writer.write(1)
    answer.open(name, name, name)
    step = COUNT // RELOADS
    written = 1
    for number, boundary in enumerate(range(1 + PAGES.index(name) * step // len(PAGES), COUNT + 1, step)):
        answer.writer.write(boundary - written)
        written = boundary
        answer.reload(number % 3)
        answer.expect(text_of(written))
    answer.writer.write(COUNT - written)
    answer.writer.end()
    answer.expect_end(text_of(COUNT), "done")


def test_a_writer_that_dies(answer: Scene) -> None:
    """Within 20 s each tab says that the answer was cut off; what came stays."""
    command = [sys.executable, "-m", "tests.browser.answer_writer", answer.server.address, CHANNEL, "10000", "0.02"]
    with subprocess.Popen(command, cwd=ROOT) as writer:
        try:
            answer.open(*PAGES)
            wait_until(lambda: len(answer.text(0)) > 100, "some text")
        finally:
            writer.kill()
    died_at = time.monotonic()
    time.sleep(1.0)
    with answer.server.caller() as caller:
        kept = data_of(caller.poll(CHANNEL, cursor="earliest", timeout=0, limit=1000))
    answer.expect_end(text_of(sum("piece" in data for data in kept)), CUT_OFF)
    assert time.monotonic() - died_at < 20.0


def test_a_restart_of_pushup(answer: Scene) -> None:
    """With a journal, nothing is missing, and no tab says that something is."""
    answer.writer.write(1)
    answer.open(*PAGES)
    thread = threading.Thread(target=answer.writer.write, args=(COUNT - 1, 0.01))
    thread.start()
    wait_until(lambda: len(answer.text(1)) > 200, "some text")
    answer.restart()
    thread.join()
    answer.writer.end()
    answer.expect_end(text_of(COUNT), "done")


def test_a_writer_that_fails(answer: Scene) -> None:
    """Each page shows its text for the user, after what it wrote."""
    answer.writer.write(3)
    answer.writer.end("error", error="The model is busy.")
    answer.open(*PAGES)
    answer.expect_end(text_of(3), "The model is busy.")


@pytest.mark.parametrize(("name", "api"), [("chat", "/api/chat"), ("agent", "/agent")])
def test_the_user_asks_and_stops(name: str, api: str, answer: Scene) -> None:
    """A page that has nothing to resume sends a question; going away stops nothing; `stop()` does, in each tab."""
    answer.site.has_answer = False
    answer.open(name)
    answer.click(0, "send")
    wait_until(lambda: len(answer.text(0)) > 20, "some text")
    answer.reload(0)
    answer.open("plain")
    wait_until(lambda: len(answer.text(0)) > 100, "more text")
    assert answer.site.asked == [api]
    answer.click(0, "stop")
    wait_until(lambda: answer.end(1) == "done", "the end", SECONDS)
    assert answer.site.asked == [api, f"{api}/c1/stop"]
    assert 0 < len(answer.text(0)) <= len(answer.text(1)) < len(text_of(COUNT))
    said = [str(entry["message"]) for entry in answer.browser.get_log("browser")]  # type: ignore[no-untyped-call]
    assert not [text for text in said if "Uncaught" in text]


def test_an_agent(shop: Path) -> None:
    """It shows an answer once, however often it connects; `agent.js` has more."""
    shutil.copy(HERE / "agent.js", shop)
    run("node", "agent.js", str(HERE / "support.js"), folder=shop)


def test_a_page_that_shows_something_else(answer: Scene) -> None:
    """The component with the chat goes, without a reload: the writer goes on."""
    answer.site.has_answer = False
    answer.open("chat")
    answer.click(0, "send")
    wait_until(lambda: len(answer.text(0)) > 20, "some text")
    answer.open("plain", "chat")
    wait_until(lambda: len(answer.text(2)) > 100, "more text")
    answer.click(0, "leave")
    answer.click(2, "leave")
    answer.tabs = answer.tabs[1:2]
    wait_until(lambda: len(answer.text(0)) > len(text_of(100)), "much more text", SECONDS)
    assert answer.end(0) == ""
    assert answer.site.asked == ["/api/chat"]


TYPED = f"""
import {{ useChat }} from "@ai-sdk/react";
import type {{ AbstractAgent }} from "@ag-ui/client";
import type {{ ChatTransport, UIMessage }} from "ai";
import {{ PushUp }} from "{CLIENT}";
import {{ PushUpAgent }} from "{CLIENT}/ag-ui";
import {{ PushUpTransport }} from "{CLIENT}/ai-sdk";
import {{ readAnswer }} from "{CLIENT}/answers";

type Mine = UIMessage<{{ cost: number }}>;
const pushup = new PushUp();
pushup.subscribe(["news"]).close();
pushup.subscribe(new Set(["news"])).close();
// @ts-expect-error: it would follow n, e, w and s
pushup.subscribe("news");
export const transport: ChatTransport<Mine> = new PushUpTransport<Mine>({{ pushup, api: "/api" }});
export const chat = () => useChat<Mine>({{ transport, resume: true }});
export const agent: AbstractAgent = new PushUpAgent({{ pushup, url: "/agent" }});
export const end = async (): Promise<"done" | "stopped" | undefined> => {{
  const {{ done, value }} = await readAnswer(pushup, "answer:1", {{ silence: 1000 }}).next();
  return done ? value : undefined;
}};
"""
"""What an application writes."""

COMPILER = (
    "--noEmit", "--strict", "--noUnusedLocals", "--skipLibCheck", "--allowImportingTsExtensions", "--target", "es2022",
    "--module", "esnext", "--moduleResolution", "bundler", "--lib", "es2022,dom,dom.iterable",
)  # fmt: skip


def test_the_types(shop: Path) -> None:
    """They are those of the SDKs, and the modules agree with them."""
    (shop / "typed.ts").write_text(TYPED)
    shutil.copytree(shop / "node_modules" / CLIENT, shop / "client", dirs_exist_ok=True)  # compilers pass packages over
    files = [f"client/{name}.js" for name in ("answers", "ai-sdk", "ag-ui")]
    run("node", "node_modules/typescript/bin/tsc", *COMPILER, "typed.ts", folder=shop)
    run("node", "node_modules/typescript/bin/tsc", *COMPILER, "--allowJs", "--checkJs", *files, folder=shop)
