"""The mutants of a file: changes to its syntax tree, chosen so that each tells something that the others do not.

| what | becomes |
|---|---|
| a statement | nothing, if the code would still run; `return x` gives None, True or False; a handler raises again |
| a condition | True; False |
| `<`, `==` and the like | two others: what tells it from these, True and False tells it from all six |
| `a and b`, `a or b` | `a`; `b` |
| `is`, `in` | the contrary |
| `+ - * // / %`, `& \\|` | another operator |
| a number | one more; one less |
| True, False; a string without spaces | the other; another |
| `min(a, b)`, `sorted(a)`, `any(a)` and the like | `max(a, b)`, `a`; `a`; `all(a)` |
| `f(a, b=c)` | `f(a)` |

Not changed: what only types see, docstrings, texts for people (strings with spaces, f-strings, whatever is raised or
logged), decorators, bases and keywords of classes, `__slots__`, assertions, functions that only assert, and named
numbers (`SHARE = 32`), which tests refer to by name.

Three alternatives for each comparison are enough: G. Kaminski, P. Ammann, J. Offutt, "Improving logic-based testing",
Journal of Systems and Software 86 (2013).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.NotEq),
    ast.Gt: (ast.GtE, ast.NotEq),
    ast.LtE: (ast.Lt, ast.Eq),
    ast.GtE: (ast.Gt, ast.Eq),
    ast.Eq: (ast.LtE, ast.GtE),
    ast.NotEq: (ast.Lt, ast.Gt),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}

CONTRARIES = {ast.Is, ast.IsNot, ast.In, ast.NotIn}
"""Comparisons for which True and False are enough."""

SAME_WITH_0 = {(ast.Eq, ast.LtE), (ast.NotEq, ast.Gt), (ast.Gt, ast.NotEq), (ast.LtE, ast.Eq)}
"""What is the same for a number that is never negative, as most are here."""

OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}

CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
"""Functions that become another one."""

CALLS_LEFT_OUT = {"sorted", "reversed", "min", "max", "abs"}
"""Functions that become each of their arguments."""

TEXT_CALLS = {"debug", "info", "warn", "error", "critical", "failure", "TypeVar", "cast", "isinstance", "issubclass"}
"""Functions whose arguments are not changed."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Slot = tuple[ast.AST, str, int | None]
"""Where a node is: its parent, the field, and the index in it."""


@dataclass(frozen=True)
class Mutant:
    """One change. `lines`: a test that runs none of them cannot notice it. `place`: the class and function it is in."""

    path: Path
    line: int
    lines: frozenset[int]
    place: str
    is_in_function: bool
    """Otherwise it is carried out on import."""
    text: str
    """The line's text."""
    change: str
    slot: Slot
    node: ast.AST

    def __str__(self) -> str:
        return f"{self.path}:{self.line}  {self.change}"


class SourceFile:
    """A file whose mutants are wanted."""

    def __init__(self, path: Path, text: str | None = None) -> None:
        self.path = path
        text = path.read_text() if text is None else text
        self.tree = ast.parse(text)
        finder = _Finder(path, text, _interfaces(self.tree))
        finder.statements(self.tree, "body")
        self.mutants = finder.found

    def code(self, mutant: Mutant | None = None) -> CodeType:
        """The compiled module, with this change."""
        if mutant is None:
            return compile(self.tree, str(self.path.absolute()), "exec", dont_inherit=True)
        with _changed(mutant.slot, mutant.node):
            return compile(self.tree, str(self.path.absolute()), "exec", dont_inherit=True)


@contextmanager
def _changed(slot: Slot, node: ast.AST) -> Iterator[None]:
    parent, field, index = slot
    before = getattr(parent, field)
    if index is None:
        setattr(parent, field, node)
    else:
        setattr(parent, field, [*before[:index], node, *before[index + 1 :]])
    try:
        yield
    finally:
        setattr(parent, field, before)


