"""The mutants of a module: its source with one small change, which a test of the module should find."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}

_NO_BEHAVIOUR: Final = frozenset({"annotation", "returns", "decorator_list", "format_spec", "type_comment"})
_TYPES_AND_NAMES: Final = frozenset({"cast", "Literal", "TypeVar", "ParamSpec", "NewType", "getLogger"})


@dataclass(frozen=True)
class Mutant:
    """One change of a module: in *function*, the *number*-th of those that read *change*.

    It is at *line*, in the statement that begins at *first_line*.
    """

    path: str
    function: str
    change: str
    number: int
    line: int = field(compare=False)
    first_line: int = field(compare=False)

    def __str__(self) -> str:
        return f"{self.path}\t{self.function}\t{self.number}\t{self.change}"


@dataclass(frozen=True)
class _Place:
    """Where a node is: in *name* of *parent*, at *index* if that is a list."""

    parent: ast.AST
    name: str
    index: int | None
    statement: ast.stmt | None

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.name, node)
        else:
            getattr(self.parent, self.name)[self.index] = node


def mutants_of(path: str, source: str) -> list[Mutant]:
    """Return all mutants of the module at *path*, which has this *source*, in the order of the source."""
    return [mutant for mutant, _, _ in _mutants(path, ast.parse(source))]


def mutated(mutant: Mutant, source: str) -> ast.Module:
    """Return the module of *source* with the change of *mutant*.

    Raises:
        LookupError: the source has no such place.
    """
    tree = ast.parse(source)
    for found, place, changed in _mutants(mutant.path, tree):
        if found == mutant:
            place.put(changed)
            return ast.fix_missing_locations(tree)
    raise LookupError(f"{mutant.path} no longer has: {mutant.function}: {mutant.change}")


def _mutants(path: str, tree: ast.Module) -> Iterator[tuple[Mutant, _Place, ast.AST]]:
    seen: Counter[tuple[str, str]] = Counter()
    for function, place, node in list(_nodes(tree, "", None)):
        for changed in _changes(node):
            change = f"{_text(node)} -> {_text(changed)}"
            number = seen[function, change]
            seen[function, change] += 1
            line = getattr(node, "lineno", 0)
            first_line = getattr(place.statement, "lineno", line)
            mutant = Mutant(path, function, change, number, line, first_line)
            yield mutant, place, ast.copy_location(changed, node)


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.If | ast.While):
        return f"if {ast.unparse(node.test)}"
    return " ".join(ast.unparse(node).split())


def _nodes(parent: ast.AST, function: str, outer: ast.stmt | None) -> Iterator[tuple[str, _Place, ast.AST]]:
    for name, value in ast.iter_fields(parent):
        if name in _NO_BEHAVIOUR:
            continue
        for index, node in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(node, ast.AST) or _is_without_behaviour(parent, node):
                continue
            inside = function
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inside = f"{function}.{node.name}".lstrip(".")
            statement = node if isinstance(node, ast.stmt) else outer
            yield function, _Place(parent, name, index if isinstance(value, list) else None, statement), node
            yield from _nodes(node, inside, statement)


def _is_without_behaviour(parent: ast.AST, node: ast.AST) -> bool:
    """Whether *node* is a text for people, a type, or a statement of what holds anyway."""
    match node:
        case ast.Assert() | ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom():
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__" | "__slots__")]):
            return True
        case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called)) if called != "cast":
            return called in _TYPES_AND_NAMES
        case ast.Subscript(value=ast.Name(id=generic)):
            return generic in _TYPES_AND_NAMES
        case ast.Constant(value=str()):
            return isinstance(parent, ast.JoinedStr) or (
                isinstance(parent, ast.Call) and _text(parent.func) == "cast"
            )
    return False


def _changes(node: ast.AST) -> Iterator[ast.AST]:  # noqa: C901 - a table of cases
    match node:
        case ast.Compare():
            for index, operator in enumerate(node.ops):
                changed = copy.copy(node)
                changed.ops = [*node.ops[:index], _COMPARISONS[type(operator)](), *node.ops[index + 1 :]]
                yield changed
        case ast.BoolOp():
            yield ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values)
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            yield ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
            yield node.operand
        case ast.Constant():
            yield from _other_constants(node.value)
        case ast.If() | ast.While() | ast.IfExp():
            if not isinstance(node.test, ast.Compare | ast.UnaryOp | ast.Constant):
                opposite = copy.copy(node)
                opposite.test = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
                yield opposite
        case ast.Return(value=ast.expr() as value):
            if not (isinstance(value, ast.Constant) and value.value is None):
                yield ast.Return(ast.Constant(None))
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise() | ast.Delete():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            yield ast.Pass()


def _other_constants(value: object) -> Iterator[ast.Constant]:
    match value:
        case bool():
            yield ast.Constant(not value)
        case int() | float():
            yield ast.Constant(value + 1)
        case str():
            yield ast.Constant(value + "XX")
        case bytes():
            yield ast.Constant(value + b"XX")
