"""Small faults put into source code, one at a time: which there are, and the file with one in it.

A mutant is the text of one expression or statement replaced by another. Left as they are: messages
(what is raised, f-strings, text), assertions, types, decorators, and keywords that only guard
(`strict`), serve a message (`stacklevel`), or a second device (`device`), which tests do not have.
"""

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

_ORDERS: dict[type, type] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_OPPOSITES: dict[type, type] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_ARITHMETIC: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}  # fmt: skip
_FACTORS = (ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult, ast.BitAnd, ast.BitOr)
_NAMES = {"min": "max", "any": "all", "amin": "amax"}
_NAMES |= {other: name for name, other in _NAMES.items()}
_GUARDS = {"strict", "stacklevel", "device"}


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        module: the file, by its path from `src/heedmap`.
        function: the dotted name of the function it is in; "" outside of all.
        before: what is replaced, as `ast.unparse` writes it.
        after: by what.
        nth: which of the equal ones of that function it is, from 1.
        line: where it begins, from 1.
        lines: (first, last) of the statement or its head; None where it runs at import.
        place: (start, end) in bytes of the file.
        whole: whether a whole statement is replaced.
    """

    module: str
    function: str
    before: str
    after: str
    nth: int
    line: int
    lines: tuple[int, int] | None
    place: tuple[int, int]
    whole: bool

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What it is called in the list of equivalent ones: no line number, so that it lasts."""
        return self.module, self.function, self.before, self.after, self.nth

    def apply(self, source: bytes) -> bytes:
        """The file with the fault in it."""
        start, end = self.place
        text = self.after if self.whole else f"({self.after})"
        return source[:start] + text.encode() + source[end:]


def mutants_of(path: Path, module: str) -> list[Mutant]:
    """All mutants of a file, in the order of its text."""
    source = path.read_bytes()
    offsets = [0]
    for line in source.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    seen: Counter[tuple[str, str, str]] = Counter()
    found: list[Mutant] = []
    for spot, after in _Walk().module(ast.parse(source)):
        node: Any = spot.node  # an expression or a statement: both know their place
        place = (
            offsets[node.lineno - 1] + node.col_offset,
            offsets[node.end_lineno - 1] + node.end_col_offset,
        )
        before = ast.unparse(node)
        seen[spot.function, before, after] += 1
        nth = seen[spot.function, before, after]
        whole = isinstance(node, ast.stmt)
        found.append(
            Mutant(module, spot.function, before, after, nth, node.lineno, spot.lines, place, whole)
        )
    return found


@dataclass(frozen=True)
class _Spot:
    """Where a fault is put."""

    node: ast.AST
    function: str
    lines: tuple[int, int] | None
    inside: bool  # of a function


class _Walk:
    """Goes through a file and yields what can be broken, with its replacement."""

    def module(self, tree: ast.Module) -> Iterator[tuple[_Spot, str]]:
        yield from self._body(tree.body, _Spot(tree, "", None, False))

    def _body(self, body: list[ast.stmt], above: _Spot) -> Iterator[tuple[_Spot, str]]:
        for statement in body:
            yield from self._statement(statement, above)

    def _statement(self, node: ast.stmt, above: _Spot) -> Iterator[tuple[_Spot, str]]:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield from self._definition(node, above)
            return
        if isinstance(node, ast.Assert | ast.Import | ast.ImportFrom) or _types_only(node):
            return
        spot = replace(above, node=node, lines=_head(node) if above.inside else None)
        if above.inside:
            yield from ((spot, after) for after in _without(node, above))
        if isinstance(node, ast.Raise):
            return
        for name, value in ast.iter_fields(node):
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, ast.stmt):
                    yield from self._statement(part, above)
                elif isinstance(part, ast.ExceptHandler):
                    yield from self._body(part.body, above)
                elif isinstance(part, ast.AST) and name not in ("annotation", "targets", "target"):
                    yield from self._expression(part, spot)
        if isinstance(node, ast.If | ast.While):
            yield from self._negated(node.test, spot)

    def _definition(
        self, node: ast.ClassDef | ast.FunctionDef, above: _Spot
    ) -> Iterator[tuple[_Spot, str]]:
        name = f"{above.function}.{node.name}" if above.function else node.name
        inside = above.inside or isinstance(node, ast.FunctionDef)
        spot = replace(above, node=node, function=name, inside=inside)
        if isinstance(node, ast.FunctionDef):
            # Defaults are made at import, and act wherever the function runs.
            felt = replace(spot, lines=(node.body[0].lineno, node.end_lineno or node.lineno))
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if default is not None:
                    yield from self._expression(default, felt)
        yield from self._body(node.body, spot)

    def _expression(self, node: ast.AST, spot: _Spot) -> Iterator[tuple[_Spot, str]]:
        if isinstance(node, ast.JoinedStr):
            return
        if isinstance(node, ast.expr):
            here = replace(spot, node=node)
            for changed in _changed(node, spot.inside):
                yield here, ast.unparse(ast.fix_missing_locations(changed))
        if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
            return  # a negative number
        if isinstance(node, ast.IfExp):
            yield from self._negated(node.test, spot)
        if isinstance(node, ast.keyword) and node.arg in _GUARDS:
            return
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.arguments):
                yield from self._expression(child, spot)

    def _negated(self, test: ast.expr, spot: _Spot) -> Iterator[tuple[_Spot, str]]:
        """Conditions that no other rule negates."""
        if not isinstance(test, ast.Compare | ast.BoolOp) and not _is_not(test):
            yield replace(spot, node=test), f"not ({ast.unparse(test)})"


