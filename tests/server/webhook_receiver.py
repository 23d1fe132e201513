"""An application that is told which messages were not read, and checks who says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from pushup.webhooks import verify
from tests.server.web_server import web_server

KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PUBLISH_KEY = "the-key-of-a-publisher"


class WebhookReceiver:
    """`calls`: the content of each call, or the ValueError of `verify`."""

    def __init__(self, url: str) -> None:
        self.calls: list[Any] = []
        self.settings: dict[str, Any] = {"publish_keys": PUBLISH_KEY, "webhook_url": url, "webhook_key": KEY}
        """Those of a server that calls it."""

    @property
    def unread(self) -> list[tuple[object, list[str]]]:
        """What was not read, and by whom."""
        return [(call["data"]["data"], call["data"]["subjects"]) for call in self.calls]


@contextmanager
def webhook_receiver() -> Iterator[WebhookReceiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                receiver.calls.append(verify(self.headers, body, KEY))
            except ValueError as error:
                receiver.calls.append(error)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with web_server(Handler) as port:
        receiver = WebhookReceiver(f"http://127.0.0.1:{port}/unread")
        yield receiver
