"""The applications of the pages about frameworks, as the pages have them, each beside a PushUp."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.server.document_programs import started
from tests.server.document_samples import sample
from tests.server.redis_server import free_port
from tests.server.server_process import Server, running

KEY = "a-publish-key-of-the-application"

SECRET = "0123456789abcdef" * 2


class Documented(NamedTuple):
    """The page's files, and how its application is started; a cookie or a path logs a user in."""

    files: dict[str, str]
    commands: tuple[str, ...]
    server: list[str]


def _page(name: str, starts: dict[str, str], server: list[str]) -> Documented:
    page = f"docs/guide/{name}.md"
    commands = sample(page, "pip install").splitlines()
    assert not [line for line in commands if line.startswith("gunicorn") and shell_words(line) != server]
    return Documented({path: sample(page, start) for path, start in starts.items()}, tuple(commands), server)


def shell_words(line: str) -> list[str]:
    """The words of a command, without their quotes."""
    return [word.strip("'") for word in line.split()]


PAGES = {
    "django": _page(
        "django",
        {
            "settings.py": "# settings.py",
            "notes/models.py": "# notes/models.py",
            "notes/views.py": "# notes/views.py",
            "notes/templates/note.html": "{# notes/templates/note.html",
            "notes/templates/notes.html": "{# notes/templates/notes.html",
        },
        ["gunicorn", "--workers", "3", "django.core.wsgi:get_wsgi_application()"],
    ),
    "fastapi": _page("fastapi", {"app.py": "import os"}, ["uvicorn", "app:app"]),
    "flask": _page("flask", {"app.py": "import os"}, ["gunicorn", "--workers", "3", "app:app"]),
}


class Scene:
    """An application, and PushUp, which can be killed and started again."""

    def __init__(
        self, stack: ExitStack, folder: Path, name: str, files: Mapping[str, str], flags: Sequence[str]
    ) -> None:
        self._stack = stack
        self._flags = flags
        self._folder = folder
        self.name = name
        self._pushup = f"127.0.0.1:{free_port()}"
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.environment = {
            "SECRET_KEY": "x" * 50,
            "DJANGO_SETTINGS_MODULE": "settings",
            "PUSHUP_TOKEN_SECRETS": SECRET,
            "PUSHUP_PUBLISH_KEYS": KEY,
        }
        page = PAGES[name]
        for path, text in {**page.files, **files}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text.replace("http://127.0.0.1:8080", f"http://{self._pushup}"))
        self.server = self.start()
        for line in page.commands:
            if line.startswith("django-admin"):
                command = [sys.executable, "-m", "django", *shell_words(line)[1:]]
                subprocess.run(command, cwd=folder, env={**os.environ, **self.environment}, check=True, timeout=60)
        option = ["--port", str(port)] if page.server[0] == "uvicorn" else ["--bind", f"127.0.0.1:{port}"]
        self.log = folder / f"{port}.log"
        stack.enter_context(started([*page.server, *option], port, folder, **self.environment))

    def start(self) -> Server:
        """PushUp, as the page's command starts it, with a journal."""
        (line,) = [line for line in PAGES[self.name].commands if line.startswith("pushup serve")]
        words = shell_words(line.removesuffix(" &").replace("http://127.0.0.1:8000", self.url))
        more = ("--listen", self._pushup, "--broadcast", f"journal:{self._folder}/journal.db")
        environment = {name: self.environment[name] for name in ("PUSHUP_TOKEN_SECRETS", "PUSHUP_PUBLISH_KEYS")}
        flags = (*words[2:], *more, *self._flags, "--set", "stream_heartbeat_seconds=1s")
        self.server = self._stack.enter_context(running(self._folder / "log", flags, environment))
        return self.server

    def add_unpublished(self, text: str) -> None:
        """Store a row as an application does that dies right after the commit."""
        with closing(sqlite3.connect(self._folder / "notes.db", timeout=30)) as database, database:
            table = "notes_note" if self.name == "django" else "notes"
            database.execute(f"INSERT INTO {table} (author, text, private) VALUES ('ben', ?, 0)", (text,))

    def kill(self) -> None:
        self.server.signal(signal.SIGKILL)
        self.server.wait()


@contextmanager
def scene(
    name: str, folder: Path, *, files: Mapping[str, str] | None = None, flags: Sequence[str] = ()
) -> Iterator[Scene]:
    """`files`: in place of those of the page; `flags`: of PushUp, besides those of the page."""
    with ExitStack() as stack:
        yield Scene(stack, folder, name, files or {}, flags)


def added_lines(name: str) -> tuple[int, str]:
    """How many lines of a page are PushUp's, and the rest of the application without them."""
    lines = "".join(PAGES[name].files.values()).splitlines()
    marked = [line for line in lines if re.search(r"(#|\{#) PushUp( #\})?$", line)]
    return len(marked), "\n".join(line for line in lines if line not in marked)
