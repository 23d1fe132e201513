"""The bytes of requests: a browser polls, and a program publishes."""

from __future__ import annotations

import json

_BROWSER = "\r\n".join((
    "Host: push.example.org", "Connection: keep-alive", "User-Agent: Mozilla/5.0 (X11; Linux x86_64) Chrome/120.0.0.0",
    "Accept: */*", "Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: cors", "Sec-Fetch-Dest: empty",
    "Referer: https://push.example.org/", "Accept-Encoding: gzip, deflate, br", "Accept-Language: en-US,en;q=0.9",
))  # fmt: skip

_PROGRAM = "Host: push.example.org\r\nContent-Type: application/json"


def poll(channel: str, cursor: str = "earliest") -> bytes:
    return _get(f"/v1/poll?channel={channel}&cursor={cursor}&timeout=20")


def events(channel: str, cursor: str = "earliest") -> bytes:
    return _get(f"/v1/events?channel={channel}&cursor={cursor}")


def raw_events(channel: str, cursor: str = "earliest") -> bytes:
    return _get(f"/v1/events?channel={channel}&cursor={cursor}&format=raw")


def publish(channel: str, data: object) -> bytes:
    return _post("/v1/messages", {"channels": [channel], "data": data})


def create(channel: str) -> bytes:
    return _post("/v1/channels", {"name": channel})


def _get(target: str) -> bytes:
    return f"GET {target} HTTP/1.1\r\n{_BROWSER}\r\n\r\n".encode()


def _post(path: str, body: object) -> bytes:
    data = json.dumps(body)
    return f"POST {path} HTTP/1.1\r\n{_PROGRAM}\r\nContent-Length: {len(data)}\r\n\r\n{data}".encode()
