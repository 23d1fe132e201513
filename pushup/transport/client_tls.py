"""TLS connections to Redis and the application: verifies their certificates, and says why one is not accepted.

The host name is verified here and not by Twisted: some versions accept a certificate without subjectAltName, with only
a line in the log. This module needs the extra `tls`.
"""

from __future__ import annotations

from typing import Any
from weakref import ref

from OpenSSL.crypto import X509
from OpenSSL.SSL import VERIFY_FAIL_IF_NO_PEER_CERT, VERIFY_PEER, Connection
from service_identity.exceptions import VerificationError
from service_identity.hazmat import DNS_ID, IPAddress_ID, verify_service_identity
from service_identity.pyopenssl import extract_patterns
from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.internet.ssl import optionsForClientTLS
from twisted.python.failure import Failure
from twisted.web.iweb import IPolicyForHTTPS
from zope.interface import implementer

_AUTHORITY = (
    "is not signed by an authority that this machine trusts; set SSL_CERT_FILE to its root authority's certificate, in "
    "PEM"
)
_REASONS = {9: "is not valid yet", 10: "has expired", **dict.fromkeys((2, 18, 19, 20, 21), _AUTHORITY)}
"""OpenSSL's verification errors in words (X509_V_ERR_*)."""


class NotTrusted(Exception):
    """The server's certificate is not accepted; the text says why."""


@implementer(IOpenSSLClientConnectionCreator)
class ClientTls:
    """Makes TLS connections to one host, whose certificate must name it."""

    def __init__(self, host: str) -> None:
        self._host = host if host.isascii() else host.encode("idna").decode()
        self._options = optionsForClientTLS(self._host)

    def clientConnectionForTLS(self, tlsProtocol: Any) -> Connection:  # noqa: N803
        connection = self._options.clientConnectionForTLS(tlsProtocol)
        protocol = ref(tlsProtocol)

        def verify(connection: Connection, certificate: X509, error: int, depth: int, ok: int) -> bool:
            try:
                why = certificate_mistake(self._host, certificate, error, depth, is_trusted=bool(ok))
            except Exception as mistake:  # OpenSSL would swallow it
                why = f"cannot be read: {mistake}"
            tls = protocol()
            if why and tls is not None:
                tls.failVerification(Failure(NotTrusted(f"its certificate {why}")))
            return not why

        connection.set_verify(VERIFY_PEER | VERIFY_FAIL_IF_NO_PEER_CERT, verify)
        return connection


def certificate_mistake(host: str, certificate: X509, error: int, depth: int, *, is_trusted: bool) -> str:
    """Why this certificate is not accepted; empty if it is. At depth 0 it is the server's own.

    Raises: service_identity.CertificateError, ValueError when it cannot be read.
    """
    if not is_trusted:
        return _REASONS.get(error, f"is not accepted (OpenSSL's verification error {error})")
    if depth:
        return ""
    is_address = isIPAddress(host) or isIPv6Address(host)
    wanted = f"subjectAltName={'IP' if is_address else 'DNS'}:{host}"
    patterns = extract_patterns(certificate)
    if not patterns:
        return f"has no subjectAltName, so it names no server; have it reissued with {wanted}"
    try:
        verify_service_identity(patterns, [IPAddress_ID(host) if is_address else DNS_ID(host)], [])
    except VerificationError:
        return f"does not name {host}; connect by a name that it contains, or have it reissued with {wanted}"
    return ""


@implementer(IPolicyForHTTPS)
class TlsPolicy:
    """`ClientTls` for Twisted's HTTP client."""

    def creatorForNetloc(self, hostname: bytes, port: int) -> ClientTls:
        return ClientTls(hostname.decode("ascii"))


_check: type[IOpenSSLClientConnectionCreator] = ClientTls
_check_policy: type[IPolicyForHTTPS] = TlsPolicy
