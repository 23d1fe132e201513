"""HTTP: requests, responses and connections, with odd bytes."""

from __future__ import annotations

import json
from email.utils import parsedate_to_datetime

from conformance.registry import must, should
from conformance.trial import Trial

GET = b"GET /healthz HTTP/1.1\r\n@HEAD@"
POST = b"POST /v1/messages HTTP/1.1\r\n@HEAD@"


@must("HTTP-1")
def keeps_connections_open(t: Trial) -> None:
    """A connection serves one request after the other."""
    wire = t.wire()
    for _ in range(3):
        wire.send(t.fill(GET + b"\r\n"))
        t.status(wire.response(), 200)


@must("HTTP-1")
def reads_a_request_byte_by_byte(t: Trial) -> None:
    """A request that arrives in single bytes is answered like any other."""
    wire = t.wire()
    for byte in t.fill(GET + b"\r\n"):
        wire.send(bytes([byte]))
    t.status(wire.response(), 200)


@must("HTTP-2")
def sends_lengths(t: Trial) -> None:
    """Responses have a Content-Length, are not sent in chunks, and 204 has neither."""
    client = t.client()
    name = t.channel()
    client.publish(name, 1)
    for method, target in (("GET", "/v1/cursor"), ("GET", f"/v1/poll?channel={name}"), ("GET", "/v1/nowhere")):
        response = client.call(method, target)
        t.true("content-length" in response.headers, f"expected a Content-Length, and {response.headers} came")
        t.true("transfer-encoding" not in response.headers, f"expected no chunks, and {response.headers} came")
    headers = t.status(client.call("DELETE", f"/v1/channels/{name}"), 204).headers
    t.true("content-length" not in headers, f"expected no Content-Length in a 204, and {headers} came")


@must("HTTP-3")
def forbids_caching(t: Trial) -> None:
    """Responses have Cache-Control: no-store, errors too."""
    client = t.client()
    for target in ("/v1/cursor", f"/v1/poll?channel={t.channel()}&timeout=0", "/v1/nowhere", "/v1/poll"):
        t.same(f"Cache-Control of {target}", client.call("GET", target).headers.get("cache-control"), "no-store")


@must("HTTP-3")
def sends_the_date(t: Trial) -> None:
    """Responses have a Date in the form of HTTP."""
    text = t.client().call("GET", "/v1/cursor").headers.get("date", "")
    try:
        parsedate_to_datetime(text)
    except ValueError:
        t.true(False, f"expected a Date, and {text!r} came")


@must("HTTP-4")
def answers_in_json(t: Trial) -> None:
    """What is not an error has the media type application/json."""
    client = t.client()
    for target in ("/v1/cursor", f"/v1/poll?channel={t.channel()}&timeout=0", "/healthz"):
        response = t.status(client.call("GET", target), 200)
        t.same(f"Content-Type of {target}", response.headers.get("content-type"), "application/json")
        t.true(isinstance(response.json, dict), f"expected an object, and {response} came")


@must("HTTP-4")
def needs_no_content_type(t: Trial) -> None:
    """A body is JSON whatever its Content-Type, and without one."""
    client, body = t.client(), {"channels": [t.channel()], "data": 1}
    t.status(client.call("POST", "/v1/messages", body), 201)
    t.status(client.call("POST", "/v1/messages", body, Content_Type="application/x-www-form-urlencoded"), 201)


@must("HTTP-5")
def answers_head(t: Trial) -> None:
    """HEAD gets the head of GET without its body, and the connection goes on."""
    wire = t.wire()
    wire.send(t.fill(b"HEAD /healthz HTTP/1.1\r\n@HEAD@\r\n" + GET + b"\r\n"))
    head, whole = wire.response(head=True), wire.response()
    t.status(head, 200)
    t.same("the status of the GET behind it", whole.status, 200)
    t.same("Content-Length of HEAD", head.headers.get("content-length"), str(len(whole.body)))


@must("HTTP-5")
def answers_options(t: Trial) -> None:
    """OPTIONS gets 204 and the methods of the path."""
    for target, methods in (("/v1/poll", {"GET", "HEAD", "POST"}), ("/v1/messages", {"POST"})):
        response = t.status(t.client().call("OPTIONS", target), 204)
        allowed = set(response.headers.get("allow", "").replace(" ", "").split(","))
        t.true(methods <= allowed, f"expected Allow with {sorted(methods)}, and {sorted(allowed)} came")


@must("HTTP-5")
def answers_options_for_the_server(t: Trial) -> None:
    """OPTIONS * gets 204."""
    t.status(t.raw(b"OPTIONS * HTTP/1.1\r\n@HEAD@\r\n")[0], 204)


