"""The type checker: resolves names, and finds the type of every part of an expression.

It stops at the first error. In a checked tree a name with dots is one identifier.

Source: cel-go checker/checker.go, cel/validator.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.cel import syntax
from gateway.pure.cel.lexer import CompileError
from gateway.pure.cel.literals import check_homogeneous, check_literal
from gateway.pure.cel.structs import JSON_PATCH, JSON_PATCH_FIELDS, is_struct
from gateway.pure.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    ERROR,
    INT,
    NULL,
    OF_VARIABLES,
    STRING,
    UINT,
    Type,
    list_of,
    map_of,
    optional_of,
    variable_type,
)
from gateway.pure.cel.unify import Substitution, most_general
from gateway.pure.cel.values import Uint

if TYPE_CHECKING:
    from gateway.pure.cel.functions import Environment, Function

_LITERALS: Final = {
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
}


def check(tree: syntax.Node, environment: Environment) -> syntax.Node:
    """Return *tree* with the types written in; calls of namespaced functions are rewritten.

    Raises:
        CompileError: a type is wrong or a name unknown.
    """
    checker = _Checker(environment)
    tree = checker.check(tree)
    checker.finish()
    return tree


class _Checker:
    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._types = Substitution()
        self._scopes: list[dict[str, Type]] = []
        self._checked: list[syntax.Node] = []
        self._exempt: set[int] = set()

    def check(self, node: syntax.Node) -> syntax.Node:
        """Return *node*, or its replacement, with its type."""
        if isinstance(node, syntax.Literal):
            node.type = _LITERALS[type(node.value)]
            return node
        if isinstance(node, syntax.Ident):
            node.type = self._variable(node.name, node.at)
        elif isinstance(node, syntax.Select):
            node = self._select(node)
        elif isinstance(node, syntax.Call):
            self._call(node)
        elif isinstance(node, syntax.ListLiteral):
            self._list(node)
        elif isinstance(node, syntax.MapLiteral):
            self._map(node)
        elif isinstance(node, syntax.StructLiteral):
            self._struct(node)
        elif isinstance(node, syntax.Comprehension):
            self._comprehension(node)
        elif isinstance(node, syntax.Let):
            self._let(node)
        else:
            assert isinstance(node, syntax.OptionalMap)
            self._optional_map(node)
        self._checked.append(node)
        return node

    def finish(self) -> None:
        """Make all types final, and check literals, which need final types."""
        for node in self._checked:
            node.type = self._types.resolve(node.type, is_final=True)
        for node in self._checked:
            if id(node) not in self._exempt:
                check_homogeneous(node)
            check_literal(node)

    def _variable(self, name: str, at: int) -> Type:
        for scope in reversed(self._scopes):
            if name in scope and not name.startswith("."):
                return scope[name]
        found = self._environment.variables.get(name.removeprefix("."))
        if found is None:
            raise CompileError(f"undeclared reference to '{name}' (in container '')", at)
        return found

    def _select(self, node: syntax.Select) -> syntax.Node:
        name = _dotted(node)
        if name is not None and name.removeprefix(".") in self._environment.variables:
            first = name[: name.index(".", 1)]
            if first.startswith(".") or not any(first in scope for scope in self._scopes):
                ident = syntax.Ident(node.at, name)
                ident.type = self._environment.variables[name.removeprefix(".")]
                return ident
        node.operand = self.check(node.operand)
        operand = self._types.resolve(node.operand.type)
        is_optional = operand.name == "optional_type"
        target = operand.of[0] if is_optional else operand
        found = self._field(node, target)
        if is_optional or node.is_optional:
            found = optional_of(found)
        node.type = BOOL if node.is_test else self._types.resolve(found)
        return node

    def _field(self, node: syntax.Select, target: Type) -> Type:
        if target.name == "map":
            return target.of[1]
        is_variable = target == OF_VARIABLES
        environment = self._environment
        fields = environment.policy_variables if is_variable else environment.fields.get(target.name)
        if fields is not None:
            if node.field not in fields:
                raise CompileError(f"undefined field '{node.field}'", node.at)
            found = fields[node.field]
            return variable_type(found) if is_variable else found
        if self._environment.has_structs and is_struct(target.name):
            return self._struct_field(node, target.name, node.field)
        if target.is_parameter:
            self._types.assign((DYN,), (target,))
        elif target not in (DYN, ERROR):
            raise CompileError(f"type '{target}' does not support field selection", node.at)
        return DYN

    def _struct_field(self, node: syntax.Node, name: str, field: str) -> Type:
        """Return the type of the *field* of the type *name*. An ``Object`` can have any field."""
        if name != JSON_PATCH:
            return DYN
        if field not in JSON_PATCH_FIELDS:
            raise CompileError(f"undefined field '{field}'", node.at)
        return JSON_PATCH_FIELDS[field]

    def _struct(self, node: syntax.StructLiteral) -> None:
        if not self._environment.has_structs or not is_struct(node.name):
            raise CompileError(f"undeclared reference to '{node.name}' (in container '')", node.at)
        for number, (field, value, is_optional) in enumerate(node.fields):
            found = self.check(value)
            node.fields[number] = (field, found, is_optional)
            wanted = self._struct_field(value, node.name, field)
            given = self._unwrapped(found) if is_optional else found.type
            if not self._types.assign((wanted,), (given,)):
                shown = self._types.resolve(given, is_final=True)
                problem = f"expected type of field '{field}' is '{wanted}' but provided type is '{shown}'"
                raise CompileError(problem, value.at)
        node.type = Type(node.name)

    def _call(self, node: syntax.Call) -> None:
        if node.function == "format":
            self._exempt.update(map(id, syntax.nodes(node)))
        node.arguments[:] = map(self.check, node.arguments)
        functions = self._environment.functions
        name = node.function.removeprefix(".")
        if node.target is not None:
            # A variable of a macro does not hide a function such as ``optional.of``.
            prefix = _dotted(node.target)
            qualified = "" if prefix is None else f"{prefix}.{name}".removeprefix(".")
            if qualified in functions:
                name, node.target = qualified, None
            else:
                self._check_refusal(qualified, node.at)
                node.target = self.check(node.target)
        if name in functions:
            node.function = name
        else:
            if node.target is None:
                self._check_refusal(name, node.at)
            raise CompileError(f"undeclared reference to '{node.function}' (in container '')", node.at)
        node.type = self._overload(node)

    def _check_refusal(self, name: str, at: int) -> None:
        if (reason := self._environment.refused.get(name)) is not None:
            raise CompileError(reason, at)

    def _overload(self, node: syntax.Call) -> Type:
        given = tuple(argument.type for argument in node.arguments)
        node.overloads.clear()
        if node.function in ("_&&_", "_||_"):
            for argument in node.arguments:
                self._expect(BOOL, argument)
            return BOOL
        if node.target is not None:
            given = (node.target.type, *given)
        result = None
        for overload in self._environment.functions[node.function]:
            if overload.is_member != (node.target is not None) or len(overload.parameters) != len(given):
                continue
            wanted, promised = self._instance(overload)
            if not self._types.assign(given, wanted):
                continue
            node.overloads.append(overload)
            promised = self._types.resolve(promised)
            if result is None:
                result = promised
            elif result != DYN and result != promised:
                result = DYN
        if result is None:
            shown = [str(self._types.resolve(each, is_final=True)) for each in given]
            receiver = f"{shown.pop(0)}." if node.target is not None else ""
            problem = f"found no matching overload for '{node.function}'"
            raise CompileError(f"{problem} applied to '{receiver}({', '.join(shown)})'", node.at)
        return result

    def _instance(self, overload: Function) -> tuple[tuple[Type, ...], Type]:
        """Return parameters and result of *overload*, with type parameters of their own."""
        own: dict[str, Type] = {}

        def instance(what: Type) -> Type:
            if what.is_parameter:
                if what.name not in own:
                    own[what.name] = self._types.fresh()
                return own[what.name]
            return Type(what.name, tuple(map(instance, what.of))) if what.of else what

        return tuple(map(instance, overload.parameters)), instance(overload.result)

    def _expect(self, wanted: Type, node: syntax.Node) -> None:
        if not self._types.assign((wanted,), (node.type,)):
            shown = [self._types.resolve(each, is_final=True) for each in (wanted, node.type)]
            raise CompileError(f"expected type '{shown[0]}' but found '{shown[1]}'", node.at)

    def _joined(self, previous: Type | None, found: Type) -> Type:
        """Return the type of elements of both types. ``finish`` checks that literals do not mix types."""
        if previous is None:
            return found
        return most_general(previous, found) if self._types.assign((previous,), (found,)) else DYN

    def _unwrapped(self, node: syntax.Node) -> Type:
        """Return the type of the value in the optional *node*, which has a question mark."""
        found = self._types.resolve(node.type)
        if found.name == "optional_type":
            return found.of[0]
        if found != DYN:
            raise CompileError(f"expected type 'optional_type({found})' but found '{found}'", node.at)
        return found

    def _list(self, node: syntax.ListLiteral) -> None:
        element: Type | None = None
        node.elements[:] = map(self.check, node.elements)
        for index, part in enumerate(node.elements):
            found = self._unwrapped(part) if index in node.optional else part.type
            element = self._joined(element, found)
        node.type = list_of(self._types.fresh() if element is None else element)

    def _map(self, node: syntax.MapLiteral) -> None:
        key: Type | None = None
        value: Type | None = None
        node.entries[:] = [(self.check(k), self.check(v), is_optional) for k, v, is_optional in node.entries]
        for left, right, is_optional in node.entries:
            key = self._joined(key, left.type)
            value = self._joined(value, self._unwrapped(right) if is_optional else right.type)
        if key is None or value is None:
            key, value = self._types.fresh(), self._types.fresh()
        node.type = map_of(key, value)

    def _comprehension(self, node: syntax.Comprehension) -> None:
        node.range = self.check(node.range)
        over = self._types.resolve(node.range.type)
        if over.name == "list":
            key, value = INT, over.of[0]
        elif over.name == "map":
            key, value = over.of
        elif over.is_parameter or over in (DYN, ERROR):
            self._types.assign((DYN,), (over,))
            key = value = DYN
        else:
            raise CompileError(
                f"expression of type '{over}' cannot be range of a macro (must be list, map, or dynamic)",
                node.range.at,
            )
        single = value if over.name == "list" else key
        self._scopes.append(
            {node.variable: single} if node.variable2 is None else {node.variable: key, node.variable2: value}
        )
        if node.condition is not None:
            node.condition = self.check(node.condition)
            self._expect(BOOL, node.condition)
        node.body = self.check(node.body)
        self._scopes.pop()
        body = node.body.type
        if node.macro == "map":
            node.type = list_of(body)
        elif node.macro == "transformMap":
            node.type = map_of(key, body)
        elif node.macro == "transformMapEntry":
            node.type = map_of(self._types.fresh(), self._types.fresh())
            self._expect(node.type, node.body)
        else:
            self._expect(BOOL, node.body)
            node.type = list_of(single) if node.macro == "filter" else BOOL
        node.type = self._types.resolve(node.type)

    def _let(self, node: syntax.Let) -> None:
        node.target = self.check(node.target)
        self._scopes.append({node.variable: node.target.type})
        node.body = self.check(node.body)
        self._scopes.pop()
        node.type = node.body.type

    def _optional_map(self, node: syntax.OptionalMap) -> None:
        node.target = self.check(node.target)
        value = self._types.fresh()
        if not self._types.assign((node.target.type,), (optional_of(value),)):
            found = self._types.resolve(node.target.type, is_final=True)
            raise CompileError(f"found no matching overload for 'hasValue' applied to '{found}.()'", node.at)
        self._scopes.append({node.variable: self._types.resolve(value)})
        node.body = self.check(node.body)
        self._scopes.pop()
        if node.is_flat:
            wanted = optional_of(self._types.fresh())
            self._expect(wanted, node.body)
            node.type = self._types.resolve(wanted)
        else:
            node.type = optional_of(node.body.type)


def _dotted(node: syntax.Node) -> str | None:
    """Return the text of *node* if it is a name such as ``a.b.c`` or ``.a.b.c``."""
    fields: list[str] = []
    while isinstance(node, syntax.Select) and not node.is_test and not node.is_optional:
        fields.append(node.field)
        node = node.operand
    return ".".join([node.name, *reversed(fields)]) if isinstance(node, syntax.Ident) else None
