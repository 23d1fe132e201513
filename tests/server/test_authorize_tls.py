"""An authorizing application over https: its certificate must name its host, or nobody may poll."""

from __future__ import annotations

import ssl
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.server.blocking_backend import web_backend
from tests.server.caller import poll_path
from tests.server.certificates import write_certificate
from tests.server.conftest import Serve


@pytest.mark.parametrize(
    ("names", "status", "told"),
    [
        (("127.0.0.1",), 200, ""),
        ((), 503, "has no subjectAltName"),
        (("other.example",), 503, "does not name 127.0.0.1"),
    ],
)
def test_the_certificate_must_name_the_application(
    serve: Serve, tmp_path: Path, stack: ExitStack, names: tuple[str, ...], status: int, told: str
) -> None:
    """Even if its authority is trusted: otherwise the owner of any trusted certificate could decide who may poll."""
    certificate, key = write_certificate(tmp_path / "application", *names)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    backend = stack.enter_context(web_backend(context))
    with serve(authorize_url=backend.url, environment={"SSL_CERT_FILE": str(certificate)}) as server:
        server.expect_log("authorization is failing")
        with server.caller() as caller:
            assert caller.call("GET", poll_path("a", timeout=0)).status == status
        assert backend.count == (1 if status == 200 else 0)
        lines = [line for line in server.log_lines() if "authorization is failing" in line]
        assert len(lines) == (0 if status == 200 else 1)
        assert all(told in line for line in lines)
        assert not [line for line in server.log_lines() if "Traceback" in line]
