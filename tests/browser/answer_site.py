"""An application with answers: its pages, made with the real packages of npm, and its requests."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from loadtest.beyond.browsers.webdriver import installed
from tests.browser.npm_packages import CACHE
from tests.server.document_samples import ROOT, sample
from tests.server.web_server import web_server

CHANNEL = "answer:42"

PAGES = ("plain", "chat", "agent")

CLIENT = "@pushup-project/client"

HERE = Path(__file__).parent

SECONDS = 300.0
"""Limit for npm and the compilers."""

_PAGE = (
    "<!doctype html><meta charset=utf-8><link rel=icon href=data:,><pre id=text></pre><p id=end></p>"
    "<script type=module src={}.js></script>"
)

_SHOW = """
const [text, end] = ["text", "end"].map(id => document.getElementById(id));
"""

_SCRIPTS = {
    "plain": f"""{_SHOW}
        import {{ show }} from "./sample.js";
        show(location.search.slice(1) || "{CHANNEL}", text, end);
    """,
    "chat": f"""{_SHOW}
        import {{ StrictMode, createElement, useEffect }} from "react";
        import {{ createRoot }} from "react-dom/client";
        import {{ AnswerCutOff }} from "{CLIENT}/answers";
        import {{ useAnswers }} from "./sample.js";
        function Chat() {{
          const {{ messages, status, error, sendMessage, stop }} = useAnswers("c1");
          Object.assign(window, {{ send: () => void sendMessage({{ text: "?" }}), stop: () => void stop() }});
          useEffect(() => {{
            if (status === "streaming") window.began = true;
            if (status === "ready" && window.began) end.textContent = "done";
            if (status === "error")
              end.textContent = error instanceof AnswerCutOff ? "The answer was cut off." : error.message;
          }});
          return messages
            .filter(message => message.role === "assistant")
            .flatMap(message => message.parts.map(part => part.text));
        }}
        const root = createRoot(text);
        window.leave = () => root.render(null);
        root.render(createElement(StrictMode, null, createElement(Chat)));
    """,
    "agent": f"""{_SHOW}
        import {{ agent }} from "./sample.js";
        agent.subscribe({{
          onMessagesChanged({{ messages }}) {{
            text.textContent = messages.filter(message => message.role === "assistant").map(m => m.content).join("");
          }},
          onRunFinishedEvent: () => void (end.textContent = "done"),
          onRunErrorEvent({{ event }}) {{
            end.textContent = event.code === "cut-off" ? "The answer was cut off." : event.message;
          }},
        }});
        window.send = () => {{
          agent.addMessage({{ id: "q", role: "user", content: "?" }});
          void agent.runAgent().finally(() => (window.over = true));
        }};
        window.stop = () => agent.abortRun();
        agent.connectAgent();
    """,
}
"""What each page does, with the sample of the document as `sample.js`."""

_FIRST_LINES = {
    "plain": f'import {{ PushUp }} from "{CLIENT}";\nimport {{ AnswerCutOff',
    "chat": 'import { Chat, useChat } from "@ai-sdk/react";',
    "agent": f'import {{ PushUpAgent }} from "{CLIENT}/ag-ui";',
}
"""How the samples begin."""


def workshop(folder: Path) -> Path:
    """Lay out a folder with the packages of `answers_npm` and with the client as npm packs it, for the compilers."""
    packages = folder / "node_modules"
    packages.mkdir()
    for package in _installed_packages().iterdir():
        (packages / package.name).symlink_to(package)
    client = packages / CLIENT
    client.parent.mkdir()
    shutil.copytree(ROOT / "pushup" / "browser", client, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    package = json.loads((client / "package.json").read_text())
    (client / "package.json").write_text(json.dumps({"name": CLIENT, **package}))
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def _installed_packages() -> Path:
    """The releases in the lock file, fetched once; npm checks their hashes."""
    lock = (HERE / "answers_npm" / "package-lock.json").read_bytes()
    folder = CACHE / f"answers-{hashlib.sha256(lock).hexdigest()[:16]}"
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        part = CACHE / f"{folder.name}.{os.getpid()}"
        shutil.copytree(HERE / "answers_npm", part, ignore=shutil.ignore_patterns("node_modules"))
        run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", folder=part)
        try:
            part.rename(folder)
        except OSError:  # another test was faster
            shutil.rmtree(part)
    return folder / "node_modules"


def run(program: str, *arguments: str, folder: Path) -> None:
    """Run a program, which must succeed."""
    command = [installed(program, "nodejs npm"), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr


def build(folder: Path, name: str, pushup: str) -> bytes:
    """The script of a page, bundled; `pushup`: the URL of the server."""
    text = sample("docs/guide/answers.md", _FIRST_LINES[name])
    (folder / "sample.js").write_text(text.replace("https://push.example", pushup))
    (folder / "page.js").write_text(_SCRIPTS[name])
    run("node", "node_modules/esbuild/bin/esbuild", "page.js", "--bundle", "--format=esm", "--outfile=built.js",
        '--define:process.env.NODE_ENV="development"', folder=folder)  # fmt: skip
    return (folder / "built.js").read_bytes()


def nothing() -> None:
    """What an application does that only has pages."""


class Site:
    """The application. `writes`: what it does when an answer is asked for, or stopped; `asked`: the requests."""

    def __init__(
        self, scripts: dict[str, bytes], begin: Callable[[], None] = nothing, stop: Callable[[], None] = nothing
    ) -> None:
        self.scripts = scripts
        self.url = ""
        self.asked: list[str] = []
        self.has_answer = True
        self._begin = begin
        self._stop = stop

    def get(self, path: str) -> tuple[int, str, bytes]:
        """The status, the type and the body."""
        path = path.partition("?")[0]
        if path.endswith("/c1/stream"):
            return (200, "application/json", self._channel) if self.has_answer else (204, "", b"")
        if path.endswith(".js"):
            return 200, "text/javascript", self.scripts[path[1:-3]]
        if path[1:] in self.scripts:
            return 200, "text/html", _PAGE.format(path).encode()
        return 404, "text/plain", b"not found"

    def post(self, path: str) -> tuple[int, str, bytes]:
        self.asked.append(path)
        if path.endswith("/c1/stop"):
            self._stop()
        else:
            self.has_answer = True
            self._begin()
        return 200, "application/json", self._channel

    @property
    def _channel(self) -> bytes:
        return json.dumps({"channel": CHANNEL}).encode()


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    """Serve it until the end of the block, as localhost, where browsers have locks without TLS."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(*site.get(self.path))

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self._send(*site.post(self.path))

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with web_server(Handler) as port:
        site.url = f"http://localhost:{port}"
        yield site
