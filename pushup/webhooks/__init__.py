"""For an application that PushUp calls about messages that were not read: whether a call is from PushUp.

`verify` is all there is. It needs nothing but Python, and works with the requests of any framework.
"""

from __future__ import annotations

import json
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable
from hashlib import sha256
from hmac import compare_digest, digest
from typing import Any, Protocol

TOLERANCE_SECONDS = 300
"""A call that is older may have been recorded, and sent again by somebody else. Clocks may differ as much."""

KEY_PREFIX = "whsec_"


class Headers(Protocol):
    """Header fields, as Django, FastAPI, Flask and http.server have them, or a dict."""

    def items(self) -> Iterable[tuple[str, str]]: ...


def verify(headers: Headers, body: bytes, key: str, *other_keys: str, now: float | None = None) -> dict[str, Any]:
    """The content of a call that PushUp signed with `key`, its `webhook_key`, or one of the other keys.

    `body`: as it came, not decoded. To change the key, accept both for a while. `now`: Unix time; None for the clock's.
    Raises: ValueError if the call is not from PushUp or too old, or if a key is not valid.
    """
    secrets = [_secret(each) for each in (key, *other_keys)]
    fields = {name.lower(): value for name, value in headers.items()}
    for name in ("webhook-id", "webhook-timestamp", "webhook-signature"):
        if not fields.get(name):
            raise ValueError(f"not a call of PushUp: it has no {name}")
    timestamp = fields["webhook-timestamp"]
    signed = b"%b.%b.%b" % (fields["webhook-id"].encode(), timestamp.encode(), body)
    expected = [b"v1," + b64encode(digest(secret, signed, sha256)) for secret in secrets]
    given = [each.encode() for each in fields["webhook-signature"].split(" ")]
    if not any(compare_digest(one, other) for one in given for other in expected):
        raise ValueError("the signature does not match: is the key PushUp's webhook_key, and the body as it came?")
    late = (time.time() if now is None else now) - int(timestamp)
    if abs(late) > TOLERANCE_SECONDS:
        raise ValueError(f"the call is {late:.0f} s old, and may be a repetition; are the clocks right?")
    content = json.loads(body)
    if not isinstance(content, dict):
        raise ValueError("the body is not a JSON object")
    return content


def _secret(key: str) -> bytes:
    """The bytes of a key. Raises: ValueError."""
    try:
        secret = b64decode(key.removeprefix(KEY_PREFIX), validate=True)
    except ValueError:
        secret = b""
    if not (secret and key.startswith(KEY_PREFIX)):
        raise ValueError(f"the key must be {KEY_PREFIX} and base64: the webhook_key of PushUp, without white space")
    return secret
