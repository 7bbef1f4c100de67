"""The text of a condition → a program that evaluates it.

Source: k8s.io/apiserver pkg/admission/plugin/cel/compile.go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from gateway.cel.check import check
from gateway.cel.environment import ENVIRONMENT
from gateway.cel.errors import CostExceeded, EvaluationError, InvalidExpression
from gateway.cel.lexer import CompileError
from gateway.cel.meter import EXCEEDED, EXPRESSION_LIMIT, METER, start
from gateway.cel.parse import parse
from gateway.cel.program.builder import Program
from gateway.cel.syntax import Node, variables
from gateway.cel.types import BOOL

_HALF: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Condition:
    """A compiled condition: an expression of the type bool."""

    name: str
    expression: str
    program: Program
    needs_authorizer: bool

    def evaluate(self, frame: list[object], budget: float) -> bool:
        """Return the value for *frame*: those of ``GLOBALS``, and ``program.slots`` more items.

        Afterwards the meter has the cost.

        Raises:
            EvaluationError: the expression has no value for this request.
            CostExceeded: it costs more than *budget*.
        """
        start(budget)
        METER.left -= self.program.cost
        try:
            value = self.program.code(frame)
        except RecursionError:
            raise EvaluationError("expression is nested too deep") from None
        if METER.left < 0:
            raise CostExceeded(EXCEEDED)
        if not isinstance(value, bool):
            raise EvaluationError(f"cel expression evaluated to {type(value).__name__}, expected bool")
        return value


def compile_condition(name: str, expression: str) -> Condition:
    """Return the condition *name*. Equal expressions are compiled once.

    Raises:
        InvalidExpression: not an expression of the type bool. The text is one line, with line:column first.
    """
    program, needs_authorizer = _compile(expression)
    return Condition(name, expression, program, needs_authorizer)


@lru_cache(maxsize=4096)
def _compile(expression: str) -> tuple[Program, bool]:
    # Conversions of constants and checks of formats charge costs.
    start(EXPRESSION_LIMIT)
    try:
        return _program(expression)
    except CompileError as problem:
        line = expression.count("\n", 0, problem.at) + 1
        column = problem.at - (expression.rfind("\n", 0, problem.at) + 1) + 1
        raise InvalidExpression(f"{line}:{column}: {problem}") from None
    except (RecursionError, CostExceeded):
        raise InvalidExpression(
            "1:1: expression is nested too deep, or its constants or types are too large"
        ) from None


def _program(expression: str) -> tuple[Program, bool]:
    half = _HALF.search(expression)
    if half:
        raise CompileError("found half of a surrogate pair, which is not a character", half.start())
    tree: Node = check(parse(expression), ENVIRONMENT)
    if tree.type != BOOL:
        raise CompileError(f"must evaluate to bool but got {tree.type}", tree.at)
    return Program(tree), any(name.startswith("authorizer") for name in variables(tree))
