"""A real PostgreSQL in a folder of its own, reached by a Unix socket; it can be killed and started again."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import psycopg

START_SECONDS = 30.0


class Postgres:
    """`url` is that of psycopg. PostgreSQL does not run as root: then it runs as the user `postgres`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if not os.getuid() else []
        if self._as_user:
            shutil.chown(folder, "postgres", "postgres")
        self.url = f"postgresql://postgres@/postgres?host={folder}"
        self.sqlalchemy_url = self.url.replace("postgresql:", "postgresql+psycopg:")
        self._process: subprocess.Popen[bytes] | None = None
        options = [
            "--auth=trust",
            "--username=postgres",
            "--no-sync",
            "--no-instructions",
            "--locale=C",
            "--encoding=UTF8",
        ]
        self._run("initdb", "-D", str(folder / "data"), *options).wait(START_SECONDS)
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers. A killed one may leave processes that end a moment later."""
        flags = ["-D", str(self._folder / "data"), "-k", str(self._folder), "-c", "listen_addresses="]
        for _ in range(int(START_SECONDS / 0.1)):
            if self._process is None or self._process.poll() is not None:
                self._process = self._run("postgres", *flags, "-c", "fsync=off")
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                time.sleep(0.1)
        raise TimeoutError((self._folder / "log").read_text()[-2000:])

    def kill(self) -> None:
        """Kill all of its processes."""
        assert self._process is not None
        processes = [psutil.Process(self._process.pid)]
        for process in [*processes, *processes[0].children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        path = shutil.which(program) or str(max(Path("/usr/lib/postgresql").glob(f"*/bin/{program}")))
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen([*self._as_user, path, *arguments], stdout=log, stderr=log, cwd=self._folder)


@contextmanager
def postgres() -> Iterator[Postgres]:
    """Runs for a `with` block."""
    folder = Path(tempfile.mkdtemp(prefix="pushup-postgres-"))
    try:
        server = Postgres(folder)
        try:
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
