"""Request bodies as values: JSON in UTF-8 of a given shape. What is wrong with a body is said in plain words."""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from itertools import accumulate
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct, structs

from pushup.core.errors import BadRequest
from pushup.net.api.suggestions import suggestion

NESTING_LIMIT = 64
"""Levels of arrays and objects in a body. A decoder's own limit is what is left of the stack, 970 levels or so, and
differs from place to place: what one node accepts, another could fail to read from the log."""

_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = bytes.maketrans(b"[{]}", array("b", (1, 1, -1, -1)).tobytes())

# How msgspec's texts say where and what is wrong.
_AT = re.compile(r" - at `\$\.?(.*)`$")
_FIELD = re.compile(r"(unknown|required) field `(.*?)`")
_BYTE = re.compile(r" \(byte ([0-9]+)\)$")

_FORM = re.compile(rb"[A-Za-z0-9_.%+\[\]-]+=|--[^\r\n]+\r\nContent-Disposition:", re.IGNORECASE).match
_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]").search

_GZIP = b"\x1f\x8b"
"""How a body that was compressed with gzip begins (RFC 1952)."""

_HEADERS = {
    "idempotency_key": "Idempotency-Key",
    "idempotency-key": "Idempotency-Key",
    "idempotencyKey": "Idempotency-Key",
    "ticket": "PushUp-Ticket",
}
"""Fields that are easily taken for part of the body, but are sent in the request's head."""

T = TypeVar("T", bound=Struct)


class BodyDecoder(Generic[T]):
    """Decodes bodies of one shape."""

    def __init__(
        self,
        shape: type[T],
        example: str,
        *,
        items: type[Struct] | None = None,
        choices: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """For error details: `example` is a good body, `items` the shape of the objects inside of a body, `choices`
        the values of fields that are a `Literal`.
        """
        self._decoder = msgspec.json.Decoder(shape)
        self._example = example
        self._fields = _names(shape)
        self._item_fields = _names(items) if items else ()
        self._choices = choices or {}

    def decode(self, body: bytes) -> T:
        """Raises: BadRequest naming the field, when it is not JSON in UTF-8 of this shape, or nests too deeply."""
        try:
            body.decode()  # msgspec does not check strings that it keeps as Raw
            value = self._decoder.decode(body)
        except UnicodeDecodeError as error:
            hint = "; send it without compression" if body.startswith(_GZIP) else ""
            raise BadRequest(f"the body is not UTF-8: byte {error.start} is wrong{hint}") from None
        except msgspec.ValidationError as error:
            raise self._wrong_shape(str(error)) from None
        except msgspec.DecodeError as error:
            raise BadRequest(self._not_json(body, str(error))) from None
        except RecursionError:
            raise _too_deep() from None
        if body.count(b"[") + body.count(b"{") > NESTING_LIMIT and _depth(body) > NESTING_LIMIT:
            raise _too_deep()
        return value

    def _wrong_shape(self, text: str) -> BadRequest:
        """JSON, but not of this shape."""
        at, found = _AT.search(text), _FIELD.search(text)
        path = at[1] if at else ""
        detail = _AT.sub("", text)
        if found:
            known = self._item_fields if path else self._fields
            kind, name = found.groups()
            detail = f"the field `{name}` is missing" if kind == "required" else _unknown_field(name, known)
            path = f"{path}.{name}" if path else name
        elif path in self._choices:
            detail = f"{path} must be one of {', '.join(self._choices[path])}"
        elif not path:
            detail = f"{detail}; send JSON such as {self._example}"
        return BadRequest(detail, field=path or None)

    def _not_json(self, body: bytes, text: str) -> str:
        """What is wrong with a body that is not JSON."""
        if not body.strip():
            return f"the body is empty; send JSON such as {self._example}"
        if _FORM(body):
            return f"this looks like form data; send JSON with Content-Type: application/json, such as {self._example}"
        if body.startswith(b"\xef\xbb\xbf"):
            return "the body is not valid JSON: it begins with a byte order mark; leave that out"
        if "truncated" in text:
            if _HALF_PAIR(body):
                return (
                    "the body is not valid JSON: it ends too early, or has only half of a pair such as \\ud83d\\ude00"
                )
            return "the body is not valid JSON: it ends too early; is a closing bracket or quotation mark missing?"
        at = _BYTE.search(text)
        found = body[int(at[1]) : int(at[1]) + 1] if at else b""
        hint = ""
        if found == b"'":
            hint = "; use double quotation marks"
        elif found in (b"T", b"F", b"N"):
            hint = "; JSON has true, false and null"
        return f"the body is not valid JSON: {text.removeprefix('JSON is malformed: ')}{hint}"


def _unknown_field(name: str, known: tuple[str, ...]) -> str:
    if name in _HEADERS:
        return f"unknown field `{name}`; send it as the header field {_HEADERS[name]}"
    meant = suggestion(name, known)
    if meant is None:
        return f"unknown field `{name}`; the fields are {', '.join(known)}"
    return f"unknown field `{name}`; did you mean `{meant}`{', a list' * (meant in ('channels', 'messages'))}?"


def _names(shape: type[Struct]) -> tuple[str, ...]:
    return tuple(field.encode_name for field in structs.fields(shape))


def _depth(body: bytes) -> int:
    """How deeply arrays and objects nest in valid JSON. O(bytes) without recursion: 40 ms for 1 MiB of brackets."""
    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside_strings = b"".join(unescaped.split(b'"')[::2])
    steps = array("b", outside_strings.translate(_STEPS, _NO_BRACKETS))
    return max(accumulate(steps), default=0)


def _too_deep() -> BadRequest:
    return BadRequest(f"the body nests arrays and objects more than {NESTING_LIMIT} levels deep")
