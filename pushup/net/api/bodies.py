"""The JSON of the HTTP interface (docs/guide/http.md): bodies -> values of a given shape, and values -> bodies.

It is UTF-8. What is wrong with a body, or with the name of a channel in it, is said in plain words.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from itertools import accumulate
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct, structs

from pushup.core.errors import BadRequest
from pushup.net.api.suggestions import shown_name, suggestion
from pushup.net.requests_and_responses import Response

NAME_LIMIT_BYTES = 255
"""A channel's name in UTF-8; as long as file systems allow names to be."""

NESTING_LIMIT = 64
"""Levels of arrays and objects in a body, and in a token's `presence`. A decoder's own limit is what is left of the
stack, 970 levels or so, and differs from place to place: what one node accepts, another could fail to read from the
log."""

TOO_DEEP = f"nests arrays and objects more than {NESTING_LIMIT} levels deep"

_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = bytes.maketrans(b"[{]}", array("b", (1, 1, -1, -1)).tobytes())

# How msgspec's texts say where and what is wrong. They may contain names of the client's, of any length: these are cut
# out between fixed texts, never searched for patterns.
_AT = " - at `$"
_UNKNOWN = "Object contains unknown field `"
_MISSING = "Object missing required field `"
_EXPECTED = "Expected `"
_GOT = "`, got `"

PATH_LIMIT = 64
"""Characters of a path to what is wrong, such as `.messages[99].channels[99]`. It contains no names of the client's."""

_IN_JSON = {
    "array": "a list",
    "object": "an object",
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "null",
}
"""msgspec's names of types in the words of JSON."""

FORM_LIMIT_BYTES = 256
"""The beginning of a body that is looked at to see whether it is a form."""

_FORM_NAME = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.%+[]-"

_GZIP = b"\x1f\x8b"
"""How a body that was compressed with gzip begins (RFC 1952)."""

_HEADERS = {
    "idempotency_key": "Idempotency-Key",
    "idempotency-key": "Idempotency-Key",
    "idempotencyKey": "Idempotency-Key",
    "ticket": "PushUp-Ticket",
}
"""Fields that are easily taken for part of the body, but are sent in the request's head."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]").search
_LIST = 'a comma; write several channels as channel=a&channel=b, or as ["a", "b"] in JSON'
_PATTERN = "*; patterns are not supported, so name each channel"

T = TypeVar("T", bound=Struct)


class BodyDecoder(Generic[T]):
    """Decodes bodies of one shape."""

    def __init__(
        self,
        shape: type[T],
        example: str,
        *,
        parts: Mapping[str, type[Struct]] | None = None,
        choices: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """For error details: `example` is a good body, `parts` the shapes of the objects in fields of a body, `choices`
        the values of fields that are a `Literal`.
        """
        self._decoder = msgspec.json.Decoder(shape)
        self._example = example
        self._fields = _names(shape)
        self._part_fields = {field: _names(part) for field, part in (parts or {}).items()}
        self._choices = choices or {}

    def decode(self, body: bytes) -> T:
        """Raises: BadRequest naming the field, when it is not JSON in UTF-8 of this shape, or nests too deeply."""
        try:
            body.decode()  # msgspec does not check strings that it keeps as Raw
            value = self._decoder.decode(body)
        except UnicodeDecodeError as error:
            hint = "; send it without compression" if body.startswith(_GZIP) else ""
            raise BadRequest(f"the body has invalid UTF-8 at byte {error.start}{hint}") from None
        except msgspec.ValidationError as error:
            raise self._wrong_shape(str(error)) from None
        except msgspec.DecodeError as error:
            raise BadRequest(self._not_json(body, str(error))) from None
        except RecursionError:
            raise _too_deep() from None
        if nests_too_deeply(body):
            raise _too_deep()
        return value

    def _wrong_shape(self, text: str) -> BadRequest:
        """JSON, but not of this shape."""
        text, path = _without_path(text)
        if text.startswith((_UNKNOWN, _MISSING)):
            is_missing = text.startswith(_MISSING)
            name = shown_name(text[len(_MISSING if is_missing else _UNKNOWN) : -1])
            known = self._part_fields.get(path.partition("[")[0], ()) if path else self._fields
            detail = f"the field `{name}` is missing" if is_missing else _unknown_field(name, known)
            return BadRequest(detail, field=f"{path}.{name}" if path else name)
        if path in self._choices:
            return BadRequest(f"{path} must be one of {', '.join(self._choices[path])}", field=path)
        detail = f"{path or 'the body'} {_mistake(text)}"
        return BadRequest(detail if path else f"{detail}; send JSON such as {self._example}", field=path or None)

    def _not_json(self, body: bytes, text: str) -> str:
        """What is wrong with a body that is not JSON."""
        if not body.strip():
            return f"the body is empty; send JSON such as {self._example}"
        if _is_form(body):
            return f"this looks like form data; send JSON with Content-Type: application/json, such as {self._example}"
        if body.startswith(b"\xef\xbb\xbf"):
            return "the body is not valid JSON: it begins with a byte order mark; leave that out"
        if "truncated" in text:
            if b"\\ud" in body.lower():
                return (
                    "the body is not valid JSON: it ends too early, or has only half of a pair such as \\ud83d\\ude00"
                )
            return "the body is not valid JSON: it ends too early; is a closing bracket or quotation mark missing?"
        at = text.rpartition(" (byte ")[2].removesuffix(")")
        found = body[int(at) : int(at) + 1] if at.isdigit() else b""
        hint = ""
        if found == b"'":
            hint = "; use double quotation marks"
        elif found in (b"T", b"F", b"N"):
            hint = "; JSON has true, false and null"
        return f"the body is not valid JSON: {text.removeprefix('JSON is malformed: ')}{hint}"


def _without_path(text: str) -> tuple[str, str]:
    """msgspec's text without its end, which says where the mistake is; and that, `` for the body as a whole."""
    at = text.rfind(_AT, max(0, len(text) - PATH_LIMIT))
    return (text, "") if at < 0 else (text[:at], text[at + len(_AT) : -1].removeprefix("."))


