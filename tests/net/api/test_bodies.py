"""The JSON that publishers send, and the JSON they get."""

from __future__ import annotations

import json
import sys

import pytest
from msgspec import Raw

from pushup.core.channel import Attributes
from pushup.core.commands import Confirmation, Create, Draft, Publish, Published, Renew
from pushup.core.errors import BadRequest
from pushup.net.api.bodies import write
from pushup.net.api.channel_routes import read_create, read_renew
from pushup.net.api.publishing import read_publication, write_published
from pushup.net.api.schemas import PublicationLimits
from pushup.net.http_errors import MessageTooLarge

LIMITS = PublicationLimits(message_limit_bytes=20, batch_limit=3, message_channels_limit=2)


def read(body: bytes) -> tuple[Publish, bool]:
    publication = read_publication(body, None, LIMITS)
    return publication.command, publication.as_list


def data_of(body: bytes) -> bytes:
    publication = read_publication(body, None, PublicationLimits()).command
    return bytes(publication.messages[0].data)


def test_one_message_is_read() -> None:
    """Channels without duplicates, in the order given, data and key."""
    publication, as_list, *_ = read_publication(b'{"channels":["b","a","b"],"data":{"q": 1}}', "k", PublicationLimits())
    assert publication == Publish((Draft(("b", "a"), Raw(b'{"q": 1}')),), "k")
    assert not as_list


def test_several_messages_are_read() -> None:
    """A list keeps its order, and gets a list in the response even for one message."""
    publication, as_list = read(b'{"messages":[{"channels":["a"],"data":1},{"channels":["b","a"],"data":null}]}')
    assert publication == Publish((Draft(("a",), Raw(b"1")), Draft(("b", "a"), Raw(b"null"))))
    assert as_list
    assert read(b'{"messages":[{"channels":["a"],"data":1}]}')[1]


def test_the_channels_of_all_messages_together_are_limited() -> None:
    """Counted once for each message on them; the error says the limit and what to do."""
    limits = PublicationLimits(publication_channels_limit=5)
    two, three = '{"channels":["a","b","a"],"data":1}', '{"channels":["a","b","c"],"data":1}'

    def publish(*messages: str) -> object:
        return read_publication(f'{{"messages":[{",".join(messages)}]}}'.encode(), None, limits)

    publish(two, three)
    with pytest.raises(
        BadRequest, match=r"at most 5 channels together, and these have 6 .* in several requests"
    ) as error:
        publish(three, three)
    assert error.value.field == "messages"
    with pytest.raises(BadRequest, match="publication_channels_limit"):
        read_publication(b'{"channels":["a","b"],"data":1}', None, PublicationLimits(publication_channels_limit=1))


@pytest.mark.parametrize(
    "data",
    [
        "123456789012345678901234567890.00100E+0400", "1e99999", "-0.0", "18446744073709551616", '"\\u00e9 \\/ é"',
        '{"b" : 1,  "a":[ ]}', "null", "false", '""',
    ],
)  # fmt: skip
def test_data_is_kept_as_it_was_written(data: str) -> None:
    """Numbers keep every digit, strings their escapes, objects their order and whitespace."""
    assert data_of(b'{"data": ' + data.encode() + b' , "channels":["a"]}') == data.encode()


def test_each_message_says_whether_it_is_ephemeral() -> None:
    """One of a list does not speak for the others; false is the same as nothing."""
    (one,) = read(b'{"channels":["a"],"data":1,"ephemeral":true}')[0].messages
    assert one == Draft(("a",), Raw(b"1"), Attributes(ephemeral=True))
    drafts = '{"channels":["a"],"data":1%s}'
    fields = (',"ephemeral":true', "", ',"ephemeral":false', ',"event":"typing","ephemeral":true')
    body = f'{{"messages":[{",".join(drafts % field for field in fields)}]}}'.encode()
    publication = read_publication(body, None, PublicationLimits()).command
    assert [draft.attributes for draft in publication.messages] == [
        Attributes(ephemeral=True), None, None, Attributes(event="typing", ephemeral=True),
    ]  # fmt: skip


def test_what_is_wrong_with_ephemeral_is_said_in_words() -> None:
    """The value that it must have; and where to write it, of several messages."""
    with pytest.raises(BadRequest, match=r"^ephemeral must be true or false, not a string$"):
        read(b'{"channels":["a"],"data":1,"ephemeral":"yes"}')
    with pytest.raises(BadRequest, match=r"^each message has its own `ephemeral`; write it in `messages`$"):
        read(b'{"messages":[{"channels":["a"],"data":1}],"ephemeral":true}')


@pytest.mark.parametrize(
    ("field", "value"),
    [("event", "typing"), ("unread_after", 60), ("unread_after", 0), ("for", ["ann"]), ("for", [])],
)
def test_what_each_message_says_for_itself(field: str, value: object) -> None:
    """It is refused beside them, whether it would be good there or not."""
    body = {"messages": [{"channels": ["a"], "data": 1}], field: value}
    with pytest.raises(BadRequest, match=f"^each message has its own `{field}`; write it in `messages`$"):
        read(json.dumps(body).encode())


