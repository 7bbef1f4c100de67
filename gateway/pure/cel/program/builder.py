"""A checked tree → a program.

Every node becomes a closure over a frame. Costs that do not depend on values are charged as one sum at the
beginning of a branch or of a round of a macro, so that the meter changes once for it.

Source: cel-go interpreter/planner.go, interpreter/interpretable.go, interpreter/runtimecost.go.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from gateway.pure.cel import syntax
from gateway.pure.cel.environment import GLOBALS, SLOTS, TYPE_NAMES, VARIABLES
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.indexing import KEY_TYPES, check_key, has_field, invalid_key
from gateway.pure.cel.lexer import CompileError
from gateway.pure.cel.meter import LONG_TEXT, METER, charge
from gateway.pure.cel.operators import no_overload
from gateway.pure.cel.program.calls import call_code
from gateway.pure.cel.program.code import Built, all_values, constant_code, rests_of
from gateway.pure.cel.program.comprehensions import comprehension
from gateway.pure.cel.program.constants import folded
from gateway.pure.cel.program.selections import Step, has_source, select, select_path, select_source
from gateway.pure.cel.program.source import Source, value_code
from gateway.pure.cel.structs import JSON_PATCH, struct
from gateway.pure.cel.values import NONE, Optional, Struct, TypeName, type_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.pure.cel.lazy import LazyVariables
    from gateway.pure.cel.program.code import Code, Frame
    from gateway.pure.cel.program.source import Writer

_VARIABLES_SLOT: Final = GLOBALS.index(VARIABLES)
_OBJECTS: Final = frozenset(map(GLOBALS.index, ("object", "oldObject")))
_LIST: Final = 10
_MAP: Final = 30
_STRUCT: Final = 40
_INDEX: Final = frozenset({"_[_]", "_[?_]"})


class Program:
    """An expression that can be evaluated: ``code`` for a frame, after ``cost`` was charged.

    A frame has the values of ``GLOBALS`` and ``slots`` more items.
    """

    __slots__ = ("code", "cost", "slots", "tree")

    def __init__(self, tree: syntax.Node) -> None:
        builder = _Builder()
        self.tree = builder.build(tree)
        """The program as closures, with its source."""
        self.code, self.cost = self.tree.code, self.tree.cost
        self.slots = builder.slots - len(GLOBALS)

    def use_source(self) -> None:
        """Evaluate by Python source code from now on, which takes as long to make as all of the rest."""
        self.code = value_code(self.tree)


def _is_attribute(node: syntax.Node) -> bool:
    """Whether cel-go evaluates *node* together with the steps that follow it."""
    match node:
        case syntax.Call(function=function):
            return function in _INDEX or function == "_?_:_"
    return isinstance(node, syntax.Ident | syntax.Select | syntax.OptionalMap)


def _own_cost(node: syntax.Node) -> int:
    """Return the cost that *node* has only if it is neither a branch of ``?:`` nor between brackets."""
    match node:
        case syntax.Ident():
            return 1
        case (
            syntax.Select(is_test=False, operand=operand)
            | syntax.Call(function="_[_]" | "_[?_]", arguments=[operand, _])
        ):
            return _own_cost(operand) if _is_attribute(operand) else 1
    return 0


def _has(operand: Built, field: str) -> Built:
    """Return the code of ``has(operand.field)``."""
    code = operand.code
    source = None if operand.source is None else has_source(operand.source, field)

    def test(frame: Frame) -> bool:
        value = code(frame)
        if type(value) is not Optional:
            return has_field(value, field)
        if not value.present:
            return False
        # cel-go does not count the test of an optional value if there is no such field.
        METER.left += 1
        found = has_field(value.value, field)
        METER.left -= found
        return found

    return Built(test, operand.cost, source)


def _value(code: Code, frame: Frame, rest: int) -> object:
    """Return the value of *code*; if it has none, the *rest* is paid back, which was charged before."""
    try:
        return code(frame)
    except EvaluationError:
        METER.left += rest
        raise


def _write_variable(writer: Writer, name: str) -> str:
    """Write ``variables.name``, whose evaluation may charge the meter."""
    if (value := writer.variable(name)) is not None:
        return value
    writer.uses_variables = writer.uses_meter = True
    return f"{writer.slot(_VARIABLES_SLOT)}.get({writer.constant(name)})"


def _map_source(entries: Sequence[tuple[Built, Built, bool]]) -> Source | None:
    """Return the source of a map with these keys and values, or None if any of them is optional."""
    if any(is_optional for _, _, is_optional in entries):
        return None

    def write(writer: Writer) -> str:
        members = []
        for key, value in [entry[:2] for entry in entries]:
            name = writer.named(writer.part(key))
            writer.require(name, str)
            if not writer.is_constant(name):
                writer.give_up_if(f"len({name}) > {LONG_TEXT}")
            members.append(f"{name}: {writer.named(writer.part(value))}")
        return f"{{{', '.join(members)}}}"

    return Source(write)


def _struct_source(name: str, fields: Sequence[tuple[str, Built, bool]]) -> Source | None:
    """Return the source of a struct of the type *name*, or None if any of its *fields* is optional."""
    if any(is_optional for _, _, is_optional in fields):
        return None

    def write(writer: Writer) -> str:
        members = []
        for field, built, _ in fields:
            value = writer.named(writer.part(built))
            if name == JSON_PATCH and field != "value":
                writer.require(value, str)
            members.append(f"{writer.constant(field)}: {value}")
        return f"{writer.constant(Struct)}({writer.constant(name)}, {{{', '.join(members)}}})"

    return Source(write)


class _Builder:
    def __init__(self) -> None:
        self._names: list[Mapping[str, int]] = [SLOTS]
        self.slots = len(GLOBALS)
        self._lazy: set[int] = set()
        """The slots of variables that are evaluated at their first use: ``cel.bind``."""

    def build(self, node: syntax.Node) -> Built:
        """Return the code of *node*."""
        node = self._folded(node)
        match node:
            case syntax.Literal(value=value):
                return Built(constant_code(value), 0, Source(lambda writer: writer.constant(value)))
            case syntax.Ident(name=name):
                slot = self._slot(name)
                assert slot is not None, name
                if slot in self._lazy:
                    return Built(lambda frame: cast("Any", frame[slot]).get(frame), 1)
                return Built(lambda frame: frame[slot], 1, Source(lambda writer: writer.slot(slot)))
            case syntax.Select():
                return self._select(node)
            case syntax.Call(function=function):
                return self._select(node) if function in _INDEX else self._call(node)
            case syntax.ListLiteral():
                return self._list(node)
            case syntax.MapLiteral():
                return self._map(node)
            case syntax.StructLiteral():
                return self._struct(node)
            case syntax.Comprehension():
                return self._comprehension(node)
            case syntax.Let():
                return self._let(node)
        assert isinstance(node, syntax.OptionalMap)
        return self._optional_map(node)

    def _slot(self, name: str) -> int | None:
        if name.startswith("."):
            return SLOTS.get(name[1:])
        return next((names[name] for names in reversed(self._names) if name in names), None)

    def _folded(self, node: syntax.Node) -> syntax.Node:
        return folded(node, self._type)

    def _type(self, name: str, at: int) -> TypeName | None:
        if self._slot(name) is not None:
            return None
        if self._is_hidden(name):
            raise CompileError(f"reference to undefined type: {name}", at)
        return TYPE_NAMES.get(name.removeprefix("."))

    def _is_hidden(self, name: str) -> bool:
        """Whether a macro has a variable of the same name as the global variable or type *name*."""
        dot, first, *_ = f"{name}.".split(".")
        return not dot and any(first in names for names in self._names[1:])

    def _enter(self, *names: str) -> list[int]:
        """Return new slots for the variables of a macro, which are known until the scope is popped."""
        slots = list(range(self.slots, self.slots + len(names)))
        self.slots += len(names)
        self._names.append(dict(zip(names, slots, strict=True)))
        return slots

    def _select(self, node: syntax.Select | syntax.Call) -> Built:
        """Return the code of a selection: its root, and all steps from there."""
        test = node if isinstance(node, syntax.Select) and node.is_test else None
        at: syntax.Node = node if test is None else test.operand
        steps: list[Step] = []
        while True:
            if isinstance(at, syntax.Select) and not at.is_test:
                steps.insert(0, Step(at.field, None, at.is_optional, 1))
                at = at.operand
            elif isinstance(at, syntax.Call) and at.function in _INDEX:
                steps.insert(0, self._step(at))
                at = at.arguments[0]
            else:
                break
        at = self._folded(at)
        if isinstance(at, syntax.Ident) and self._slot(at.name) == _VARIABLES_SLOT:
            return self._variable(steps, test)
        root = self.build(at)
        cost = root.cost
        if not _is_attribute(at):
            cost += 1
        is_counted = not isinstance(at, syntax.Ident) or not self._is_hidden(at.name)
        if not is_counted:
            # cel-go does not count these lookups.
            steps = [replace(step, cost=0) for step in steps]
        cost += sum(step.cost for step in steps)
        after = int(test is not None)
        code = select(root.code, steps, after)
        source = select_source(root, steps, after)
        slot = self._slot(at.name) if isinstance(at, syntax.Ident) else None
        path = [step.field for step in steps if step.key is None and not step.is_optional]
        if slot is not None and slot not in self._lazy and len(path) == len(steps):
            code = select_path(slot, tuple(path), code)
        if test is None:
            return Built(code, cost, source)
        # The test costs one unit, and its operand one unit less than in use.
        return _has(Built(code, cost + int(is_counted) - 1, source), test.field)

    def _variable(self, steps: list[Step], test: syntax.Select | None) -> Built:
        """Return the code of ``variables.name`` and the *steps* from there."""
        name = steps[0].field if steps else test.field if test is not None else ""
        rest = steps[1:]

        def root(frame: Frame) -> object:
            return cast("LazyVariables", frame[_VARIABLES_SLOT]).get(name)

        if not steps:
            # has() needs the value, though its result is known.
            return Built(lambda frame: (root(frame), True)[1], 1)
        cost = 1 + sum(step.cost for step in steps)
        first = (lambda frame: Optional(root(frame))) if steps[0].is_optional else root
        after = int(test is not None)
        code = select(first, rest, after)
        source = None
        if not steps[0].is_optional:
            source = select_source(Built(root, 1, Source(partial(_write_variable, name=name))), rest, after)
        return Built(code, cost, source) if test is None else _has(Built(code, cost, source), test.field)

    def _step(self, node: syntax.Call) -> Step:
        key = self._folded(node.arguments[1])
        is_optional = node.function == "_[?_]"
        if isinstance(key, syntax.Literal):
            if type(key.value) not in KEY_TYPES:
                raise CompileError(str(invalid_key(key.value)), key.at)
            if isinstance(key.value, str):
                return Step(key.value, None, is_optional, 1)
        built = self.build(key)
        return Step("", built, is_optional, 1 + built.cost - _own_cost(key))

    def _call(self, node: syntax.Call) -> Built:
        node.arguments[:] = map(self._folded, node.arguments)
        given = node.arguments if node.target is None else [node.target, *node.arguments]
        built = [self.build(each) for each in given]
        if node.function == "_?_:_":
            for number, branch in enumerate(given[1:], 1):
                code, cost, source = built[number]
                built[number] = Built(code, cost - _own_cost(branch), source)
        paths = {self._path(each) for each in given} if node.function in ("_==_", "_!=_") else ()
        return call_code(node, built, is_alike=len(paths) == 1 and None not in paths)

    def _path(self, node: syntax.Node) -> tuple[str, ...] | None:
        """Return the fields from ``object`` or ``oldObject`` to *node*, or None for other values."""
        fields: list[str] = []
        while isinstance(node, syntax.Select) and not node.is_test and not node.is_optional:
            fields.append(node.field)
            node = node.operand
        return tuple(fields) if isinstance(node, syntax.Ident) and self._slot(node.name) in _OBJECTS else None

    def _list(self, node: syntax.ListLiteral) -> Built:
        built = [self.build(each) for each in node.elements]
        codes = [each.code for each in built]
        cost = sum(each.cost for each in built) + _LIST
        if not node.optional:

            def write(writer: Writer) -> str:
                return f"[{', '.join([writer.named(writer.part(each)) for each in built])}]"

            return Built(all_values(built), cost, Source(write))
        optional, rests = node.optional, rests_of(built)

        def build_list(frame: Frame) -> object:
            items = []
            for number, code in enumerate(codes):
                value = _value(code, frame, rests[number])
                if number not in optional:
                    items.append(value)
                elif not isinstance(value, Optional):
                    raise no_overload()
                elif value.present:
                    items.append(value.value)
            return items

        return Built(build_list, cost)

    def _map(self, node: syntax.MapLiteral) -> Built:
        built = [
            (self.build(key), self.build(value), is_optional) for key, value, is_optional in node.entries
        ]
        parts = [part for key, value, _ in built for part in (key, value)]
        rests = rests_of(parts)
        codes = [
            (key.code, value.code, is_optional, rests[2 * number], rests[2 * number + 1])
            for number, (key, value, is_optional) in enumerate(built)
        ]
        cost = sum(part.cost for part in parts) + _MAP

        def build_map(frame: Frame) -> object:
            found: dict[object, object] = {}
            for key_of, value_of, is_optional, after_key, after_value in codes:
                key, value = _value(key_of, frame, after_key), _value(value_of, frame, after_value)
                if is_optional:
                    if not isinstance(value, Optional):
                        raise no_overload()
                    if not value.present:
                        found.pop(key, None)
                        continue
                    value = value.value
                check_key(key)
                found[key] = value
            return found

        return Built(build_map, cost, _map_source(built))

    def _struct(self, node: syntax.StructLiteral) -> Built:
        built = [(field, self.build(value), is_optional) for field, value, is_optional in node.fields]
        rests = rests_of([each for _, each, _ in built])
        codes = [
            (field, each.code, is_optional, rest)
            for (field, each, is_optional), rest in zip(built, rests, strict=True)
        ]
        name = node.name

        def build_struct(frame: Frame) -> object:
            found: dict[str, object] = {}
            for field, code, is_optional, rest in codes:
                value = _value(code, frame, rest)
                if is_optional:
                    if not isinstance(value, Optional):
                        raise no_overload()
                    if not value.present:
                        found.pop(field, None)
                        continue
                    value = value.value
                found[field] = value
            return struct(name, found)

        cost = sum(each.cost for _, each, _ in built) + _STRUCT
        return Built(build_struct, cost, _struct_source(name, built))

    def _comprehension(self, node: syntax.Comprehension) -> Built:
        over = self.build(node.range)
        slots = self._enter(*([node.variable] if node.variable2 is None else [node.variable, node.variable2]))
        condition = None if node.condition is None else self.build(node.condition)
        node.body = self._folded(node.body)
        body = self.build(node.body)
        if node.macro == "map" and isinstance(node.body, syntax.Literal):
            # The list of one element that cel-go adds for each element is a constant, too.
            body = Built(body.code, -_LIST, body.source)
        self._names.pop()
        second = slots[1] if len(slots) == 2 else None
        return comprehension(node.macro, over, slots[0], second, condition, body)

    def _let(self, node: syntax.Let) -> Built:
        target = self.build(node.target)
        (slot,) = self._enter(node.variable)
        if node.is_lazy:
            self._lazy.add(slot)
        body = self.build(node.body)
        self._names.pop()
        value, result = target.code, body.code
        if node.is_lazy:

            def bind(frame: Frame) -> object:
                frame[slot] = target.bound()
                return result(frame)

            return Built(bind, body.cost)

        def let(frame: Frame) -> object:
            frame[slot] = value(frame)
            return result(frame)

        return Built(let, target.cost + body.cost)

    def _optional_map(self, node: syntax.OptionalMap) -> Built:
        """Return the code of optMap: ``target.hasValue() ? optional.of(body) : optional.none()``.

        cel-go evaluates the target once more for its value if the body uses the variable.
        """
        target, cost, _ = self.build(node.target)
        (slot,) = self._enter(node.variable)
        body, body_cost, _ = self.build(node.body)
        self._names.pop()
        is_flat = node.is_flat
        is_used = any(
            isinstance(each, syntax.Ident) and each.name == node.variable for each in syntax.nodes(node.body)
        )
        price = body_cost + (0 if is_flat else 1) + (cost + 1 if is_used else 0)

        def bind(frame: Frame) -> object:
            left = METER.left
            value = target(frame)
            if not isinstance(value, Optional):
                raise EvaluationError(f"no such overload: hasValue({type_name(value)})")
            if not value.present:
                METER.left -= 1
                return NONE
            charge(price + (left - METER.left if is_used else 0))
            frame[slot] = value.value
            found = body(frame)
            return found if is_flat else Optional(found)

        return Built(bind, cost + 1)
