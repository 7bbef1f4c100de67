"""What can go wrong with an expression, when it is compiled and when it is evaluated."""

from __future__ import annotations


class InvalidExpression(ValueError):
    """An expression that the API server would refuse, or beyond our bounds. The text is one line."""


class EvaluationError(Exception):
    """An expression has no value for this request. The text is what cel-go says of it.

    Within an expression ``||``, ``&&``, ``all`` and ``exists`` may absorb it.
    """


class CostExceeded(BaseException):
    """An expression has used up what it may cost: nothing within it can absorb this.

    Not an Exception, so that a function that turns its own failures into values lets it pass.
    """
