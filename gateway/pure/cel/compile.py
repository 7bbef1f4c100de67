"""The text of an expression → a program that evaluates it.

Source: k8s.io/apiserver pkg/admission/plugin/cel/compile.go.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from gateway.pure.cel.check import check
from gateway.pure.cel.environment import ENVIRONMENT
from gateway.pure.cel.errors import CostExceeded, EvaluationError, InvalidExpression
from gateway.pure.cel.lexer import CompileError
from gateway.pure.cel.meter import (
    EXCEEDED,
    EXPRESSION_LIMIT,
    METER,
    resume,
    start,
    start_expression,
    suspend,
)
from gateway.pure.cel.parse import parse
from gateway.pure.cel.program.builder import Program
from gateway.pure.cel.reads import paths_of
from gateway.pure.cel.syntax import Comprehension, Node, nodes, variables
from gateway.pure.cel.types import BOOL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from gateway.pure.cel.functions import Environment
    from gateway.pure.cel.paths import Paths
    from gateway.pure.cel.types import Type

_MESSAGE_CHARS: Final = 1000
"""Length of the message about an expression. Names and types in it can be as long as the expression."""
_HALF: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """A compiled expression."""

    text: str
    type: Type
    needs_authorizer: bool
    needs_namespace: bool
    """Whether it uses ``namespaceObject``."""
    has_loop: bool
    """Whether it has a macro such as ``all``. Without one its cost is at most proportional to its input."""
    param_paths: Paths
    """The parts of ``params`` that it reads."""
    slots: int
    """The items of a frame behind those of ``GLOBALS``."""
    _environment: Environment
    _program: Program | None
    """None until it is needed."""

    @property
    def is_built(self) -> bool:
        """Whether there is a program. Building one may take longer than the event loop can wait."""
        return self._program is not None

    @property
    def program(self) -> Program:
        """The program, which is built now if there is none."""
        return self._program or self.build()

    def build(self) -> Program:
        """Build the program, and return it. Within an evaluation this costs nothing."""
        steps, saved = METER.steps, suspend(EXPRESSION_LIMIT)
        METER.steps = 0
        try:
            program = Program(_tree(self.text, self._environment))
        finally:
            resume(saved)
            METER.steps = steps
        object.__setattr__(self, "_program", program)
        return program

    def evaluate(self, frame: list[object], budget: float) -> object:
        """Return the value for *frame*: those of ``GLOBALS``, and ``slots`` more items.

        Afterwards the meter has the cost. The caller has begun the evaluation, see ``meter.begin``.

        Raises:
            EvaluationError: the expression has no value for this request.
            CostExceeded: it costs more than *budget*.
        """
        start_expression(budget)
        METER.inputs = frame
        try:
            return self.evaluate_within(frame)
        finally:
            METER.inputs = None

    def evaluate_within(self, frame: list[object]) -> object:
        """Do as :meth:`evaluate`, with the budget that was begun."""
        # In place of the property, which takes longer.
        program = self._program or self.build()
        METER.left -= program.cost
        try:
            value = program.code(frame)
        except RecursionError:
            raise EvaluationError("expression is nested too deep") from None
        if METER.left < 0:
            raise CostExceeded(EXCEEDED)
        return value


@dataclass(frozen=True, slots=True)
class Condition:
    """A compiled condition: an expression of the type bool."""

    name: str
    compiled: Expression

    @property
    def expression(self) -> str:
        """The text."""
        return self.compiled.text

    @property
    def program(self) -> Program:
        """The program of the expression."""
        return self.compiled.program

    @property
    def needs_authorizer(self) -> bool:
        """Whether it uses ``authorizer``."""
        return self.compiled.needs_authorizer

    def evaluate(self, frame: list[object], budget: float) -> bool:
        """Return the value for *frame*, see :meth:`Expression.evaluate`.

        Raises:
            EvaluationError, CostExceeded: as there.
        """
        value = self.compiled.evaluate(frame, budget)
        if not isinstance(value, bool):
            raise EvaluationError(f"cel expression evaluated to {type(value).__name__}, expected bool")
        return value


def compile_condition(name: str, expression: str) -> Condition:
    """Return the condition *name* of a webhook. Equal expressions are compiled once.

    Raises:
        InvalidExpression: not an expression of the type bool. The text is one line, with line:column first.
    """
    return Condition(name, _compiled_condition(expression))


@lru_cache(maxsize=4096)
def _compiled_condition(text: str) -> Expression:
    expression = compile_expression(text, ENVIRONMENT, (BOOL,))
    expression.program.use_source()
    return expression


def compile_expression(
    text: str, environment: Environment, types: Collection[Type] = (), *, has_program: bool = True
) -> Expression:
    """Return the expression *text*, which has one of *types* if there are any.

    Without *has_program* it is checked only: its program, which takes most of the memory, is not kept.

    Raises:
        InvalidExpression: not an expression of such a type. The text is one line, with line:column first.
    """
    with _errors_of(text):
        tree = _tree(text, environment)
        if types and tree.type not in types:
            wanted = f"one of [{' '.join(map(str, types))}]" if len(types) > 1 else str(next(iter(types)))
            raise CompileError(f"must evaluate to {wanted} but got {tree.type}", tree.at)
        names = set(variables(tree))
        needs_authorizer = any(name.startswith("authorizer") for name in names)
        has_loop = any(isinstance(node, Comprehension) for node in nodes(tree))
        needs_namespace = "namespaceObject" in names
        param_paths = paths_of(tree, "params")
        # Constants are converted and checked where the program is built.
        program = Program(tree)
        return Expression(
            text,
            tree.type,
            needs_authorizer,
            needs_namespace,
            has_loop,
            param_paths,
            program.slots,
            environment,
            program if has_program else None,
        )


def type_of_expression(text: str, environment: Environment) -> Type:
    """Return the type of the expression *text*.

    Raises:
        InvalidExpression: it has none. The text is one line, with line:column first.
    """
    with _errors_of(text):
        return _tree(text, environment).type


@contextmanager
def _errors_of(text: str) -> Iterator[None]:
    """Turn the errors of the compiler into an InvalidExpression with their position in *text*."""
    # Conversions of constants and checks of formats charge costs.
    start(EXPRESSION_LIMIT)
    try:
        yield
    except CompileError as problem:
        line = text.count("\n", 0, problem.at) + 1
        column = problem.at - (text.rfind("\n", 0, problem.at) + 1) + 1
        raise InvalidExpression(f"{line}:{column}: {_shortened(str(problem))}") from None
    except (RecursionError, CostExceeded):
        raise InvalidExpression(
            "1:1: expression is nested too deep, or its constants or types are too large"
        ) from None


def _shortened(message: str) -> str:
    return message if len(message) <= _MESSAGE_CHARS else f"{message[: _MESSAGE_CHARS - 1]}…"


def _tree(text: str, environment: Environment) -> Node:
    half = _HALF.search(text)
    if half:
        raise CompileError("found half of a surrogate pair, which is not a character", half.start())
    return check(parse(text, environment.macros), environment)
