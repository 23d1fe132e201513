"""A certificate of one's own, for servers on this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_certificate(directory: Path, name: str) -> tuple[Path, Path]:
    """The certificate of 127.0.0.1, which is its own authority, and its key."""
    certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1",
            "-out", certificate, "-keyout", key,
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key
