"""docs/guide/openapi.yaml and a running server agree: Schemathesis sends valid and invalid requests."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.server.server_process import running

HERE = Path(__file__).parent

WEBHOOK_KEY = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"

CHANNEL = "existing"
"""As in schemathesis_hooks.py."""


@contextmanager
def taking_webhooks() -> Iterator[str]:
    """The URL of an application that answers each POST with 204."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as application:
        thread = threading.Thread(target=application.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{application.server_port}/"
        finally:
            application.shutdown()
            thread.join()


def test_the_server_keeps_its_schemas(tmp_path: Path) -> None:
    """What the schemas allow is accepted, anything else is refused, and every response has the shape that they say."""
    # So that no poll is held for long, and no stream goes on.
    settings = ["poll_timeout_seconds=0.05", "poll_timeout_limit_seconds=0.05", "stream_seconds=0.05"]
    with ExitStack() as stack:
        settings += [f"webhook_url={stack.enter_context(taking_webhooks())}", f"webhook_key={WEBHOOK_KEY}"]
        flags = tuple(part for setting in settings for part in ("--set", setting))
        server = stack.enter_context(running(tmp_path / "server.log", flags))
        with server.caller() as caller:
            assert caller.call("POST", "/v1/channels", {"name": CHANNEL}).status == 201
        command = [
            str(Path(sys.executable).with_name("schemathesis")), f"--config-file={HERE / 'schemathesis.toml'}",
            "run", str(HERE.parents[1] / "docs" / "guide" / "openapi.yaml"), f"--url={server.url}", "--checks=all",
            "--phases=examples,coverage,fuzzing", "--max-examples=25", "--seed=1", "--no-color", "--warnings=off",
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": str(HERE), "SCHEMATHESIS_HOOKS": "schemathesis_hooks"}
        run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert run.returncode == 0, run.stdout + run.stderr
        assert "29 passed" in run.stdout, run.stdout
        assert server.trouble() == []
