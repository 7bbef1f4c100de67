"""Errors of the compilation and the evaluation of expressions."""

from __future__ import annotations


class InvalidExpression(ValueError):
    """An expression that the API server refuses, or that exceeds a bound here. The text is one line."""


class EvaluationError(Exception):
    """An expression has no value for this request. The text is cel-go's.

    Within an expression ``||``, ``&&``, ``all`` and ``exists`` may absorb it.
    """


class CostExceeded(BaseException):
    """An expression exceeds its cost budget. Nothing within the expression absorbs this.

    Not an Exception, so that functions that catch their own errors do not catch it.
    """
