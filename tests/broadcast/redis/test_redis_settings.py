"""The address of Redis: all forms of URL, errors for invalid ones, and no password in any text."""

from __future__ import annotations

import pytest

from pushup.broadcast.redis.redis_settings import RedisAddress, parse_address, without_password


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://h", RedisAddress((("h", 6379),), "", 0, "", "", False)),
        ("redis://h/", RedisAddress((("h", 6379),), "", 0, "", "", False)),
        ("redis://10.0.0.1:7000/15", RedisAddress((("10.0.0.1", 7000),), "", 15, "", "", False)),
        ("redis://[::1]:7000/1", RedisAddress((("::1", 7000),), "", 1, "", "", False)),
        ("redis://[::1]", RedisAddress((("::1", 6379),), "", 0, "", "", False)),
        ("redis://:pw@h", RedisAddress((("h", 6379),), "", 0, "", "pw", False)),
        ("redis://u:p%40%2F%3A%23@h:1/2", RedisAddress((("h", 1),), "", 2, "u", "p@/:#", False)),
        ("redis://u%3Ax:%C3%A9@h", RedisAddress((("h", 6379),), "", 0, "u:x", "é", False)),
        ("redis://:a:b@h", RedisAddress((("h", 6379),), "", 0, "", "a:b", False)),
        ("rediss://h:65535", RedisAddress((("h", 65535),), "", 0, "", "", True)),
        ("redis+sentinel://s/mymaster", RedisAddress((("s", 26379),), "mymaster", 0, "", "", False)),
        (
            "redis+sentinel://u:p@s1:1,s2,[::1]:3/my%20master/4",
            RedisAddress((("s1", 1), ("s2", 26379), ("::1", 3)), "my master", 4, "u", "p", False),
        ),
    ],
)
def test_all_forms_of_a_url_are_read(url: str, address: RedisAddress) -> None:
    assert parse_address(url) == address


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://h", "begins with"),
        ("redis:", "begins with redis://"),
        ("redis://", "no host"),
        ("redis://:secret@", "no host"),
        ("redis://:secret@:6379", "HOST:PORT"),
        ("redis://:secret@h:0", "HOST:PORT"),
        ("redis://:secret@h:65536", "HOST:PORT"),
        ("redis://:secret@h:x", "HOST:PORT"),
        ("redis://:secret@h h", "HOST:PORT"),
        ("redis://:secret@[::1", "HOST:PORT"),
        ("redis://me:secret/x@h", "percent-encode '/'"),
        ("redis://:secret/@h/1", "percent-encode '/'"),
        ("redis://:secret@::1", "HOST:PORT"),
        ("redis://:secret@h1,h2", "several hosts"),
        ("rediss://:secret@h1,h2", "several hosts"),
        ("redis://:secret@h/x", "not a database number"),
        ("redis://:secret@h/-1", "not a database number"),
        ("redis://:secret@h/²", "not a database number"),
        ("redis://:secret@h/1/2", "'1/2' is not a database number"),
        ("redis://:secret@h?db=1", "no parameters"),
        ("redis://:secret@h#1", "no parameters"),
        ("redis+sentinel://:secret@s", "name of the master"),
        ("redis+sentinel://:secret@s/", "name of the master"),
        ("redis+sentinel://:secret@s,/m", "no host"),
        ("redis+sentinel://:secret@s/m/x", "not a database number"),
    ],
)
def test_errors_say_what_is_wrong_with_a_url(url: str, why: str) -> None:
    """The ValueError says what is wrong, and contains no password."""
    with pytest.raises(ValueError, match=why) as caught:
        parse_address(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:6379/1", "redis://h:6379/1"),
        ("redis://:secret@h", "redis://:***@h"),
        ("redis://me:secret@h:1/2", "redis://me:***@h:1/2"),
        ("redis://me:sec:ret@h", "redis://me:***@h"),
        ("redis://me:sec@ret@h", "redis://me:***@h"),
        ("redis://me:sec/ret@h", "redis://me:***@h"),
        ("redis://:sec?ret@h", "redis://:***@h"),
        ("redis+sentinel://me:secret@s1:1,s2:2/m", "redis+sentinel://me:***@s1:1,s2:2/m"),
        ("journal:/var/lib/p:q@r", "journal:/var/lib/p:q@r"),
        ("memory:", "memory:"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    """This includes an invalid URL whose password is not percent-encoded; other broadcasts are shown unchanged."""
    assert without_password(url) == shown
