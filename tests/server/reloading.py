"""Changes the files of a running server, and has it read them again."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.server.server_process import Server, wait_until


def secret(path: Path, text: str, mode: int = 0o600) -> Path:
    """Write a file, atomically; by default only its owner can read it."""
    new = path.with_suffix(".new")
    new.touch(0o600)
    new.write_text(text)
    new.chmod(mode)
    new.replace(path)
    return path


def reloads(server: Server) -> list[str]:
    """The server's log lines about reloading."""
    return [line for line in server.log_lines() if "reload" in line or "restart to apply" in line]


def reload(server: Server) -> str:
    """Send SIGHUP; returns the log line with the outcome."""
    before = len(reloads(server))
    server.signal(signal.SIGHUP)
    wait_until(lambda: len(reloads(server)) > before, "a line about the reload")
    return reloads(server)[before]
