"""docs/guide/openapi.yaml and a running server agree: Schemathesis sends valid and invalid requests."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.server.server_process import running, set_flags
from tests.server.webhook_receiver import webhook_receiver

HERE = Path(__file__).parent

CHANNEL = "existing"
"""As in schemathesis_hooks.py."""


def test_the_server_keeps_its_schemas(tmp_path: Path) -> None:
    """What the schemas allow is accepted, anything else is refused, and every response has the shape that they say."""
    with ExitStack() as stack:
        settings = stack.enter_context(webhook_receiver()).settings
        del settings["publish_keys"]
        # So that no poll is held for long, and no stream goes on.
        settings |= {"poll_timeout_seconds": 0.05, "poll_timeout_limit_seconds": 0.05, "stream_seconds": 0.05}
        server = stack.enter_context(running(tmp_path / "server.log", set_flags(settings)))
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
