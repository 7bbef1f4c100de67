"""The mutations of one policy of Kyverno, evaluated for one request.

Source: github.com/kyverno/kyverno pkg/cel/policies/mpol/compiler/{policy,eval,json,applyconfig}.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.pure.admission_policies.evaluation import TooLongError
from gateway.pure.admission_policies.mutations import (
    BYTES_OF_JSON,
    MAX_OBJECT_BYTES,
    check_growth,
    merger,
    patched,
)
from gateway.pure.admission_policies.values import PatchError
from gateway.pure.cel.errors import CostExceeded, EvaluationError
from gateway.pure.kyverno.evaluator import COST_EXCEEDED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.pure.admission_policies.evaluation import Allowance
    from gateway.pure.admission_policies.mutations import Merge, Mutation
    from gateway.pure.admission_policies.validating import Values
    from gateway.pure.core.policy import FollowedSchemas
    from gateway.pure.kyverno.evaluator import Evaluator
    from gateway.pure.openapi.types import Facts

    Json = dict[str, Any]


def mutated(
    mutations: Sequence[Mutation],
    evaluator: Evaluator,
    values: Values,
    current: Json | None,
    merge: Merge,
    allowance: Allowance,
    size_bytes: int,
) -> Json | None:
    """Return *current*, the object of at most *size_bytes*, after all *mutations*; it is not changed.

    *evaluator* evaluates with *values*, and from then on with the object that is returned.

    Raises:
        EvaluationError, PatchError: a mutation fails.
        TooLongError: the costs exceed *allowance*.
    """
    most_bytes: float = BYTES_OF_JSON * size_bytes
    for mutation in mutations:
        value = evaluator.value(mutation.expression)
        before = {} if current is None else current
        try:
            changed, added = patched(mutation, value, before, values, merge, allowance)
            if changed is before:
                continue
            if most_bytes + added > MAX_OBJECT_BYTES:
                check_growth(before, changed)
        except CostExceeded:
            if allowance.is_brief:
                raise TooLongError from None
            raise EvaluationError(COST_EXCEEDED) from None
        except RecursionError:
            raise PatchError("an object nests too deeply") from None
        if current is None:
            raise PatchError("DELETE has no object to change")
        if not changed.get("kind"):
            # Kyverno's text goes on with the whole object, which may have secrets.
            raise PatchError("Internal error occurred: Object 'Kind' is missing")
        most_bytes += added
        current = changed
        evaluator.replace((current, *values[1:]))
    return current


def merge_into(
    current: Json | None, schemas: FollowedSchemas | None, facts: Facts, *, allows_atomic: bool
) -> Merge:
    """Return the merge of ApplyConfigurations into *current*, see :func:`merger`."""
    return _merge_nothing if current is None else merger(schemas, facts, allows_atomic=allows_atomic)


def _merge_nothing(live: Json, patch: Json) -> Json:
    """Refuse an ApplyConfiguration on DELETE: the empty object has no kind, and so no schema."""
    raise PatchError("failed to convert patch object to typed object: no corresponding type for /, Kind=")


def with_objects(values: Values) -> Values:
    """Return *values* with ``request.object`` and ``request.oldObject``, which are empty if absent."""
    current, old, request, *others = values
    assert isinstance(request, dict)
    if request.get("object") is not None and request.get("oldObject") is not None:
        return values
    objects = {name: {} if request.get(name) is None else request[name] for name in ("object", "oldObject")}
    return (current, old, {**request, **objects}, *others)
