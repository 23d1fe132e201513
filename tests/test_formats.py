"""What is stored, or sent to another process, is refused if it contains anything that this release does not know."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from msgspec import inspect
from msgspec.json import Decoder

import pushup
from pushup.broadcast import Member
from pushup.broadcast.formats import NotUnderstood, check_known
from pushup.broadcast.redis.records import NodeReport
from pushup.core.bounded_table import Remembered
from pushup.core.rows import ChannelRow, MessageRow
from pushup.core.snapshot import Tables

PACKAGE = Path(pushup.__file__).parent

OTHERS = ("pushup.frameworks.", "pushup.outbox.")
"""What applications import: without msgspec, and perhaps with settings of Django."""


def modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages([str(PACKAGE)], "pushup."):
        if not found.name.endswith("__main__") and not found.name.startswith(OTHERS):
            yield importlib.import_module(found.name)


def decoders() -> dict[str, Decoder[Any]]:
    """All of the package's decoders of JSON: each stands in a module, by itself or as the bearer of its `decode`.

    Those of rows are made by `Tables`.
    """
    found = {f"{Tables.__module__}.{table}": decoder for table, decoder in Tables().decoders.items()}
    for module in modules():
        for name, value in vars(module).items():
            decoder = getattr(value, "_decoder", getattr(value, "__self__", value))
            if isinstance(decoder, Decoder) and not isinstance(value, ModuleType):
                found[f"{module.__name__}.{name}"] = decoder
    return found


DECODERS = decoders()


def examples(kind: inspect.Type) -> Iterator[Any]:
    """Values of this type as JSON: one with each alternative of each union in it, and few others."""
    match kind:
        case inspect.UnionType(types=types):
            for one in types:
                yield from examples(one)
        case inspect.StructType():
            fields = [(field, list(examples(field.type))) for field in kind.fields]
            for number in range(max([1, *[len(values) for _, values in fields]])):
                values = {field.encode_name: some[number % len(some)] for field, some in fields}
                if kind.array_like:
                    yield [*([kind.tag] if kind.tag is not None else []), *values.values()]
                else:
                    yield values if kind.tag is None else {kind.tag_field: kind.tag} | values
        case inspect.ListType() | inspect.VarTupleType():
            yield from ([item] for item in examples(kind.item_type))
        case inspect.TupleType(item_types=types):
            choices = [list(examples(one)) for one in types]
            for number in range(max(map(len, choices))):
                yield [some[number % len(some)] for some in choices]
        case inspect.DictType():
            yield from ({"k": value} for value in examples(kind.value_type))
        case inspect.LiteralType(values=values):
            yield values[0]
        case inspect.BoolType():
            yield True
        case inspect.IntType():
            yield 1
        case inspect.FloatType():
            yield 1.0
        case inspect.StrType():
            yield "s"
        case inspect.NoneType():
            yield None
        case inspect.RawType() | inspect.AnyType():
            yield 0
        case _:
            raise NotImplementedError(kind)


def structs_in(kind: inspect.Type) -> set[type]:
    """All structs that a value of this type may contain."""
    match kind:
        case inspect.UnionType(types=types) | inspect.TupleType(item_types=types):
            return set().union(*map(structs_in, types))
        case inspect.StructType():
            return {kind.cls}.union(*[structs_in(field.type) for field in kind.fields])
        case inspect.ListType() | inspect.VarTupleType():
            return structs_in(kind.item_type)
        case inspect.DictType():
            return structs_in(kind.value_type)
    return set()


def example_of(struct: type) -> Any:
    return next(examples(inspect.type_info(struct)))


LENIENT = (Member, NodeReport)
"""Reports of nodes: they change no state, and nodes of two releases agree on a version by them."""

STRUCTS = sorted(
    {struct for decoder in DECODERS.values() for struct in structs_in(inspect.type_info(decoder.type))}.difference(
        LENIENT
    ),
    key=lambda struct: (struct.__module__, struct.__name__),  # pytest-xdist needs one order in all processes
)


def test_all_decoders_are_found() -> None:
    """There are as many in the text of the package; and nothing is decoded in another way."""
    texts = [path.read_text() for path in PACKAGE.rglob("*.py")]
    made = sum(text.count("json.Decoder(") for text in texts)
    # That of `BodyDecoder` is made once for each body of a request, that of `Tables` once for each table; and raw
    # events read the text of a message.
    several = [name for name in DECODERS if name.startswith(("pushup.net.api.", "pushup.core.snapshot."))]
    assert made == len(DECODERS) - len(several) + 3, sorted(DECODERS)
    assert {ChannelRow, MessageRow, Remembered}.issubset(STRUCTS)
    assert not any(f"msgspec.{way}.decode(" in text for text in texts for way in ("json", "msgpack"))


@pytest.mark.parametrize("name", DECODERS)
def test_the_examples_are_read(name: str) -> None:
    """So what is refused below is what is added to them."""
    for example in examples(inspect.type_info(DECODERS[name].type)):
        DECODERS[name].decode(msgspec.json.encode(example))


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__qualname__)
def test_a_field_that_is_not_known_is_refused(struct: type) -> None:
    """And one of an object is told from damage."""
    example = example_of(struct)
    decoder: Decoder[Any] = Decoder(struct)
    decoder.decode(msgspec.json.encode(example))
    if isinstance(example, list):
        with pytest.raises(msgspec.ValidationError):
            decoder.decode(msgspec.json.encode([*example, 1]))
        return
    with pytest.raises(msgspec.ValidationError) as raised:
        decoder.decode(msgspec.json.encode(example | {"unheard_of": 1}))
    with pytest.raises(NotUnderstood, match=r"this contains something .*unheard_of.*wrote it, or a newer one; or not"):
        check_known("this", raised.value, "; or not")


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__qualname__)
def test_a_word_that_is_not_known_is_refused(struct: type) -> None:
    """Another reason, another kind of acknowledgement."""
    example = example_of(struct)
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    for number, field in enumerate(info.fields, info.tag is not None):
        if isinstance(field.type, inspect.LiteralType):
            place = number if isinstance(example, list) else field.encode_name
            changed = example.copy()
            changed[place] = "unheard of"
            with pytest.raises(msgspec.ValidationError) as raised:
                Decoder(struct).decode(msgspec.json.encode(changed))
            with pytest.raises(NotUnderstood, match="Invalid enum value 'unheard of'"):
                check_known("this", raised.value, "")


@pytest.mark.parametrize("struct", LENIENT)
def test_a_report_of_another_release_is_read(struct: type) -> None:
    """With fields that this one does not know, in the settings, too."""
    example = example_of(struct) | {"unheard_of": 1}
    if "limits" in example:
        example["limits"] = {"unheard_of": 1}
    Decoder(struct).decode(msgspec.json.encode(example))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"1", b'{"type":"close"}', b'{"type":"close","channel":5}'])
def test_what_no_release_writes_is_damage(text: bytes) -> None:
    """Text that is cut off, a field that is missing, or one of another type."""
    decoder = DECODERS["pushup.broadcast.redis.records._command"]
    with pytest.raises(msgspec.DecodeError) as raised:
        decoder.decode(text)
    check_known("this", raised.value, "")


def test_a_kind_that_is_not_known_is_refused() -> None:
    """A command of a newer release is one."""
    decoder = DECODERS["pushup.broadcast.redis.records._command"]
    with pytest.raises(msgspec.DecodeError) as raised:
        decoder.decode(b'{"type":"future"}')
    with pytest.raises(NotUnderstood, match="future"):
        check_known("this", raised.value, "")