@must("HTTP-6")
def knows_its_paths(t: Trial) -> None:
    """A path that does not exist gets 404."""
    client = t.client()
    for target in ("/v1/nowhere", "/", "/v1/poll/", "/v2/poll?channel=a"):
        t.problem(client.call("GET", target), 404, "unknown-resource")


@must("HTTP-7")
def knows_its_methods(t: Trial) -> None:
    """A method that the path does not take gets 405 with Allow."""
    client = t.client()
    for method, target in (("DELETE", "/v1/poll"), ("GET", "/v1/messages"), ("PUT", "/v1/channels")):
        response = client.call(method, target)
        t.problem(response, 405, "method-not-allowed")
        t.true("POST" in response.headers.get("allow", ""), f"expected Allow with POST, and {response.headers} came")


@must("HTTP-7")
def survives_unknown_methods(t: Trial) -> None:
    """A method that HTTP does not have gets 400, 405 or 501."""
    t.status(t.raw(b"BREW /v1/poll HTTP/1.1\r\n@HEAD@\r\n")[0], 400, 405, 501)


@must("HTTP-8")
def answers_a_pipeline_in_order(t: Trial) -> None:
    """Requests sent together are answered in their order."""
    wire, names = t.wire(), [t.channel() for _ in range(20)]
    for name in names:
        t.client().publish(name, name)
    wire.send(b"".join(t.encode(t.native.poll((name,), "", 0)) for name in names))
    came = [t.native.read_answer(wire.response(), "").data for _ in names]
    t.same("the order of the answers", came, [[name] for name in names])


@must("HTTP-8")
def keeps_a_pipeline_behind_a_held_poll(t: Trial) -> None:
    """A request behind a held poll is answered after it."""
    wire, name = t.wire(), t.channel()
    wire.send(t.encode(t.native.poll((name,), "", 20)) + t.fill(GET + b"\r\n"))
    t.true(wire.silent(0.3), "expected nothing while the poll is held, and something came")
    t.client().publish(name, "now")
    t.same("the first answer", t.native.read_answer(wire.response(), "").data, ["now"])
    t.same("the second answer", wire.response().json.get("status"), "alive")


@must("HTTP-9")
def accepts_absolute_targets(t: Trial) -> None:
    """A target in absolute form, as proxies send it, is accepted."""
    target = b"http://@HOST@" + t.addresses[0].path.encode() + b"/healthz"
    t.status(t.raw(b"GET " + target + b" HTTP/1.1\r\n@HEAD@\r\n")[0], 200)


@must("HTTP-10")
def answers_http_1_0(t: Trial) -> None:
    """A request of HTTP/1.0 without Host is answered, and its connection closed."""
    response, ended = t.raw(b"GET /healthz HTTP/1.0\r\n\r\n")
    t.status(response, 200)
    t.true(ended, "expected the connection to end after HTTP/1.0, and it stayed open")


@must("HTTP-11")
def needs_a_host(t: Trial) -> None:
    """A request of HTTP/1.1 without Host gets 400."""
    t.bad(b"GET /healthz HTTP/1.1\r\n\r\n")


@must("HTTP-11")
def needs_one_host(t: Trial) -> None:
    """A request with two Hosts gets 400."""
    t.bad(b"GET /healthz HTTP/1.1\r\nHost: @HOST@\r\nHost: @HOST@\r\n\r\n")


@must("HTTP-11")
def needs_a_good_host(t: Trial) -> None:
    """A request with a malformed Host gets 400."""
    t.bad(b"GET /healthz HTTP/1.1\r\nHost: @HOST@/a b\r\n\r\n")


@must("HTTP-12", "http")
def refuses_length_with_chunks(t: Trial) -> None:
    """A request with Content-Length and Transfer-Encoding gets 400, and what hides in its body is not answered."""
    hidden = b"0\r\n\r\n" + GET + b"\r\n"
    head = POST + b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n"
    wire = t.wire()
    wire.send(t.fill(head % len(t.fill(hidden)) + hidden))
    t.status(wire.response(), 400)
    t.true(wire.ends(), "expected the connection to end, and it stayed open or sent more")


@must("HTTP-12", "http")
def refuses_two_lengths(t: Trial) -> None:
    """A request with two different Content-Lengths gets 400, and its connection ends."""
    response, ended = t.raw(POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}")
    t.status(response, 400)
    t.true(ended, "expected the connection to end, and it stayed open")


@must("HTTP-12")
def refuses_bad_lengths(t: Trial) -> None:
    """A Content-Length that is not a number gets 400."""
    for length in (b"-2", b"+2", b"0x2", b"2, 2", b"99999999999999999999999"):
        t.bad(POST + b"Content-Length: " + length + b"\r\n\r\n{}")


