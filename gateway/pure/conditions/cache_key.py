"""The key of a webhook's ``cache``: an expression over the request."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import orjson

from gateway.pure.cel.compile import compile_expression
from gateway.pure.cel.environment import ENVIRONMENT
from gateway.pure.cel.errors import CostExceeded, EvaluationError, InvalidExpression
from gateway.pure.cel.meter import BRIEF_LIMIT, METER, begin, count_cost
from gateway.pure.cel.sizes import json_bytes
from gateway.pure.conditions.match_conditions import variables_of

if TYPE_CHECKING:
    from gateway.pure.core.conditions import ConditionInput

_MAX_BYTES: Final = 1024 * 1024
_TYPES: Final = ("string", "int", "uint", "double", "bool", "list", "map", "dyn")


class CompiledKey:
    """A compiled key: a ``CacheKey``."""

    def __init__(self, expression: str) -> None:
        """Raises InvalidExpression: the value is not JSON, or *expression* uses ``authorizer``."""
        self.expressions = (("key", expression),)
        self._compiled = compile_expression(expression, ENVIRONMENT)
        if self._compiled.needs_authorizer:
            raise InvalidExpression("1:1: authorizer is not allowed: its decisions change")
        if str(self._compiled.type).partition("(")[0] not in _TYPES:
            raise InvalidExpression(f"1:1: must evaluate to a JSON value but got {self._compiled.type}")

    def digest(self, condition_input: ConditionInput) -> bytes:
        """Return a digest of the value and of what is requested: operation, resource and subresource.

        It is empty if there is no value for this request, only at a high cost, or one of more than 1 MiB, or
        if the expressions of the review have taken all of their time on the event loop.
        """
        if condition_input.brief_steps <= 0:
            return b""
        request = condition_input.document
        frame: list[object] = [*variables_of(condition_input).values, *[None] * self._compiled.slots]
        begin()
        try:
            value = self._compiled.evaluate(frame, BRIEF_LIMIT)
            if json_bytes(value, _MAX_BYTES) > _MAX_BYTES:
                return b""
            requested = [request.get(name) for name in ("operation", "resource", "subResource")]
            text = orjson.dumps([*requested, value], option=orjson.OPT_SORT_KEYS)
        except (EvaluationError, CostExceeded, TypeError):
            return b""
        finally:
            count_cost(METER.budget - METER.left)
            condition_input.brief_steps -= METER.steps
        return hashlib.blake2b(text, digest_size=16).digest()
