"""Nchan, an nginx module in C, as a server to compare with: Debian's packages `nginx` and `libnginx-mod-nchan`."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from loadtest.load.servers import SERVER_CORE, free_port, pin
from loadtest.load.swarm import POLL_SECONDS

MODULE = Path("/usr/lib/nginx/modules/ngx_nchan_module.so")

CONFIGURATION = """
daemon off;
pid {folder}/pid;
error_log {folder}/error.log warn;
worker_processes 1;
worker_rlimit_nofile 20000;
load_module {module};
events {{ worker_connections 20000; }}
http {{
    access_log off;
    keepalive_timeout 600s;
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    nchan_message_buffer_length 1000;
    nchan_message_timeout 5m;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location ~ ^/sub/(.+)$ {{
            nchan_channel_id $1;
            nchan_subscriber longpoll eventsource;
            nchan_subscriber_timeout {seconds}s;
        }}
        location ~ ^/pub/(.+)$ {{
            nchan_channel_id $1;
            nchan_publisher http;
        }}
    }}
}}
"""


def is_installed() -> bool:
    return _program() is not None and MODULE.exists()


@contextmanager
def running() -> Iterator[tuple[int, list[int]]]:
    """Run nginx with one worker on a free port of loopback; yields the port, and the ids of its processes.

    Raises: RuntimeError if it does not start.
    """
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        configuration = Path(folder) / "nginx.conf"
        configuration.write_text(CONFIGURATION.format(folder=folder, module=MODULE, port=port, seconds=POLL_SECONDS))
        program = _program()
        assert program is not None
        process = subprocess.Popen([program, "-e", f"{folder}/error.log", "-c", str(configuration)])  # noqa: S603
        try:
            yield port, _started(process, Path(folder))
        finally:
            process.terminate()
            process.wait()


def _program() -> str | None:
    return shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin:/bin")


def _started(process: subprocess.Popen[bytes], folder: Path) -> list[int]:
    """Wait until nginx has workers, pin all its processes to the server's processor, and return their ids."""
    deadline = time.monotonic() + 10
    while not (workers := psutil.Process(process.pid).children()):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"nginx did not start: {(folder / 'error.log').read_text()}")
        time.sleep(0.02)
    pids = [process.pid, *(worker.pid for worker in workers)]
    for pid in pids:
        pin(pid, SERVER_CORE)
    time.sleep(0.2)
    return pids
