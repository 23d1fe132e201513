"""`pushup.webhooks.verify`: with the vector of the Standard Webhooks libraries, and with calls that PushUp makes.

https://github.com/standard-webhooks/standard-webhooks/blob/main/libraries/python/tests/test_webhooks.py
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from email.message import Message as EmailMessage
from typing import cast

import flask
import pytest
from django.http.request import HttpHeaders
from starlette.datastructures import Headers as StarletteHeaders
from twisted.internet.defer import Deferred, succeed

from pushup.backends.service_requestor import Reply, ServiceRequestor
from pushup.backends.webhook import WebhookSender, WebhookSettings
from pushup.core.webhooks import Webhook
from pushup.webhooks import Headers, verify

KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TIME = 1614265330
BODY = b'{"test": 2432232314}'
HEADERS = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": str(TIME),
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
OTHER = "Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="
OTHER_KEY = "whsec_" + "A" * 32


def test_the_vector() -> None:
    assert verify(HEADERS, BODY, KEY, now=TIME + 0.5) == {"test": 2432232314}


def test_several_signatures_and_several_keys() -> None:
    """As while the sender, or the receiver, changes its key."""
    signatures = f"v1,{OTHER} v2,{OTHER} {HEADERS['webhook-signature']} v1,{OTHER}"
    assert verify(HEADERS | {"webhook-signature": signatures}, BODY, OTHER_KEY, KEY, now=TIME)


@pytest.mark.parametrize(
    ("headers", "body", "wrong"),
    [
        *[({name: ""}, BODY, f"no {name}") for name in HEADERS],
        ({"webhook-signature": HEADERS["webhook-signature"].replace("OE=", "OA=")}, BODY, "does not match"),
        ({"webhook-signature": HEADERS["webhook-signature"].replace("v1,", "v2,")}, BODY, "does not match"),
        ({"webhook-signature": "é"}, BODY, "does not match"),
        ({"webhook-id": "msg_other"}, BODY, "does not match"),
        ({"webhook-timestamp": "hello"}, BODY, "does not match"),
        ({"webhook-timestamp": str(TIME + 1)}, BODY, "does not match"),
        ({}, BODY.replace(b" ", b""), "does not match"),
    ],
)
def test_what_is_not_signed_is_refused(headers: dict[str, str], body: bytes, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        verify(HEADERS | headers, body, KEY, now=TIME)


@pytest.mark.parametrize("late", [301, -301])
def test_a_call_of_another_time_is_refused(late: int) -> None:
    """Whoever has recorded one cannot repeat it after 5 min; the sender's clock may be 5 min ahead."""
    assert verify(HEADERS, BODY, KEY, now=TIME + late / 301 * 300)
    with pytest.raises(ValueError, match=f"{late} s old"):
        verify(HEADERS, BODY, KEY, now=TIME + late)
    with pytest.raises(ValueError, match="s old"):
        verify(HEADERS, BODY, KEY)  # by the clock


@pytest.mark.parametrize("key", ["", "whsec_", KEY.removeprefix("whsec_"), KEY + "\n", "whsec_MfKQ9", KEY + "é"])
def test_a_key_that_is_none_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="the key must be whsec_"):
        verify(HEADERS, BODY, key, now=TIME)


def of_flask(fields: Mapping[str, str]) -> Headers:
    with flask.Flask("app").test_request_context(headers=dict(fields)):
        return flask.request.headers


def of_django(fields: Mapping[str, str]) -> Headers:
    environ = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in fields.items()}
    return HttpHeaders(environ)  # type: ignore[no-any-return]


def of_http_server(fields: Mapping[str, str]) -> Headers:
    message = EmailMessage()
    for name, value in fields.items():
        message[name.title()] = value
    return cast(Headers, message)


@pytest.mark.parametrize("make", [of_flask, of_django, StarletteHeaders, of_http_server])
def test_the_headers_of_frameworks(make: Callable[[Mapping[str, str]], Headers]) -> None:
    assert verify(make(HEADERS), BODY, KEY, now=TIME)


class Requestor:
    """Keeps what is posted."""

    headers: dict[bytes, bytes]
    body: bytes

    def post(self, url: bytes, headers: dict[bytes, bytes], body: bytes) -> Deferred[Reply]:
        self.headers, self.body = headers, body
        return succeed(Reply(204, b""))


def test_a_call_of_pushup() -> None:
    requestor = Requestor()
    settings = WebhookSettings(webhook_url="http://a/", webhook_key=KEY)
    sender = WebhookSender(settings, cast(ServiceRequestor, requestor), lambda: TIME + 0.9)
    row = Webhook("e-5", 5, TIME - 60.0, ("chat:1",), ("bob",), TIME, 1, False)
    sender(row, None)
    headers = {name.decode(): value.decode() for name, value in requestor.headers.items()}
    content = verify(headers, requestor.body, KEY, now=TIME)
    assert (content["type"], content["data"]["subjects"]) == ("message.unread", ["bob"])
    assert json.loads(requestor.body) == content
    with pytest.raises(ValueError, match="does not match"):
        verify(headers, requestor.body.replace(b"bob", b"ann"), KEY, now=TIME)
