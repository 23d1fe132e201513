"""nginx as the documents configure it, and HAProxy, each in front of one server; both would compress event streams."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.server.document_samples import sample
from tests.server.raw_client import RawClient
from tests.server.redis_server import free_port
from tests.server.server_process import wait_until

NGINX = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    gzip on;
    gzip_types *;
    gzip_min_length 0;
    gzip_proxied any;
{server}
}}
"""

HAPROXY = """
defaults
    mode http
    option http-no-delay
    timeout connect 5s
    timeout client 75s
    timeout server 75s
listen front
    bind {address}
    compression algo gzip
    compression type text/event-stream
    option forwardfor
    http-reuse always
    server node {pushup}
"""


def nginx_lines(address: str, pushup: str, application: str) -> str:
    """The sample of docs/operate/proxy.md with the lines of docs/guide/pages.md, these addresses, and without TLS."""
    text = sample("docs/operate/proxy.md", "upstream pushup")
    polls, again = sample("docs/guide/pages.md", "location ~ ^/v1/(poll|events").split("# ...\n")[1].split("    }\n", 1)
    for old, new in (
        ("server 127.0.0.1:8080;", f"server {pushup};"),
        ("listen 443 ssl http2;", f"listen {address};"),
        ("http://127.0.0.1:5000;", f"http://{application};"),
        ("        proxy_buffering off;\n", f"        proxy_buffering off;\n{polls}"),
        ("    location / {\n", f"{again}    location / {{\n"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return re.sub("ssl_certificate.*", "", text)


@contextmanager
def nginx(folder: Path, pushup: str, application: str = "127.0.0.1:9", *, buffers: bool = False) -> Iterator[str]:
    """Runs it; yields its address. `buffers`: it is not told to pass answers on at once."""
    address = f"127.0.0.1:{free_port()}"
    lines = nginx_lines(address, pushup, application)
    if buffers:
        lines = lines.replace("proxy_buffering off;", "")
    file = folder / "nginx.conf"
    file.write_text(NGINX.format(folder=folder, server=lines))
    with _running(address, "nginx", "-p", folder, "-c", file):
        yield address


@contextmanager
def haproxy(folder: Path, pushup: str) -> Iterator[str]:
    """Runs it; yields its address."""
    address = f"127.0.0.1:{free_port()}"
    file = folder / "haproxy.cfg"
    file.write_text(HAPROXY.format(address=address, pushup=pushup))
    with _running(address, "haproxy", "-q", "-db", "-f", file):
        yield address


@contextmanager
def _running(address: str, program: str, *arguments: str | Path) -> Iterator[None]:
    assert shutil.which(program), f"not installed: {program}. On Debian: apt-get install {program}"
    with subprocess.Popen([program, *arguments]) as process:
        try:
            wait_until(lambda: _listens(address), program)
            yield
        finally:
            process.terminate()


def _listens(address: str) -> bool:
    try:
        RawClient(address).close()
    except ConnectionRefusedError:
        return False
    return True
