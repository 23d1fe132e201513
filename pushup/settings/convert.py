"""Converts the value of a setting, from TOML or from text, to its type. Durations and sizes can have a unit.

A setting can be a list of tables (`tuple[SomeStruct, ...]`). Their fields are read as settings are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import NoneType
from typing import Any, Literal, get_args, get_origin
from unicodedata import category

import msgspec
from msgspec import Struct
from msgspec.structs import fields

SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
MAY_BE_0 = frozenset(("hold_jitter", "token_leeway_seconds"))
"""Settings that 0 switches off; no other number may be 0."""

BYTES = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}

SUGGESTIONS = 5
"""Maximum number of names suggested for an unknown one."""


class InTable(ValueError):
    """A table has something wrong; the text begins with the place, such as `channels[0].share`."""


def convert(name: str, value: object, wanted: Any) -> object:
    """The value of this setting as the type `wanted`.

    Raises: ValueError, whose text says what is wrong with the value; InTable.
    """
    item = next(iter(get_args(wanted)), None)
    if isinstance(item, type) and issubclass(item, Struct):
        return _tables(name, value, item)
    if not is_text(value):
        raise ValueError("is not UTF-8 text, or contains a control character")
    if isinstance(value, str):
        value = _parsed(name, value, wanted)
    try:
        converted: object = msgspec.convert(value, wanted, strict=not isinstance(value, str))
    except msgspec.ValidationError:
        if not (choices := _choices(wanted)):
            raise
        raise ValueError(f"expected {' or '.join(choices)}") from None
    if isinstance(converted, int | float) and not isinstance(converted, bool):
        if not converted < math.inf:  # nan is not
            raise ValueError("must be finite")
        if name in MAY_BE_0:
            if converted < 0:
                raise ValueError("must be at least 0")
        elif converted <= 0:
            raise ValueError("must be above 0")
    return converted


def _choices(wanted: Any) -> list[str]:
    """What can be written, if that includes some words; msgspec does not tell them."""
    if wanted is bool:
        return ["true", "false"]
    parts = (wanted, *get_args(wanted))
    words = [word for part in parts if get_origin(part) is Literal for word in get_args(part)]
    return ["a number", *words] if words and int in parts else words


def is_text(value: object) -> bool:
    """Whether all strings can be logged and encoded; arguments and the environment can contain any bytes."""
    if isinstance(value, str):
        return not any(category(letter) in ("Cc", "Cs") for letter in value)
    return all(map(is_text, value)) if isinstance(value, list | tuple) else True


def suggestion(name: str, names: Iterable[str]) -> str:
    """The names that were probably meant, as the end of a sentence: those that begin like this, then similar ones."""
    begin_alike = [each for each in names if name and each.startswith(name)]
    similar = get_close_matches(name, names, n=SUGGESTIONS, cutoff=0.8)
    near = list(dict.fromkeys(begin_alike + similar))[:SUGGESTIONS]
    return f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""


def _tables(name: str, value: object, wanted: type[Struct]) -> tuple[Struct, ...]:
    if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
        raise ValueError(f"can be set only in the settings file, as tables that begin with [[{name}]]")
    return tuple([_table(f"{name}[{number}]", table, wanted) for number, table in enumerate(value)])


def _table(place: str, values: dict[str, object], wanted: type[Struct]) -> Struct:
    types = {field.name: field.type for field in fields(wanted)}
    for name in values:
        if name not in types:
            hint = suggestion(name, types) or f"; a table has {', '.join(types)}; settings come before all tables"
            raise InTable(f"{place}: unknown setting {name!r}{hint}")
    for field in fields(wanted):
        if field.required and field.name not in values:
            raise InTable(f"{place}: {field.name} is missing; each table needs it")
    converted = {}
    for name, value in values.items():
        try:
            converted[name] = convert(name, value, _without_none(types[name]))
        except ValueError as error:
            shown = "(not shown)" if name == "secrets" else repr(value)
            raise InTable(f"{place}.{name} = {shown}: {error}") from None
    return wanted(**converted)


def _without_none(wanted: Any) -> Any:
    """The other type of an optional one; TOML has no null."""
    types = [each for each in get_args(wanted) if each is not NoneType]
    return types[0] if NoneType in get_args(wanted) and len(types) == 1 else wanted


def _parsed(name: str, text: str, wanted: object) -> object:
    """What msgspec cannot convert from text by itself: units and lists."""
    if wanted is float and name.endswith("_seconds"):
        return _with_unit(text, SECONDS)
    if wanted is int and (name.endswith("_bytes") or name == "bytes_per_second"):
        return int(_with_unit(text, BYTES))
    if wanted == tuple[str, ...]:
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def _with_unit(text: str, units: Mapping[str, float]) -> float:
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*([A-Za-z]*)", text.strip())
    if match is None or (match[2] and match[2] not in units):
        raise ValueError(f"expected a number, optionally with a unit of {', '.join(units)}")
    value = float(match[1]) * units.get(match[2], 1)
    if value == math.inf:
        raise ValueError("must be finite")
    return value
