"""The mutations of one MutatingAdmissionPolicy, evaluated for one binding and one parameter.

ApplyConfigurations are merged by the schema of the object's kind, the cluster's or one that comes with the
gateway.

Source: k8s.io/apiserver pkg/admission/plugin/policy/mutating/dispatcher.go (dispatchOne), patch/smd.go.
"""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

import orjson

from gateway.pure.admission_policies.evaluation import (
    POLICY_LIMIT,
    Allowance,
    OutOfBudgetError,
    TooLongError,
    evaluate_all,
)
from gateway.pure.admission_policies.json_patch import apply, operations_of
from gateway.pure.admission_policies.values import PatchError, Room, check_type_names, object_value
from gateway.pure.cel.errors import CostExceeded, EvaluationError
from gateway.pure.cel.go_types import typed_by
from gateway.pure.cel.sizes import json_bytes
from gateway.pure.cel.values import Struct, type_name
from gateway.pure.openapi.documents import built_in_schemas
from gateway.pure.openapi.go_types import without_empty
from gateway.pure.openapi.schemas import MergeError, UnknownKindError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gateway.pure.admission_policies.validating import AuditAnnotation, Values
    from gateway.pure.cel.compile import Expression
    from gateway.pure.core.policy import FollowedSchemas
    from gateway.pure.core.review import Json
    from gateway.pure.core.webhook import FailurePolicy, ReinvocationPolicy
    from gateway.pure.openapi.types import Facts

PatchType = Literal["JSONPatch", "ApplyConfiguration"]

MAX_BRIEF_OPERATIONS: Final = 100
"""Operations that are applied on the event loop."""
BYTES_OF_JSON: Final = 4
"""What ``json_bytes`` counts at most for a byte of JSON: a number takes at least one, and counts as four."""
_WRITTEN: Final = 16
"""What ``json_bytes`` counts at most for the JSON of a value, for each byte that it counts for the value:
durations and large integers count as numbers, and become texts."""
MAX_OBJECT_BYTES: Final = 3 * 1024 * 1024
"""The size of the object as JSON after a mutation, unless it was larger before: the most that kube-apiserver
accepts in a request (MaxRequestBodyBytes)."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One mutation of a policy."""

    patch_type: PatchType
    expression: Expression


@dataclass(frozen=True, slots=True)
class Mutations:
    """The expressions of one policy."""

    failure_policy: FailurePolicy
    variables: Mapping[str, Expression]
    mutations: Sequence[Mutation]
    reinvocation_policy: ReinvocationPolicy
    audit_annotations: Sequence[AuditAnnotation] = ()
    """Of a policy of Kyverno. Others have none."""
    is_built: bool = field(init=False, default=False)

    @property
    def expressions(self) -> Iterator[Expression]:
        """All expressions."""
        yield from self.variables.values()
        for each in self.mutations:
            yield each.expression
        for one in self.audit_annotations:
            yield one.expression

    def build(self) -> None:
        """Make what evaluates the usual case fast, once."""
        if not self.is_built:
            for expression in self.expressions:
                expression.program.use_source()
            object.__setattr__(self, "is_built", True)


class Merge(Protocol):
    """Merges objects by the schema of their kind."""

    def __call__(self, live: Json, patch: Json) -> Json:
        """Return *live* with the fields of the apply configuration *patch*; neither is changed.

        Raises:
            PatchError: they cannot be merged; the text is the API server's.
        """


class Mutated(NamedTuple):
    """The result for one binding and parameter."""

    object: Json
    errors: list[str]
    """The errors of mutations that failed, in order. The others were applied."""
    most_bytes: float
    """At least what ``json_bytes`` counts of the object."""