class _Finder:
    def __init__(self, path: Path, text: str, interfaces: frozenset[str]) -> None:
        self.found: list[Mutant] = []
        self._interfaces = interfaces
        self._path = path
        self._texts = [line.strip() for line in text.splitlines()]
        self._place = ""
        self._depth = 0
        self._bound: dict[str, int] = {}  # local names, and how often they are bound
        self._lines: frozenset[int] = frozenset()
        self._is_text = False

    def _add(self, slot: Slot, old: ast.AST, new: ast.AST, change: str = "") -> None:
        ast.copy_location(new, old)
        ast.fix_missing_locations(new)
        line: int = old.lineno  # type: ignore[attr-defined]
        change = change or f"{_shown(old)}  ->  {_shown(new)}"
        text = self._texts[line - 1]
        is_in_function = self._depth > 0
        self.found.append(Mutant(self._path, line, self._lines, self._place, is_in_function, text, change, slot, new))

    # Statements.

    def statements(self, parent: ast.AST, field: str) -> None:
        for index, statement in enumerate(getattr(parent, field)):
            body = getattr(statement, "body", None)
            end = body[0].lineno - 1 if isinstance(body, list) else statement.end_lineno
            self._lines = frozenset(range(statement.lineno, max(end, statement.lineno) + 1))
            self._statement((parent, field, index), statement)

    def _statement(self, slot: Slot, s: ast.stmt) -> None:
        match s:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function_body(s)
            case ast.ClassDef():
                if not any(_name_of(base) in self._interfaces for base in s.bases):
                    outer, self._place = self._place, f"{self._place}.{s.name}".lstrip(".")
                    self.statements(s, "body")
                    self._place = outer
            case ast.If() | ast.While():
                if _name_of(s.test) == "TYPE_CHECKING":
                    return
                self._condition((s, "test", None), s.test, both=isinstance(s, ast.If))
                self.statements(s, "body")
                self.statements(s, "orelse")
            case ast.For() | ast.AsyncFor():
                self._add(slot, s, ast.Pass(), f"{_shown(s)}  ->  no loop")
                self._expressions(s, ("iter",))
                self.statements(s, "body")
                self.statements(s, "orelse")
            case ast.Try():
                self.statements(s, "body")
                for handler in s.handlers:
                    self._lines = frozenset(range(handler.lineno, handler.body[-1].end_lineno or 0))
                    again = ast.copy_location(ast.Raise(), handler.body[0])
                    self._add((handler, "body", 0), handler.body[0], again, f"{_shown(handler)}  ->  raise")
                    self.statements(handler, "body")
                self.statements(s, "orelse")
                self.statements(s, "finalbody")
            case ast.With() | ast.AsyncWith():
                self._expressions(s, ("items",))
                self.statements(s, "body")
            case ast.Match():
                self._expressions(s, ("subject",))
                for case in s.cases:
                    self.statements(case, "body")
            case _:
                self._simple(slot, s)

    def _function_body(self, f: Function) -> None:
        if (ast.get_docstring(f) or "").startswith("Assert"):
            return
        outer = self._place, self._bound
        self._expressions(f.args, ("defaults", "kw_defaults"))
        self._place = f"{self._place}.{f.name}".lstrip(".")
        self._depth += 1
        self._bound = dict.fromkeys((a.arg for a in (*f.args.args, *f.args.kwonlyargs)), 1)
        for node in ast.walk(f):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self._bound[node.id] = self._bound.get(node.id, 0) + 1
        self.statements(f, "body")
        self._place, self._bound = outer
        self._depth -= 1

    def _simple(self, slot: Slot, s: ast.stmt) -> None:
        """A statement without others in it."""
        match s:
            case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Assert() | ast.Import() | ast.ImportFrom():
                return
            case ast.Global() | ast.Nonlocal():
                return
            case ast.Assign(targets=[ast.Name(id=name)]) if name.startswith("__") or _is_type(s.value):
                return
            case ast.Assign(targets=[ast.Name(id=name)]) if name.isupper() and _is_literal(s.value):
                return
            case ast.Return(value=None):
                self._add(slot, s, ast.Pass(), "return  ->  pass")
            case ast.Return(value=value) if value is not None:
                self._returned((s, "value", None), value)
            case ast.Continue() | ast.Break():
                self._add(slot, s, ast.Pass())
            case ast.Assign(targets=targets):
                if self._is_known(targets):
                    self._add(slot, s, ast.Pass())
                self._expressions(s, ("targets", "value"))
            case ast.AnnAssign(value=value):
                if value is not None and self._is_known([s.target]):
                    self._add(slot, s, ast.Pass())
                self._expressions(s, ("target", "value"))
            case ast.Raise():
                self._add(slot, s, ast.Pass())
                self._is_text = True
                self._expressions(s, ("exc",))
                self._is_text = False
            case _:
                self._add(slot, s, ast.Pass())
                self._expressions(s, s._fields)

    def _is_known(self, targets: list[ast.expr]) -> bool:
        """Whether what it assigns to may have had a value before; otherwise nothing would run without it."""
        names = [t.id for target in targets for t in _parts(target) if isinstance(t, ast.Name)]
        return all(self._bound.get(name, 0) > 1 for name in names)

    # Expressions.

    def _expressions(self, parent: ast.AST, fields: tuple[str, ...]) -> None:
        for field in fields:
            value = getattr(parent, field)
            if isinstance(value, list):
                for index, item in enumerate(value):
                    if isinstance(item, ast.AST):
                        self._expression((parent, field, index), item)
            elif isinstance(value, ast.AST):
                self._expression((parent, field, None), value)

    def _condition(self, slot: Slot, node: ast.expr, *, both: bool = True) -> None:
        if not isinstance(node, ast.Constant):
            for value in (True, False) if both else (False,):
                self._add(slot, node, ast.Constant(value))
        self._expression(slot, node, is_decided=True)

    def _returned(self, slot: Slot, node: ast.expr) -> None:
        if _is_bool(node):
            self._condition(slot, node)
            return
        if not isinstance(node, ast.Constant) or node.value not in (None, True, False):
            self._add(slot, node, ast.Constant(None), f"return {_shown(node)}  ->  return None")
        self._expression(slot, node)

    def _expression(self, slot: Slot, node: ast.AST, *, is_decided: bool = False) -> None:
        """`is_decided`: True and False have been tried in its place, or it is a part of what is."""
        match node:
            case ast.Constant():
                self._constant(slot, node, node.value)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                self._constant(slot, node, -value)
            case ast.UnaryOp(op=op, operand=operand):
                if not is_decided or not isinstance(op, ast.Not):
                    self._add(slot, node, operand)
                self._expression((node, "operand", None), operand, is_decided=True)
            case ast.Compare(left=left, ops=[op], comparators=comparators):
                for other in _others(node, is_decided=is_decided):
                    self._add(slot, node, ast.Compare(left, [other()], comparators))
                if not is_decided:
                    for value in (True, False):
                        self._add(slot, node, ast.Constant(value))
                self._expressions(node, ("left", "comparators"))
            case ast.BoolOp(op=op, values=values):
                for index, operand in enumerate(values):
                    rest = [*values[:index], *values[index + 1 :]]
                    self._add(slot, node, rest[0] if len(rest) == 1 else ast.BoolOp(op, rest))
                    self._expression((node, "values", index), operand, is_decided=True)
            case ast.IfExp(test=test):
                self._condition((node, "test", None), test)
                self._expressions(node, ("body", "orelse"))
            case ast.comprehension(ifs=ifs):
                self._expressions(node, ("iter",))
                for index, test in enumerate(ifs):
                    self._condition((node, "ifs", index), test)
            case ast.BinOp(left=left, right=right):
                operator = OPERATORS.get(type(node.op))
                if operator is not None and not any(map(_is_sequence, (left, right))):
                    self._add(slot, node, ast.BinOp(left, operator(), right))
                self._expressions(node, ("left", "right"))
            case ast.Call():
                self._call(slot, node)
            case ast.JoinedStr(values=parts):
                for part in parts:
                    if isinstance(part, ast.FormattedValue) and not self._is_text:
                        self._expressions(part, ("value",))
            case ast.Lambda():
                self._expressions(node, ("body",))
            case _:
                self._expressions(node, node._fields)

    def _call(self, slot: Slot, node: ast.Call) -> None:
        name = _name_of(node.func)
        if name in TEXT_CALLS:
            return
        if name in CALLS and isinstance(node.func, ast.Name):
            self._add(slot, node, ast.Call(ast.Name(CALLS[name], ast.Load()), node.args, node.keywords))
        if name in CALLS_LEFT_OUT and isinstance(node.func, ast.Name):
            for argument in node.args:
                if not isinstance(argument, ast.Starred):
                    self._add(slot, node, argument)
        for index, keyword in enumerate(node.keywords):
            if keyword.arg is not None and not self._is_text:
                rest = [*node.keywords[:index], *node.keywords[index + 1 :]]
                change = f"{_shown(node)}  ->  without {keyword.arg}"
                self._add(slot, node, ast.Call(node.func, node.args, rest), change)
        self._expressions(node, ("func", "args", "keywords"))

    def _constant(self, slot: Slot, node: ast.AST, value: object) -> None:
        match value:
            case bool():
                others: tuple[bool | float | str, ...] = (not value,)
            case int() | float():
                others = value + 1, value - 1
            case str() if " " not in value and not self._is_text:
                others = (value + "!",)
            case _:
                return
        before = _shown(slot[0])  # the constant alone says little
        for other in others:
            new = ast.fix_missing_locations(ast.copy_location(ast.Constant(other), node))
            with _changed(slot, new):
                after = _shown(slot[0])
            self._add(slot, node, new, f"{before}  ->  {after}")


