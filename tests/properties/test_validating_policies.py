"""The laws of the evaluation with admission policies among the webhooks of the validating phase.

Policies need no calls. So a review with both is answered as one with the policies alone, and then one with
the webhooks alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import orjson
from hypothesis import strategies as st

from gateway.config.kinds.validating_policy import read_validating_binding, read_validating_policy
from gateway.config.yaml.fields import Fields, Problems
from gateway.pure.admission_policies.policy import as_webhook
from gateway.pure.core.verdict import Denied
from tests.properties.driving import drive
from tests.properties.examples import Examples
from tests.properties.strategies import Case, cases, orders

if TYPE_CHECKING:
    from gateway.pure.core.webhook import Webhook

    Json = dict[str, Any]

RULES = [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]
NINE = "[1, 2, 3, 4, 5, 6, 7, 8, 9]"
LONG = f"{NINE}.all(a, {NINE}.all(b, {NINE}.all(c, a + b + c > 0)))"
EXPRESSIONS = (
    "true",
    "false",
    "object.metadata.labels.team != 'a'",
    "object.?spec.?replicas.orValue(0) == 1",
    "oldObject == null",
    "request.operation == 'CREATE'",
    "namespaceObject.metadata.name == 'red'",
    LONG,
)
validations = st.lists(
    st.tuples(st.sampled_from(EXPRESSIONS), st.sampled_from(["", "not so", "nor so"])), min_size=1, max_size=3
)
actions = st.sampled_from([("Deny",), ("Deny", "Audit"), ("Warn",), ("Audit",), ("Warn", "Audit")])
policies = st.tuples(
    validations.map(tuple),
    st.sampled_from(["Fail", "Ignore"]),
    st.lists(actions, min_size=1, max_size=2).map(tuple),
)
Policy = tuple[tuple[tuple[str, str], ...], str, tuple[tuple[str, ...], ...]]


@cache
def entry(number: int, policy: Policy) -> Webhook:
    listed, failure_policy, bindings = policy
    name = f"p{number}"
    spec = {
        "failurePolicy": failure_policy,
        "matchConstraints": {"resourceRules": RULES},
        "validations": [{"expression": text, "message": message} for text, message in listed],
        "auditAnnotations": [{"key": "kind", "valueExpression": "'is ' + request.kind.kind"}],
    }
    return as_webhook(
        _read(read_validating_policy, name, spec),
        [
            _read(
                read_validating_binding, f"{name}-{at}", {"policyName": name, "validationActions": list(each)}
            )
            for at, each in enumerate(bindings)
        ],
    )


def _read(reader: Any, name: str, spec: Json) -> Any:
    problems = Problems("test")
    found = reader(Fields({"metadata": {"name": name}, "spec": spec}, "", problems))
    assert not problems.found, problems.found
    return found


def with_policies(case: Case, drawn: list[Policy]) -> tuple[Case, Case]:
    """Return the case with policies before its webhooks, and the policies alone."""
    entries = [entry(number, policy) for number, policy in enumerate(drawn)]
    shifted = {index + len(entries): mode for index, mode in case.modes.items()}
    both = replace(case, webhooks=[*entries, *case.webhooks], modes=shifted)
    return both, replace(case, webhooks=entries, modes={})


EXAMPLES = Examples(
    100,
    case=cases(("validate",)),
    drawn=st.lists(policies, min_size=1, max_size=3),
    order=orders,
    other=orders,
)


@EXAMPLES.law
def test_the_order_of_arrival_is_irrelevant(
    case: Case, drawn: list[Policy], order: list[int], other: list[int]
) -> None:
    both, _ = with_policies(case, drawn)
    assert drive(both, order).answer() == drive(both, other, together=True).answer()


@EXAMPLES.law
def test_policies_and_webhooks_answer_as_each_alone_one_after_another(
    case: Case, drawn: list[Policy], order: list[int]
) -> None:
    both, policies_alone = with_policies(case, drawn)
    traces = [drive(each, order) for each in (both, policies_alone, case)]
    answered, first, second = (orjson.loads(trace.answer())["response"] for trace in traces)
    called = [sorted(call.invocation.webhook.name for call in trace.made) for trace in (traces[0], traces[2])]
    assert called[0] == called[1]
    assert answered["allowed"] is (first["allowed"] and second["allowed"])
    assert answered.get("warnings", []) == list(
        dict.fromkeys(first.get("warnings", []) + second.get("warnings", []))
    )
    # The numbers in keys count the webhooks.
    annotations = [Counter(each.get("auditAnnotations", {}).values()) for each in (answered, first, second)]
    assert annotations[0] == annotations[1] + annotations[2]
    statuses = [each["status"] for each in (first, second) if "status" in each]
    if statuses:
        found = answered["status"]
        assert found["message"] == "\n".join(status["message"] for status in statuses)
        assert found["code"] == statuses[0]["code"]
        causes = [cause for status in statuses for cause in status.get("details", {}).get("causes", [])]
        # With the reason Invalid, refusals without causes are causes too.
        others = iter(found.get("details", {}).get("causes", []))
        assert all(cause in others for cause in causes)


@EXAMPLES.law
def test_every_denial_of_a_policy_names_it_in_the_order_of_names(
    case: Case, drawn: list[Policy], order: list[int]
) -> None:
    both, _ = with_policies(case, drawn)
    trace = drive(both, order)
    answered = orjson.loads(trace.answer())["response"]
    denials = [
        one for one in trace.evaluation.outcomes if isinstance(one.verdict, Denied) and one.call is None
    ]
    position = 0
    for denial in denials:
        name = denial.invocation.webhook.name
        position = answered["status"]["message"].index(f"ValidatingAdmissionPolicy '{name}'", position)
    denying = {f"p{number}" for number, (_, _, bindings) in enumerate(drawn) if "Deny" in sum(bindings, ())}
    assert {denial.invocation.webhook.name for denial in denials} <= denying
