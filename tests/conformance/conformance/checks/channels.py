"""The calls of channels."""

from __future__ import annotations

import time

from conformance.registry import must
from conformance.trial import Trial


@must("CHAN-1")
def can_be_created(t: Trial) -> None:
    """A channel is created with a name and a lifetime."""
    client, name = t.client(), t.name()
    began = time.time()
    value = t.status(client.call("POST", "/v1/channels", {"name": name, "ttl": 600}), 201).json
    t.same("the fields", sorted(value), ["expires", "id", "name"])
    t.same("the name", value["name"], name)
    t.true(isinstance(value["id"], int), f"expected a number as the id, and {value['id']!r} came")
    t.true(abs(value["expires"] - began - 600) < 60, f"expected it to expire in 600 s, and {value['expires']} came")


@must("CHAN-1")
def need_no_name(t: Trial) -> None:
    """A channel without a name has its id as its name, with a body or without."""
    client = t.client()
    for body in (None, {}, {"ttl": 60}):
        value = t.status(client.call("POST", "/v1/channels", body), 201).json
        t.same("the name", value["name"], str(value["id"]))
        client.publish(value["name"], "hello")
        t.same("the messages", client.poll(value["name"]).data, ["hello"])


@must("CHAN-1")
def have_ids_of_their_own(t: Trial) -> None:
    """No two channels have the same id, not even one after the other with the same name."""
    client, name, ids = t.client(), t.name(), []
    for _ in range(5):
        ids.append(t.status(client.call("POST", "/v1/channels", {"name": name}), 201).json["id"])
        t.status(client.call("DELETE", f"/v1/channels/{name}"), 204)
    t.same("the number of ids", len(set(ids)), 5)


@must("CHAN-2")
def cannot_be_created_twice(t: Trial) -> None:
    """A name that is taken gets 409, by creation or by publication."""
    client, name = t.client(), t.channel()
    client.publish(name, 1)
    t.problem(client.call("POST", "/v1/channels", {"name": name}), 409, "channel-exists", "name")
    t.same("the messages", client.poll(name).data, [1])


@must("CHAN-3")
def can_be_renewed(t: Trial) -> None:
    """Renewing restarts the lifetime, with another one if it is given."""
    client, name = t.client(), t.name()
    first = t.status(client.call("POST", "/v1/channels", {"name": name, "ttl": 100}), 201).json
    for body, ttl in (({"ttl": 900}, 900), (None, 900), ({}, 900), ({"ttl": 50}, 50)):
        value = t.status(client.call("POST", f"/v1/channels/{name}/renew", body), 200).json
        t.same("the id and name", (value["id"], value["name"]), (first["id"], name))
        t.true(abs(value["expires"] - time.time() - ttl) < 60, f"expected {ttl} s, and {value} came")


@must("CHAN-4")
def end_when_unused(t: Trial) -> None:
    """A channel that is not used for its lifetime is closed, and its subscribers are told."""
    client, name = t.client(), t.name()
    cursor = client.call("GET", "/v1/cursor").json["cursor"]  # before, for the channel may not live until it has come
    t.status(client.call("POST", "/v1/channels", {"name": name, "ttl": 1}), 201)
    client.begin_poll(name, cursor)
    t.same("the channels closed", client.answer(within=5 + t.patience).closed, (name,))
    t.problem(client.call("GET", f"/v1/channels/{name}"), 404, "unknown-channel")


@must("CHAN-4")
def stay_when_used(t: Trial) -> None:
    """A channel that is published to or renewed stays for longer than its lifetime."""
    client, used, renewed = t.client(), t.name(), t.name()
    for name in (used, renewed):
        t.status(client.call("POST", "/v1/channels", {"name": name, "ttl": 5}), 201)
    for n in range(5):
        t.sleep(1.3)
        client.publish(used, n)
        t.status(client.call("POST", f"/v1/channels/{renewed}/renew"), 200)
    t.status(client.call("GET", f"/v1/channels/{used}"), 200)
    t.status(client.call("GET", f"/v1/channels/{renewed}"), 200)


@must("CHAN-5")
def can_be_closed(t: Trial) -> None:
    """Closing a channel drops its messages, and it is gone."""
    client, name = t.client(), t.channel()
    client.publish(name, "dropped")
    t.status(client.call("DELETE", f"/v1/channels/{name}"), 204)
    t.problem(client.call("GET", f"/v1/channels/{name}"), 404, "unknown-channel")
    t.same("the messages", client.poll(name).data, [])