def test_a_publication_has_its_owner() -> None:
    for body in (b'{"channels":["a"],"data":1}', b'{"messages":[{"channels":["a"],"data":1}]}'):
        assert read_publication(body, None, PublicationLimits(), "ci").command.owner == "ci"
        assert read(body)[0].owner == ""


def test_data_does_not_keep_the_body_alive() -> None:
    body = b'{"data":1,"channels":["a"]}' + b" " * 100_000
    before = sys.getrefcount(body)
    publication, _ = read(body)
    assert publication.messages
    assert sys.getrefcount(body) == before


BAD_PUBLICATIONS = [
    (b"{}", "channels"),
    (b'{"data":1}', "channels"),
    (b'{"channels":["a"]}', "data"),
    (b'{"channels":[],"data":1}', "channels"),
    (b'{"channels":"a","data":1}', "channels"),
    (b'{"channels":null,"data":1}', "channels"),
    (b'{"channels":["a",7],"data":1}', "channels[1]"),
    (b'{"channels":["a",""],"data":1}', "channels"),
    (b'{"channels":["a","b","c"],"data":1}', "channels"),
    (b'{"channels":["' + "é".encode() * 128 + b'"],"data":1}', "channels"),
    (b'{"channels":["a"],"data":1,"event":"two words"}', "event"),
    (b'{"channels":["a"],"data":1,"event":"a\\n"}', "event"),
    (b'{"channels":["a"],"data":1,"event":"' + b"e" * 65 + b'"}', "event"),
    (b'{"channels":["a"],"data":1,"event":"gap"}', "event"),
    (b'{"messages":[{"channels":["a"],"data":1}],"event":"e"}', "event"),
    (b'{"messages":[{"channels":["a"],"data":1,"event":"closed"}]}', "messages[0].event"),
    (b'{"channels":["a"],"data":1,"ephemeral":"true"}', "ephemeral"),
    (b'{"channels":["a"],"data":1,"ephemeral":1}', "ephemeral"),
    (b'{"channels":["a"],"data":1,"ephemeral":null}', "ephemeral"),
    (b'{"messages":[{"channels":["a"],"data":1},{"channels":["a"],"data":1,"ephemeral":5}]}', "messages[1].ephemeral"),
    (b'{"messages":[{"channels":["a"],"data":1}],"ephemeral":true}', "ephemeral"),
    (b'{"messages":[]}', "messages"),
    (b'{"messages":{}}', "messages"),
    (b'{"messages":[1]}', "messages[0]"),
    (b'{"messages":[{"channels":["a"],"data":1}],"data":1}', "messages"),
    (b'{"messages":[{"channels":["a"],"data":1}],"channels":["a"]}', "messages"),
    (b'{"messages":[' + b",".join([b'{"channels":["a"],"data":1}'] * 4) + b"]}", "messages"),
    (b'{"messages":[{"channels":["a"],"data":1},{"channels":["a"]}]}', "messages[1].data"),
    (b'{"messages":[{"channels":["a"],"data":1},{"channels":[],"data":1}]}', "messages[1].channels"),
    (b'{"messages":[{"channels":["a"],"data":1},{"channels":[""],"data":1}]}', "messages[1].channels"),
    (b'{"messages":[{"channels":["a"],"data":1},{"channels":[2],"data":1}]}', "messages[1].channels[0]"),
]


@pytest.mark.parametrize(("body", "field"), BAD_PUBLICATIONS)
def test_a_bad_publication_names_its_field(body: bytes, field: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read(body)
    assert caught.value.field == field
    assert caught.value.detail


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"channels":["a"],"data":1,"chanels":2}', "chanels"),
        (b'{"messages":[{"channels":["a"],"data":1,"id":1}]}', "id"),
    ],
)
def test_an_unknown_field_is_named(body: bytes, name: str) -> None:
    with pytest.raises(BadRequest, match=f"unknown field `{name}`"):
        read(body)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"channels":["a"],"data":"' + b"x" * 19 + b'"}', "data"),
        (
            b'{"messages":[{"channels":["a"],"data":1},{"channels":["a"],"data":"' + b"x" * 19 + b'"}]}',
            "messages[1].data",
        ),
    ],
)
def test_a_message_that_is_too_large_is_refused(body: bytes, field: str) -> None:
    """The limit counts bytes of JSON text: 20 are accepted, 21 are not."""
    assert read(body.replace(b"x" * 19, b"x" * 18))
    with pytest.raises(MessageTooLarge) as caught:
        read(body)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"channels=a",
        b"[]",
        b"null",
        b'"a"',
        b"\xef\xbb\xbf{}",
        b"\xff\xfe{\0}\0",
        b'{"channels":["a"],"data":1',
        b'{"channels":["a"],"data":1}}',
        b'{"channels":["\xed\xa0\x80"],"data":1}',
        b'{"channels":["\\ud800"],"data":1}',
        *[
            b'{"channels":["a"],"data":' + data + b"}"
            for data in (
                b"NaN", b"Infinity", b"[-Infinity]", b"01", b"1.", b"[1,]", b'"a\nb"', b'"\\x"', b'"\xff"',
                b'["\xc0\xaf"]', b"[" * 50_000 + b"]" * 50_000, b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
            )
        ],
        b'{"channels":' + b"[" * 50_000 + b"]" * 50_000 + b',"data":1}',
    ],
)  # fmt: skip
def test_anything_but_json_in_utf_8_is_a_bad_request(body: bytes) -> None:
    """Malformed, truncated, not UTF-8, not a JSON number, nested too deeply: all are the client's error."""
    with pytest.raises(BadRequest):
        read_publication(body, None, PublicationLimits(message_limit_bytes=10**9))


