"""Self-signed certificates for tests."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DAY = dt.timedelta(days=1)


def make_certificate(*names: str, age: dt.timedelta = DAY) -> tuple[bytes, bytes]:
    """A certificate for these host names and addresses, and its key, as PEM; valid for two days."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    begins = dt.datetime.now(dt.UTC) - age
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + 2 * DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_name(name) for name in names]), critical=False)
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    pem, format_ = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return certificate, key.private_bytes(pem, format_, serialization.NoEncryption())


def write_certificate(directory: Path, *names: str) -> tuple[Path, Path]:
    """Write a certificate and its key to files in a directory, which is created if missing."""
    directory.mkdir(exist_ok=True)
    files = directory / "certificate.pem", directory / "key.pem"
    for file, text in zip(files, make_certificate(*names), strict=True):
        file.write_bytes(text)
    return files


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
