"""`GET /dashboard`: a page for operators, and its files. They say nothing; the calls of the page need their rights."""

from __future__ import annotations

from pushup.core.grant import Grant
from pushup.net.api.static_files import StaticFile
from pushup.net.application_interface import Exchange
from pushup.net.http_errors import UnknownResource
from pushup.net.requests_and_responses import Request

FILES = ("dashboard.js", "dashboard.css")

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""The page runs nothing but its own files, and cannot turn text into HTML: messages may be hostile."""

HEADERS = (
    (b"Content-Security-Policy", POLICY.encode()),
    (b"X-Content-Type-Options", b"nosniff"),
    (b"Referrer-Policy", b"no-referrer"),
    (b"Cross-Origin-Opener-Policy", b"same-origin"),
    (b"Cross-Origin-Resource-Policy", b"same-origin"),
)


class Dashboard:
    """One of its files."""

    def __init__(self, name: str = "dashboard.html", *, is_shown: bool) -> None:
        self._file = StaticFile("pushup.dashboard", name)
        self._is_shown = is_shown

    def show(self, request: Request, query: bytes, exchange: Exchange, grant: Grant) -> None:
        if not self._is_shown:
            raise UnknownResource(
                "the dashboard is not served where other machines can listen; ask an address in the setting "
                "operator_listen"
            )
        exchange.respond(self._file.response(request, HEADERS))
