"""Programs of Kyverno's policies are built at their first review: beside the event loop, and in turns."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import ConfigError
from gateway.config.kinds.policy_spec import Expressions
from gateway.config.loaders import documents
from gateway.config.merge.load import load
from gateway.config.yaml.fields import Fields, Problems
from gateway.pure.admission_policies import in_force
from gateway.pure.admission_policies.in_force import PolicyInForce
from gateway.pure.cel.dialects import KYVERNO
from gateway.pure.cel.meter import EXPRESSION_LIMIT, METER, charge, count_steps, start
from gateway.pure.core.conditions import NOT_MATCHED, ConditionInput, LongEvaluation, PolicyResult, Unresolved
from gateway.pure.core.matching import Selection
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.policy import PolicyInput
from gateway.pure.core.review import decode
from gateway.pure.core.verdict import ALLOWED
from tests.core.build import body, document
from tests.kyverno.documents import PODS, mutating, validating
from tests.kyverno.test_cluster_policy import REQUEST
from tests.policies.documents import decided, written

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gateway.config.merge.model import Config

    Json = dict[str, Any]
    Policy = PolicyInForce[Any, Any]

OF_PODS = {"resourceRules": [PODS]}
LABEL = 'Object{metadata: Object.metadata{labels: Object.metadata.labels{x: "1"}}}'
MIB = 1 << 20
CLUSTER_POLICY: dict[str, Any] = {
    "apiVersion": "kyverno.io/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "c"},
    "spec": {
        "rules": [
            {
                "name": "r",
                "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                "validate": {"cel": {"expressions": [{"expression": "object.spec != null"}]}},
            }
        ]
    },
}


@pytest.fixture(autouse=True)
def _no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build nothing when a configuration loads, as if there were many other policies."""
    monkeypatch.setattr(documents, "BUILT_CHARS", 0)


def loaded(folder: Path, *policies: Json) -> Config:
    written(folder, policies)
    return load([folder])


def in_config(config: Config) -> list[Policy]:
    found = [hook.policy for hook in (*config.mutating, *config.validating)]
    assert all(isinstance(each, PolicyInForce) for each in found)
    return found  # type: ignore[return-value]


def built(policy: Policy) -> list[bool]:
    return [each.is_built for each in policy.policy.expressions]


def asked(request: Json | None = None) -> PolicyInput:
    made = decode(body(request or document()))
    return PolicyInput(ConditionInput(made.document, made.object, made.old_object), made, None)


def task_of(answer: object) -> LongEvaluation:
    assert isinstance(answer, Unresolved)
    assert answer.evaluation is not None
    return answer.evaluation


@pytest.mark.parametrize(
    "policy",
    [
        validating("object.spec != null", matchConstraints=OF_PODS),
        mutating(LABEL, matchConstraints=OF_PODS),
        CLUSTER_POLICY,
    ],
)
def test_loading_builds_no_programs(tmp_path: Path, policy: Json) -> None:
    policies = in_config(loaded(tmp_path, policy))
    assert not any(each.is_built or any(built(each)) for each in policies)
    assert sum(len(built(each)) for each in policies) == 3, "with the variants"


@pytest.mark.parametrize(
    ("policy", "request_"),
    [
        (validating("variables.a", variables=[{"name": "a", "expression": "true"}]), document()),
        (mutating(LABEL, auditAnnotations=[{"key": "k", "valueExpression": "'a'"}]), document()),
        (CLUSTER_POLICY, REQUEST),
    ],
)
def test_the_first_review_has_them_built_beside_the_event_loop(
    tmp_path: Path, policy: Json, request_: Json
) -> None:
    (only,) = in_config(loaded(tmp_path, policy))
    assert not only.can_allow_fast or only.allow_fast(asked(request_)) is None
    task = task_of(only.evaluate(asked(request_), {}))
    assert not any(built(only))
    # Another review comes before the task ran.
    assert task_of(only.evaluate(asked(request_), {})).owner is task.owner is only
    first = task()
    assert isinstance(first, PolicyResult)
    assert only.is_built
    assert all(built(only))
    second = only.evaluate(asked(request_), {})
    assert isinstance(second, PolicyResult)
    assert (second.verdict, second.patch) == (first.verdict, first.patch)
    assert not only.can_allow_fast or only.allow_fast(asked(request_)) is not None


@pytest.mark.parametrize(
    "policy",
    [validating("true", namespace="other"), mutating(LABEL, namespace="other")],
)
def test_a_review_in_another_namespace_builds_nothing(tmp_path: Path, policy: Json) -> None:
    config = loaded(tmp_path, policy)
    (only,) = in_config(config)
    assert only.evaluate(asked(), {}) is NOT_MATCHED
    assert not any(built(only))
    assert not only.can_allow_fast or only.allow_fast(asked()) is None
    (hook,) = (*config.mutating, *config.validating)
    for name, count in (("other", 1), ("another", 0)):
        review = asked(document(namespace=name)).request
        selected = Selection(hook.phase, [hook]).invocations(review, Namespace(name, {}, b"{}"))
        assert len(selected) == count


def test_what_autogen_made_is_built_by_itself(tmp_path: Path) -> None:
    own, *made = in_config(loaded(tmp_path, validating("object.spec != null", matchConstraints=OF_PODS)))
    task_of(own.evaluate(asked(), {}))()
    assert own.is_built
    assert not any(each.is_built for each in made)


