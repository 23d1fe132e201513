"""Runs a server in this process: signals, reloading, the greeting."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Callable, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

import click
from twisted.logger import Logger

from pushup.broadcast.formats import NotUnderstood
from pushup.broadcast.journal_file import JournalError
from pushup.clock import use_monotonic_clock
from pushup.host import preflight
from pushup.host.logs import start_logging
from pushup.host.process_limits import raise_file_limit, tune_garbage_collector, tune_malloc, worker_count
from pushup.host.systemd_notify import make_systemd_notifier
from pushup.service import PushUpService, make_service
from pushup.settings.settings import Settings, SettingsError

if TYPE_CHECKING:
    from pushup.workers.parent import Parent

_log = Logger()


def run_server(
    settings: Settings, *, read_again: Callable[[], Settings], early_hang_ups: list[int], outlives_terminal: bool
) -> None:
    """Run until SIGTERM or SIGINT.

    `read_again` reads the settings for a reload; it may raise SettingsError. `early_hang_ups`: the SIGHUPs received
    before this call or during it. `outlives_terminal`: keep running when the terminal is closed (nohup).
    """
    from twisted.internet import reactor as any_reactor

    reactor: Any = any_reactor
    use_monotonic_clock(reactor)
    faulthandler.enable(2)  # a watchdog ends a stuck server with SIGABRT, which then logs where it was stuck
    found = list(preflight.troubles(settings))
    if found:
        raise click.ClickException("\n".join(found))
    tune_garbage_collector()
    tune_malloc()
    log = sys.stderr or open(os.devnull, "w")  # noqa: SIM115  # it may be closed
    set_log_level = start_logging(settings.server.log_level, settings.server.log_format, log)
    _warn(settings)
    raise_file_limit()
    try:
        preflight.check_free(settings)
        service = _make_service(settings, reactor)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(error.strerror or str(error)) from None

    def stop(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        reactor.callFromThread(reactor.stop)

    def reload() -> None:
        _reload(service, read_again, set_log_level)

    def hang_up(number: int, frame: object) -> None:
        if ends_with_terminal and not _has_terminal():
            stop(number, frame)
        else:
            reactor.callFromThread(reload)

    ends_with_terminal = _has_terminal() and not outlives_terminal
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGHUP, hang_up)
    if early_hang_ups:
        reactor.callWhenRunning(reload)
    notifier = make_systemd_notifier(os.environ, clock=reactor, why_not_ready=service.why_not_ready)
    notifier.add(service)
    service.on_ready = lambda: _greet(service.addresses, needs_key=bool(settings.server.publish_keys))
    reactor.addSystemEventTrigger("before", "shutdown", notifier.stopService)
    try:
        notifier.startService()
    except (JournalError, NotUnderstood, SettingsError) as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(error.strerror or str(error)) from None
    reactor.run(installSignalHandlers=False)


def _make_service(settings: Settings, reactor: Any) -> PushUpService | Parent:
    """Raises: SettingsError."""
    workers = worker_count(settings.server.workers)
    if workers == 1:
        return make_service(settings, reactor)
    from pushup.workers.parent import Parent

    return Parent(settings, workers, reactor)


def _reload(
    service: PushUpService | Parent, read_again: Callable[[], Settings], set_log_level: Callable[[str], None]
) -> None:
    """Apply what has changed in the settings, or log why not."""
    try:
        reloaded = service.reload(read_again())
    except SettingsError as error:
        _log.error("cannot reload, keeping the current settings: {error}", error=error)
        return
    set_log_level(reloaded.settings.server.log_level)
    _log.info("settings reloaded; changed: {names}", names=", ".join(reloaded.applied) or "none")
    if reloaded.left:
        _log.warn("restart to apply: {names}", names=", ".join(reloaded.left))
    _warn(reloaded.settings)


def _warn(settings: Settings) -> None:
    for warning in preflight.warnings(settings):
        _log.warn("{warning}", warning=warning)


def _has_terminal() -> bool:
    """Whether this process has a controlling terminal. After SIGHUP, it has none if the terminal was closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _greet(addresses: Sequence[str], *, needs_key: bool) -> None:
    """Print the server's addresses and two commands to try.

    The server starts even if they cannot be printed, because standard output is closed or on a full disk.
    """
    lines = [f"PushUp listens on {each if each.startswith('unix:') else 'http://' + each}" for each in addresses]
    first = addresses[0]
    unix = f"--unix-socket {quote(first.removeprefix('unix:'))} " if first.startswith("unix:") else ""
    url = "http://localhost" if unix else f"http://{first}"
    key = " -H 'Authorization: Bearer <publish key>'" if needs_key else ""
    lines += (
        "To try it, wait for a message in one terminal and publish it from another:",
        f"  curl {unix}'{url}/v1/poll?channel=news&timeout=60'",
        f'  curl {unix}\'{url}/v1/messages\'{key} -d \'{{"channels": ["news"], "data": "hello"}}\'',
    )
    try:
        print(*lines, sep="\n", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the exit would fail, to write it again