def _mistake(text: str) -> str:
    """What a value must be instead of what it is."""
    if not text.startswith(_EXPECTED):
        return "is out of range" if "out of range" in text else "has a wrong value"
    expected, _, got = text[len(_EXPECTED) : -1].partition(_GOT)
    kinds = expected.split(" | ")
    wanted = " or ".join([_IN_JSON.get(kind, kind) for kind in kinds])
    found = "a number with a fraction or an exponent" if got == "float" and "int" in kinds else _IN_JSON.get(got, got)
    return f"must be {wanted}, not {found}"


def _is_form(body: bytes) -> bool:
    """Whether a body looks like `name=value`, or like the parts of a form."""
    begin = body[:FORM_LIMIT_BYTES]
    if begin.startswith(b"--"):
        return b"\r\ncontent-disposition:" in begin.lower()
    name, equals, _ = begin.partition(b"=")
    return bool(equals and name) and not name.translate(None, _FORM_NAME)


def _unknown_field(name: str, known: tuple[str, ...]) -> str:
    if name in _HEADERS:
        return f"unknown field `{name}`; send it as the header field {_HEADERS[name]}"
    meant = suggestion(name, known)
    if meant is None:
        return f"unknown field `{name}`; the fields are {', '.join(known)}"
    return f"unknown field `{name}`; did you mean `{meant}`{', a list' * (meant in ('channels', 'messages'))}?"


def _names(shape: type[Struct]) -> tuple[str, ...]:
    return tuple(field.encode_name for field in structs.fields(shape))


def nests_too_deeply(json: bytes) -> bool:
    """Whether arrays and objects in valid JSON nest beyond the limit. O(bytes) without recursion: 40 ms for 1 MiB."""
    if json.count(b"[") + json.count(b"{") <= NESTING_LIMIT:
        return False
    unescaped = json.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside_strings = b"".join(unescaped.split(b'"')[::2])
    steps = array("b", outside_strings.translate(_STEPS, _NO_BRACKETS))
    return max(accumulate(steps), default=0) > NESTING_LIMIT


def _too_deep() -> BadRequest:
    return BadRequest(f"the body {TOO_DEEP}")


def check_name(name: str, field: str) -> str:
    """A text that can be the name or id of a channel.

    Raises: BadRequest.
    """
    if not name or (len(name) > NAME_LIMIT_BYTES // 4 and len(name.encode()) > NAME_LIMIT_BYTES):
        raise BadRequest(f"a channel's name must have 1 to {NAME_LIMIT_BYTES} bytes of UTF-8", field=field)
    if not name.isprintable() and _CONTROL(name):
        raise BadRequest("a channel's name must not contain control characters", field=field)
    if "," in name or "*" in name:  # clients mean a list or a pattern, and would follow nothing
        raise BadRequest(f"a channel's name must not contain {_LIST if ',' in name else _PATTERN}", field=field)
    return name


write = msgspec.json.Encoder().encode
"""Any value of ours as JSON in UTF-8."""


def json_response(value: object, status: int = 200) -> Response:
    return Response(status, write(value))
