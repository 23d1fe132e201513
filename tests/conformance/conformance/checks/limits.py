"""What is within the limits, and beyond."""

from __future__ import annotations

import json

from conformance.registry import must, should
from conformance.trial import Trial


def _text(t: Trial, name: str, spare: int = 0) -> str:
    """Text whose JSON is as large as a limit, or that many bytes larger."""
    return "x" * (t.limits[name] - 2 + spare)


@must("LIMIT-2")
def let_a_message_be_as_large(t: Trial) -> None:
    """A message just as large as the limit is published and delivered."""
    client, name, data = t.client(), t.channel(), _text(t, "message_limit_bytes")
    client.publish(name, data)
    t.true(client.poll(name).data == [data], "expected the message, and it did not come")


@must("LIMIT-1")
def let_no_message_be_larger(t: Trial) -> None:
    """A message that is one byte larger gets 413."""
    body = {"channels": [t.channel()], "data": _text(t, "message_limit_bytes", 1)}
    t.problem(t.client().call("POST", "/v1/messages", body), 413, "message-too-large", "data")


@must("LIMIT-1")
def let_no_body_be_larger(t: Trial) -> None:
    """A body beyond its limit gets 413."""
    body = b" " * (t.limits["body_limit_bytes"] + 1)
    t.problem(t.client().call("POST", "/v1/messages", body), 413, "request-too-large")


@should("LIMIT-3")
def refuse_announced_bodies(t: Trial) -> None:
    """A body that announces too much is refused before it is sent."""
    length = b"Content-Length: %d\r\n\r\n" % (t.limits["body_limit_bytes"] + 1)
    t.bad(b"POST /v1/messages HTTP/1.1\r\n@HEAD@" + length, 413, "request-too-large")


@must("LIMIT-3")
def refuse_growing_bodies(t: Trial) -> None:
    """A body in chunks is refused when it exceeds the limit."""
    wire = t.wire()
    wire.send(t.fill(b"POST /v1/messages HTTP/1.1\r\n@HEAD@Transfer-Encoding: chunked\r\n\r\n"))
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    for _ in range(2 + t.limits["body_limit_bytes"] // 65536):
        wire.send(chunk)
    t.problem(wire.response(), 413, "request-too-large")


@must("LIMIT-1")
def let_no_poll_be_larger(t: Trial) -> None:
    """The body of a poll has a limit of its own."""
    body = json.dumps({"channels": [t.channel()], "timeout": 0}).encode()
    body += b" " * (t.limits["poll_body_limit_bytes"] + 1 - len(body))
    client = t.client()
    t.problem(client.call("POST", "/v1/poll", body), 413, "request-too-large")
    t.status(client.call("POST", "/v1/poll", body[:-1]), 200)


@must("LIMIT-1")
def let_no_target_be_longer(t: Trial) -> None:
    """A target beyond its limit gets 414, and a long one within it works."""
    client, name, most = t.client(), t.channel(), t.limits["target_limit_bytes"]
    target = f"/v1/poll?channel={name}&timeout=0&_="
    t.status(client.call("GET", target + "x" * (most - 300 - len(target))), 200)
    t.problem(client.call("GET", target + "x" * most), 414, "target-too-long")


@must("LIMIT-1")
def let_no_head_be_larger(t: Trial) -> None:
    """Header fields beyond their limit get 431, and large ones within it work."""
    client, most = t.client(), t.limits["header_limit_bytes"]
    t.status(client.call("GET", "/v1/cursor", X_Long="x" * (most - 1000)), 200)
    t.problem(client.call("GET", "/v1/cursor", X_Long="x" * most), 431, "headers-too-large")


@must("LIMIT-1")
def let_no_list_be_longer(t: Trial) -> None:
    """As many messages as the limit are published, and one more gets 400."""
    client, name, most = t.client(), t.channel(), t.limits["batch_limit"]
    t.same("the number of ids", len(client.publish_list((name, n) for n in range(most)).ids), most)
    body = {"messages": [{"channels": [name], "data": n} for n in range(most + 1)]}
    t.problem(client.call("POST", "/v1/messages", body), 400, "bad-request", "messages")


@must("LIMIT-1")
def let_no_message_have_more_channels(t: Trial) -> None:
    """A message may be on as many channels as the limit, and on one more gets 400."""
    client, most = t.client(), t.limits["message_channels_limit"]
    names = tuple(t.channel() if t.options.strict else t.name() for _ in range(most))
    client.publish(names, "everywhere")
    t.same("the messages of the last channel", client.poll(names[-1]).data, ["everywhere"])
    response = client.call("POST", "/v1/messages", {"channels": [*names, t.name()], "data": 1})
    t.problem(response, 400, "bad-request", "channels")


@must("LIMIT-1")
def let_no_list_have_more_channels(t: Trial) -> None:
    """The messages of a list may have as many channels together as the limit, and one more gets 400."""
    client, most = t.client(), t.limits["publication_channels_limit"]
    each = min(t.limits["message_channels_limit"], -(-most // t.limits["batch_limit"]) + 1)
    names = [t.channel() if t.options.strict else t.name() for _ in range(each)]
    messages = [{"channels": names, "data": n} for n in range(most // each)]
    left = most - each * len(messages)
    messages += [{"channels": names[:left], "data": "rest"}] if left else []
    t.status(client.call("POST", "/v1/messages", {"messages": messages}), 201)
    messages[-1] = {"channels": names[: left + 1] if left else [*names, names[0] + "x"], "data": "one more"}
    t.problem(client.call("POST", "/v1/messages", {"messages": messages}), 400, "bad-request", "messages")