@must("CHAN-6")
def can_be_shown(t: Trial) -> None:
    """A channel is shown with its messages, their size and its lifetime."""
    client, name = t.client(), t.name()
    created = t.status(client.call("POST", "/v1/channels", {"name": name, "ttl": 300}), 201).json
    client.publish(name, "1234")
    value = t.status(client.call("GET", f"/v1/channels/{name}"), 200).json
    t.same("the fields", sorted(value), ["bytes", "expires", "id", "messages", "name", "subscribers", "ttl"])
    t.same("id, name, ttl, messages, bytes", [value[k] for k in ("id", "name", "ttl", "messages", "bytes")],
           [created["id"], name, 300, 1, 6])  # fmt: skip


@must("CHAN-6")
def count_their_subscribers(t: Trial) -> None:
    """A channel counts the polls and streams that wait on it, and forgets those whose clients have left."""
    client, name = t.client(), t.channel()
    cursor = client.publish(name, 1).cursor
    wires = [t.wire() for _ in range(3)]
    for wire in wires[1:]:
        wire.send(t.encode(t.native.poll((name,), cursor, 20)))
    wires[0].send(t.encode(t.native.stream((name,), cursor)))
    for expected in (3, 2, 1):
        for _ in range(int(t.patience * 10)):
            if (count := client.call("GET", f"/v1/channels/{name}").json["subscribers"]) == expected:
                break
            t.sleep(0.1)
        t.same("the subscribers", count, expected)
        wires.pop(0).close()


@must("CHAN-7")
def can_be_listed(t: Trial) -> None:
    """The list has the open channels by ascending id, and goes on after an id."""
    client = t.client()
    made = [t.status(client.call("POST", "/v1/channels", {"name": t.name()}), 201).json["id"] for _ in range(3)]
    value = t.status(client.call("GET", f"/v1/channels?after={made[0] - 1}"), 200).json
    ids = [channel["id"] for channel in value["channels"]]
    t.same("the ids", ids, sorted(ids))
    t.true(set(made) <= set(ids), f"expected {made}, and {ids[:5]} came")
    t.true(min(ids) > made[0] - 1, f"expected ids after {made[0] - 1}, and {min(ids)} came")
    later = t.status(client.call("GET", f"/v1/channels?after={made[1]}"), 200).json
    t.true(not {made[0], made[1]} & {channel["id"] for channel in later["channels"]}, "expected later ids alone")
    t.true(isinstance(value["more"], bool), f"expected more, and {sorted(value)} came")


@must("CHAN-7")
def are_listed_after_a_number(t: Trial) -> None:
    """An after that is no id gets 400."""
    t.problem(t.client().call("GET", "/v1/channels?after=x"), 400, "bad-request", "after")


@must("CHAN-8")
def must_exist(t: Trial) -> None:
    """Showing, renewing and closing a channel that does not exist get 404."""
    client, name = t.client(), t.name()
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/renew")):
        t.problem(client.call(method, f"/v1/channels/{name}{path}"), 404, "unknown-channel")


@must("CHAN-9")
def need_a_good_lifetime(t: Trial) -> None:
    """A lifetime that is not above 0, or longer than 366 days, gets 400."""
    client, name = t.client(), t.channel()
    client.publish(name, 1)
    for ttl in (0, -1, 366 * 86400 + 1, "600", 1e300):
        t.problem(client.call("POST", "/v1/channels", {"name": t.name(), "ttl": ttl}), 400, "bad-request", "ttl")
        t.problem(client.call("POST", f"/v1/channels/{name}/renew", {"ttl": ttl}), 400, "bad-request", "ttl")


@must("CHAN-10")
def live_longer_with_each_message(t: Trial) -> None:
    """Publishing moves the end of a channel to the message's time plus its lifetime."""
    client, name = t.client(), t.name()
    t.status(client.call("POST", "/v1/channels", {"name": name, "ttl": 500}), 201)
    t.sleep(0.2)
    moment = client.publish(name, 1).time
    expires = client.call("GET", f"/v1/channels/{name}").json["expires"]
    t.true(abs(expires - moment - 500) < 0.01, f"expected {moment + 500}, and {expires} came")
