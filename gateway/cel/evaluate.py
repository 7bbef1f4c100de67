"""A checked tree → a function of a frame, which is what an expression is evaluated with.

Every node becomes a closure. A frame is a list: the variables of the environment, then those of macros. What
does not depend on values is charged where a branch is entered, as one sum; so the meter is touched once for a
branch, and once for a round of a macro.

Source: cel-go interpreter/planner.go, interpreter/interpretable.go, interpreter/runtimecost.go.
"""

from __future__ import annotations

from typing import Final

from gateway.cel import folds
from gateway.cel.calls import Built, Code, Frame, call_code, constant_code, folded
from gateway.cel.environment import GLOBALS, TYPE_NAMES
from gateway.cel.meter import charge
from gateway.cel.operators import no_overload
from gateway.cel.select import has_field, optional_field, select_field
from gateway.cel.syntax import Bind, Call, Fold, Ident, ListLiteral, Literal, MapLiteral, Node, Select
from gateway.cel.values import NONE, Optional

_LIST: Final = 10
_MAP: Final = 30
_KEYS: Final = frozenset({str, int})


class Program:
    """An expression that can be evaluated."""

    __slots__ = ("code", "cost", "slots")

    def __init__(self, tree: Node) -> None:
        builder = _Builder()
        code, self.cost = builder.build(tree)
        self.code = code
        self.slots = builder.slots - len(GLOBALS)


class _Builder:
    def __init__(self) -> None:
        self._names: list[dict[str, int]] = [{name: number for number, name in enumerate(GLOBALS)}]
        self.slots = len(GLOBALS)

    def build(self, node: Node) -> Built:
        """Return the code of *node*, and what it costs beside what it charges itself."""
        node = folded(node)
        match node:
            case Literal(value=value):
                return constant_code(value), 0
            case Ident(name=name):
                return self._variable(name)
            case Select():
                return self._select(node)
            case Call():
                return self._call(node)
            case ListLiteral():
                return self._list(node)
            case MapLiteral():
                return self._map(node)
            case Fold():
                return self._fold(node)
        assert isinstance(node, Bind)
        return self._bind(node)

    def _slot(self, name: str) -> int | None:
        return next((names[name] for names in reversed(self._names) if name in names), None)

    def _variable(self, name: str) -> Built:
        slot = self._slot(name)
        if slot is None:
            return constant_code(TYPE_NAMES[name]), 1
        return (lambda frame: frame[slot]), 1

    def _enter(self, *names: str) -> list[int]:
        """Give variables of a macro their slots, until the scope is popped."""
        slots = list(range(self.slots, self.slots + len(names)))
        self.slots += len(names)
        self._names.append(dict(zip(names, slots, strict=True)))
        return slots

    def _select(self, node: Select) -> Built:
        operand, cost = self.build(node.operand)
        field = node.field
        if node.is_test:
            return (lambda frame: has_field(operand(frame), field)), cost
        if node.is_optional:
            return (lambda frame: optional_field(operand(frame), field)), cost + 1
        slow = lambda frame: select_field(operand(frame), field)  # noqa: E731
        path = [field]
        root = node.operand
        while isinstance(root, Select) and not root.is_test and not root.is_optional:
            path.insert(0, root.field)
            root = root.operand
        slot = self._slot(root.name) if isinstance(root, Ident) else None
        return (slow if slot is None else _path(slot, tuple(path), slow)), cost + 1

    def _call(self, node: Call) -> Built:
        given = node.arguments if node.target is None else [node.target, *node.arguments]
        built = [self.build(each) for each in given]
        return call_code(node, built)

    def _list(self, node: ListLiteral) -> Built:
        if not node.optional and all(isinstance(each, Literal) for each in node.elements):
            return constant_code([each.value for each in node.elements if isinstance(each, Literal)]), 0
        built = [self.build(each) for each in node.elements]
        codes = [code for code, _ in built]
        cost = sum(each for _, each in built) + max(_LIST, len(codes))
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
        if all(isinstance(key, Literal) and isinstance(value, Literal) for key, value, _ in node.entries):
            pairs = [
                (key.value, value.value)
                for key, value, is_optional in node.entries
                if isinstance(key, Literal) and isinstance(value, Literal) and not is_optional
            ]
            if len(pairs) == len(node.entries) and all(type(key) in _KEYS for key, _ in pairs):
                return constant_code(dict(pairs)), 0
        built = [
            (self.build(key), self.build(value), is_optional) for key, value, is_optional in node.entries
        ]
        codes = [(key[0], value[0], is_optional) for key, value, is_optional in built]
        cost = sum(key[1] + value[1] for key, value, _ in built) + max(_MAP, len(codes))

        def build_map(frame: Frame) -> object:
            found: dict[object, object] = {}
            for key_code, value_code, is_optional in codes:
                key, value = key_code(frame), value_code(frame)
                if is_optional:
                    if not isinstance(value, Optional):
                        raise no_overload()
                    if not value.present:
                        continue
                    value = value.value
                folds.check_key(key)
                found[key] = value
            return found

        return build_map, cost

    def _fold(self, node: Fold) -> Built:
        over, cost = self.build(node.range)
        slots = self._enter(*([node.variable] if node.variable2 is None else [node.variable, node.variable2]))
        condition = None if node.condition is None else self.build(node.condition)
        body = self.build(node.body)
        self._names.pop()
        second = slots[1] if len(slots) == 2 else None
        return folds.fold(node.macro, over, slots[0], second, condition, body), cost + folds.ENTRY[node.macro]

    def _bind(self, node: Bind) -> Built:
        target, cost = self.build(node.target)
        (slot,) = self._enter(node.variable)
        body, body_cost = self.build(node.body)
        self._names.pop()
        is_flat = node.is_flat

        def bind(frame: Frame) -> object:
            value = target(frame)
            if not isinstance(value, Optional):
                raise no_overload()
            if not value.present:
                return NONE
            charge(body_cost + 1)
            frame[slot] = value.value
            found = body(frame)
            return found if is_flat else Optional(found)

        return bind, cost + 1


def _path(slot: int, path: tuple[str, ...], slow: Code) -> Code:
    """``variable.a.b``, where everything on the way is a map."""

    def select(frame: Frame) -> object:
        value = frame[slot]
        try:
            for field in path:
                value = value[field]  # type: ignore[index]
        except (KeyError, TypeError):
            return slow(frame)
        return value

    return select