def _types_only(node: ast.stmt) -> bool:
    """Whether a statement is for type checkers, or names what a module has."""
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    value = getattr(node, "value", None)
    names = ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else ""
    called = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
    return names == "__all__" or called == "TypeVar"


def _head(node: ast.stmt) -> tuple[int, int]:
    body = getattr(node, "body", None)
    last = node.end_lineno or node.lineno
    return node.lineno, max(node.lineno, body[0].lineno - 1) if body else last


def _without(node: ast.stmt, above: _Spot) -> Iterator[str]:
    """A statement taken away, or without what it gives."""
    if isinstance(node, ast.AugAssign):
        yield ast.unparse(ast.Assign([node.target], node.value, lineno=0))
        if type(node.op) in _ARITHMETIC:
            yield ast.unparse(ast.AugAssign(node.target, _ARITHMETIC[type(node.op)](), node.value))
        yield "pass"
    elif isinstance(node, ast.Return):
        if node.value is not None and not _is_constant(node.value, None):
            yield "return None"
    elif isinstance(node, ast.Expr):
        if not isinstance(node.value, ast.Constant | ast.Yield | ast.YieldFrom):
            yield "pass"
    elif isinstance(node, ast.Raise | ast.Continue | ast.Break):
        yield "pass"
    elif isinstance(node, ast.Assign):
        # Without its first assignment a name is an error that any test sees.
        names = {target.id for target in ast.walk(node) if isinstance(target, ast.Name)}
        (target,) = node.targets[:1]
        again = isinstance(target, ast.Name) and target.id in names - {target.id}
        kept = isinstance(target, ast.Attribute | ast.Subscript)
        if again or kept or _reads(node.value, target):
            yield "pass"


def _reads(value: ast.expr, target: ast.expr) -> bool:
    """Whether a value is made of the name that it takes the place of."""
    return isinstance(target, ast.Name) and any(
        isinstance(part, ast.Name) and part.id == target.id for part in ast.walk(value)
    )


def _changed(node: ast.expr, inside: bool) -> Iterator[ast.expr]:
    """What can stand in an expression's place."""
    if isinstance(node, ast.Compare):
        yield from _compared(node)
    elif isinstance(node, ast.BinOp):
        if not inside and isinstance(node.op, ast.BitOr):
            return  # a type
        if type(node.op) in _ARITHMETIC:
            yield ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
        if isinstance(node.op, _FACTORS):
            yield node.left
        if isinstance(node.op, ast.Mult | ast.MatMult | ast.BitAnd | ast.BitOr):
            yield node.right
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        for number in range(len(node.values)):
            rest = node.values[:number] + node.values[number + 1 :]
            yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
    elif isinstance(node, ast.UnaryOp):
        if isinstance(node.operand, ast.Constant) and isinstance(node.op, ast.USub):
            yield from map(ast.Constant, _numbers(-cast(float, node.operand.value)))
        else:
            yield node.operand
    elif isinstance(node, ast.Constant):
        yield from map(ast.Constant, _numbers(node.value))
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        for bound in ("lower", "upper", "step"):
            if getattr(node.slice, bound) is not None:
                yield _with(node, lambda other, bound=bound: setattr(other.slice, bound, None))
    elif isinstance(node, ast.Call):
        yield from _called(node, inside)
    elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        for loop, generator in enumerate(node.generators):
            for number in range(len(generator.ifs)):
                yield _with(node, lambda other, at=(loop, number): _unfiltered(other, *at))


def _compared(node: ast.Compare) -> Iterator[ast.expr]:
    for number, sign in enumerate(node.ops):
        other = (_ORDERS | _OPPOSITES)[type(sign)]()
        ops = [*node.ops[:number], other, *node.ops[number + 1 :]]
        yield ast.Compare(node.left, ops, node.comparators)


def _called(node: ast.Call, inside: bool) -> Iterator[ast.expr]:
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    if name in _NAMES:
        which = "id" if isinstance(node.func, ast.Name) else "attr"
        yield _with(node, lambda other: setattr(other.func, which, _NAMES[name]))
    for number, keyword in enumerate(node.keywords):
        if inside and keyword.arg is not None and keyword.arg not in _GUARDS:
            yield _with(node, lambda other, number=number: other.keywords.pop(number))


def _with(node: ast.expr, change: Callable[[Any], object]) -> ast.expr:
    other = copy.deepcopy(node)
    change(other)
    return other


def _unfiltered(node: Any, loop: int, number: int) -> None:
    del node.generators[loop].ifs[number]


def _numbers(value: object) -> Iterator[int | float]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1) if value else (1,)
    elif isinstance(value, float):
        yield from (value / 2, value * 2) if value else (1.0,)


def _is_not(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _is_constant(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value
