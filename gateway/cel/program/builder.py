"""A checked tree → a program.

Every node becomes a closure over a frame. Costs that do not depend on values are charged as one sum at the
beginning of a branch or of a round of a macro, so that the meter changes once for it.

Source: cel-go interpreter/planner.go, interpreter/interpretable.go, interpreter/runtimecost.go.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from gateway.cel.environment import GLOBALS, TYPE_NAMES, VARIABLES
from gateway.cel.errors import EvaluationError
from gateway.cel.indexing import KEY_TYPES, check_key, has_field, invalid_key
from gateway.cel.lexer import CompileError
from gateway.cel.meter import METER, charge
from gateway.cel.operators import no_overload
from gateway.cel.program.calls import call_code
from gateway.cel.program.code import constant_code
from gateway.cel.program.comprehensions import ENTRY, comprehension
from gateway.cel.program.constants import folded
from gateway.cel.program.selections import Step, select, select_path
from gateway.cel.syntax import (
    Call,
    Comprehension,
    Ident,
    Let,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    OptionalMap,
    Select,
    nodes,
)
from gateway.cel.values import NONE, Optional, TypeName, type_name

if TYPE_CHECKING:
    from gateway.cel.lazy import LazyVariables
    from gateway.cel.program.code import Built, Frame

_VARIABLES_SLOT: Final = GLOBALS.index(VARIABLES)
_LIST: Final = 10
_MAP: Final = 30
_INDEX: Final = frozenset({"_[_]", "_[?_]"})


class Program:
    """An expression that can be evaluated: ``code`` for a frame, after ``cost`` was charged.

    A frame has the values of ``GLOBALS`` and ``slots`` more items.
    """

    __slots__ = ("code", "cost", "slots")

    def __init__(self, tree: Node) -> None:
        builder = _Builder()
        code, self.cost = builder.build(tree)
        self.code = code
        self.slots = builder.slots - len(GLOBALS)


def _is_attribute(node: Node) -> bool:
    """Whether cel-go evaluates *node* together with the steps that follow it."""
    match node:
        case Call(function=function):
            return function in _INDEX or function == "_?_:_"
    return isinstance(node, Ident | Select | OptionalMap)


def _own_cost(node: Node) -> int:
    """Return the cost that *node* has only if it is neither a branch of ``?:`` nor between brackets."""
    match node:
        case Ident():
            return 1
        case Select(is_test=False, operand=operand) | Call(function="_[_]" | "_[?_]", arguments=[operand, _]):
            return _own_cost(operand) if _is_attribute(operand) else 1
    return 0


class _Builder:
    def __init__(self) -> None:
        self._globals = {name: number for number, name in enumerate(GLOBALS)}
        self._names: list[dict[str, int]] = [self._globals]
        self.slots = len(GLOBALS)

    def build(self, node: Node) -> Built:
        """Return the code of *node*."""
        node = self._folded(node)
        match node:
            case Literal(value=value):
                return constant_code(value), 0
            case Ident(name=name):
                slot = self._slot(name)
                assert slot is not None, name
                return (lambda frame: frame[slot]), 1
            case Select():
                return self._select(node)
            case Call(function=function):
                return self._select(node) if function in _INDEX else self._call(node)
            case ListLiteral():
                return self._list(node)
            case MapLiteral():
                return self._map(node)
            case Comprehension():
                return self._comprehension(node)
            case Let():
                return self._let(node)
        assert isinstance(node, OptionalMap)
        return self._optional_map(node)

    def _slot(self, name: str) -> int | None:
        if name.startswith("."):
            return self._globals.get(name[1:])
        return next((names[name] for names in reversed(self._names) if name in names), None)

    def _folded(self, node: Node) -> Node:
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

    def _select(self, node: Select | Call) -> Built:
        """Return the code of a selection: its root, and all steps from there."""
        test = node if isinstance(node, Select) and node.is_test else None
        at: Node = node if test is None else test.operand
        steps: list[Step] = []
        while True:
            if isinstance(at, Select) and not at.is_test:
                steps.insert(0, Step(at.field, None, at.is_optional, 1))
                at = at.operand
            elif isinstance(at, Call) and at.function in _INDEX:
                steps.insert(0, self._step(at))
                at = at.arguments[0]
            else:
                break
        at = self._folded(at)
        if isinstance(at, Ident) and self._slot(at.name) == _VARIABLES_SLOT:
            return self._variable(steps, test)
        root, cost = self.build(at)
        if not _is_attribute(at):
            cost += 1
        is_counted = not isinstance(at, Ident) or not self._is_hidden(at.name)
        if not is_counted:
            # cel-go does not count these lookups.
            steps = [replace(step, cost=0) for step in steps]
        cost += sum(step.cost for step in steps)
        code = select(root, steps, after=int(test is not None))
        slot = self._slot(at.name) if isinstance(at, Ident) else None
        path = [step.field for step in steps if step.key is None and not step.is_optional]
        if slot is not None and len(path) == len(steps):
            code = select_path(slot, tuple(path), code)
        if test is None:
            return code, cost
        field = test.field
        # The test costs one unit, and its operand one unit less than in use.
        return (lambda frame: has_field(code(frame), field)), cost + int(is_counted) - 1

    def _variable(self, steps: list[Step], test: Select | None) -> Built:
        """Return the code of ``variables.name`` and the *steps* from there."""
        name = steps[0].field if steps else test.field if test is not None else ""
        rest = steps[1:]

        def root(frame: Frame) -> object:
            return cast("LazyVariables", frame[_VARIABLES_SLOT]).get(name)

        if not steps:
            # has() needs the value, though its result is known.
            return (lambda frame: (root(frame), True)[1]), 1
        cost = 1 + sum(step.cost for step in steps)
        first = (lambda frame: Optional(root(frame))) if steps[0].is_optional else root
        code = select(first, rest, after=int(test is not None))
        if test is None:
            return code, cost
        field = test.field
        return (lambda frame: has_field(code(frame), field)), cost

    def _step(self, node: Call) -> Step:
        key = self._folded(node.arguments[1])
        is_optional = node.function == "_[?_]"
        if isinstance(key, Literal):
            if type(key.value) not in KEY_TYPES:
                raise CompileError(str(invalid_key(key.value)), key.at)
            if isinstance(key.value, str):
                return Step(key.value, None, is_optional, 1)
        code, cost = self.build(key)
        return Step("", code, is_optional, 1 + cost - _own_cost(key))

    def _call(self, node: Call) -> Built:
        node.arguments[:] = map(self._folded, node.arguments)
        given = node.arguments if node.target is None else [node.target, *node.arguments]
        built = [self.build(each) for each in given]
        if node.function == "_?_:_":
            for number, branch in enumerate(given[1:], 1):
                code, cost = built[number]
                built[number] = code, cost - _own_cost(branch)
        return call_code(node, built)

    def _list(self, node: ListLiteral) -> Built:
        built = [self.build(each) for each in node.elements]
        codes = [code for code, _ in built]
        cost = sum(each for _, each in built) + _LIST
        if not node.optional:
            return (lambda frame: [code(frame) for code in codes]), cost
        optional = node.optional

        def build_list(frame: Frame) -> object:
            items = []
            for number, code in enumerate(codes):
                value = code(frame)
                if number not in optional:
                    items.append(value)
                elif not isinstance(value, Optional):
                    raise no_overload()
                elif value.present:
                    items.append(value.value)
            return items

        return build_list, cost

    def _map(self, node: MapLiteral) -> Built:
        built = [
            (self.build(key), self.build(value), is_optional) for key, value, is_optional in node.entries
        ]
        codes = [(key[0], value[0], is_optional) for key, value, is_optional in built]
        cost = sum(key[1] + value[1] for key, value, _ in built) + _MAP

        def build_map(frame: Frame) -> object:
            found: dict[object, object] = {}
            for key_code, value_code, is_optional in codes:
                key, value = key_code(frame), value_code(frame)
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

        return build_map, cost

    def _comprehension(self, node: Comprehension) -> Built:
        over, cost = self.build(node.range)
        slots = self._enter(*([node.variable] if node.variable2 is None else [node.variable, node.variable2]))
        condition = None if node.condition is None else self.build(node.condition)
        node.body = self._folded(node.body)
        body = self.build(node.body)
        if node.macro == "map" and isinstance(node.body, Literal):
            # The list of one element that cel-go adds for each element is a constant, too.
            body = body[0], -_LIST
        self._names.pop()
        second = slots[1] if len(slots) == 2 else None
        return comprehension(node.macro, over, slots[0], second, condition, body), cost + ENTRY[node.macro]

    def _let(self, node: Let) -> Built:
        target, cost = self.build(node.target)
        (slot,) = self._enter(node.variable)
        body, body_cost = self.build(node.body)
        self._names.pop()

        def let(frame: Frame) -> object:
            frame[slot] = target(frame)
            return body(frame)

        return let, cost + body_cost

    def _optional_map(self, node: OptionalMap) -> Built:
        """Return the code of optMap: ``target.hasValue() ? optional.of(body) : optional.none()``.

        cel-go evaluates the target once more for its value if the body uses the variable.
        """
        target, cost = self.build(node.target)
        (slot,) = self._enter(node.variable)
        body, body_cost = self.build(node.body)
        self._names.pop()
        is_flat = node.is_flat
        is_used = any(isinstance(each, Ident) and each.name == node.variable for each in nodes(node.body))
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

        return bind, cost + 1
