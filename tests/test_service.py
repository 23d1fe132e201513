"""What happens before a server starts: nothing."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from twisted.internet.task import Clock

from pushup.backends.webhook import WebhookSettings
from pushup.host.systemd_notify import make_systemd_notifier
from pushup.service import make_service
from pushup.settings.settings import Settings
from pushup.testing.in_memory import InMemoryReactor
from pushup.workers.parent import Parent
from tests.net.observed_log import logged_at

MAKERS: dict[str, Callable[[Settings, Any], Any]] = {
    "a server": make_service,
    "a parent": lambda settings, reactor: Parent(settings, 2, reactor),
}


class Reactor(InMemoryReactor, Clock):
    """Time, and who wants to read."""

    def __init__(self) -> None:
        InMemoryReactor.__init__(self)
        Clock.__init__(self)


def open_files() -> list[str]:
    return sorted(str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink())


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux shows a process' open files there")
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("broadcast", ["memory:", "journal:{}/journal.db", "redis://127.0.0.1:1"])
def test_nothing_runs_before_the_start(tmp_path: Path, broadcast: str, make: Callable[[Settings, Any], Any]) -> None:
    """Making a server opens no file, makes no directory, and starts no timer and no thread."""
    reactor = Reactor()
    directory = tmp_path / "new" / "state"
    server = replace(Settings().server, broadcast=broadcast.format(tmp_path), state_directory=str(directory))
    settings = replace(Settings(), server=server)
    make(settings, Reactor())  # what is imported late is imported now
    files, threads = open_files(), threading.active_count()
    service = make(settings, reactor)
    address = str(tmp_path / "notify")
    supervisor = make_systemd_notifier({"NOTIFY_SOCKET": address}, clock=reactor, why_not_ready=service.why_not_ready)
    supervisor.add(service)
    assert open_files() == files
    assert threading.active_count() == threads
    assert list(tmp_path.iterdir()) == []
    assert reactor.getDelayedCalls() == []
    assert reactor.readers == []


def test_descriptors_that_clients_never_get() -> None:
    """Those of calls to the application, about messages that were not read as well."""
    webhook = WebhookSettings(webhook_url="http://app.example/", webhook_key="whsec_" + 32 * "A", webhook_at_most=7)
    reserved = []
    for settings in (Settings(), replace(Settings(), webhook=webhook)):
        with logged_at("info") as lines:
            make_service(settings, Reactor())
        reserved += [int(found[1]) for line in lines if (found := re.search(r"descriptors, (\d+) are reserved", line))]
    assert [count - reserved[0] for count in reserved] == [0, 7]