def test_a_large_policy_is_built_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_force, "TURN_CHARS", 5)
    (only,) = in_config(loaded(tmp_path, validating("true", "!false", "1 == 1", "false")))
    turns = []
    answer: object = only.evaluate(asked(), {})
    while isinstance(answer, Unresolved):
        answer = task_of(answer)()
        turns.append(sum(built(only)))
    assert turns == [2, 3, 4]
    assert isinstance(answer, PolicyResult)
    assert answer.verdict != ALLOWED


def test_a_policy_stays_built_for_the_entries_that_are_made_of_it_later(tmp_path: Path) -> None:
    (only,) = in_config(loaded(tmp_path, validating("true")))
    only.build()
    again = type(only)(only.kind, only.policy, ("Deny",))  # type: ignore[arg-type]
    assert again.is_built


def test_policies_are_built_before_what_autogen_made_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is too large leaves the room to others."""
    text = "object.spec != null"
    monkeypatch.setattr(documents, "BUILT_CHARS", 2 * len(text) + 1)
    large = validating(f"{text} || {text} || {text}", name="a", matchConstraints=OF_PODS)
    small = [validating(text, name=name, matchConstraints=OF_PODS) for name in "bcd"]
    policies = in_config(loaded(tmp_path, large, *small))
    found = [(each.policy.name, each.is_built) for each in policies]
    assert [name for name, is_built in found if is_built] == ["b", "c"]
    assert [name for name, _ in found] == [name for name in "abcd" for _ in range(3)]


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        (validating("object.spec == "), "syntax error"),
        (validating("int('a') == 1"), "type conversion error"),
        (
            mutating("Object{spec: Object.spec{nodeName: '}}'}}", matchConstraints=OF_PODS),
            "what autogen makes of it for cronjobs is wrong",
        ),
    ],
)
def test_problems_are_found_when_the_configuration_loads(tmp_path: Path, policy: Json, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        loaded(tmp_path, policy)


def test_a_second_variable_of_a_name_does_not_change_expressions_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = [
        {"name": "a", "expression": "1"},
        {"name": "b", "expression": "variables.a + 1"},
        {"name": "a", "expression": "'text'"},
    ]
    policy = validating("variables.b == 2 && variables.a == 'text'", variables=variables)
    late = decided(tmp_path, [policy]).decision
    monkeypatch.setattr(documents, "BUILT_CHARS", 1_000)
    assert decided(tmp_path, [policy]).decision == late


def compiled(texts: list[str], *, has_programs: bool) -> list[Any]:
    expressions = Expressions(has_params=False, dialect=KYVERNO, has_programs=has_programs)
    found = []
    for number, text in enumerate(texts):
        expression = expressions.compiled(Fields({}, "", Problems("")), "expression", text)
        assert expression is not None
        found.append(expression)
        expressions.declare(f"v{number % 3}", expression)
    return found


TEXTS = st.lists(
    st.sampled_from(
        [
            "1 + 1",
            "'a' + 'b'",
            "[1, 2].map(x, x * 2)",
            "object.spec",
            "has(object.none)",
            "type(1)",
            "int('1')",
        ]
    ),
    min_size=1,
).flatmap(
    lambda firsts: st.lists(st.sampled_from(["variables.v0 == variables.v0", "[variables.v0]"])).map(
        lambda others: firsts + others
    )
)


@given(TEXTS)
def test_an_expression_that_is_built_later_is_the_same(texts: list[str]) -> None:
    at_once = compiled(texts, has_programs=True)
    late = compiled(texts, has_programs=False)
    assert all(each.is_built for each in at_once)
    assert not any(each.is_built for each in late)
    for one, other in zip(at_once, late, strict=True):
        assert (one.text, one.type, one.param_paths) == (other.text, other.type, other.param_paths)
        assert (one.program.cost, one.slots) == (other.program.cost, other.program.slots)


def test_building_costs_an_evaluation_nothing() -> None:
    (expression,) = compiled(["int('12') == 12"], has_programs=False)
    start(EXPRESSION_LIMIT)
    count_steps(7)
    charge(5)
    expression.build()
    assert (METER.left, METER.steps) == (EXPRESSION_LIMIT - 5, 7)


def measured(make: Callable[[], object]) -> int:
    """Return the bytes that are kept of what *make* returns, and that it adds elsewhere."""
    tracemalloc.start()
    try:
        made = make()
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    del made
    return size


def test_policies_that_are_not_built_take_little_memory(tmp_path: Path) -> None:
    """3,500 of them, with variants, have 150 MiB."""
    text = (
        "object.spec.containers.all(c, !has(c.securityContext) || c.securityContext.{0} != true) && "
        "object.spec.?initContainers.orValue([]).all(c, c.image.startsWith('registry.{0}/'))"
    )
    count = 10
    policies = [
        validating(
            *(text.format(f"p{number}x{index}") for index in range(4)),
            name=f"p{number}",
            matchConstraints=OF_PODS,
        )
        for number in range(count)
    ]
    config = loaded(tmp_path, *policies)
    assert len(config.validating) == 3 * count
    wanted = 150 * MIB * count / 3_500
    assert measured(lambda: load([tmp_path])) < wanted

    def build() -> None:
        for each in in_config(config):
            each.build()

    assert measured(build) > wanted