@must("HTTP-12")
def refuses_other_transfer_codings(t: Trial) -> None:
    """A transfer coding other than chunked gets 400."""
    for coding in (b"gzip, chunked", b"identity", b"xchunked"):
        t.bad(POST + b"Transfer-Encoding: " + coding + b"\r\n\r\n0\r\n\r\n")


@must("HTTP-12")
def refuses_bad_chunks(t: Trial) -> None:
    """A malformed chunk gets 400."""
    for chunk in (b"zz\r\n\r\n", b"-1\r\n\r\n", b"2\r\n{}0\r\n\r\n"):
        t.bad(POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunk)


@must("HTTP-12")
def refuses_chunks_in_http_1_0(t: Trial) -> None:
    """A transfer coding in HTTP/1.0 gets 400."""
    t.bad(b"POST /v1/messages HTTP/1.0\r\n@HEAD@Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")


@must("HTTP-13")
def refuses_space_before_a_colon(t: Trial) -> None:
    """White space between the name of a field and its colon gets 400."""
    t.bad(GET + b"X-A : b\r\n\r\n")


@must("HTTP-13")
def refuses_folded_fields(t: Trial) -> None:
    """A field that goes on in the next line gets 400."""
    t.bad(GET + b"X-A: b\r\n c\r\n\r\n")


@must("HTTP-13")
def refuses_control_characters_in_fields(t: Trial) -> None:
    """A NUL or a lone CR in a field gets 400."""
    t.bad(GET + b"X-A: b\x00c\r\n\r\n")
    t.bad(GET + b"X-A: b\rc\r\n\r\n")


@must("HTTP-13")
def refuses_bare_line_feeds(t: Trial) -> None:
    """Lines that end with LF alone get 400."""
    t.bad(b"GET /healthz HTTP/1.1\nHost: @HOST@\n\n")


@must("HTTP-13")
def refuses_raw_characters_in_targets(t: Trial) -> None:
    """A character beyond ASCII in the target, not percent-encoded, gets 400."""
    t.bad(b"GET /v1/poll?channel=\xc3\xa9&timeout=0 HTTP/1.1\r\n@HEAD@\r\n")


@must("HTTP-13")
def refuses_other_protocols(t: Trial) -> None:
    """HTTP/2's preface, a TLS handshake and garbage get 400."""
    t.bad(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    t.bad(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32))
    t.bad(b"\x00\x01\x02 what is this?\r\n\r\n")


@must("HTTP-14")
def accepts_chunks(t: Trial) -> None:
    """A body in chunks is accepted."""
    body = json.dumps({"channels": [t.channel()], "data": "in chunks"}).encode()
    parts = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:5], body[5:6], body[6:]))
    t.status(t.raw(POST + b"Transfer-Encoding: chunked\r\n\r\n" + parts + b"0\r\n\r\n")[0], 201)


@must("HTTP-14")
def ignores_trailers(t: Trial) -> None:
    """Trailers have no meaning: a key there is no key."""
    body = json.dumps({"channels": [t.channel()], "data": "with a trailer"}).encode()
    chunks = b"%x\r\n%b\r\n0\r\nIdempotency-Key: %b\r\n\r\n" % (len(body), body, t.name().encode())
    data = POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks
    first, second = (t.status(t.raw(data)[0], 201).json["id"] for _ in range(2))
    t.true(first != second, f"expected two messages, and both publications got {first}")


@must("HTTP-15")
def lets_clients_continue(t: Trial) -> None:
    """A client that expects 100-continue gets it, or a final response, before it has sent its body."""
    body = json.dumps({"channels": [t.channel()], "data": 1}).encode()
    wire = t.wire()
    wire.send(t.fill(POST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)))
    t.status(wire.any_response(), 100)
    wire.send(body)
    t.status(wire.response(), 201)


@must("HTTP-15")
def refuses_other_expectations(t: Trial) -> None:
    """An Expect other than 100-continue gets 417."""
    response, _ = t.raw(POST + b"Expect: a-miracle\r\nContent-Length: 2\r\n\r\n{}")
    t.problem(response, 417, "expectation-failed")


@must("HTTP-16")
def ignores_upgrades(t: Trial) -> None:
    """An offer to speak WebSocket or HTTP/2 is ignored."""
    for offer in (b"websocket", b"h2c"):
        t.status(t.raw(GET + b"Connection: Upgrade\r\nUpgrade: " + offer + b"\r\n\r\n")[0], 200)