@pytest.mark.parametrize(
    ("body", "create"),
    [
        (b"", Create()),
        (b"{}", Create()),
        (b'{"name":"tag:c++","ttl":60}', Create("tag:c++", 60.0)),
        (b'{"name":null,"ttl":null}', Create()),
        (b'{"ttl":0.5}', Create(None, 0.5)),
        (b'{"ttl":31622400}', Create(None, 31622400.0)),
        (b'{"name":"7a"}', Create("7a")),
        (b'{"name":"' + "é".encode() * 127 + b'"}', Create("é" * 127)),
    ],
)  # fmt: skip
def test_a_create_is_read(body: bytes, create: Create) -> None:
    """Both name and ttl are optional."""
    assert read_create(body) == create


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"name":""}', "name"),
        (b'{"name":"4711"}', "name"),
        (b'{"name":1}', "name"),
        (b'{"name":"' + b"x" * 256 + b'"}', "name"),
        (b'{"ttl":0}', "ttl"),
        (b'{"ttl":-1}', "ttl"),
        (b'{"ttl":"60"}', "ttl"),
        (b'{"ttl":true}', "ttl"),
        (b'{"ttl":1e999}', "ttl"),
        (b'{"ttl":31622401}', "ttl"),
    ],
)
def test_a_bad_create_names_its_field(body: bytes, field: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read_create(body)
    assert caught.value.field == field
    with pytest.raises(BadRequest):
        read_create(b'{"ttl":NaN}')


def test_a_renewal_is_read() -> None:
    """The channel is in the path and the ttl in the body, which is optional."""
    assert read_renew("a", b"") == Renew("a")
    assert read_renew("a", b'{"ttl":60}') == Renew("a", 60.0)
    with pytest.raises(BadRequest) as caught:
        read_renew("a", b'{"ttl":0}')
    assert caught.value.field == "ttl"


def test_the_response_to_a_publication() -> None:
    """One message has an id, a list has ids; the cursor is that of the last message."""
    assert (
        write_published(Published("k3f9", 43, 1, 1.5), as_list=False)
        == b'{"id":"k3f9-43","time":1.5,"cursor":"k3f9-43"}'
    )
    assert (
        write_published(Published("k3f9", 43, 2, 1.5), as_list=True)
        == b'{"ids":["k3f9-43","k3f9-44"],"time":1.5,"cursor":"k3f9-44"}'
    )
    assert write({"a": Raw(b"1.50")}) == b'{"a":1.50}'


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (b'"ack":"sure"', "ack"),
        (b'"ack":1', "ack"),
        (b'"ack_timeout":0', "ack_timeout"),
        (b'"ack_timeout":61', "ack_timeout"),
        (b'"ack_timeout":"1"', "ack_timeout"),
    ],
)
def test_an_invalid_ack_names_its_field(given: bytes, field: str) -> None:
    with pytest.raises(BadRequest) as raised:
        read_publication(b'{"channels":["a"],"data":1,' + given + b"}", None, PublicationLimits())
    assert raised.value.field == field


def test_the_ack_is_read() -> None:
    """By default a publisher wants `accepted`; otherwise it says what to wait for, and how long."""
    plain = read_publication(b'{"channels":["a"],"data":1}', None, PublicationLimits())
    asked = read_publication(
        b'{"messages":[{"channels":["a"],"data":1}],"ack":"replicated","ack_timeout":2.5}', None, PublicationLimits()
    )
    assert (plain.ack, plain.ack_timeout) == ("accepted", 5.0)
    assert (asked.ack, asked.ack_timeout, asked.as_list) == ("replicated", 2.5, True)


def test_the_ack_is_in_the_response() -> None:
    """With a list of messages as well, and only if the publisher asked for it."""
    one = write_published(Published("k3f9", 43, 1, 1.5), as_list=False, confirmed=Confirmation("stable", nodes=4))
    many = write_published(Published("k3f9", 43, 2, 1.5), as_list=True, confirmed=Confirmation("accepted"))
    assert one == b'{"id":"k3f9-43","time":1.5,"cursor":"k3f9-43","ack":"stable","replicas":0,"nodes":4}'
    assert many == (
        b'{"ids":["k3f9-43","k3f9-44"],"time":1.5,"cursor":"k3f9-44","ack":"accepted","replicas":0,"nodes":0}'
    )