def mutate(
    rules: Mutations,
    current: Json,
    values: Callable[[Json], Values],
    merge: Merge,
    allowance: Allowance,
    facts: Facts,
    most_bytes: float,
) -> Mutated:
    """Return *current* after all mutations of *rules*; it is not changed.

    *values* returns the values of the expressions for an object. *facts* are those of the review.
    *most_bytes* is at least what ``json_bytes`` counts of *current*.

    Raises:
        TooLongError: the costs exceed *allowance*.
    """
    errors = []
    for mutation in rules.mutations:
        try:
            changed, added = _mutated(mutation, rules.variables, current, values(current), merge, allowance)
            if changed is not current:
                if most_bytes + added > MAX_OBJECT_BYTES:
                    check_growth(current, changed)
                most_bytes += added
                # The API server turns the object into Go values after each mutation.
                changed = without_empty(changed, facts)
            current = changed
        except (PatchError, OutOfBudgetError) as error:
            errors.append(str(error))
        except CostExceeded as error:
            if allowance.is_brief:
                raise TooLongError from None
            errors.append(str(error))
        except RecursionError:
            errors.append("an object nests too deeply")
    return Mutated(current, errors, most_bytes)


def check_growth(before: Json, after: Json) -> None:
    """Count the parts of *after*, and raise PatchError if it has become too large."""
    with suppress(TypeError):
        if BYTES_OF_JSON * len(orjson.dumps(after)) <= MAX_OBJECT_BYTES:
            return
    if json_bytes(after, MAX_OBJECT_BYTES) <= MAX_OBJECT_BYTES:
        return
    most = max(MAX_OBJECT_BYTES, json_bytes(before, sys.maxsize))
    if json_bytes(after, most) > most:
        raise PatchError(f"the object has more than {MAX_OBJECT_BYTES} bytes after the mutation")


def _mutated(
    mutation: Mutation,
    variables: Mapping[str, Expression],
    current: Json,
    values: Values,
    merge: Merge,
    allowance: Allowance,
) -> tuple[Json, float]:
    """Return the object after *mutation*, and at least the bytes that it has more, as ``json_bytes`` counts.

    Raises:
        PatchError: the expression has no value, or the patch does not apply.
        OutOfBudgetError, TooLongError, CostExceeded: it costs too much.
    """
    (result,), _ = evaluate_all([mutation.expression], variables, values, POLICY_LIMIT, allowance)
    if isinstance(result, EvaluationError):
        raise PatchError(str(result))
    assert result is not None, "every mutation has an expression"
    return patched(mutation, result[0], current, values, merge, allowance)


def patched(
    mutation: Mutation,
    value: object,
    current: Json,
    values: Values,
    merge: Merge,
    allowance: Allowance,
) -> tuple[Json, float]:
    """Return *current* after *mutation*, itself if a ``test`` fails, and the bytes that it has more.

    *value* is that of the expression, which was evaluated with *values*.

    Raises:
        PatchError: the patch does not apply.
        TooLongError, CostExceeded: it costs too much.
    """
    if mutation.patch_type == "JSONPatch":
        with typed_by(values):
            operations, taken = operations_of(value)
        if allowance.is_brief and len(operations) > MAX_BRIEF_OPERATIONS:
            raise TooLongError
        has_copied = any(each["op"] in ("copy", "move") for each in operations)
        return apply(current, operations), math.inf if has_copied else _WRITTEN * taken
    if not isinstance(value, Struct):
        raise PatchError(f"unsupported return type from ApplyConfiguration expression: {type_name(value)}")
    taken = Room("ApplyConfiguration").take(value)
    check_type_names(value)
    patch = object_value(value, is_exact=True)
    assert isinstance(patch, dict)
    identity: Json = {name: current[name] for name in ("apiVersion", "kind") if name in current}
    try:
        return merge(current, {**patch, **identity}), _WRITTEN * taken
    except PatchError as error:
        raise PatchError(f"error applying patch: {error}") from None


def merger(schemas: FollowedSchemas | None, facts: Facts, *, allows_atomic: bool = False) -> Merge:
    """Return the merge by *schemas*, or by those that come with the gateway if that is None.

    *facts* are those of the review. With *allows_atomic*, atomic lists and maps are replaced.
    """

    def merge(live: Json, patch: Json) -> Json:
        version, kind = str(live.get("apiVersion", "")), str(live.get("kind", ""))
        group, _, version = version.rpartition("/")
        known = built_in_schemas() if schemas is None else schemas.current
        try:
            return known.merge(group, version, kind, live, patch, facts, allows_atomic=allows_atomic)
        except MergeError as error:
            raise PatchError(str(error)) from None
        except UnknownKindError as error:
            raise PatchError(f"there is no schema of {error}") from None

    return merge