@should("HTTP-16")
def ends_connections_after_an_upgrade(t: Trial) -> None:
    """A connection ends after an offer to change protocols, because a proxy may believe in it."""
    _, ended = t.raw(GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    t.true(ended, "expected the connection to end, and it stayed open")


@should("HTTP-17")
def refuses_by_the_head(t: Trial) -> None:
    """A request that its head is enough to refuse is answered before its body, and its connection ends."""
    for line, status in ((b"POST /v1/nowhere", 404), (b"DELETE /v1/poll", 405)):
        response, ended = t.raw(line + b" HTTP/1.1\r\n@HEAD@Content-Length: 50000\r\n\r\n")
        t.status(response, status)
        t.true(ended, "expected the connection to end, and it stayed open")


@must("HTTP-18", "http")
def answers_nothing_after_a_bad_request(t: Trial) -> None:
    """After a request that cannot be read, nothing else on the connection is answered."""
    wire = t.wire()
    wire.send(t.fill(b"GET /healthz HTTP/9.9x\r\nno field\r\n\r\n" + GET + b"\r\n" + GET + b"\r\n"))
    t.status(wire.response(), 400, 505)
    t.true(wire.ends(), "expected the connection to end, and it stayed open or sent more")


@must("HTTP-19")
def answers_a_half_closed_connection(t: Trial) -> None:
    """A client that has sent a whole publication and closed its side gets the answer."""
    wire, name = t.wire(), t.channel()
    wire.send(t.encode(t.native.publish((name,), "last words")))
    wire.half_close()
    t.status(wire.response(), 201)
    t.same("the messages", t.client().poll(name).data, ["last words"])


@must("HTTP-20", "resume")
def is_not_delayed_by_slow_senders(t: Trial) -> None:
    """Fifty clients in the middle of a request delay nobody."""
    name = t.channel()
    request = t.encode(t.adapter.publish((name,), "never complete"))
    for _ in range(50):
        t.wire().send(request[:-1])
    client = t.client()
    client.publish(name, "complete")
    t.same("the messages", client.poll(name).data, ["complete"])


@must("HTTP-20", "resume")
def is_not_delayed_by_slow_readers(t: Trial) -> None:
    """Twenty clients that ask for much and read nothing delay nobody."""
    name, other = t.channel(), t.channel()
    client = t.client()
    for n in range(20):
        client.publish(name, f"{n} " + "x" * 30000)
    request = t.encode(t.adapter.poll((name,), "", 0))
    for _ in range(20):
        t.wire(receive_buffer_bytes=4096).send(request * 10)
    client.publish(other, "soon")
    t.same("the messages", client.poll(other).data, ["soon"])


@must("HTTP-20", "resume")
def is_not_harmed_by_resets(t: Trial) -> None:
    """Clients that break off in the middle of a request, or of a poll, harm nobody."""
    name = t.channel()
    whole = t.encode(t.adapter.poll((name,), "", 20))
    for n in range(60):
        wire = t.wire()
        wire.send(whole if n % 2 else whole[: n % len(whole)])
        wire.reset()
    t.client().publish(name, "still here")
    t.same("the messages", t.client().poll(name).data, ["still here"])


@must("HTTP-20", "resume")
def sends_large_answers_to_slow_readers(t: Trial) -> None:
    """A client that reads slowly gets the whole of a large answer."""
    name, data = t.channel(), "x" * 60000
    t.client().publish(name, data)
    wire = t.wire(receive_buffer_bytes=4096)
    wire.send(t.encode(t.adapter.poll((name,), "", 0)))
    t.sleep(0.5)
    t.true(t.adapter.read_answer(wire.response(), "").data == [data], "expected the message, and another came")


@must("HTTP-21", "quick give-up")
def gives_up_incomplete_requests(t: Trial) -> None:
    """A request that never becomes complete is given up in time, with 408 or without a response."""
    wire = t.wire()
    wire.send(t.fill(GET))
    wire.socket.settimeout(2 * t.limits["request_timeout_seconds"] + t.patience)
    try:
        first = wire.socket.recv(65536)
    except ConnectionError:
        first = b""
    except TimeoutError:
        t.true(False, "expected the server to give up, and it did not")
    t.true(not first or b" 408 " in first[:20], f"expected 408 or the end, and {first[:50]!r} came")


@must("HTTP-22")
def compares_field_names_without_case(t: Trial) -> None:
    """Names of header fields may be written in any case."""
    body = {"channels": [t.channel()], "data": 1}
    key, client = t.name(), t.client()
    first = client.call("POST", "/v1/messages", body, IDEMPOTENCY_KEY=key)
    second = client.call("POST", "/v1/messages", body, idempotency_key=key)
    t.same("the second answer", second.body, t.status(first, 201).body)


@must("HTTP-22")
def refuses_repeated_fields(t: Trial) -> None:
    """Authorization or Idempotency-Key twice gets 400."""
    t.bad(POST + b"Idempotency-Key: a\r\nIdempotency-Key: b\r\nContent-Length: 2\r\n\r\n{}")
    twice = b"Host: @HOST@\r\nAuthorization: a\r\nAuthorization: b\r\n"
    t.bad(b"POST /v1/messages HTTP/1.1\r\n" + twice + b"Content-Length: 2\r\n\r\n{}")
