"""Converts the value of a setting, from TOML or from text, to its type. Durations and sizes can have a unit."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any
from unicodedata import category

import msgspec

SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
MAY_BE_0 = frozenset(("hold_jitter",))
"""Settings that 0 switches off; no other number may be 0."""

BYTES = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def convert(name: str, value: object, wanted: Any) -> object:
    """The value of this setting as the type `wanted`.

    Raises: ValueError, whose text says what is wrong with the value.
    """
    if not is_text(value):
        raise ValueError("is not UTF-8 text, or contains a control character")
    if isinstance(value, str):
        value = _parsed(name, value, wanted)
    converted: object = msgspec.convert(value, wanted, strict=not isinstance(value, str))
    if isinstance(converted, int | float) and not isinstance(converted, bool):
        if name in MAY_BE_0:
            if not 0 <= converted < math.inf:
                raise ValueError("must be at least 0")
        elif not 0 < converted < math.inf:
            raise ValueError("must be above 0")
    return converted


def is_text(value: object) -> bool:
    """Whether all strings can be logged and encoded; arguments and the environment can contain any bytes."""
    if isinstance(value, str):
        return not any(category(letter) in ("Cc", "Cs") for letter in value)
    return all(map(is_text, value)) if isinstance(value, list | tuple) else True


def _parsed(name: str, text: str, wanted: object) -> object:
    """What msgspec cannot convert from text by itself: units and lists."""
    if wanted is float and name.endswith("_seconds"):
        return _with_unit(text, SECONDS)
    if wanted is int and name.endswith("_bytes"):
        return int(_with_unit(text, BYTES))
    if wanted == tuple[str, ...]:
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def _with_unit(text: str, units: Mapping[str, float]) -> float:
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*([A-Za-z]*)", text.strip())
    if match is None or (match[2] and match[2] not in units):
        raise ValueError(f"expected a number, optionally with a unit of {', '.join(units)}")
    return float(match[1]) * units.get(match[2], 1)