def _interfaces(tree: ast.Module) -> frozenset[str]:
    """The name of `typing.Protocol` in this module."""
    imports = (s for s in tree.body if isinstance(s, ast.ImportFrom) and s.module == "typing")
    return frozenset(a.asname or a.name for s in imports for a in s.names if a.name == "Protocol")


def _others(node: ast.Compare, *, is_decided: bool) -> tuple[type[ast.cmpop], ...]:
    """The comparisons to try instead of this one. Nothing here is negative, so some are the same with 0."""
    kind, right = type(node.ops[0]), node.comparators[0]
    others = COMPARISONS[kind]
    if kind in CONTRARIES and is_decided:
        return ()
    if isinstance(right, ast.Constant) and right.value == 0:
        return tuple([other for other in others if (kind, other) not in SAME_WITH_0])
    return others


def _shown(node: ast.AST) -> str:
    """The first line of the node's source."""
    return ast.unparse(node).partition("\n")[0]


def _name_of(node: ast.AST) -> str:
    """Of `a.b.c`, `a.b.c[d]`, `a.b.c(d)`: `c`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value) | ast.Call(func=value):
            return _name_of(value)
    return ""


def _parts(target: ast.expr) -> list[ast.expr]:
    return target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]


def _is_type(node: ast.expr) -> bool:
    """Whether the value of an assignment is a type or a type variable, as in `A = B | C`."""
    match node:
        case ast.Subscript():
            return True
        case ast.BinOp(op=ast.BitOr(), left=left):
            return _is_type(left) or _name_of(left)[:1].isupper()
        case ast.Call():
            return _name_of(node) == "TypeVar"
    return False


def _is_literal(node: ast.expr) -> bool:
    """Whether it is a constant, or computed from constants, as in `4 * 1024`."""
    match node:
        case ast.Constant() | ast.UnaryOp(operand=ast.Constant()):
            return True
        case ast.BinOp(left=left, right=right):
            return _is_literal(left) and _is_literal(right)
    return False


def _is_bool(node: ast.expr) -> bool:
    match node:
        case ast.Compare() | ast.UnaryOp(op=ast.Not()):
            return True
        case ast.BoolOp(values=values):
            return all(map(_is_bool, values))
    return False


def _is_sequence(node: ast.expr) -> bool:
    """Whether it is a text or a tuple, with which no other operator works."""
    match node:
        case ast.Constant(value=str() | bytes()) | ast.JoinedStr() | ast.Tuple() | ast.List():
            return True
        case ast.BinOp(left=left, right=right):
            return _is_sequence(left) or _is_sequence(right)
    return False
