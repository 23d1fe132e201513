"""The command and the service, for servers that are PushUp but for one thing."""

from __future__ import annotations

from pushup.backends.helper_pool import HelperPool
from pushup.broadcast import journal_groups
from pushup.cli import main
from pushup.cli.worker_command import main as worker_main
from pushup.host.logs import start_logging
from pushup.service import make_service
from pushup.settings.settings import read_settings
from pushup.workers import worker_process

__all__ = [
    "HelperPool",
    "journal_groups",
    "main",
    "make_service",
    "read_settings",
    "start_logging",
    "worker_main",
    "worker_process",
]
